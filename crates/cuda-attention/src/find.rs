//! Finds attention: a product with V of weights that are a softmax of a product of Q and K.

use hloom_cuda_kernels::attention::{AttentionShape, BiasType, Element};
use hloom_ir::attributes::{DotAlgorithm, Precision};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Dot, Op};

use crate::axes::AttentionAxes;
use crate::scores::{Placed, Scores, softmax_of_product, widens};
use crate::values::splat;
use crate::view::{Dimension, Factor, Segment, View, dense, reorder, segments, sizes, view_of};

/// Attention in a module, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The product with V.
    pub dot: InstructionId,
    pub scores: Scores,
    /// The dimensions of scores.
    pub space: Vec<Factor>,
    /// That of keys.
    pub key_factor: Factor,
    pub query: FoundFactor,
    pub key: FoundFactor,
    pub value: FoundFactor,
    /// What the kernel gives.
    pub result: InstructionId,
    /// Q, K, V, and the bias and the mask where there are such.
    pub operands: Vec<InstructionId>,
    /// Where Q, K, V, the output, the bias and the mask lie.
    pub arrays: Vec<Vec<Segment>>,
}

/// The step of elements of a value in the space of the output; beyond those of scores.
pub(crate) const VALUE_STEP: i64 = 1 << 56;

/// A factor of a product: where it lies in the space of scores.
#[derive(Clone, Debug)]
pub(crate) struct FoundFactor {
    pub placed: Placed,
    pub element: Element,
    /// Elements of its rows.
    pub row: i64,
}

impl FoundFactor {
    /// Whether it is the same array, in the same place in the space of scores.
    pub(crate) fn same_place(&self, other: &FoundFactor) -> bool {
        let sorted = |factor: &FoundFactor| {
            let mut all: Vec<Segment> = factor.placed.segments.iter().filter(|s| s.stride != 0).copied().collect();
            all.sort_unstable_by_key(|s| s.step);
            all
        };
        self.placed.base == other.placed.base && self.row == other.row && sorted(self) == sorted(other)
    }
}

/// Finds attention whose last product is `dot`.
pub(crate) fn attention(module: &Module, dot: InstructionId) -> Option<Parts> {
    let Op::Dot(product) = &module[dot].op else { return None };
    [0, 1].into_iter().find_map(|side| attention_with_weights(module, dot, product, side))
}

fn attention_with_weights(module: &Module, dot: InstructionId, product: &Dot, side: usize) -> Option<Parts> {
    let weights = *module[dot].operands().get(side)?;
    let value = *module[dot].operands().get(1 - side)?;
    let scores = softmax_of_product(module, weights)?;
    let space = space_of(module, scores.dot)?;
    let (query, key) = query_and_key(module, &scores, &space)?;

    // V: batches as the weights', its contracted dimension is keys.
    let numbers = DotNumbers::new(module, product, dot, side)?;
    let (&[key_dim], &[value_key_dim]) = (numbers.own_contracting.as_slice(), numbers.other_contracting.as_slice())
    else {
        return None;
    };
    let key_factor = *space.iter().find(|f| f.stride == scores.key_step)?;
    if scores.weights.get(key_dim)?.as_slice() != [key_factor] {
        return None;
    }
    let mut value_space: Vec<Option<Dimension>> = vec![None; sizes(module, value)?.len()];
    for (&own, &other) in numbers.own_batch.iter().zip(&numbers.other_batch) {
        *value_space.get_mut(other)? = Some(scores.weights.get(own)?.clone());
    }
    *value_space.get_mut(value_key_dim)? = Some(scores.weights.get(key_dim)?.clone());
    let value = factor(module, value, &value_space)?;

    // The output: the weights' dimensions but keys, and the value's own.
    let mut dims = Vec::new();
    for &own in &numbers.own_batch {
        dims.push(scores.weights.get(own)?.clone());
    }
    let own_free: Vec<Dimension> =
        numbers.own_free.iter().map(|&d| scores.weights.get(d).cloned()).collect::<Option<_>>()?;
    let value_dim = vec![vec![Factor { size: value.row, stride: VALUE_STEP }]];
    let parts = if side == 0 { [own_free, value_dim] } else { [value_dim, own_free] };
    dims.extend(parts.into_iter().flatten());
    let (result, output) = result(module, dot, dims, value.element, value.row)?;
    if value.element == Element::F32 && ![dot, scores.dot].iter().all(|&d| multiplies_in_tf32(module, d)) {
        return None;
    }

    Parts::new(dot, scores, space, [query, key, value], (result, output))
}

