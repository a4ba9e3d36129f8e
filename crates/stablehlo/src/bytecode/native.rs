//! Bytecode of the compiler's own dialects, as compilers exchange it among themselves: the operations of StableHLO, CHLO
//! and func, and StableHLO's attributes and types.
//!
//! This encoding is not a portable artifact's: it may change with every version of StableHLO. What does not fit these tables is
//! refused, never guessed.

use super::Reader;
use super::cursor::{Cursor, Read};
use super::tables::{
    COMPARE_TYPES, DIRECTIONS, FFT_TYPES, PRECISIONS, RNG_ALGORITHMS, RNG_DISTRIBUTIONS, TRANSPOSES, fields,
    unknown_code,
};
use crate::mlir::{Attr, Named, OpKind, Type};
use std::borrow::Cow;

/// The attributes of the operation `name` of a dialect, in the order in which they are stored: `?` before a name says that
/// it need not be there, `#` that it is a list of the sizes of groups of operands or results.
pub(super) fn attributes(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "func.func" => &["?arg_attrs", "function_type", "?no_inline", "?res_attrs", "sym_name", "?sym_visibility"],
        "func.call" => &["?arg_attrs", "callee", "?no_inline", "?res_attrs"],
        "func.return" => &[],
        "stablehlo.all_gather" => &["all_gather_dim", "?channel_handle", "replica_groups", "?use_global_device_ids"],
        "stablehlo.all_reduce" => &["?channel_handle", "replica_groups", "?use_global_device_ids"],
        "stablehlo.all_to_all" => {
            &["?channel_handle", "concat_dimension", "replica_groups", "split_count", "split_dimension"]
        }
        "stablehlo.batch_norm_grad" | "stablehlo.batch_norm_inference" | "stablehlo.batch_norm_training" => {
            &["epsilon", "feature_index"]
        }
        "stablehlo.broadcast_in_dim" => &["broadcast_dimensions"],
        "stablehlo.broadcast" => &["broadcast_sizes"],
        "stablehlo.cholesky" => &["?lower"],
        "stablehlo.collective_broadcast" => &["?channel_handle", "replica_groups"],
        "stablehlo.collective_permute" => &["?channel_handle", "source_target_pairs"],
        "stablehlo.compare" => &["?compare_type", "comparison_direction"],
        "stablehlo.composite" => &["?composite_attributes", "decomposition", "name", "?version"],
        "stablehlo.concatenate" | "stablehlo.get_dimension_size" | "stablehlo.set_dimension_size" => &["dimension"],
        "stablehlo.constant" | "chlo.constant" | "chlo.constant_like" => &["value"],
        "stablehlo.convolution" => &[
            "batch_group_count",
            "dimension_numbers",
            "feature_group_count",
            "?lhs_dilation",
            "?padding",
            "?precision_config",
            "?rhs_dilation",
            "?window_reversal",
            "?window_strides",
        ],
        "stablehlo.dynamic_conv" => &[
            "batch_group_count",
            "dimension_numbers",
            "feature_group_count",
            "?lhs_dilation",
            "?precision_config",
            "?rhs_dilation",
            "?window_reversal",
            "?window_strides",
        ],
        "stablehlo.cross-replica-sum" => &["replica_groups"],
        "stablehlo.custom_call" => &[
            "?api_version",
            "?backend_config",
            "call_target_name",
            "?called_computations",
            "?has_side_effect",
            "?operand_layouts",
            "?output_operand_aliases",
            "?result_layouts",
        ],
        "stablehlo.dot_general" => &["?algorithm", "dot_dimension_numbers", "?precision_config"],
        "stablehlo.dot" => &["?precision_config"],
        "stablehlo.dynamic_broadcast_in_dim" => {
            &["broadcast_dimensions", "?known_expanding_dimensions", "?known_nonexpanding_dimensions"]
        }
        "stablehlo.dynamic_gather" => &["dimension_numbers", "?indices_are_sorted"],
        "stablehlo.dynamic_iota" | "stablehlo.iota" => &["iota_dimension"],
        "stablehlo.dynamic_slice" => &["slice_sizes"],
        "stablehlo.einsum" | "stablehlo.unary_einsum" => &["einsum_config"],
        "stablehlo.fft" => &["fft_length", "fft_type"],
        "stablehlo.gather" => &["dimension_numbers", "?indices_are_sorted", "slice_sizes"],
        "stablehlo.get_tuple_element" => &["index"],
        "stablehlo.infeed" => &["?infeed_config", "?layout"],
        "stablehlo.map" | "stablehlo.reduce" | "stablehlo.reverse" => &["dimensions"],
        "stablehlo.outfeed" => &["?outfeed_config"],
        "stablehlo.pad" => &["edge_padding_high", "edge_padding_low", "interior_padding"],
        "stablehlo.recv" | "stablehlo.send" => &["channel_handle", "?is_host_transfer", "?source_target_pairs"],
        "stablehlo.reduce_precision" => &["exponent_bits", "mantissa_bits"],
        "stablehlo.reduce_scatter" => {
            &["?channel_handle", "replica_groups", "scatter_dimension", "?use_global_device_ids"]
        }
        "stablehlo.reduce_window" => {
            &["?base_dilations", "?padding", "?window_dilations", "window_dimensions", "?window_strides"]
        }
        "stablehlo.rng_bit_generator" => &["rng_algorithm"],
        "stablehlo.rng" => &["rng_distribution"],
        "stablehlo.scatter" => &["?indices_are_sorted", "scatter_dimension_numbers", "?unique_indices"],
        "stablehlo.select_and_scatter" => &["?padding", "?window_dimensions", "?window_strides"],
        "stablehlo.slice" => &["limit_indices", "start_indices", "strides"],
        "stablehlo.sort" => &["?dimension", "?is_stable"],
        "stablehlo.torch_index_select" => &["batch_dims", "dim"],
        "stablehlo.transpose" => &["permutation"],
        "stablehlo.triangular_solve" => &["left_side", "lower", "transpose_a", "unit_diagonal"],
        "chlo.broadcast_compare" => &["?broadcast_dimensions", "?compare_type", "comparison_direction"],
        "chlo.broadcast_select" => &[],
        "chlo.ragged_dot" => &["?precision_config", "ragged_dot_dimension_numbers"],
        "chlo.scan" => &[
            "dimension",
            "?is_associative",
            "?is_reverse",
            "?scan_dim_size",
            "#operandSegmentSizes",
            "#resultSegmentSizes",
        ],
        "chlo.top_k" => &["k"],
        _ if name.starts_with("chlo.broadcast_") => &["?broadcast_dimensions"],
        _ if name.strip_prefix("stablehlo.").is_some_and(super::names::takes_accuracy) => &["?result_accuracy"],
        _ if is_known(name) => &[],
        _ => return None,
    })
}

