//! Finds the gradients of an attention: products of the gradient of scores with K and with Q, and of the weights with the
//! output's gradient.
//!
//! What the gradient of scores is, is decided by value: the expression that leads to it is computed for a made-up row, and
//! has to give weight · (product − mean product), in whatever way it is written.

use hloom_cuda_kernels::attention::BackwardShape;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use rustc_hash::FxHashMap;

use crate::axes::AttentionAxes;
use crate::find::{DotNumbers, FoundFactor, Parts, VALUE_STEP, factor, query_and_key, result, space_of};
use crate::scores::{Scores, operand, softmax_of_product};
use crate::values::splat;
use crate::view::{Dimension, Factor, Segment, dense, reorder, segments, sizes};

/// The gradients of an attention in a module.
#[derive(Clone, Debug)]
pub(crate) struct FoundGradient {
    /// What is asked of the kernels.
    pub shape: BackwardShape,
    /// Operands of the attention, then the output's gradient.
    pub operands: Vec<InstructionId>,
    /// The gradients of Q, K and V.
    pub results: [InstructionId; 3],
}

/// A product that gives a gradient: where the result is, and where it lies in the space of scores.
type FoundResult = (InstructionId, Vec<Segment>);

/// Finds the gradients of the attention that `parts` are of, among the products of its computation.
pub(crate) fn gradient(module: &Module, parts: &Parts, dots: &[InstructionId]) -> Option<FoundGradient> {
    let mut query: Option<FoundResult> = None;
    let mut key: Option<FoundResult> = None;
    let mut value: Option<FoundResult> = None;
    let mut output_gradient: Option<FoundFactor> = None;
    for &dot in dots {
        let Op::Dot(product) = &module[dot].op else { continue };
        for side in 0..2 {
            let own = operand(module, dot, side)?;
            if let Some(change) = score_gradient(module, &parts.scores, own) {
                let from_product = factor_beside(module, &change, &parts.value)?;
                agree(&mut output_gradient, from_product)?;
                let numbers = DotNumbers::new(module, product, dot, side)?;
                let sums_keys =
                    numbers.own_contracting.iter().all(|&d| change.dims.get(d) == Some(&vec![parts.key_factor]));
                let other = other_factor(module, dot, &numbers, side, &change.dims)?;
                let found = parts.gradient_result(module, dot, &numbers, side, &change.dims, other.row)?;
                let (slot, expected) = if sums_keys { (&mut query, &parts.key) } else { (&mut key, &parts.query) };
                if !other.same_place(expected) || slot.replace(found).is_some() {
                    return None;
                }
            } else if let Some(dims) = weights_dims(module, &parts.scores, own)
                && dot != parts.dot
            {
                let numbers = DotNumbers::new(module, product, dot, side)?;
                let other = other_factor(module, dot, &numbers, side, &dims)?;
                let found = parts.gradient_result(module, dot, &numbers, side, &dims, other.row)?;
                agree(&mut output_gradient, other)?;
                if value.replace(found).is_some() {
                    return None;
                }
            }
        }
    }
    let (query, key, value, output_gradient) = (query?, key?, value?, output_gradient?);
    let mut arrays = parts.arrays.clone();
    let first = arrays.len();
    arrays.push(output_gradient.placed.segments.clone());
    arrays.extend([query.1, key.1, value.1]);
    let axes = AttentionAxes::new(&parts.space, &arrays, parts.scores.key_step, &parts.scores.bands)?;
    let forward = parts.shape(module, &axes)?;
    if output_gradient.element != forward.element || u32::try_from(output_gradient.row).ok()? != forward.value_dim {
        return None;
    }
    let shape = BackwardShape {
        forward,
        output_gradient: axes.of_query(first)?,
        query_gradient: axes.of_query(first + 1)?,
        key_gradient: axes.of_key(first + 2)?,
        value_gradient: axes.of_key(first + 3)?,
    };
    if !axes.is_of_keys(first + 2) || !axes.is_of_keys(first + 3) {
        return None;
    }
    let mut operands = parts.operands.clone();
    operands.push(output_gradient.placed.base);
    Some(FoundGradient { shape, operands, results: [query.0, key.0, value.0] })
}

