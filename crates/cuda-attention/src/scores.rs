//! The way from weights back to the product of Q and K: softmax, mask, bias and scale, whatever order dimensions take.
//!
//! All arrays on the way run over the same space, that of the product's result; each is known by how its dimensions cut
//! that space ([`super::view`]).

use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};

use crate::slope::slope;
use crate::values::{comparison, splat};
use crate::view::{Dimension, Factor, Segment, View, dense, reorder, segments, sizes, view_of};

/// Bounds how long a way is followed.
const STEPS: usize = 48;

/// An array over scores: its base, and where that lies in the space of scores.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub base: InstructionId,
    pub segments: Vec<Segment>,
}

/// Keys seen: `query + lower ≤ key ≤ query + upper`, for axes of the space known by their steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundBand {
    pub positive_step: i64,
    pub negative_step: i64,
    /// Bounds of the position along the negative axis, relative to that along the positive one.
    pub lower: Option<i64>,
    pub upper: Option<i64>,
}

/// What stands between the product and the weights.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    /// The product.
    pub dot: InstructionId,
    /// The exponentials.
    pub exponential: InstructionId,
    /// What the exponentials are divided by, a reduce.
    pub sum: InstructionId,
    /// Exponentials over their sums.
    pub normalised: InstructionId,
    /// The dimensions of the exponentials, and which of them is summed.
    pub exponential_dims: Vec<Dimension>,
    pub sum_dim: usize,
    /// What decides which keys are seen.
    pub predicate: Option<InstructionId>,
    /// The step of keys in the space of scores.
    pub key_step: i64,
    /// The dimensions of the weights, as factors of the product's elements.
    pub weights: Vec<Dimension>,
    pub scale: f64,
    /// Scaled scores are cap · tanh(score / cap).
    pub soft_cap: Option<f64>,
    pub masked_score: f64,
    pub bands: Vec<FoundBand>,
    pub mask: Option<Placed>,
    pub bias: Option<Placed>,
    /// What the bias is multiplied by.
    pub positions: Option<FoundPositions>,
}

/// A multiple of a sum of positions in the space of scores, or of its absolute value.
#[derive(Clone, Debug)]
pub(crate) struct FoundPositions {
    /// The steps of axes, and how often a position along each counts.
    pub terms: Vec<(i64, i64)>,
    pub constant: i64,
    pub is_absolute: bool,
    pub scale: f64,
}

/// Past what only hands on or widens elements.
pub(crate) fn widens(module: &Module, id: InstructionId) -> bool {
    let of = |i: InstructionId| module[i].shape.element_type();
    match module[id].op {
        Op::Convert => {
            let from = module[id].operands().first().and_then(|&o| of(o));
            matches!(from, Some(ElementType::Bf16 | ElementType::F16)) && of(id) == Some(ElementType::F32)
        }
        _ => true,
    }
}

pub(crate) fn operand(module: &Module, id: InstructionId, number: usize) -> Option<InstructionId> {
    module[id].operands().get(number).copied()
}

/// Whether a way of scaling, masking and reordering leads from `id` to a product.
fn reaches_dot(module: &Module, mut id: InstructionId) -> bool {
    for _ in 0..STEPS {
        let next = match &module[id].op {
            Op::Dot(_) => return true,
            Op::Convert | Op::Copy | Op::Transpose { .. } | Op::Reshape { .. } => operand(module, id, 0),
            Op::Unary { op: UnaryOp::Tanh, .. } => operand(module, id, 0),
            Op::Binary(BinaryOp::Multiply | BinaryOp::Divide) => {
                let first = operand(module, id, 0).filter(|&o| splat(module, o).is_none());
                first.or_else(|| operand(module, id, 1))
            }
            Op::Select => operand(module, id, 1).filter(|&o| splat(module, o).is_none()).or(operand(module, id, 2)),
            _ => None,
        };
        match next {
            Some(next) => id = next,
            None => return false,
        }
    }
    false
}

/// Past conversions and changes of order.
fn strip(module: &Module, path: &mut Vec<InstructionId>, mut id: InstructionId) -> Option<InstructionId> {
    while matches!(module[id].op, Op::Convert | Op::Copy | Op::Transpose { .. } | Op::Reshape { .. }) {
        if path.len() > STEPS {
            return None;
        }
        path.push(id);
        id = operand(module, id, 0)?;
    }
    Some(id)
}