impl Parts {
    /// Attention of these factors; `None` if they do not fit each other. `output` is what the kernel gives, and where it
    /// lies.
    pub(crate) fn new(
        dot: InstructionId,
        scores: Scores,
        space: Vec<Factor>,
        [query, key, value]: [FoundFactor; 3],
        (result, output): (InstructionId, Vec<Segment>),
    ) -> Option<Parts> {
        let key_factor = *space.iter().find(|f| f.stride == scores.key_step)?;
        let mut arrays: Vec<Vec<Segment>> =
            [&query, &key, &value].iter().map(|factor| factor.placed.segments.clone()).collect();
        arrays.push(output);
        let mut operands = vec![query.placed.base, key.placed.base, value.placed.base];
        for extra in [&scores.bias, &scores.mask].into_iter().flatten() {
            arrays.push(extra.segments.clone());
            operands.push(extra.base);
        }
        if query.element != key.element || query.element != value.element || query.row != key.row {
            return None;
        }
        Some(Parts { dot, scores, space, key_factor, query, key, value, result, operands, arrays })
    }

    /// What is asked of the forward kernel.
    pub(crate) fn forward(&self, module: &Module) -> Option<AttentionShape> {
        self.shape(module, &AttentionAxes::new(&self.space, &self.arrays, self.scores.key_step, &self.scores.bands)?)
    }

    /// What is asked, along axes that may have been found for more arrays.
    pub(crate) fn shape(&self, module: &Module, axes: &AttentionAxes) -> Option<AttentionShape> {
        let scores = &self.scores;
        let count = axes.sizes()?;
        let bias = match &scores.bias {
            None => None,
            Some(bias) => {
                let kind = match module[bias.base].shape.element_type()? {
                    ElementType::F32 => BiasType::F32,
                    ElementType::Bf16 => BiasType::Bf16,
                    ElementType::F16 => BiasType::F16,
                    _ => return None,
                };
                Some((kind, axes.of_scores(4)?))
            }
        };
        let bias_positions = match &scores.positions {
            None => None,
            Some(positions) => Some(axes.position_factor(positions)?),
        };
        let mask = match &scores.mask {
            None => None,
            Some(_) => Some(axes.of_scores(4 + usize::from(bias.is_some()))?),
        };
        Some(AttentionShape {
            element: self.query.element,
            batch: count.batch,
            query_heads: count.query_heads,
            kv_heads: count.kv_heads,
            query_length: count.query_length,
            kv_length: count.kv_length,
            head_dim: u32::try_from(self.query.row).ok()?,
            value_dim: u32::try_from(self.value.row).ok()?,
            scale: scores.scale as f32,
            soft_cap: scores.soft_cap.map(|cap| cap as f32),
            band: axes.band,
            masked_score: scores.masked_score as f32,
            bias,
            bias_positions,
            mask,
            query: axes.of_query(0)?,
            key: axes.of_key(1)?,
            value: axes.of_key(2)?,
            output: axes.of_query(3)?,
            statistics: false,
        })
    }
}

/// The dimensions of a product's result, each one factor; those of size 1 are left out.
pub(crate) fn space_of(module: &Module, dot: InstructionId) -> Option<Vec<Factor>> {
    Some(dense(sizes(module, dot)?).into_iter().flatten().collect())
}