fn is_known(name: &str) -> bool {
    (name.starts_with("stablehlo.") || name.starts_with("chlo.")) && OpKind::from_name(name) != OpKind::Unknown
}

impl<'a> Reader<'a> {
    /// Numbers, and lists of numbers where a name ends with `s` or a map, as the parts of a struct.
    fn numbers(&mut self, at: &mut Cursor<'a>, name: &'static str, parts: &[(&'static str, bool)]) -> Read<Attr<'a>> {
        let mut found: Vec<Named<'a>> = Vec::with_capacity(parts.len());
        for &(part, is_list) in parts {
            let id = match is_list {
                true => {
                    let list = at.svarints()?;
                    self.ints_attr(list)
                }
                false => {
                    let number = at.svarint()?;
                    self.int_attr(number)
                }
            };
            found.push((Cow::Borrowed(part), id));
        }
        Ok(Attr::Struct(Cow::Borrowed(name), found))
    }

    pub(super) fn stablehlo_attr(&mut self, at: &mut Cursor<'a>, code: u64) -> Read<Attr<'a>> {
        Ok(match code {
            1 => self.numbers(at, "stablehlo.channel_handle", &[("handle", false), ("type", false)])?,
            2 => self.keyword(at, DIRECTIONS)?,
            3 => self.keyword(at, COMPARE_TYPES)?,
            4 => self.numbers(
                at,
                "stablehlo.conv",
                &[
                    ("input_batch_dimension", false),
                    ("input_feature_dimension", false),
                    ("input_spatial_dimensions", true),
                    ("kernel_input_feature_dimension", false),
                    ("kernel_output_feature_dimension", false),
                    ("kernel_spatial_dimensions", true),
                    ("output_batch_dimension", false),
                    ("output_feature_dimension", false),
                    ("output_spatial_dimensions", true),
                ],
            )?,
            5 => self.numbers(
                at,
                "stablehlo.dot",
                &[
                    ("lhs_batching_dimensions", true),
                    ("rhs_batching_dimensions", true),
                    ("lhs_contracting_dimensions", true),
                    ("rhs_contracting_dimensions", true),
                ],
            )?,
            6 => self.keyword(at, FFT_TYPES)?,
            7 => self.numbers(
                at,
                "stablehlo.gather",
                &[
                    ("offset_dims", true),
                    ("collapsed_slice_dims", true),
                    ("operand_batching_dims", true),
                    ("start_indices_batching_dims", true),
                    ("start_index_map", true),
                    ("index_vector_dim", false),
                ],
            )?,
            8 => self.keyword(at, PRECISIONS)?,
            9 => self.keyword(at, RNG_ALGORITHMS)?,
            10 => self.keyword(at, RNG_DISTRIBUTIONS)?,
            11 => self.numbers(
                at,
                "stablehlo.scatter",
                &[
                    ("update_window_dims", true),
                    ("inserted_window_dims", true),
                    ("input_batching_dims", true),
                    ("scatter_indices_batching_dims", true),
                    ("scatter_dims_to_operand_dims", true),
                    ("index_vector_dim", false),
                ],
            )?,
            12 => self.keyword(at, TRANSPOSES)?,
            13 => self.bounds(at)?,
            14 => self.output_operand_alias(at)?,
            15 => self.dot_algorithm(at)?,
            16 => self.keyword(at, super::tables::ACCURACY_MODES)?,
            17 => self.result_accuracy(at)?,
            18 => {
                let (mesh, axes) = (self.attr(at)?, self.array_attr(at)?);
                fields("stablehlo.replica_group_mesh_axes", [("mesh", Some(mesh)), ("axes", Some(axes))])
            }
            19 => self.sub_axis(at)?,
            20 => {
                let name = self.string_attr(at)?;
                let sub = if at.byte()? != 0 { Some(self.attr(at)?) } else { None };
                fields("stablehlo.axis_ref", [("name", Some(name)), ("sub_axis", sub)])
            }
            21 => {
                let name = self.string_attr(at)?;
                let size = at.svarint()?;
                let size = self.int_attr(size);
                fields("stablehlo.mesh_axis", [("name", Some(name)), ("size", Some(size))])
            }
            22 => {
                let axes = self.attr(at)?;
                let devices = if at.byte()? != 0 { Some(self.attr(at)?) } else { None };
                fields("stablehlo.mesh", [("axes", Some(axes)), ("device_ids", devices)])
            }
            _ => return Err(unknown_code("attribute", "stablehlo", code)),
        })
    }

    pub(super) fn chlo_attr(&mut self, at: &mut Cursor<'a>, code: u64) -> Read<Attr<'a>> {
        match code {
            0 => self.keyword(at, DIRECTIONS),
            1 => self.keyword(at, COMPARE_TYPES),
            _ => Err(unknown_code("attribute", "chlo", code)),
        }
    }

    pub(super) fn stablehlo_type(&mut self, at: &mut Cursor<'a>, code: u64) -> Read<Type<'a>> {
        match code {
            0 => Ok(Type::Token),
            1 => Ok(Type::Future(self.types(at)?)),
            _ => Err(unknown_code("type", "stablehlo", code)),
        }
    }

    // VHLO writes these as StableHLO itself does.

    pub(super) fn output_operand_alias(&mut self, at: &mut Cursor<'a>) -> Read<Attr<'a>> {
        let output = at.svarints()?;
        let operand = at.svarint()?;
        let operand_index = at.svarints()?;
        let output = self.ints_attr(output);
        let operand = self.int_attr(operand);
        let operand_index = self.ints_attr(operand_index);
        Ok(fields(
            "stablehlo.output_operand_alias",
            [
                ("output_tuple_indices", Some(output)),
                ("operand_index", Some(operand)),
                ("operand_tuple_indices", Some(operand_index)),
            ],
        ))
    }

    pub(super) fn bounds(&mut self, at: &mut Cursor<'a>) -> Read<Attr<'a>> {
        let bounds = at.svarints()?;
        let bounds = self.ints_attr(bounds);
        Ok(fields("stablehlo.bounds", [("bounds", Some(bounds))]))
    }

    pub(super) fn result_accuracy(&mut self, at: &mut Cursor<'a>) -> Read<Attr<'a>> {
        let double = |at: &mut Cursor<'a>| -> Read<f64> { Ok(f64::from_bits(at.apint(64)?.unwrap_or(0) as u64)) };
        let (atol, rtol) = (double(at)?, double(at)?);
        let ulps = at.svarint()?;
        let mode = self.attr(at)?;
        let ty = self.i64_type();
        let atol = self.module.add_attr(Attr::Float(atol, ty));
        let rtol = self.module.add_attr(Attr::Float(rtol, ty));
        let ulps = self.int_attr(ulps);
        Ok(fields(
            "stablehlo.result_accuracy",
            [("atol", Some(atol)), ("rtol", Some(rtol)), ("ulps", Some(ulps)), ("mode", Some(mode))],
        ))
    }

    fn dot_algorithm(&mut self, at: &mut Cursor<'a>) -> Read<Attr<'a>> {
        let mut found: Vec<Named<'a>> = Vec::new();
        for part in ["lhs_precision_type", "rhs_precision_type", "accumulation_type"] {
            let ty = self.type_id(at)?;
            found.push((Cow::Borrowed(part), self.module.add_attr(Attr::Type(ty))));
        }
        for part in ["lhs_component_count", "rhs_component_count", "num_primitive_operations"] {
            let count = at.svarint()?;
            found.push((Cow::Borrowed(part), self.int_attr(count)));
        }
        let imprecise = at.byte()? != 0;
        let imprecise = self.module.add_attr(Attr::Bool(imprecise));
        found.push(("allow_imprecise_accumulation".into(), imprecise));
        Ok(Attr::Struct(Cow::Borrowed("stablehlo.dot_algorithm"), found))
    }

    /// The sizes of groups of operands or results: all of them, or those that are not zero with their places.
    pub(super) fn segment_sizes(&mut self, at: &mut Cursor<'a>) -> Read<crate::mlir::AttrId> {
        let (count, is_sparse) = at.flagged()?;
        if count > at.left() as u64 {
            return Err(at.damaged("too many groups of operands are claimed"));
        }
        let mut sizes: Vec<i64> = Vec::new();
        if is_sparse {
            let bits = if count > 0 { at.varint()? } else { 0 };
            for _ in 0..count {
                let entry = at.varint()?;
                let place =
                    usize::try_from(bits).ok().filter(|&b| b <= 8).map(|b| (entry & ((1 << b) - 1), entry >> b));
                let Some((place, size)) = place else { return Err(at.damaged("a list has places that are too far")) };
                sizes.resize(sizes.len().max(place as usize + 1), 0);
                sizes[place as usize] = size as i64;
            }
        } else {
            for _ in 0..count {
                sizes.push(at.varint()? as i64);
            }
        }
        Ok(self.ints_attr(sizes))
    }
}