/// Past conversions.
fn past_converts(module: &Module, path: &mut Vec<InstructionId>, mut id: InstructionId) -> Option<InstructionId> {
    while module[id].op == Op::Convert && path.len() <= STEPS {
        path.push(id);
        id = operand(module, id, 0)?;
    }
    Some(id)
}

/// Past conversions and changes of order to what they are of, and the dimensions of `id` as factors of that.
fn unordered(module: &Module, id: InstructionId) -> Option<(InstructionId, Vec<Dimension>)> {
    let mut path = Vec::new();
    let base = strip(module, &mut path, id)?;
    let mut dims = dense(sizes(module, base)?);
    for &step in path.iter().rev() {
        dims = reorder(module, step, &dims)?;
    }
    Some((base, dims))
}

/// The reduce with `op` over rows of `of` that `id` gives back to each element of a row, and which dimension of `of` its
/// rows run along. It may be one of `of` in another order, or converted.
fn row_reduce(module: &Module, id: InstructionId, op: BinaryOp, of: InstructionId) -> Option<(InstructionId, usize)> {
    let mut id = id;
    let mut views = Vec::new();
    for _ in 0..STEPS {
        match &module[id].op {
            Op::Broadcast { .. } | Op::Transpose { .. } | Op::Reshape { .. } | Op::Convert | Op::Copy => {
                views.push(id);
                id = operand(module, id, 0)?;
            }
            // A maximum with what is below everything.
            Op::Binary(BinaryOp::Maximum) if op == BinaryOp::Maximum => {
                let (a, b) = (operand(module, id, 0)?, operand(module, id, 1)?);
                let lowest = |i| splat(module, i) == Some(f64::NEG_INFINITY);
                id = if lowest(a) {
                    b
                } else if lowest(b) {
                    a
                } else {
                    return None;
                };
            }
            Op::Reduce { dimensions, to_apply } => {
                let &[dimension] = dimensions.as_slice() else { return None };
                let root = module.root(*to_apply)?;
                let reduces = module[root].op == Op::Binary(op)
                    && module[root].operands().iter().all(|&o| matches!(module[o].op, Op::Parameter { .. }));
                let start = splat(module, operand(module, id, 1)?)?;
                let neutral = match op {
                    BinaryOp::Maximum => f64::NEG_INFINITY,
                    _ => 0.0,
                };
                if !reduces || start != neutral || module[id].operands().len() != 2 {
                    return None;
                }
                let (base, mut rows) = unordered(module, operand(module, id, 0)?)?;
                let (same, mut dims) = unordered(module, of)?;
                if base != same || dimension as usize >= rows.len() {
                    return None;
                }
                let along = rows.remove(dimension as usize);
                let [key] = along.as_slice() else { return None };
                let place = dims.iter().position(|dim| dim.as_slice() == [*key])?;
                // The row's value must come back to the row it is of.
                dims[place] = vec![Factor { stride: 0, ..*key }];
                for &view in views.iter().rev() {
                    rows = reorder(module, view, &rows)?;
                }
                return (rows == dims).then_some((id, place));
            }
            _ => return None,
        }
    }
    None
}