/// The factors of the product of scores: which is Q follows from which has keys.
pub(crate) fn query_and_key(module: &Module, scores: &Scores, space: &[Factor]) -> Option<(FoundFactor, FoundFactor)> {
    let Op::Dot(product) = &module[scores.dot].op else { return None };
    let dims = dense(sizes(module, scores.dot)?);
    let key = *space.iter().find(|f| f.stride == scores.key_step)?;
    let mut factors = Vec::new();
    let mut key_side = None;
    for side in 0..2 {
        let numbers = DotNumbers::new(module, product, scores.dot, side)?;
        let operand = *module[scores.dot].operands().get(side)?;
        let mut of_operand: Vec<Option<Dimension>> = vec![None; sizes(module, operand)?.len()];
        for (n, &own) in numbers.own_batch.iter().enumerate() {
            *of_operand.get_mut(own)? = Some(dims.get(n)?.clone());
        }
        for (n, &own) in numbers.own_free.iter().enumerate() {
            let dim = dims.get(numbers.first_free + n)?.clone();
            if dim.as_slice() == [key] {
                key_side = Some(side);
                if numbers.own_free.len() != 1 {
                    return None;
                }
            }
            *of_operand.get_mut(own)? = Some(dim);
        }
        factors.push(factor(module, operand, &of_operand)?);
    }
    let (second, first) = (factors.pop()?, factors.pop()?);
    match key_side? {
        0 => Some((second, first)),
        _ => Some((first, second)),
    }
}

/// A factor of a product whose dimensions are those of the space, but for one that is its rows'.
pub(crate) fn factor(module: &Module, operand: InstructionId, space: &[Option<Dimension>]) -> Option<FoundFactor> {
    // As far back as there are strides for it, or else the operand as it is.
    let furthest = view_of(module, operand, |i| widens(module, i));
    let nearest = || view_of(module, operand, |i| widens(module, i) && matches!(module[i].op, Op::Convert));
    let try_view = |view: View| factor_of_view(module, view, space);
    furthest.and_then(try_view).or_else(|| nearest().and_then(try_view))
}

/// Whether a product of f32 may be made with the eleven bits of TF32.
fn multiplies_in_tf32(module: &Module, dot: InstructionId) -> bool {
    let Op::Dot(product) = &module[dot].op else { return false };
    let is_default = product.precision.operand_precision.iter().all(|&p| p == Precision::Default);
    match product.precision.algorithm {
        DotAlgorithm::Unset => is_default,
        DotAlgorithm::Tf32Tf32F32 => true,
        _ => false,
    }
}

fn element_of(module: &Module, id: InstructionId) -> Option<Element> {
    match module[id].shape.element_type()? {
        ElementType::Bf16 => Some(Element::Bf16),
        ElementType::F16 => Some(Element::F16),
        ElementType::F32 => Some(Element::F32),
        _ => None,
    }
}

fn factor_of_view(module: &Module, view: View, space: &[Option<Dimension>]) -> Option<FoundFactor> {
    let element = element_of(module, view.base)?;
    let mut row = None;
    let mut all = Vec::new();
    for (dim, of_space) in view.dims.iter().zip(space) {
        match of_space {
            Some(of_space) => all.extend(segments(of_space, dim)?),
            None => {
                let &[Factor { size, stride: 1 }] = dim.as_slice() else { return None };
                if row.replace(size).is_some() {
                    return None;
                }
            }
        }
    }
    let aligned = all.iter().all(|s: &Segment| s.stride % 8 == 0);
    aligned.then_some(FoundFactor { placed: Placed { base: view.base, segments: all }, element, row: row? })
}

