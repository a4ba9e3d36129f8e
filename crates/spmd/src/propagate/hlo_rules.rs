//! The sharding rules of HLO's instructions.

use crate::counting::counting_dims;
use crate::factors::OpClass;
use crate::rules::FactorKind::{NeedReplication, PassThrough, Permutation};
use crate::rules::ops::{self, ConvolutionDims, DotDims, IndexedDims, RaggedMode, Shapes};
use crate::rules::{Dims, Ranks, Rule, RuleBuilder, Rules, parse};
use hloom_ir::attributes::{DotDimensionNumbers, TransposeA, Window};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Scan};
use hloom_ir::{Op, Shape};
use smallvec::SmallVec;
use std::sync::Arc;

/// The dimensions of leaves.
type LeafDims = SmallVec<[Dims; 3]>;

/// The dimensions of each leaf; none for what is no array.
pub(super) fn leaf_dims(shape: &Shape) -> LeafDims {
    let mut all = LeafDims::new();
    add_leaf_dims(shape, &mut all);
    all
}

fn add_leaf_dims(shape: &Shape, all: &mut LeafDims) {
    match shape {
        Shape::Tuple(elements) => elements.iter().for_each(|e| add_leaf_dims(e, all)),
        Shape::Array(array) => all.push(Dims::from_slice(array.dims())),
        _ => all.push(Dims::new()),
    }
}

/// When an instruction's turn comes.
/// With `tiles`, a broadcast that only adds dimensions of size one is a reshape: GSPMD sees programs simplified.
pub(super) fn class_of(module: &Module, i: InstructionId, tiles: bool) -> OpClass {
    match &module[i].op {
        Op::Broadcast { .. } if tiles && keeps_elements(module, i) => OpClass::PassThrough,
        Op::BitcastConvert => {
            let same = module[i]
                .operands()
                .first()
                .is_some_and(|&x| leaf_dims(&module[x].shape) == leaf_dims(&module[i].shape));
            if same { OpClass::Elementwise } else { OpClass::Other }
        }
        op if op.is_elementwise() || matches!(op, Op::Copy) => OpClass::Elementwise,
        Op::Reshape { .. } | Op::Transpose { .. } | Op::Bitcast => OpClass::PassThrough,
        Op::DynamicSlice { .. } | Op::DynamicUpdateSlice => OpClass::DynamicSlice,
        Op::Broadcast { .. } => OpClass::Broadcast,
        Op::CustomCall(call) => match &*call.target {
            "Sharding" => OpClass::Elementwise,
            "MoveToHost" | "MoveToDevice" => OpClass::PassThrough,
            _ => OpClass::Other,
        },
        _ => OpClass::Other,
    }
}

fn keeps_elements(module: &Module, i: InstructionId) -> bool {
    let count = |i: InstructionId| module[i].shape.as_array().and_then(|a| a.element_count());
    module[i].operands().first().is_some_and(|&x| count(x).is_some() && count(x) == count(i))
}

/// Whether the rule of an instruction is one factor for each dimension of its result, at its place in all arrays.
pub(super) fn is_pointwise(module: &Module, i: InstructionId) -> bool {
    let instruction = &module[i];
    let pointwise = match &instruction.op {
        Op::BitcastConvert => false,
        Op::Copy
        | Op::StochasticConvert
        | Op::Map { .. }
        | Op::AllReduce(_)
        | Op::CollectivePermute(_)
        | Op::CollectiveBroadcast { .. } => true,
        // A scalar has no dimension to be found again.
        Op::Broadcast { .. } => {
            instruction.operands().iter().all(|&x| module[x].shape.as_array().is_some_and(|a| a.is_scalar()))
        }
        Op::CustomCall(call) => {
            &*call.target == "Sharding" && instruction.common.frontend_attribute("num_batch_dims").is_none()
        }
        op => op.is_elementwise(),
    };
    pointwise && instruction.common.frontend_attribute("xla.sdy.sharding_rule").is_none()
}