/// Follows weights back to the product of Q and K. `None` if they are no softmax of one.
pub(crate) fn softmax_of_product(module: &Module, weights: InstructionId) -> Option<Scores> {
    // From the weights down; each entry is an instruction and its operand is on the way.
    let mut path = Vec::new();
    let divide = strip(module, &mut path, weights)?;
    if module[divide].op != Op::Binary(BinaryOp::Divide) {
        return None;
    }
    path.push(divide);
    let exponential = past_converts(module, &mut path, operand(module, divide, 0)?)?;
    if !matches!(module[exponential].op, Op::Unary { op: UnaryOp::Exponential, .. }) {
        return None;
    }
    let (sum, sum_dim) = row_reduce(module, operand(module, divide, 1)?, BinaryOp::Add, exponential)?;
    path.push(exponential);
    let subtract = past_converts(module, &mut path, operand(module, exponential, 0)?)?;
    if module[subtract].op != Op::Binary(BinaryOp::Subtract) {
        return None;
    }
    path.push(subtract);
    let scores = operand(module, subtract, 0)?;
    let (_, largest_dim) = row_reduce(module, operand(module, subtract, 1)?, BinaryOp::Maximum, scores)?;
    if largest_dim != sum_dim {
        return None;
    }

    let mut found = Way::default();
    let dot = found.follow(module, &mut path, scores)?;
    // Back up: the dimensions of everything on the way.
    let mut dims = dense(sizes(module, dot)?);
    let mut placed = Scores {
        dot,
        exponential,
        sum,
        normalised: divide,
        exponential_dims: Vec::new(),
        sum_dim,
        predicate: found.select.map(|(_, predicate, _)| predicate),
        key_step: 0,
        weights: Vec::new(),
        scale: found.scale * found.soft_cap.unwrap_or(1.0),
        soft_cap: found.soft_cap,
        masked_score: found.masked_score,
        bands: Vec::new(),
        mask: None,
        bias: None,
        positions: None,
    };
    for &node in path.iter().rev() {
        if matches!(module[node].op, Op::Transpose { .. } | Op::Reshape { .. }) {
            dims = reorder(module, node, &dims)?;
        }
        if found.bias.is_some_and(|(at, _)| at == node) {
            let bias = found.bias?.1;
            let is_subtracted = module[node].op == Op::Binary(BinaryOp::Subtract);
            match slope(module, bias) {
                Some((view, positions)) => {
                    let along = positions.along(&dims)?;
                    let scale = if is_subtracted { -along.scale } else { along.scale };
                    placed.bias = Some(place(&dims, view)?);
                    placed.positions = Some(FoundPositions { scale, ..along });
                }
                // An array can only be added.
                None if is_subtracted => return None,
                None => placed.bias = Some(place(&dims, view_of(module, bias, |i| widens(module, i))?)?),
            }
        }
        if let Some((at, predicate, sense)) = found.select
            && at == node
        {
            placed.split_predicate(module, predicate, sense, &dims)?;
        }
        if node == exponential {
            // One whole dimension of scores is normalised over.
            let [key] = dims.get(sum_dim)?.as_slice() else { return None };
            placed.key_step = key.stride;
            placed.exponential_dims.clone_from(&dims);
        }
    }
    placed.weights = dims;
    // Positions that are not those of keys are the query's.
    let of_queries =
        placed.positions.iter().flat_map(|p| &p.terms).map(|t| t.0).filter(|&step| step != placed.key_step);
    let same_axis = |step| FoundBand { positive_step: step, negative_step: placed.key_step, lower: None, upper: None };
    let named: Vec<FoundBand> = of_queries.map(same_axis).collect();
    placed.bands.extend(named);
    Some(placed)
}

fn place(dims: &[Dimension], view: View) -> Option<Placed> {
    let mut all = Vec::new();
    if dims.len() != view.dims.len() {
        return None;
    }
    for (space, array) in dims.iter().zip(&view.dims) {
        all.extend(segments(space, array)?);
    }
    Some(Placed { base: view.base, segments: all })
}

/// What is met between scores and the product.
#[derive(Clone, Copy)]
struct Way {
    /// What multiplies scores, up to the function that caps them where there is one.
    scale: f64,
    soft_cap: Option<f64>,
    masked_score: f64,
    bias: Option<(InstructionId, InstructionId)>,
    select: Option<(InstructionId, InstructionId, bool)>,
}

impl Default for Way {
    fn default() -> Self {
        Way { scale: 1.0, soft_cap: None, masked_score: f64::NEG_INFINITY, bias: None, select: None }
    }
}