/// Where the kernel's result is taken from: the product, or what it is only handed on to, or summed over groups for.
pub(crate) fn result(
    module: &Module,
    dot: InstructionId,
    mut dims: Vec<Dimension>,
    element: Element,
    row: i64,
) -> Option<(InstructionId, Vec<Segment>)> {
    let mut found = None;
    let mut id = dot;
    for _ in 0..16 {
        if element_of(module, id) == Some(element)
            && let Some(placed) = result_segments(module, id, &dims, row)
        {
            found = Some((id, placed));
        }
        let &[user] = module[id].users() else { break };
        let hands_on = match module[user].op {
            Op::Transpose { .. } | Op::Reshape { .. } | Op::Copy => true,
            Op::Convert => module[user].shape.element_type().is_some_and(|t| t.is_float()),
            Op::Reduce { .. } => sums(module, user),
            _ => false,
        };
        if !hands_on || module.root(module[id].parent()) == Some(id) {
            break;
        }
        dims = match &module[user].op {
            Op::Reduce { dimensions, .. } => {
                let kept = |d: &usize| !dimensions.contains(&(*d as i64));
                (0..dims.len()).filter(kept).map(|d| dims[d].clone()).collect()
            }
            _ => match reorder(module, user, &dims) {
                Some(dims) => dims,
                None => break,
            },
        };
        id = user;
    }
    found
}

/// Whether `id` is a sum from 0.
fn sums(module: &Module, id: InstructionId) -> bool {
    let Op::Reduce { to_apply, .. } = module[id].op else { return false };
    let adds = module.root(to_apply).is_some_and(|root| {
        module[root].op == Op::Binary(BinaryOp::Add)
            && module[root].operands().iter().all(|&o| matches!(module[o].op, Op::Parameter { .. }))
    });
    let start = module[id].operands().get(1).and_then(|&o| splat(module, o));
    adds && start == Some(0.0) && module[id].operands().len() == 2
}

fn result_segments(module: &Module, id: InstructionId, dims: &[Dimension], row: i64) -> Option<Vec<Segment>> {
    let own = dense(sizes(module, id)?);
    let mut all = Vec::new();
    for (space, array) in dims.iter().zip(&own) {
        all.extend(segments(space, array)?);
    }
    let (values, placed): (Vec<Segment>, Vec<Segment>) = all.into_iter().partition(|s| s.step >= VALUE_STEP);
    let whole = values == [Segment { step: VALUE_STEP, size: row, stride: 1 }];
    (whole && placed.iter().all(|s| s.stride % 8 == 0)).then_some(placed)
}

/// The dimensions of one side of a product: which are batches, contracted, and free, and what they pair with.
pub(crate) struct DotNumbers {
    pub own_batch: Vec<usize>,
    pub other_batch: Vec<usize>,
    pub own_contracting: Vec<usize>,
    pub other_contracting: Vec<usize>,
    pub own_free: Vec<usize>,
    /// The place of the first free dimension of this side in the result.
    pub first_free: usize,
}

impl DotNumbers {
    pub(crate) fn new(module: &Module, dot: &Dot, id: InstructionId, side: usize) -> Option<DotNumbers> {
        let list = |dims: &[i64]| dims.iter().map(|&d| d as usize).collect::<Vec<_>>();
        let numbers = &dot.dims;
        let left = (list(&numbers.lhs_batch), list(&numbers.lhs_contracting));
        let right = (list(&numbers.rhs_batch), list(&numbers.rhs_contracting));
        let ((own_batch, own_contracting), (other_batch, other_contracting)) =
            if side == 0 { (left, right) } else { (right, left) };
        let free = |operand: usize, batch: &[usize], contracting: &[usize]| -> Option<Vec<usize>> {
            let rank = sizes(module, *module[id].operands().get(operand)?)?.len();
            Some((0..rank).filter(|d| !batch.contains(d) && !contracting.contains(d)).collect())
        };
        let own_free = free(side, &own_batch, &own_contracting)?;
        let other_free = free(1 - side, &other_batch, &other_contracting)?;
        let first_free = own_batch.len() + if side == 0 { 0 } else { other_free.len() };
        Some(DotNumbers { own_batch, other_batch, own_contracting, other_contracting, own_free, first_free })
    }
}
