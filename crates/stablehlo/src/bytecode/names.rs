//! How operations are written in bytecode: VHLO's names, their versions, and the order of their attributes (those of the
//! compiler's own dialects are `native`'s).
//!
//! The attributes of a registered operation are stored without names, in the alphabetical order of the names, so this
//! table is what gives them back.

use crate::mlir::{OpKind, OpName};
use std::borrow::Cow;

/// How an operation's own attributes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OpForm {
    /// One after another, with these names; `?` before a name says that it need not be there, `#` that it is a list of the
    /// sizes of groups.
    Named(&'static [&'static str]),
    /// As one dictionary.
    Dictionary,
    /// Nobody knows: the operation, or this version of it, is not known.
    Unknown,
}

/// The name in StableHLO's spelling and the form of the operation `name` of `dialect`.
pub(super) fn resolve<'a>(dialect: &'a str, name: &'a str, registered: bool) -> (OpName<'a>, OpForm) {
    if dialect == "vhlo" {
        return vhlo(name);
    }
    let full = format!("{dialect}.{name}");
    let form = match &*full {
        _ if !registered => OpForm::Dictionary,
        "builtin.module" => OpForm::Named(&["?sym_name", "?sym_visibility"]),
        "builtin.unrealized_conversion_cast" | "sdy.return" => OpForm::Named(&[]),
        "sdy.mesh" => OpForm::Named(&["mesh", "sym_name"]),
        "sdy.sharding_constraint" | "sdy.reshard" => OpForm::Named(&["sharding"]),
        "sdy.manual_computation" => OpForm::Named(&["in_shardings", "manual_axes", "out_shardings"]),
        "sdy.sharding_group" => OpForm::Named(&["group_id"]),
        "sdy.propagation_barrier" => OpForm::Named(&["allowed_direction"]),
        "sdy.named_computation" => OpForm::Named(&["?in_shardings", "name", "?out_shardings"]),
        "sdy.constant" => OpForm::Named(&["value"]),
        "sdy.data_flow_edge" => OpForm::Named(&["?sharding"]),
        "sdy.func_data_flow_edge" => OpForm::Named(&[]),
        "sdy.all_gather" => OpForm::Named(&["gathering_axes", "out_sharding"]),
        "sdy.all_slice" => OpForm::Named(&["out_sharding", "slicing_axes"]),
        "sdy.all_to_all" => OpForm::Named(&["out_sharding", "params"]),
        "sdy.collective_permute" => OpForm::Named(&["out_sharding"]),
        "sdy.all_reduce" => OpForm::Named(&["out_sharding", "reduction_axes"]),
        "sdy.reduce_scatter" => OpForm::Named(&["out_sharding", "reduce_scatter_axes"]),
        "sdy.replicated_to_unreduced" | "sdy.sharded_to_unreduced" => OpForm::Named(&["axes", "out_sharding"]),
        _ => super::native::attributes(&full).map_or(OpForm::Unknown, OpForm::Named),
    };
    let kind = OpKind::from_name(&full);
    (OpName { name: Cow::Owned(full), kind }, form)
}

fn vhlo(name: &str) -> (OpName<'_>, OpForm) {
    let unknown = || {
        let name = format!("vhlo.{name}");
        (OpName { name: Cow::Owned(name), kind: OpKind::Unknown }, OpForm::Unknown)
    };
    let Some((base, version)) = name.rsplit_once("_v") else { return unknown() };
    let Ok(version) = version.parse::<u32>() else { return unknown() };
    let Some(attributes) = attributes(base, version) else { return unknown() };
    let full: Cow<'_, str> = match base {
        "func" => Cow::Borrowed("func.func"),
        "call" => Cow::Borrowed("func.call"),
        _ => Cow::Owned(format!("stablehlo.{base}")),
    };
    let kind = OpKind::from_name(&full);
    (OpName { name: full, kind }, OpForm::Named(attributes))
}

const CONVOLUTION: &[&str] = &[
    "batch_group_count",
    "feature_group_count",
    "input_batch_dimension",
    "input_feature_dimension",
    "input_spatial_dimensions",
    "kernel_input_feature_dimension",
    "kernel_output_feature_dimension",
    "kernel_spatial_dimensions",
    "lhs_dilation",
    "output_batch_dimension",
    "output_feature_dimension",
    "output_spatial_dimensions",
    "padding",
    "precision_config",
    "rhs_dilation",
    "window_reversal",
    "window_strides",
];