impl Way {
    fn follow(
        &mut self,
        module: &Module,
        path: &mut Vec<InstructionId>,
        scores: InstructionId,
    ) -> Option<InstructionId> {
        let mut id = scores;
        while path.len() < STEPS {
            let (a, b) = (operand(module, id, 0), operand(module, id, 1));
            let next = match &module[id].op {
                Op::Dot(_) => return Some(id),
                Op::Convert | Op::Copy | Op::Transpose { .. } | Op::Reshape { .. } => a?,
                Op::Binary(BinaryOp::Multiply) => match (splat(module, a?), splat(module, b?)) {
                    (None, Some(factor)) => {
                        self.scale *= factor;
                        a?
                    }
                    (Some(factor), None) => {
                        self.scale *= factor;
                        b?
                    }
                    _ => return None,
                },
                Op::Binary(BinaryOp::Divide) => {
                    self.scale /= splat(module, b?)?;
                    a?
                }
                Op::Binary(BinaryOp::Add) => {
                    // A bias that is itself scaled or capped afterwards is not known.
                    if self.bias.is_some() || self.scale != 1.0 || self.soft_cap.is_some() {
                        return None;
                    }
                    let (scores, bias) = if reaches_dot(module, a?) { (a?, b?) } else { (b?, a?) };
                    self.bias = Some((id, bias));
                    scores
                }
                Op::Binary(BinaryOp::Subtract) => {
                    if self.bias.is_some() || self.scale != 1.0 || self.soft_cap.is_some() {
                        return None;
                    }
                    self.bias = Some((id, b?));
                    a?
                }
                Op::Select => {
                    // Nothing but the product, its scale, a cap and a bias may lie under a mask, and no mask under a cap.
                    if self.select.is_some() || self.bias.is_some() || self.soft_cap.is_some() {
                        return None;
                    }
                    let (kept, other) = (b?, operand(module, id, 2)?);
                    let (scores, value, sense) = match (splat(module, other), splat(module, kept)) {
                        (Some(value), None) => (kept, value, true),
                        (None, Some(value)) => (other, value, false),
                        _ => return None,
                    };
                    self.masked_score = value * self.scale;
                    self.select = Some((id, a?, sense));
                    scores
                }
                // What multiplies the function is the cap; what multiplies its argument counts from one again.
                Op::Unary { op: UnaryOp::Tanh, .. } if self.soft_cap.is_none() => {
                    self.soft_cap = Some(std::mem::replace(&mut self.scale, 1.0));
                    a?
                }
                _ => return None,
            };
            path.push(id);
            id = next;
        }
        None
    }
}

impl Scores {
    /// Splits what decides about keys into bands of positions and one array.
    fn split_predicate(
        &mut self,
        module: &Module,
        predicate: InstructionId,
        sense: bool,
        dims: &[Dimension],
    ) -> Option<()> {
        let mut arrays = Vec::new();
        let mut open = vec![predicate];
        let mut parts = 0;
        while let Some(part) = open.pop() {
            parts += 1;
            if parts > STEPS {
                return None;
            }
            match &module[part].op {
                // Seen if both say so; where the sense is turned, a conjunction would be a disjunction.
                Op::Binary(BinaryOp::And) if sense => open.extend_from_slice(module[part].operands()),
                _ => match band(module, part, sense, dims) {
                    Some(band) => self.bands.push(band),
                    None => arrays.push(part),
                },
            }
        }
        match (arrays.as_slice(), sense) {
            ([], _) => {}
            ([only], true) => self.mask = Some(place(dims, view_of(module, *only, |_| true)?)?),
            (_, true) => {
                // Several arrays have been joined by the program: take what it joined.
                self.bands.clear();
                self.mask = Some(place(dims, view_of(module, predicate, |_| true)?)?);
            }
            (_, false) => return None,
        }
        if let Some(mask) = &self.mask
            && module[mask.base].shape.element_type() != Some(ElementType::Pred)
        {
            return None;
        }
        Some(())
    }
}

/// A comparison of two positions in the space of scores.
fn band(module: &Module, predicate: InstructionId, sense: bool, dims: &[Dimension]) -> Option<FoundBand> {
    let (difference, direction) = comparison(module, predicate)?;
    let mut positive = None;
    let mut negative = None;
    for (&coefficient, dim) in difference.coefficients.iter().zip(dims) {
        if coefficient == 0 || dim.is_empty() {
            continue;
        }
        let [factor] = dim.as_slice() else { return None };
        let side = match coefficient {
            1 => &mut positive,
            -1 => &mut negative,
            _ => return None,
        };
        if side.replace(factor.stride).is_some() {
            return None;
        }
    }
    let (positive_step, negative_step) = (positive?, negative?);
    // positive − negative + constant, compared with 0.
    let constant = difference.constant;
    let direction = if sense {
        direction
    } else {
        match direction {
            ComparisonDirection::Lt => ComparisonDirection::Ge,
            ComparisonDirection::Le => ComparisonDirection::Gt,
            ComparisonDirection::Gt => ComparisonDirection::Le,
            ComparisonDirection::Ge => ComparisonDirection::Lt,
            _ => return None,
        }
    };
    let (lower, upper) = match direction {
        ComparisonDirection::Ge => (None, Some(constant)),
        ComparisonDirection::Gt => (None, Some(constant - 1)),
        ComparisonDirection::Le => (Some(constant), None),
        ComparisonDirection::Lt => (Some(constant + 1), None),
        _ => return None,
    };
    Some(FoundBand { positive_step, negative_step, lower, upper })
}