/// Keeps the first, and refuses another one that is elsewhere.
fn agree(kept: &mut Option<FoundFactor>, found: FoundFactor) -> Option<()> {
    match kept {
        Some(kept) => kept.same_place(&found).then_some(()),
        None => {
            *kept = Some(found);
            Some(())
        }
    }
}

/// The gradient of scores, and what it is made of.
struct ScoreGradient {
    /// Its dimensions, as factors of scores.
    dims: Vec<Dimension>,
    /// The product of the output's gradient and V, and that product's dimensions.
    product: InstructionId,
    product_dims: Vec<Dimension>,
}

/// The dimensions of `id` if it is the weights, converted or reordered.
fn weights_dims(module: &Module, scores: &Scores, id: InstructionId) -> Option<Vec<Dimension>> {
    let mut path = Vec::new();
    let mut node = id;
    while node != scores.normalised {
        if path.len() > 16
            || !matches!(module[node].op, Op::Convert | Op::Copy | Op::Transpose { .. } | Op::Reshape { .. })
        {
            return None;
        }
        path.push(node);
        node = operand(module, node, 0)?;
    }
    climb(module, &path, scores.exponential_dims.clone())
}

/// The dimensions at the top of a path, from those below it.
fn climb(module: &Module, path: &[InstructionId], mut dims: Vec<Dimension>) -> Option<Vec<Dimension>> {
    for &node in path.iter().rev() {
        if matches!(module[node].op, Op::Transpose { .. } | Op::Reshape { .. }) {
            dims = reorder(module, node, &dims)?;
        }
    }
    Some(dims)
}

fn score_gradient(module: &Module, scores: &Scores, id: InstructionId) -> Option<ScoreGradient> {
    let mut path = Vec::new();
    let mut node = id;
    let mut scale = 1.0;
    for _ in 0..32 {
        let (a, b) = (operand(module, node, 0), operand(module, node, 1));
        let next = match &module[node].op {
            Op::Convert | Op::Copy | Op::Transpose { .. } | Op::Reshape { .. } => a?,
            Op::Binary(BinaryOp::Multiply) if splat(module, b?).is_some() => {
                scale *= splat(module, b?)?;
                a?
            }
            Op::Binary(BinaryOp::Multiply) if splat(module, a?).is_some() => {
                scale *= splat(module, a?)?;
                b?
            }
            Op::Binary(BinaryOp::Divide) if splat(module, b?).is_some() => {
                scale /= splat(module, b?)?;
                a?
            }
            // What the mask hides has no gradient.
            Op::Select if scores.predicate == a => {
                let (kept, other) = (b?, operand(module, node, 2)?);
                match (splat(module, other), splat(module, kept)) {
                    (Some(0.0), None) => kept,
                    (None, Some(0.0)) => other,
                    _ => return None,
                }
            }
            _ => break,
        };
        path.push(node);
        node = next;
    }
    if (scale / scores.scale - 1.0).abs() > 1e-2 {
        return None;
    }
    let mut product = None;
    for seed in [1.0, 2.0] {
        let mut row = Row::new(module, scores, seed);
        let Quantity::Elements(found) = row.value(node, 64)? else { return None };
        let mean: f64 = (0..ROW).map(|i| row.weights[i] * row.products[i]).sum();
        let matches = |i: usize| {
            let expected = row.weights[i] * (row.products[i] - mean);
            (found[i] - expected).abs() <= 1e-9 * (1.0 + expected.abs())
        };
        if !(0..ROW).all(matches) {
            return None;
        }
        product = row.product;
    }
    let (top, product) = product?;
    // The product's own dimensions, by way of the node that stands beside the exponentials.
    let mut down = Vec::new();
    let mut node = top;
    while node != product {
        down.push(node);
        node = operand(module, node, 0)?;
    }
    let of_top = climb(module, &down, dense(sizes(module, product)?))?;
    let mut placed = Vec::new();
    for (space, array) in scores.exponential_dims.iter().zip(&of_top) {
        placed.extend(segments(space, array)?);
    }
    let product_dims = invert(&placed, sizes(module, product)?)?;
    let dims = climb(module, &path, scores.exponential_dims.clone())?;
    Some(ScoreGradient { dims, product, product_dims })
}