/// The rule of an instruction, over the leaves of its operands and of its result; `None` if shardings do not go through.
/// With `tiles`, indices that count up along a dimension make it one of the batch, as GSPMD has it.
pub(super) fn rule_of(module: &Module, i: InstructionId, tiles: bool, rules: &mut Rules) -> Option<Arc<Rule>> {
    if !is_pointwise(module, i) {
        return own_rule(module, i, tiles).map(|rule| rules.shared(rule));
    }
    let mut ranks = Ranks::new();
    module[i].operands().iter().for_each(|&x| add_leaf_ranks(&module[x].shape, &mut ranks));
    let operands = ranks.len();
    add_leaf_ranks(&module[i].shape, &mut ranks);
    let dims = match &module[i].shape {
        Shape::Array(array) => Dims::from_slice(array.dims()),
        shape => leaf_dims(shape).into_iter().next().unwrap_or_default(),
    };
    Some(rules.pointwise(dims, ranks, operands))
}

fn add_leaf_ranks(shape: &Shape, ranks: &mut Ranks) {
    match shape {
        Shape::Tuple(elements) => elements.iter().for_each(|e| add_leaf_ranks(e, ranks)),
        Shape::Array(array) => ranks.push(array.rank() as u32),
        _ => ranks.push(0),
    }
}

/// The rule of an instruction that is not pointwise.
fn own_rule(module: &Module, i: InstructionId, tiles: bool) -> Option<Rule> {
    let instruction = &module[i];
    let mut operands = LeafDims::new();
    instruction.operands().iter().for_each(|&x| add_leaf_dims(&module[x].shape, &mut operands));
    let results = leaf_dims(&instruction.shape);
    let s = Shapes { operands: &operands, results: &results };
    if let Some(text) = instruction.common.frontend_attribute("xla.sdy.sharding_rule") {
        let rule = parse(text)?;
        let ranks = operands.iter().chain(&results).map(|d| d.len());
        let fits = rule.operands == operands.len() && rule.tensors.iter().map(|t| t.len()).eq(ranks);
        return fits.then_some(rule);
    }
    Some(match &instruction.op {
        Op::BitcastConvert => ops::bitcast_convert(s),
        Op::Broadcast { dimensions } => ops::broadcast(s, dimensions),
        Op::Transpose { dimensions } => ops::transpose(s, dimensions),
        Op::Reshape { .. } | Op::Bitcast => return ops::reshape(s),
        Op::Dot(dot) => ops::dot(s, &dot_dims(&dot.dims)),
        Op::RaggedDot(dot) => {
            let dims = dot_dims(&dot.dims);
            let &[ragged] = dot.lhs_ragged.as_slice() else { return None };
            let mode = match (dims.lhs_contracting.contains(&ragged), dims.lhs_batch.contains(&ragged)) {
                (true, _) => RaggedMode::Contracting,
                (_, true) => RaggedMode::Batch,
                _ => RaggedMode::NonContracting,
            };
            ops::ragged_dot(s, &dims, ragged, dot.rhs_group.first().copied(), mode)
        }
        Op::Convolution(c) => {
            let d = &c.dims;
            let dims = ConvolutionDims {
                input_batch: d.input_batch,
                input_feature: d.input_feature,
                input_spatial: &d.input_spatial,
                kernel_input_feature: d.kernel_input_feature,
                kernel_output_feature: d.kernel_output_feature,
                kernel_spatial: &d.kernel_spatial,
                output_batch: d.output_batch,
                output_feature: d.output_feature,
                output_spatial: &d.output_spatial,
                feature_group_count: c.feature_group_count,
                batch_group_count: c.batch_group_count,
                tiles,
            };
            ops::convolution(s, &dims)
        }
        Op::Reduce { dimensions, .. } => ops::reduce(s, dimensions),
        Op::ReduceWindow { window, .. } => ops::reduce_window(s, trivial(window)),
        Op::SelectAndScatter { window, .. } => ops::select_and_scatter(s, trivial(window)),
        Op::Concatenate { dimension } => ops::concatenate(s, *dimension, is_rotation(module, i)),
        Op::Pad { .. } | Op::Slice { .. } => ops::resized(s, Permutation, false),
        Op::DynamicSlice { .. } | Op::TopK { .. } => ops::resized(s, NeedReplication, true),
        Op::DynamicUpdateSlice => {
            let starts = instruction.operands().get(2..).unwrap_or(&[]);
            let constant = |&x: &InstructionId| matches!(module[x].op, Op::Constant(_));
            ops::dynamic_update_slice(s, starts.iter().all(constant))
        }
        Op::Gather(g) => {
            let d = &g.dims;
            let mut batch =
                Batch::new(&d.operand_batching_dims, &d.start_indices_batching_dims, &d.collapsed_slice_dims);
            if tiles {
                batch.add_counting(
                    module,
                    instruction.operands().get(1),
                    d.index_vector_dim,
                    &d.start_index_map,
                    s.operands,
                );
            }
            let dims = IndexedDims {
                offset: &d.offset_dims,
                collapsed: &batch.collapsed,
                operand_batching: &batch.operand,
                indices_batching: &batch.indices,
                index_vector: d.index_vector_dim,
            };
            // GSPMD looks at the indices first: a batch of rows stays a batch, whatever the table is cut along.
            Rule { leading: tiles.then_some(1), ..ops::gather(s, &dims) }
        }
        Op::Scatter(sc) => {
            let d = &sc.dims;
            let mut batch =
                Batch::new(&d.input_batching_dims, &d.scatter_indices_batching_dims, &d.inserted_window_dims);
            if tiles {
                let indices = instruction.operands().get(results.len());
                batch.add_counting(module, indices, d.index_vector_dim, &d.scatter_dims_to_operand_dims, s.operands);
            }
            let dims = IndexedDims {
                offset: &d.update_window_dims,
                collapsed: &batch.collapsed,
                operand_batching: &batch.operand,
                indices_batching: &batch.indices,
                index_vector: d.index_vector_dim,
            };
            ops::scatter(s, &dims, reduces(module, sc.to_apply))
        }
        Op::Sort { dimension, .. } => ops::sort(s, *dimension),
        Op::Reverse { dimensions } => {
            ops::along(s, |d| if dimensions.contains(&(d as i64)) { Permutation } else { PassThrough })
        }
        Op::Fft { length, .. } => ops::fft(s, length.len()),
        Op::Cholesky { .. } => ops::cholesky(s),
        Op::TriangularSolve { left_side, transpose_a, .. } => {
            ops::triangular_solve(s, *left_side, *transpose_a != TransposeA::None)
        }
        Op::RngBitGenerator { .. } => ops::rng_bit_generator(s),
        Op::Scan(scan) => scan_rule(s, scan)?,
        Op::AllGather(a) => ops::reshaping_collective(s, &[a.dimension]),
        Op::AllToAll { split_dimension: Some(d), .. } => {
            let changed: Vec<i64> = (0..results.first().map_or(0, |d| d.len()))
                .filter(|&d| operands.first().map(|o| o.get(d)) != results.first().map(|r| r.get(d)))
                .map(|d| d as i64)
                .chain([*d])
                .collect();
            ops::reshaping_collective(s, &changed)
        }
        Op::ReduceScatter(r) => ops::reshaping_collective(s, &[r.dimension]),
        Op::BatchNormInference { feature_index, .. } => ops::batch_norm_inference(s, *feature_index),
        Op::CustomCall(call) => {
            if let Some(batch) = instruction.common.frontend_attribute("num_batch_dims") {
                return Some(ops::batched(s, batch.parse().ok()?));
            }
            return ops::custom_call(s, &call.target);
        }
        _ => return None,
    })
}