const DYNAMIC_CONVOLUTION: &[&str] = &[
    "batch_group_count",
    "feature_group_count",
    "input_batch_dimension",
    "input_feature_dimension",
    "input_spatial_dimensions",
    "kernel_input_feature_dimension",
    "kernel_output_feature_dimension",
    "kernel_spatial_dimensions",
    "lhs_dilation",
    "output_batch_dimension",
    "output_feature_dimension",
    "output_spatial_dimensions",
    "precision_config",
    "rhs_dilation",
    "window_reversal",
    "window_strides",
];

const DOT_GENERAL_V2: &[&str] = &[
    "accumulation_type",
    "allow_imprecise_accumulation",
    "lhs_batching_dimensions",
    "lhs_component_count",
    "lhs_contracting_dimensions",
    "lhs_precision_type",
    "num_primitive_operations",
    "precision_config",
    "rhs_batching_dimensions",
    "rhs_component_count",
    "rhs_contracting_dimensions",
    "rhs_precision_type",
];

const CUSTOM_CALL: &[&str] = &[
    "api_version",
    "backend_config",
    "call_target_name",
    "called_computations",
    "has_side_effect",
    "operand_layouts",
    "output_operand_aliases",
    "result_layouts",
    "result_tilings",
];

/// The attributes of version `version` of VHLO's operation `base`, in the order in which they are stored.
fn attributes(base: &str, version: u32) -> Option<&'static [&'static str]> {
    Some(match (base, version) {
        (
            "abs"
            | "add"
            | "after_all"
            | "and"
            | "async_done"
            | "async_start"
            | "atan2"
            | "bitcast_convert"
            | "case"
            | "ceil"
            | "clamp"
            | "complex"
            | "convert"
            | "count_leading_zeros"
            | "create_token"
            | "divide"
            | "dynamic_pad"
            | "dynamic_reshape"
            | "dynamic_update_slice"
            | "floor"
            | "if"
            | "imag"
            | "is_finite"
            | "maximum"
            | "minimum"
            | "multiply"
            | "negate"
            | "not"
            | "optimization_barrier"
            | "or"
            | "partition_id"
            | "popcnt"
            | "power"
            | "real"
            | "real_dynamic_slice"
            | "remainder"
            | "replica_id"
            | "reshape"
            | "return"
            | "round_nearest_even"
            | "round_nearest_afz"
            | "select"
            | "shift_left"
            | "shift_right_arithmetic"
            | "shift_right_logical"
            | "sign"
            | "subtract"
            | "tuple"
            | "uniform_quantize"
            | "uniform_dequantize"
            | "while"
            | "xor",
            1,
        ) => &[],
        (op, 1) if takes_accuracy(op) => &[],
        (op, 2) if takes_accuracy(op) => &["result_accuracy"],
        ("all_gather", 1 | 2) => &["all_gather_dim", "channel_id", "replica_groups", "use_global_device_ids"],
        ("all_reduce", 1 | 2) => &["channel_id", "replica_groups", "use_global_device_ids"],
        ("all_to_all", 1 | 2) => {
            &["channel_id", "concat_dimension", "replica_groups", "split_count", "split_dimension"]
        }
        ("batch_norm_grad" | "batch_norm_inference" | "batch_norm_training", 1) => &["epsilon", "feature_index"],
        ("broadcast_in_dim", 1) => &["broadcast_dimensions"],
        ("broadcast", 1) => &["broadcast_sizes"],
        ("call", 1) => &["callee"],
        ("cholesky", 1) => &["lower"],
        ("collective_broadcast", 1) => &["channel_id", "replica_groups"],
        ("collective_broadcast", 2) => &["channel_id", "has_dynamic_root", "replica_groups"],
        ("collective_reduce", 1) => &["channel_id", "has_dynamic_root", "replica_groups", "use_global_device_ids"],
        ("collective_permute", 1) => &["channel_id", "source_target_pairs"],
        ("compare", 1) => &["compare_type", "comparison_direction"],
        ("composite", 1 | 2) => &["composite_attributes", "decomposition", "name", "version"],
        ("concatenate", 1) => &["dimension"],
        ("constant", 1) => &["value"],
        ("convolution", 1) | ("dynamic_conv", 1) => CONVOLUTION,
        ("dynamic_conv", 2) => DYNAMIC_CONVOLUTION,
        ("cross-replica-sum", 1) => &["replica_groups"],
        ("custom_call", 1) => CUSTOM_CALL.split_last()?.1,
        ("custom_call", 2) => CUSTOM_CALL,
        ("dot_general", 1) => &[
            "lhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "precision_config",
            "rhs_batching_dimensions",
            "rhs_contracting_dimensions",
        ],
        ("dot_general", 2) => DOT_GENERAL_V2,
        ("dot", 1) => &["precision_config"],
        ("dynamic_broadcast_in_dim", 1) => {
            &["broadcast_dimensions", "known_expanding_dimensions", "known_nonexpanding_dimensions"]
        }
        ("dynamic_gather", 1) => {
            &["collapsed_slice_dims", "index_vector_dim", "indices_are_sorted", "offset_dims", "start_index_map"]
        }
        ("dynamic_gather", 2) => &[
            "collapsed_slice_dims",
            "index_vector_dim",
            "indices_are_sorted",
            "offset_dims",
            "operand_batching_dims",
            "start_index_map",
            "start_indices_batching_dims",
        ],
        ("dynamic_iota" | "iota", 1) => &["iota_dimension"],
        ("dynamic_slice", 1) => &["slice_sizes"],
        ("einsum" | "unary_einsum", 1) => &["einsum_config"],
        ("fft", 1) => &["fft_length", "fft_type"],
        ("func", 1) => &["arg_attrs", "function_type", "res_attrs", "sym_name", "sym_visibility"],
        ("gather", 1) => &[
            "collapsed_slice_dims",
            "index_vector_dim",
            "indices_are_sorted",
            "offset_dims",
            "slice_sizes",
            "start_index_map",
        ],
        ("gather", 2) => &[
            "collapsed_slice_dims",
            "index_vector_dim",
            "indices_are_sorted",
            "offset_dims",
            "operand_batching_dims",
            "slice_sizes",
            "start_index_map",
            "start_indices_batching_dims",
        ],
        ("get_dimension_size" | "set_dimension_size", 1) => &["dimension"],
        ("get_tuple_element", 1) => &["index"],
        ("infeed", 1) => &["infeed_config", "layout"],
        ("map" | "reduce" | "reverse", 1) => &["dimensions"],
        ("outfeed", 1) => &["outfeed_config"],
        ("pad", 1) => &["edge_padding_high", "edge_padding_low", "interior_padding"],
        ("recv" | "send", 1) => &["channel_id", "channel_type", "is_host_transfer"],
        ("recv" | "send", 2) => &["channel_id", "channel_type", "is_host_transfer", "source_target_pairs"],
        ("reduce_precision", 1) => &["exponent_bits", "mantissa_bits"],
        ("reduce_scatter", 1) => &["channel_id", "replica_groups", "scatter_dimension", "use_global_device_ids"],
        ("reduce_window", 1) => {
            &["base_dilations", "padding", "window_dilations", "window_dimensions", "window_strides"]
        }
        ("rng_bit_generator", 1) => &["rng_algorithm"],
        ("rng", 1) => &["rng_distribution"],
        ("scatter", 1) => &[
            "index_vector_dim",
            "indices_are_sorted",
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "unique_indices",
            "update_window_dims",
        ],
        ("scatter", 2) => &[
            "index_vector_dim",
            "indices_are_sorted",
            "input_batching_dims",
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "scatter_indices_batching_dims",
            "unique_indices",
            "update_window_dims",
        ],
        ("select_and_scatter", 1) => &["padding", "window_dimensions", "window_strides"],
        ("slice", 1) => &["limit_indices", "start_indices", "strides"],
        ("sort", 1) => &["dimension", "is_stable"],
        ("torch_index_select", 1) => &["batch_dims", "dim"],
        ("transpose", 1) => &["permutation"],
        ("triangular_solve", 1) => &["left_side", "lower", "transpose_a", "unit_diagonal"],
        _ => return None,
    })
}

/// Whether the second version of an operation says how accurate its result is to be.
pub(super) fn takes_accuracy(op: &str) -> bool {
    matches!(
        op,
        "cbrt"
            | "cosine"
            | "exponential"
            | "exponential_minus_one"
            | "log"
            | "log_plus_one"
            | "logistic"
            | "rsqrt"
            | "sine"
            | "sqrt"
            | "tan"
            | "tanh"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_in_stored_order() {
        for &name in OpKind::NAMES {
            let Some(base) = name.strip_prefix("stablehlo.") else { continue };
            for version in 1..4 {
                if let Some(list) = attributes(base, version) {
                    assert!(list.is_sorted(), "{base}_v{version}: {list:?}");
                    assert_ne!(vhlo(&format!("{base}_v{version}")).0.kind, OpKind::Unknown, "{base}");
                }
            }
            assert!(attributes(base, 1).is_some(), "{base} has no first version");
        }
    }
}