/// The dimensions of a dense array in the space, from its segments.
fn invert(placed: &[Segment], sizes: &[i64]) -> Option<Vec<Dimension>> {
    dense(sizes)
        .into_iter()
        .map(|dim| {
            let Some(&Factor { size, stride }) = dim.first() else { return Some(Vec::new()) };
            let inside = |s: &&Segment| s.stride >= stride && s.stride < stride * size;
            let mut mine: Vec<Segment> = placed.iter().filter(inside).copied().collect();
            mine.sort_unstable_by_key(|s| std::cmp::Reverse(s.stride));
            let whole: i64 = mine.iter().map(|s| s.size).product();
            (whole == size).then(|| mine.iter().map(|s| Factor { size: s.size, stride: s.step }).collect())
        })
        .collect()
}

/// Keys of the made-up row.
const ROW: usize = 5;

/// A value for each key of a row, or one for the row.
#[derive(Clone, Copy)]
enum Quantity {
    Elements([f64; ROW]),
    OfRow(f64),
}

/// One row of scores with made-up exponentials and products, and the values of expressions over it.
struct Row<'a> {
    module: &'a Module,
    scores: &'a Scores,
    exponentials: [f64; ROW],
    weights: [f64; ROW],
    products: [f64; ROW],
    /// The node beside the exponentials that the product comes in by, and the product.
    product: Option<(InstructionId, InstructionId)>,
    known: FxHashMap<InstructionId, Quantity>,
}