/// The batch dimensions of a gather or scatter.
struct Batch {
    operand: Vec<i64>,
    indices: Vec<i64>,
    collapsed: Vec<i64>,
}

impl Batch {
    fn new(operand: &[i64], indices: &[i64], collapsed: &[i64]) -> Batch {
        Batch { operand: operand.to_vec(), indices: indices.to_vec(), collapsed: collapsed.to_vec() }
    }

    /// Adds dimensions of the operand whose index is a count along a dimension of the indices: each row of them is about
    /// its own row of the operand.
    fn add_counting(
        &mut self,
        module: &Module,
        indices: Option<&InstructionId>,
        index_vector: i64,
        map: &[i64],
        shapes: &[Dims],
    ) {
        let Some(&indices) = indices else { return };
        let sizes = shapes.first().map_or(&[][..], |s| s);
        for (of_operand, dimension) in counting_dims(module, indices, index_vector, map, sizes) {
            let (of_operand, dimension) = (of_operand as i64, dimension as i64);
            if self.collapsed.contains(&of_operand) && !self.indices.contains(&dimension) {
                self.operand.push(of_operand);
                self.indices.push(dimension);
                self.collapsed.retain(|&d| d != of_operand);
            }
        }
    }
}

fn dot_dims(d: &DotDimensionNumbers) -> DotDims<'_> {
    DotDims {
        lhs_batch: &d.lhs_batch,
        rhs_batch: &d.rhs_batch,
        lhs_contracting: &d.lhs_contracting,
        rhs_contracting: &d.rhs_contracting,
    }
}

