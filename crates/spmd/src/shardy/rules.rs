//! The sharding rules of StableHLO's operations.

use super::edit::Uses;
use super::read::dims;
use crate::rules::FactorKind::{NeedReplication, Permutation};
use crate::rules::ops::{self, ConvolutionDims, DotDims, IndexedDims, RaggedMode, Shapes};
use crate::rules::{Dims, Rule, parse};
use hloom_stablehlo::mlir::{AttrId, Module, OpId, OpKind, ValueId};

/// The rule of an operation: the one that it carries, or that of its kind. `None` if shardings do not go through it.
pub(super) fn rule_of(m: &Module<'_>, op: OpId, uses: &Uses) -> Option<Rule> {
    let node = m.op(op);
    if let Some(id) = m.find(op, "sdy.sharding_rule")
        && let Some(rule) = parse(&m.attr_text(id))
    {
        let count = node.operands.len() + node.result_count as usize;
        let fits = rule.operands == node.operands.len() && rule.tensors.len() == count;
        let ranks = node.operands.iter().copied().chain(node.results()).map(|v| dims(m, v).len());
        return (fits && rule.tensors.iter().map(|t| t.len()).eq(ranks)).then_some(rule);
    }
    let operands: Vec<Dims> = node.operands.iter().map(|&v| dims(m, v)).collect();
    let results: Vec<Dims> = node.results().map(|v| dims(m, v)).collect();
    let s = Shapes { operands: &operands, results: &results };
    Reader { m, op, uses }.rule(s)
}

struct Reader<'m, 'a> {
    m: &'m Module<'a>,
    op: OpId,
    uses: &'m Uses,
}

impl Reader<'_, '_> {
    fn ints(&self, name: &str) -> Vec<i64> {
        self.m.find(self.op, name).and_then(|id| self.m.as_ints(id)).unwrap_or_default()
    }
    fn int(&self, name: &str) -> Option<i64> {
        self.m.as_int(self.m.find(self.op, name)?)
    }
    fn flag(&self, name: &str) -> bool {
        self.m.find(self.op, name).and_then(|id| self.m.as_bool(id)).unwrap_or(false)
    }
    fn part_ints(&self, id: AttrId, name: &str) -> Vec<i64> {
        self.m.field(id, name).and_then(|id| self.m.as_ints(id)).unwrap_or_default()
    }
    fn part(&self, id: AttrId, name: &str) -> i64 {
        self.m.field(id, name).and_then(|id| self.m.as_int(id)).unwrap_or(0)
    }
    fn def_kind(&self, value: ValueId) -> Option<OpKind> {
        self.uses.def.get(value.index()).copied().flatten().map(|op| self.m.kind(op))
    }