impl<'a> Row<'a> {
    fn new(module: &'a Module, scores: &'a Scores, seed: f64) -> Row<'a> {
        let exponentials = [0.9, 0.2, 0.55, 0.07, 0.7].map(|x: f64| (x * seed).sin().abs() + 0.1);
        let products = [0.3, -1.2, 2.1, 0.8, -0.4].map(|x: f64| x * seed + 0.01);
        let sum: f64 = exponentials.iter().sum();
        let weights = exponentials.map(|e| e / sum);
        Row { module, scores, exponentials, weights, products, product: None, known: FxHashMap::default() }
    }

    fn shape(&self, id: InstructionId) -> Option<&'a [i64]> {
        sizes(self.module, id)
    }

    fn is_full(&self, id: InstructionId) -> bool {
        self.shape(id) == self.shape(self.scores.exponential)
    }

    /// Whether `id` has one element for each row: the dimensions of scores without keys, but for ones.
    fn is_of_rows(&self, id: InstructionId) -> bool {
        let (Some(shape), Some(full)) = (self.shape(id), self.shape(self.scores.exponential)) else { return false };
        let kept = full.iter().enumerate().filter(|(d, size)| *d != self.scores.sum_dim && **size != 1);
        kept.map(|(_, size)| size).eq(shape.iter().filter(|&&size| size != 1))
    }

    fn value(&mut self, id: InstructionId, depth: u32) -> Option<Quantity> {
        let depth = depth.checked_sub(1)?;
        if let Some(&known) = self.known.get(&id) {
            return Some(known);
        }
        let module = self.module;
        let a = operand(module, id, 0);
        let value = if id == self.scores.exponential {
            Quantity::Elements(self.exponentials)
        } else if id == self.scores.normalised {
            Quantity::Elements(self.weights)
        } else if id == self.scores.sum {
            Quantity::OfRow(self.exponentials.iter().sum())
        } else if let Some(number) = splat(module, id) {
            Quantity::OfRow(number)
        } else if let Some(dot) = self.is_full(id).then(|| self.dot_below(id)).flatten() {
            if self.product.is_some_and(|(_, other)| other != dot) {
                return None;
            }
            self.product = Some((id, dot));
            Quantity::Elements(self.products)
        } else {
            match &module[id].op {
                Op::Convert | Op::Copy => self.value(a?, depth)?,
                Op::Reshape { .. } if self.is_of_rows(id) && self.is_of_rows(a?) => self.value(a?, depth)?,
                Op::Broadcast { dimensions } if self.is_full(id) && self.is_of_rows(a?) => {
                    let full = self.shape(id)?;
                    let of = self.shape(a?)?;
                    // Each dimension of the rows goes where it is in scores.
                    let rises = dimensions.windows(2).all(|w| w[0] < w[1]);
                    let in_place = dimensions.iter().zip(of).all(|(&d, size)| {
                        full.get(d as usize) == Some(size) && (d as usize != self.scores.sum_dim || *size == 1)
                    });
                    if !rises || !in_place {
                        return None;
                    }
                    self.value(a?, depth)?
                }
                Op::Reduce { dimensions, to_apply } if self.is_full(a?) => {
                    let root = module.root(*to_apply)?;
                    let adds = module[root].op == Op::Binary(BinaryOp::Add)
                        && module[root].operands().iter().all(|&o| matches!(module[o].op, Op::Parameter { .. }));
                    let from_zero = splat(module, operand(module, id, 1)?) == Some(0.0);
                    if !adds || !from_zero || dimensions.as_slice() != [self.scores.sum_dim as i64] {
                        return None;
                    }
                    match self.value(a?, depth)? {
                        Quantity::Elements(elements) => Quantity::OfRow(elements.iter().sum()),
                        Quantity::OfRow(_) => return None,
                    }
                }
                Op::Unary { op: UnaryOp::Negate, .. } => {
                    combine(self.value(a?, depth)?, Quantity::OfRow(-1.0), |x, y| x * y)
                }
                Op::Binary(op) => {
                    let (x, y) = (self.value(a?, depth)?, self.value(operand(module, id, 1)?, depth)?);
                    match op {
                        BinaryOp::Add => combine(x, y, |x, y| x + y),
                        BinaryOp::Subtract => combine(x, y, |x, y| x - y),
                        BinaryOp::Multiply => combine(x, y, |x, y| x * y),
                        BinaryOp::Divide => combine(x, y, |x, y| x / y),
                        _ => return None,
                    }
                }
                _ => return None,
            }
        };
        self.known.insert(id, value);
        Some(value)
    }

    /// The product that `id` hands on.
    fn dot_below(&self, mut id: InstructionId) -> Option<InstructionId> {
        for _ in 0..16 {
            match self.module[id].op {
                Op::Dot(_) => return (id != self.scores.dot).then_some(id),
                Op::Convert | Op::Copy | Op::Transpose { .. } | Op::Reshape { .. } => id = operand(self.module, id, 0)?,
                _ => return None,
            }
        }
        None
    }
}

fn combine(x: Quantity, y: Quantity, f: impl Fn(f64, f64) -> f64) -> Quantity {
    match (x, y) {
        (Quantity::OfRow(x), Quantity::OfRow(y)) => Quantity::OfRow(f(x, y)),
        (x, y) => {
            let at = |q: Quantity, i: usize| match q {
                Quantity::Elements(elements) => elements[i],
                Quantity::OfRow(value) => value,
            };
            Quantity::Elements(std::array::from_fn(|i| f(at(x, i), at(y, i))))
        }
    }
}

impl Parts {
    /// Where the result of such a product is taken from.
    fn gradient_result(
        &self,
        module: &Module,
        dot: InstructionId,
        numbers: &DotNumbers,
        side: usize,
        dims: &[Dimension],
        row: i64,
    ) -> Option<FoundResult> {
        let of = |list: &[usize]| list.iter().map(|&d| dims.get(d).cloned()).collect::<Option<Vec<Dimension>>>();
        let mut all = of(&numbers.own_batch)?;
        let free = of(&numbers.own_free)?;
        let rows = vec![vec![Factor { size: row, stride: VALUE_STEP }]];
        let ordered = if side == 0 { [free, rows] } else { [rows, free] };
        all.extend(ordered.into_iter().flatten());
        result(module, dot, all, self.query.element, row)
    }
}