fn trivial(window: &Window) -> impl Fn(usize) -> bool + '_ {
    |d| window.dims.get(d).is_none_or(|w| w.size == 1 && w.stride == 1 && w.padding_low == 0 && w.padding_high == 0)
}

/// Whether what is put together are slices that exchange places.
fn is_rotation(module: &Module, i: InstructionId) -> bool {
    let source = |&x: &InstructionId| match module[x].op {
        Op::Slice { .. } => (module[x].operands().first().copied().unwrap_or(x), true),
        _ => (x, false),
    };
    let sources: Vec<_> = module[i].operands().iter().map(source).collect();
    sources.iter().all(|s| s.1) || (sources.windows(2).all(|w| w[0].0 == w[1].0) && sources.iter().any(|s| s.1))
}

/// Whether a computation is one operation whose order does not matter, on its two parameters.
fn reduces(module: &Module, c: ComputationId) -> bool {
    use BinaryOp::{Add, And, Maximum, Minimum, Multiply, Or};
    module.root(c).is_some_and(|root| {
        matches!(module[root].op, Op::Binary(Add | Multiply | Minimum | Maximum | And | Or))
            && module[root].operands().iter().all(|&x| matches!(module[x].op, Op::Parameter { .. }))
    })
}

/// Inputs and outputs go together but for the scanned dimension, and so do the carries, which lack it.
fn scan_rule(s: Shapes<'_>, scan: &Scan) -> Option<Rule> {
    let carries = usize::try_from(scan.num_carries).ok()?;
    let inputs = s.operands.len().checked_sub(carries)?;
    let outputs = s.results.len().checked_sub(carries)?;
    let shape = s.operands.first()?;
    let dim = usize::try_from(scan.dimension).ok()?;
    let without: Dims = shape.iter().enumerate().filter(|&(d, _)| d != dim).map(|(_, &n)| n).collect();
    let alike = s.operands[..inputs].iter().chain(&s.results[..outputs]).all(|d| d == shape)
        && s.operands[inputs..].iter().chain(&s.results[outputs..]).all(|d| *d == without);
    if !alike {
        return None;
    }
    let mut b = RuleBuilder::new(s.operands, s.results);
    for (d, &size) in shape.iter().enumerate() {
        let of_carry = (d != dim).then(|| d - usize::from(d > dim));
        let places = |own: usize| -> Vec<Option<usize>> {
            std::iter::repeat_n(Some(d), own).chain(std::iter::repeat_n(of_carry, carries)).collect()
        };
        let kind = match (d == dim, scan.is_associative) {
            (false, _) => PassThrough,
            (true, Some(true)) => Permutation,
            (true, _) => NeedReplication,
        };
        b.factor(&places(inputs), &places(outputs), size, kind, false);
    }
    Some(b.build())
}

/// Whether an operand that can be cut is used elsewhere as well, or twice.
pub(super) fn is_shared(module: &Module, user: InstructionId, x: InstructionId) -> bool {
    let Some(array) = module[x].shape.as_array() else { return false };
    if array.rank() == 0 {
        return false;
    }
    let twice = module[user].operands().iter().filter(|&&o| o == x).count() > 1;
    // The use of an element that is taken out of a tuple again is not one of the tuple's.
    twice || module[x].users().len() > 1
}

/// For each leaf of a loop's state, whether the body gives it back as it came.
pub(super) fn handed_on(module: &Module, body: ComputationId) -> Vec<bool> {
    let (Some(root), Some(&p)) = (module.root(body), module.parameters(body).first()) else { return Vec::new() };
    if !matches!(module[root].op, Op::Tuple) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (n, &x) in module[root].operands().iter().enumerate() {
        let same =
            matches!(module[x].op, Op::GetTupleElement { index } if index == n as i64) && module[x].operands() == [p];
        all.extend(std::iter::repeat_n(same, module[x].shape.leaf_count()));
    }
    all
}