    fn rule(&self, s: Shapes<'_>) -> Option<Rule> {
        use OpKind as K;
        let kind = self.m.kind(self.op);
        Some(match kind {
            K::Clamp | K::Select => ops::elementwise(s),
            _ if kind.is_elementwise() => ops::elementwise(s),
            K::SdyShardingConstraint
            | K::AllReduce
            | K::CollectivePermute
            | K::CollectiveBroadcast
            | K::CrossReplicaSum => ops::elementwise(s),
            K::BroadcastInDim => ops::broadcast(s, &self.ints("broadcast_dimensions")),
            K::Transpose => ops::transpose(s, &self.ints("permutation")),
            K::Reshape => return ops::reshape(s),
            K::DotGeneral => self.dot_general(s),
            K::Dot => self.dot(s),
            K::ChloRaggedDot => return self.ragged_dot(s),
            K::Convolution => return self.convolution(s),
            K::Reduce => ops::reduce(s, &self.ints("dimensions")),
            K::ReduceWindow => ops::reduce_window(s, self.trivial_windows()),
            K::SelectAndScatter => ops::select_and_scatter(s, self.trivial_windows()),
            K::Concatenate => ops::concatenate(s, self.int("dimension")?, self.is_rotation()),
            K::Pad | K::Slice => ops::resized(s, Permutation, false),
            K::DynamicSlice | K::ChloTopK => ops::resized(s, NeedReplication, true),
            K::DynamicUpdateSlice => {
                let starts = self.m.op(self.op).operands.get(2..).unwrap_or(&[]);
                let constant = |&v: &ValueId| matches!(self.def_kind(v), Some(K::Constant | K::SdyConstant));
                ops::dynamic_update_slice(s, starts.iter().all(constant))
            }
            K::Gather => return self.gather(s),
            K::Scatter => return self.scatter(s),
            K::Sort => ops::sort(s, self.int("dimension").unwrap_or(-1)),
            K::Reverse => {
                let reversed = self.ints("dimensions");
                ops::along(s, |d| match reversed.contains(&(d as i64)) {
                    true => Permutation,
                    false => crate::rules::FactorKind::PassThrough,
                })
            }
            K::Fft => ops::fft(s, self.ints("fft_length").len()),
            K::Cholesky => ops::cholesky(s),
            K::TriangularSolve => {
                let word = self.m.find(self.op, "transpose_a").and_then(|id| self.m.as_str(id));
                let transposed = matches!(word, Some("TRANSPOSE" | "ADJOINT"));
                ops::triangular_solve(s, self.flag("left_side"), transposed)
            }
            K::RngBitGenerator => ops::rng_bit_generator(s),
            K::BitcastConvert => ops::bitcast_convert(s),
            K::AllGather => ops::reshaping_collective(s, &[self.int("all_gather_dim")?]),
            K::AllToAll => ops::reshaping_collective(s, &[self.int("split_dimension")?, self.int("concat_dimension")?]),
            K::ReduceScatter => ops::reshaping_collective(s, &[self.int("scatter_dimension")?]),
            K::BatchNormInference => ops::batch_norm_inference(s, self.int("feature_index")?),
            K::CustomCall => return self.custom_call(s),
            _ => return None,
        })
    }

    fn custom_call(&self, s: Shapes<'_>) -> Option<Rule> {
        let target = self.m.string_attr(self.op, "call_target_name")?;
        if let Some(attributes) = self.m.find(self.op, "mhlo.frontend_attributes")
            && let Some(batch) = self.m.field(attributes, "num_batch_dims").and_then(|id| self.m.as_str(id))
        {
            return Some(ops::batched(s, batch.parse().ok()?));
        }
        ops::custom_call(s, target)
    }

    fn dot_general(&self, s: Shapes<'_>) -> Rule {
        let holder = self.m.find(self.op, "dot_dimension_numbers");
        let of = |name: &str| match holder {
            Some(holder) => self.part_ints(holder, name),
            None => self.ints(name),
        };
        let dims = DotDims {
            lhs_batch: &of("lhs_batching_dimensions"),
            rhs_batch: &of("rhs_batching_dimensions"),
            lhs_contracting: &of("lhs_contracting_dimensions"),
            rhs_contracting: &of("rhs_contracting_dimensions"),
        };
        ops::dot(s, &dims)
    }

    fn dot(&self, s: Shapes<'_>) -> Rule {
        let last = s.operands.first().map_or(0, |d| d.len() as i64 - 1);
        let dims = DotDims { lhs_batch: &[], rhs_batch: &[], lhs_contracting: &[last], rhs_contracting: &[0] };
        ops::dot(s, &dims)
    }

    fn ragged_dot(&self, s: Shapes<'_>) -> Option<Rule> {
        let ragged = self.m.find(self.op, "ragged_dot_dimension_numbers")?;
        let holder = self.m.field(ragged, "dot_dimension_numbers").unwrap_or(ragged);
        let of = |name: &str| self.part_ints(holder, name);
        let dims = DotDims {
            lhs_batch: &of("lhs_batching_dimensions"),
            rhs_batch: &of("rhs_batching_dimensions"),
            lhs_contracting: &of("lhs_contracting_dimensions"),
            rhs_contracting: &of("rhs_contracting_dimensions"),
        };
        let &[dim] = &self.part_ints(ragged, "lhs_ragged_dimensions")[..] else { return None };
        let group = self.part_ints(ragged, "rhs_group_dimensions").first().copied();
        let mode = match (dims.lhs_contracting.contains(&dim), dims.lhs_batch.contains(&dim)) {
            (true, _) => RaggedMode::Contracting,
            (_, true) => RaggedMode::Batch,
            _ => RaggedMode::NonContracting,
        };
        Some(ops::ragged_dot(s, &dims, dim, group, mode))
    }