/// A factor of a product whose result's dimensions are known.
fn placed_in_result(
    module: &Module,
    own: InstructionId,
    numbers: &DotNumbers,
    dims: &[Dimension],
) -> Option<FoundFactor> {
    let mut space: Vec<Option<Dimension>> = vec![None; sizes(module, own)?.len()];
    for (n, &d) in numbers.own_batch.iter().enumerate() {
        *space.get_mut(d)? = Some(dims.get(n)?.clone());
    }
    for (n, &d) in numbers.own_free.iter().enumerate() {
        *space.get_mut(d)? = Some(dims.get(numbers.first_free + n)?.clone());
    }
    factor(module, own, &space)
}

/// The other factor of a product, of whose one factor the dimensions are known.
fn other_factor(
    module: &Module,
    dot: InstructionId,
    numbers: &DotNumbers,
    side: usize,
    dims: &[Dimension],
) -> Option<FoundFactor> {
    let other = operand(module, dot, 1 - side)?;
    let mut space: Vec<Option<Dimension>> = vec![None; sizes(module, other)?.len()];
    let own = numbers.own_batch.iter().chain(&numbers.own_contracting);
    let paired = numbers.other_batch.iter().chain(&numbers.other_contracting);
    for (&own, &paired) in own.zip(paired) {
        *space.get_mut(paired)? = Some(dims.get(own)?.clone());
    }
    factor(module, other, &space)
}

/// The one of the two factors of a product, its result's dimensions known, that is not `known`.
fn factor_beside(module: &Module, change: &ScoreGradient, known: &FoundFactor) -> Option<FoundFactor> {
    let Op::Dot(product) = &module[change.product].op else { return None };
    let mut found = None;
    for side in 0..2 {
        let numbers = DotNumbers::new(module, product, change.product, side)?;
        let own = operand(module, change.product, side)?;
        let placed = placed_in_result(module, own, &numbers, &change.product_dims)?;
        if !placed.same_place(known) && found.replace(placed).is_some() {
            return None;
        }
    }
    found
}

/// The attention of which `dot` is the gradient of V, where its output is not made: what V is, is known by the product of
/// V and the output's gradient.
pub(crate) fn attention_without_output(module: &Module, dot: InstructionId, dots: &[InstructionId]) -> Option<Parts> {
    [0, 1].into_iter().find_map(|side| from_value_gradient(module, dot, side, dots))
}

fn from_value_gradient(module: &Module, dot: InstructionId, side: usize, dots: &[InstructionId]) -> Option<Parts> {
    let Op::Dot(product) = &module[dot].op else { return None };
    let scores = softmax_of_product(module, operand(module, dot, side)?)?;
    let space = space_of(module, scores.dot)?;
    let (query, key) = query_and_key(module, &scores, &space)?;
    let key_factor = *space.iter().find(|f| f.stride == scores.key_step)?;
    let numbers = DotNumbers::new(module, product, dot, side)?;
    let output_gradient = other_factor(module, dot, &numbers, side, &scores.weights)?;
    let change_of =
        |&dot: &InstructionId| (0..2).find_map(|side| score_gradient(module, &scores, operand(module, dot, side)?));
    let change = dots.iter().find_map(change_of)?;
    let value = factor_beside(module, &change, &output_gradient)?;
    // The output is nobody's but the kernels': one row after another, in the order of the rows of Q, so that heads follow
    // each other in both.
    let along_query = |of: &Factor| {
        let covers = |s: &&Segment| s.step <= of.stride && of.stride < s.step * s.size;
        query.placed.segments.iter().find(covers).map_or(0, |s| s.stride * (of.stride / s.step))
    };
    let mut rows: Vec<Factor> = space.iter().rev().copied().filter(|&f| f != key_factor).collect();
    rows.sort_by_key(along_query);
    let mut output = Vec::new();
    let mut stride = value.row;
    for of in rows {
        output.push(Segment { step: of.stride, size: of.size, stride });
        stride *= of.size;
    }
    Parts::new(scores.dot, scores, space, [query, key, value], (dot, output))
}