    fn convolution(&self, s: Shapes<'_>) -> Option<Rule> {
        let id = self.m.find(self.op, "dimension_numbers")?;
        let one = |name: &str| self.part(id, name);
        let c = ConvolutionDims {
            input_batch: one("input_batch_dimension"),
            input_feature: one("input_feature_dimension"),
            input_spatial: &self.part_ints(id, "input_spatial_dimensions"),
            kernel_input_feature: one("kernel_input_feature_dimension"),
            kernel_output_feature: one("kernel_output_feature_dimension"),
            kernel_spatial: &self.part_ints(id, "kernel_spatial_dimensions"),
            output_batch: one("output_batch_dimension"),
            output_feature: one("output_feature_dimension"),
            output_spatial: &self.part_ints(id, "output_spatial_dimensions"),
            feature_group_count: self.int("feature_group_count").unwrap_or(1),
            batch_group_count: self.int("batch_group_count").unwrap_or(1),
            tiles: false,
        };
        Some(ops::convolution(s, &c))
    }

    /// Of which dimensions windows have one element, step by one and add no padding.
    fn trivial_windows(&self) -> impl Fn(usize) -> bool + use<> {
        let (sizes, strides) = (self.ints("window_dimensions"), self.ints("window_strides"));
        let padding = self.ints("padding");
        let is_one = |list: &[i64], d: usize| list.get(d).is_none_or(|&n| n == 1);
        move |d| {
            let pads = padding.get(2 * d..2 * d + 2).is_some_and(|p| p != [0, 0]);
            !pads && is_one(&sizes, d) && is_one(&strides, d)
        }
    }

    /// Whether what is put together are slices that exchange places.
    fn is_rotation(&self) -> bool {
        let operands = &self.m.op(self.op).operands;
        let source = |v: ValueId| match self.uses.def.get(v.index()).copied().flatten() {
            Some(op) if self.m.kind(op) == OpKind::Slice => (self.m.op(op).operands.first().copied(), true),
            _ => (Some(v), false),
        };
        let sources: Vec<_> = operands.iter().map(|&v| source(v)).collect();
        let all_slices = sources.iter().all(|s| s.1);
        let one_source = sources.windows(2).all(|w| w[0].0 == w[1].0) && sources.iter().any(|s| s.1);
        all_slices || one_source
    }

    fn gather(&self, s: Shapes<'_>) -> Option<Rule> {
        let id = self.m.find(self.op, "dimension_numbers")?;
        let of = |name: &str| self.part_ints(id, name);
        let dims = IndexedDims {
            offset: &of("offset_dims"),
            collapsed: &of("collapsed_slice_dims"),
            operand_batching: &of("operand_batching_dims"),
            indices_batching: &of("start_indices_batching_dims"),
            index_vector: self.part(id, "index_vector_dim"),
        };
        Some(ops::gather(s, &dims))
    }

    fn scatter(&self, s: Shapes<'_>) -> Option<Rule> {
        let id = self.m.find(self.op, "scatter_dimension_numbers")?;
        let of = |name: &str| self.part_ints(id, name);
        let dims = IndexedDims {
            offset: &of("update_window_dims"),
            collapsed: &of("inserted_window_dims"),
            operand_batching: &of("input_batching_dims"),
            indices_batching: &of("scatter_indices_batching_dims"),
            index_vector: self.part(id, "index_vector_dim"),
        };
        Some(ops::scatter(s, &dims, self.reduces()))
    }

    /// Whether the combiner is one operation whose order does not matter.
    fn reduces(&self) -> bool {
        let Some(&region) = self.m.op(self.op).regions.first() else { return false };
        let Some(block) = self.m.region(region).blocks.first() else { return false };
        let combines = |&op: &OpId| {
            use OpKind as K;
            matches!(self.m.kind(op), K::Add | K::Multiply | K::Minimum | K::Maximum | K::And | K::Or)
        };
        block.ops.len() == 2 && block.ops.first().is_some_and(combines)
    }
}
