//! Which operation of StableHLO stands for which of HLO.

use super::attributes::{WindowNames, channel_handle};
use super::types::{array, list, matrix, quoted, symbol};
use super::{Val, Writer, Written};
use crate::mlir::print::{write_float, write_literal};
use hloom_ir::attributes::{DotAlgorithm, ResultAccuracy, RngAlgorithm, RngDistribution};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, ConstantValue, UnaryOp};
use hloom_ir::{Literal, Op, Opcode, Shape};

impl Writer<'_> {
    /// Writes an instruction; gives the names of its value.
    pub(super) fn instruction(&mut self, id: InstructionId) -> Written<Val> {
        let m = self.m;
        let instruction = &m[id];
        let first = |w: &Self| -> Written<Val> {
            match instruction.operands().first() {
                Some(&x) => w.value(x),
                None => Err(w.refuse(id, "short of operands")),
            }
        };
        match &instruction.op {
            Op::Parameter { .. } => self.value(id),
            Op::Constant(value) => self.constant(id, value),
            Op::Tuple => {
                let parts = instruction.operands().iter().map(|&x| self.value(x)).collect::<Written<_>>()?;
                Ok(Val::Tuple(parts))
            }
            Op::GetTupleElement { index } => match first(self)? {
                Val::Tuple(mut parts) if (0..parts.len() as i64).contains(index) => {
                    Ok(parts.swap_remove(*index as usize))
                }
                _ => Err(self.refuse(id, "an element that its tuple has not")),
            },
            // These say where and when, not what.
            Op::Copy | Op::CopyStart { .. } | Op::Domain(_) | Op::AddDependency => first(self),
            Op::CopyDone
            | Op::AsyncDone
            | Op::AsyncUpdate { .. }
            | Op::AllReduceDone
            | Op::AllGatherDone
            | Op::CollectivePermuteDone
            | Op::SendDone(_)
            | Op::RecvDone(_) => first(self),
            Op::While { condition, body } => self.while_loop(id, *condition, *body),
            Op::Conditional { branches } => self.conditional(id, branches),
            Op::Call { to_apply, .. } => self.call(id, *to_apply),
            Op::Fusion(fusion) => self.call(id, fusion.calls),
            Op::AsyncStart(start) => {
                let function = symbol(&self.function_name(start.calls));
                let Some(root) = m.root(start.calls) else { return Err(self.refuse(id, "applying nothing")) };
                let shape = m[root].shape.clone();
                self.call_of(id, &function, &shape)
            }
            Op::OptBarrier => self.barrier(id),
            Op::Infeed { config } => self.infeed(id, config),
            Op::Outfeed { config, .. } => {
                self.generic(id, "stablehlo.outfeed", vec![format!("outfeed_config = {}", quoted(config))])
            }
            Op::Send(transfer) => {
                let attributes = transfer_attributes(transfer.channel_id, transfer.is_host_transfer, false);
                self.generic_of(id, "stablehlo.send", attributes, &Shape::Token)
            }
            Op::Recv(transfer) => {
                let attributes = transfer_attributes(transfer.channel_id, transfer.is_host_transfer, true);
                let data = instruction.shape.as_tuple().and_then(|t| t.first()).cloned();
                let Some(data) = data else { return Err(self.refuse(id, "given no data")) };
                self.generic_of(id, "stablehlo.recv", attributes, &Shape::tuple([data, Shape::Token]))
            }
            Op::CustomCall(call) => self.custom_call(id, call),
            other => self.plain(id, other),
        }
    }

    /// A statement in the generic form.
    fn generic(&mut self, id: InstructionId, name: &str, attributes: Vec<String>) -> Written<Val> {
        let shape = self.m[id].shape.clone();
        self.generic_of(id, name, attributes, &shape)
    }

    fn generic_of(&mut self, id: InstructionId, name: &str, attributes: Vec<String>, shape: &Shape) -> Written<Val> {
        let operands = self.operand_names(id)?.join(", ");
        let (value, results) = self.results(shape);
        let tail = self.tail(id, attributes, shape)?;
        self.line(&format!("{results}\"{name}\"({operands}){tail}"));
        Ok(value)
    }

    /// A statement in the operation's own form: operands, `parts`, and types.
    fn own(&mut self, id: InstructionId, name: &str, parts: &str) -> Written<Val> {
        let shape = self.m[id].shape.clone();
        let operands = self.operand_names(id)?.join(", ");
        let (value, results) = self.results(&shape);
        let comma = if operands.is_empty() || parts.is_empty() || parts.starts_with(' ') { "" } else { ", " };
        let tail = self.tail(id, Vec::new(), &shape)?;
        self.line(&format!("{results}{name} {operands}{comma}{parts}{tail}"));
        Ok(value)
    }

    fn constant(&mut self, id: InstructionId, value: &ConstantValue) -> Written<Val> {
        let ConstantValue::Literal(literal) = value else {
            let message = format!("the value of {} was left out of the dump", self.m[id].name());
            return Err(Box::new(Diagnostic::error(&codes::ELIDED_CONSTANT, message)));
        };
        self.literal(id, literal, 0)
    }

    fn literal(&mut self, id: InstructionId, literal: &Literal, depth: usize) -> Written<Val> {
        match literal {
            Literal::Array(a) => {
                let ty = self.ty(id, &Shape::Array(a.shared_shape().clone()))?;
                let mut text = String::new();
                write_literal(&mut text, a);
                let name = self.fresh();
                let location = self.location(id);
                self.line(&format!("{name} = stablehlo.constant dense<{text}> : {ty}{location}"));
                Ok(Val::One(name))
            }
            Literal::Tuple(parts) if depth < Shape::MAX_DEPTH => {
                Ok(Val::Tuple(parts.iter().map(|p| self.literal(id, p, depth + 1)).collect::<Written<_>>()?))
            }
            _ => {
                let name = self.fresh();
                self.line(&format!("{name} = stablehlo.create_token : !stablehlo.token"));
                Ok(Val::One(name))
            }
        }
    }

    fn plain(&mut self, id: InstructionId, op: &Op) -> Written<Val> {
        match op {
            Op::Unary { op, accuracy } => self.unary(id, *op, *accuracy),
            Op::Binary(BinaryOp::Mulhi) => {
                let types = self.operand_types(id)?;
                let operands = self.operand_names(id)?.join(", ");
                let shape = self.m[id].shape.clone();
                let (value, results) = self.results(&shape);
                let ty = self.ty(id, &shape)?;
                self.line(&format!(
                    "{results}chlo.mulhi {operands} : {} -> {ty}{}",
                    types.join(", "),
                    self.location(id)
                ));
                Ok(value)
            }
            Op::Binary(op) => self.own(id, &format!("stablehlo.{}", underscored(op.opcode())), ""),
            Op::Compare { direction, kind } => {
                let kind = kind.map_or(String::new(), |k| format!(", {}", k.text()));
                let operands = self.operand_names(id)?.join(", ");
                let shape = self.m[id].shape.clone();
                let (value, results) = self.results(&shape);
                let tail = self.tail(id, Vec::new(), &shape)?;
                self.line(&format!("{results}stablehlo.compare {direction}, {operands}{kind}{tail}"));
                Ok(value)
            }
            Op::Iota { dimension } => {
                let shape = self.m[id].shape.clone();
                let (value, results) = self.results(&shape);
                let ty = self.ty(id, &shape)?;
                self.line(&format!("{results}stablehlo.iota dim = {dimension} : {ty}{}", self.location(id)));
                Ok(value)
            }
            Op::ReplicaId | Op::PartitionId => {
                let name = underscored(op.opcode());
                let shape = self.m[id].shape.clone();
                let (value, results) = self.results(&shape);
                let ty = self.ty(id, &shape)?;
                self.line(&format!("{results}stablehlo.{name} : {ty}{}", self.location(id)));
                Ok(value)
            }
            Op::AfterAll => {
                let operands = self.operand_names(id)?;
                let name = self.fresh();
                let text = if operands.is_empty() {
                    format!("{name} = stablehlo.create_token : !stablehlo.token")
                } else {
                    format!("{name} = stablehlo.after_all {} : !stablehlo.token", operands.join(", "))
                };
                self.line(&text);
                Ok(Val::One(name))
            }
            Op::Select => self.own(id, "stablehlo.select", ""),
            Op::Clamp => self.own(id, "stablehlo.clamp", ""),
            Op::Convert => self.own(id, "stablehlo.convert", ""),
            Op::BitcastConvert => self.own(id, "stablehlo.bitcast_convert", ""),
            Op::ReducePrecision { exponent_bits, mantissa_bits } => {
                self.own(id, "stablehlo.reduce_precision", &format!("format = e{exponent_bits}m{mantissa_bits}"))
            }
            Op::Reshape { .. } => self.own(id, "stablehlo.reshape", ""),
            Op::Bitcast if self.is_reshape(id) => self.own(id, "stablehlo.reshape", ""),
            Op::Broadcast { dimensions } => {
                self.own(id, "stablehlo.broadcast_in_dim", &format!("dims = [{}]", list(dimensions)))
            }
            Op::Transpose { dimensions } => {
                self.own(id, "stablehlo.transpose", &format!("dims = [{}]", list(dimensions)))
            }
            Op::Reverse { dimensions } => self.own(id, "stablehlo.reverse", &format!("dims = [{}]", list(dimensions))),
            Op::Concatenate { dimension } => self.own(id, "stablehlo.concatenate", &format!("dim = {dimension}")),
            Op::Slice { dims } => {
                let dims: Vec<String> = dims.iter().map(|d| format!("{}:{}:{}", d.start, d.limit, d.stride)).collect();
                self.own(id, "stablehlo.slice", &format!(" [{}]", dims.join(", ")))
            }
            Op::DynamicSlice { sizes } => {
                self.own(id, "stablehlo.dynamic_slice", &format!("sizes = [{}]", list(sizes)))
            }
            Op::DynamicUpdateSlice => self.own(id, "stablehlo.dynamic_update_slice", ""),
            Op::Pad { padding } => {
                let pick =
                    |f: fn(&hloom_ir::attributes::PaddingDim) -> i64| list(&padding.iter().map(f).collect::<Vec<_>>());
                let (low, high, interior) = (pick(|p| p.low), pick(|p| p.high), pick(|p| p.interior));
                self.own(id, "stablehlo.pad", &format!("low = [{low}], high = [{high}], interior = [{interior}]"))
            }
            Op::GetDimensionSize { dimension } => {
                self.own(id, "stablehlo.get_dimension_size", &format!("dim = {dimension}"))
            }
            Op::SetDimensionSize { dimension } => {
                self.own(id, "stablehlo.set_dimension_size", &format!("dim = {dimension}"))
            }
            Op::Cholesky { lower } => self.own(id, "stablehlo.cholesky", &format!("lower = {lower}")),
            Op::Fft { kind, length } => {
                self.own(id, "stablehlo.fft", &format!("type = {kind}, length = [{}]", list(length)))
            }
            Op::RngBitGenerator { algorithm } => {
                let algorithm = match algorithm {
                    RngAlgorithm::Default => "DEFAULT",
                    RngAlgorithm::ThreeFry => "THREE_FRY",
                    RngAlgorithm::Philox => "PHILOX",
                };
                self.own(id, "stablehlo.rng_bit_generator", &format!("algorithm = {algorithm}"))
            }
            _ => self.structured(id, op),
        }
    }

    fn is_reshape(&self, id: InstructionId) -> bool {
        let row_major = |s: &Shape| s.as_array().is_some_and(|a| a.layout.as_ref().is_none_or(|l| l.is_default()));
        let x = self.m[id].operands().first().map(|&x| &self.m[x].shape);
        x.is_some_and(|x| row_major(x) && x.element_type() == self.m[id].shape.element_type())
            && row_major(&self.m[id].shape)
    }

    fn unary(&mut self, id: InstructionId, op: UnaryOp, accuracy: ResultAccuracy) -> Written<Val> {
        use UnaryOp::*;
        if matches!(op, Acos | Acosh | Asin | Asinh | Atanh | Cosh | Erf | Sinh) {
            let operands = self.operand_names(id)?.join(", ");
            let types = self.operand_types(id)?.join(", ");
            let shape = self.m[id].shape.clone();
            let (value, results) = self.results(&shape);
            let ty = self.ty(id, &shape)?;
            let name = underscored(op.opcode());
            self.line(&format!("{results}chlo.{name} {operands} : {types} -> {ty}{}", self.location(id)));
            return Ok(value);
        }
        let name = match op {
            PopulationCount => "popcnt".to_owned(),
            _ => underscored(op.opcode()),
        };
        let mode = |text: String| vec![format!("result_accuracy = #stablehlo.result_accuracy<{text}>")];
        let attributes = match accuracy {
            ResultAccuracy::Default => Vec::new(),
            ResultAccuracy::Highest => mode("mode = #stablehlo.result_accuracy_mode<HIGHEST>".to_owned()),
            ResultAccuracy::Tolerance { atol, rtol, ulps } => {
                let (mut a, mut r) = (String::new(), String::new());
                write_float(&mut a, f64::from_bits(atol), true);
                write_float(&mut r, f64::from_bits(rtol), true);
                mode(format!(
                    "atol = {a}, rtol = {r}, ulps = {ulps}, mode = #stablehlo.result_accuracy_mode<TOLERANCE>"
                ))
            }
        };
        if attributes.is_empty() {
            return self.own(id, &format!("stablehlo.{name}"), "");
        }
        self.generic(id, &format!("stablehlo.{name}"), attributes)
    }

    fn structured(&mut self, id: InstructionId, op: &Op) -> Written<Val> {
        match op {
            Op::Map { to_apply, dimensions } => self.with_regions(
                id,
                "stablehlo.map",
                &[*to_apply],
                vec![format!("dimensions = {}", array(dimensions))],
            ),
            Op::Reduce { dimensions, to_apply } => self.with_regions(
                id,
                "stablehlo.reduce",
                &[*to_apply],
                vec![format!("dimensions = {}", array(dimensions))],
            ),
            Op::ReduceWindow { window, to_apply } => {
                let mut attributes = Vec::new();
                let names = WindowNames {
                    size: Some("window_dimensions"),
                    base: Some("base_dilations"),
                    dilation: Some("window_dilations"),
                };
                self.window(window, &mut attributes, &names);
                self.with_regions(id, "stablehlo.reduce_window", &[*to_apply], attributes)
            }
            Op::SelectAndScatter { window, select, scatter } => {
                let mut attributes = Vec::new();
                let names = WindowNames { size: Some("window_dimensions"), ..WindowNames::default() };
                self.window(window, &mut attributes, &names);
                self.with_regions(id, "stablehlo.select_and_scatter", &[*select, *scatter], attributes)
            }
            Op::Sort { dimension, is_stable, to_apply } => {
                let attributes = vec![format!("dimension = {dimension} : i64"), format!("is_stable = {is_stable}")];
                self.with_regions(id, "stablehlo.sort", &[*to_apply], attributes)
            }
            Op::Gather(g) => {
                let d = &g.dims;
                let numbers = format!(
                    "dimension_numbers = #stablehlo.gather<offset_dims = [{}], collapsed_slice_dims = [{}], \
                     operand_batching_dims = [{}], start_indices_batching_dims = [{}], start_index_map = [{}], \
                     index_vector_dim = {}>",
                    list(&d.offset_dims),
                    list(&d.collapsed_slice_dims),
                    list(&d.operand_batching_dims),
                    list(&d.start_indices_batching_dims),
                    list(&d.start_index_map),
                    d.index_vector_dim,
                );
                let attributes = vec![
                    numbers,
                    format!("indices_are_sorted = {}", g.indices_are_sorted),
                    format!("slice_sizes = {}", array(&g.slice_sizes)),
                ];
                self.generic(id, "stablehlo.gather", attributes)
            }
            Op::Scatter(s) => {
                let d = &s.dims;
                let numbers = format!(
                    "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [{}], \
                     inserted_window_dims = [{}], input_batching_dims = [{}], scatter_indices_batching_dims = [{}], \
                     scatter_dims_to_operand_dims = [{}], index_vector_dim = {}>",
                    list(&d.update_window_dims),
                    list(&d.inserted_window_dims),
                    list(&d.input_batching_dims),
                    list(&d.scatter_indices_batching_dims),
                    list(&d.scatter_dims_to_operand_dims),
                    d.index_vector_dim,
                );
                let attributes = vec![
                    format!("indices_are_sorted = {}", s.indices_are_sorted),
                    numbers,
                    format!("unique_indices = {}", s.unique_indices),
                ];
                self.with_regions(id, "stablehlo.scatter", &[s.to_apply], attributes)
            }
            Op::Dot(dot) => {
                let d = &dot.dims;
                let mut attributes = vec![format!(
                    "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{}], \
                     rhs_batching_dimensions = [{}], lhs_contracting_dimensions = [{}], \
                     rhs_contracting_dimensions = [{}]>",
                    list(&d.lhs_batch),
                    list(&d.rhs_batch),
                    list(&d.lhs_contracting),
                    list(&d.rhs_contracting),
                )];
                attributes.extend(self.precision(&dot.precision).map(|p| format!("precision_config = {p}")));
                attributes.extend(algorithm(dot.precision.algorithm).map(|a| format!("algorithm = {a}")));
                self.generic(id, "stablehlo.dot_general", attributes)
            }
            Op::RaggedDot(dot) => {
                let d = &dot.dims;
                let attributes = vec![format!(
                    "ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [{}], \
                     rhs_batching_dimensions = [{}], lhs_contracting_dimensions = [{}], \
                     rhs_contracting_dimensions = [{}], lhs_ragged_dimensions = [{}], rhs_group_dimensions = [{}]>",
                    list(&d.lhs_batch),
                    list(&d.rhs_batch),
                    list(&d.lhs_contracting),
                    list(&d.rhs_contracting),
                    list(&dot.lhs_ragged),
                    list(&dot.rhs_group),
                )];
                self.generic(id, "chlo.ragged_dot", attributes)
            }
            Op::Convolution(c) => {
                let mut attributes = vec![
                    format!("batch_group_count = {} : i64", c.batch_group_count),
                    format!("dimension_numbers = {}", self.convolution_numbers(&c.dims)),
                    format!("feature_group_count = {} : i64", c.feature_group_count),
                ];
                let names = WindowNames { size: None, base: Some("lhs_dilation"), dilation: Some("rhs_dilation") };
                self.window(&c.window, &mut attributes, &names);
                let reversed: Vec<&str> =
                    c.window.dims.iter().map(|d| if d.window_reversal { "true" } else { "false" }).collect();
                if !reversed.is_empty() {
                    attributes.push(format!("window_reversal = array<i1: {}>", reversed.join(", ")));
                }
                attributes.extend(self.precision(&c.precision).map(|p| format!("precision_config = {p}")));
                self.generic(id, "stablehlo.convolution", attributes)
            }
            Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
                let attributes = vec![
                    format!("left_side = {left_side}"),
                    format!("lower = {lower}"),
                    format!("transpose_a = #stablehlo<transpose {transpose_a}>"),
                    format!("unit_diagonal = {unit_diagonal}"),
                ];
                self.generic(id, "stablehlo.triangular_solve", attributes)
            }
            Op::BatchNormTraining { epsilon, feature_index }
            | Op::BatchNormInference { epsilon, feature_index }
            | Op::BatchNormGrad { epsilon, feature_index } => {
                let mut text = String::new();
                write_float(&mut text, f64::from(epsilon.get()), false);
                let attributes =
                    vec![format!("epsilon = {text} : f32"), format!("feature_index = {feature_index} : i64")];
                self.generic(id, &format!("stablehlo.{}", underscored(op.opcode())), attributes)
            }
            Op::Rng { distribution } => self.rng(id, *distribution),
            Op::Scan(scan) => self.scan(id, scan),
            Op::TopK { k, largest: true, .. } => {
                let x = self.name(id, 0)?;
                let operand = self.operand_types(id)?.join(", ");
                let shape = self.m[id].shape.clone();
                let (value, results) = self.results(&shape);
                let mut types = Vec::new();
                for (_, leaf) in shape.leaves() {
                    types.push(self.ty(id, leaf)?);
                }
                self.line(&format!(
                    "{results}chlo.top_k({x}, k = {k}) : {operand} -> ({}){}",
                    types.join(", "),
                    self.location(id)
                ));
                Ok(value)
            }
            _ => self.communication(id, op),
        }
    }

    fn communication(&mut self, id: InstructionId, op: &Op) -> Written<Val> {
        let mut attributes = Vec::new();
        match op {
            Op::AllReduce(a) | Op::AllReduceStart(a) => {
                self.collective(id, &a.collective, &mut attributes)?;
                self.with_regions(id, "stablehlo.all_reduce", &[a.to_apply], attributes)
            }
            Op::AllGather(a) | Op::AllGatherStart(a) => {
                attributes.push(format!("all_gather_dim = {} : i64", a.dimension));
                self.collective(id, &a.collective, &mut attributes)?;
                let shape = self.m[id].shape.clone();
                // An asynchronous one holds its operands too.
                let shape = match (op, shape.as_tuple()) {
                    (Op::AllGatherStart(_), Some([_, result, ..])) => result.clone(),
                    _ => shape,
                };
                self.generic_of(id, "stablehlo.all_gather", attributes, &shape)
            }
            Op::ReduceScatter(r) => {
                attributes.push(format!("scatter_dimension = {} : i64", r.dimension));
                self.collective(id, &r.collective, &mut attributes)?;
                self.with_regions(id, "stablehlo.reduce_scatter", &[r.to_apply], attributes)
            }
            Op::CollectiveReduce(r) => {
                attributes.push(format!("has_dynamic_root = {}", r.has_dynamic_root));
                self.collective(id, &r.collective, &mut attributes)?;
                self.with_regions(id, "stablehlo.collective_reduce", &[r.to_apply], attributes)
            }
            Op::AllToAll { collective, split_dimension: Some(split) } => {
                let m = self.m;
                let count = op.group_size(m.config.replica_count, m.config.num_partitions).unwrap_or(1);
                attributes.push(format!("concat_dimension = {split} : i64"));
                attributes.push(format!("split_count = {count} : i64"));
                attributes.push(format!("split_dimension = {split} : i64"));
                self.collective(id, collective, &mut attributes)?;
                self.generic(id, "stablehlo.all_to_all", attributes)
            }
            Op::CollectiveBroadcast { collective, has_dynamic_root } => {
                if *has_dynamic_root {
                    attributes.push("has_dynamic_root = true".to_owned());
                }
                self.collective(id, collective, &mut attributes)?;
                self.generic(id, "stablehlo.collective_broadcast", attributes)
            }
            Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) if p.slice_sizes.is_empty() => {
                let pairs: Vec<Vec<i64>> = p.source_target_pairs.iter().map(|&(s, t)| vec![s, t]).collect();
                attributes.push(format!("source_target_pairs = {}", matrix(&pairs, 2)));
                attributes.extend(p.channel_id.map(|c| channel_handle(c, 1)));
                let shape = self.m[id].shape.clone();
                let shape = match (op, shape.as_tuple()) {
                    (Op::CollectivePermuteStart(_), Some([_, result, ..])) => result.clone(),
                    _ => shape,
                };
                self.generic_of(id, "stablehlo.collective_permute", attributes, &shape)
            }
            other => Err(self.refuse(id, format_args!("{}", other.opcode()))),
        }
    }

    fn rng(&mut self, id: InstructionId, distribution: RngDistribution) -> Written<Val> {
        let shape = self.m[id].shape.clone();
        let dims = shape.as_array().map(|a| a.dims().to_vec()).unwrap_or_default();
        let sizes = self.fresh();
        let text = if dims.is_empty() { String::new() } else { format!("[{}]", list(&dims)) };
        self.line(&format!("{sizes} = stablehlo.constant dense<{text}> : tensor<{}xi64>", dims.len()));
        let (a, b) = (self.name(id, 0)?, self.name(id, 1)?);
        let types = self.operand_types(id)?.join(", ");
        let (value, results) = self.results(&shape);
        let distribution = match distribution {
            RngDistribution::Uniform => "UNIFORM",
            RngDistribution::Normal => "NORMAL",
        };
        let ty = self.ty(id, &shape)?;
        self.line(&format!(
            "{results}stablehlo.rng {a}, {b}, {sizes}, distribution = {distribution} : ({types}, tensor<{}xi64>) -> {ty}",
            dims.len()
        ));
        Ok(value)
    }

    fn barrier(&mut self, id: InstructionId) -> Written<Val> {
        let operands = self.operand_names(id)?;
        let types = self.operand_types(id)?;
        let shape = self.m[id].shape.clone();
        let (value, results) = self.results(&shape);
        let text = if operands.is_empty() {
            "stablehlo.optimization_barrier ()".to_owned()
        } else {
            format!("stablehlo.optimization_barrier {} : {}", operands.join(", "), types.join(", "))
        };
        self.line(&format!("{results}{text}"));
        Ok(value)
    }

    /// HLO's infeed gives ((data…), token), which is how its value is named here, too.
    fn infeed(&mut self, id: InstructionId, config: &[u8]) -> Written<Val> {
        self.generic(id, "stablehlo.infeed", vec![format!("infeed_config = {}", quoted(config))])
    }
}

/// The types and the number of products of a dot algorithm; `None` where nothing is said.
fn algorithm(algorithm: DotAlgorithm) -> Option<String> {
    use DotAlgorithm::*;
    let (operand, sum, products, imprecise) = match algorithm {
        Unset => return None,
        AnyF8AnyF8F32 => ("f8E4M3FN", "f32", 1, false),
        AnyF8AnyF8F32FastAccum => ("f8E4M3FN", "f32", 1, true),
        F16F16F16 => ("f16", "f16", 1, false),
        F16F16F32 => ("f16", "f32", 1, false),
        Bf16Bf16Bf16 => ("bf16", "bf16", 1, false),
        Bf16Bf16F32 => ("bf16", "f32", 1, false),
        Bf16Bf16F32X3 => ("bf16", "f32", 3, false),
        Bf16Bf16F32X6 => ("bf16", "f32", 6, false),
        Bf16Bf16F32X9 => ("bf16", "f32", 9, false),
        Tf32Tf32F32 => ("tf32", "f32", 1, false),
        Tf32Tf32F32X3 => ("tf32", "f32", 3, false),
        F32F32F32 => ("f32", "f32", 1, false),
        F64F64F64 => ("f64", "f64", 1, false),
    };
    Some(format!(
        "#stablehlo.dot_algorithm<lhs_precision_type = {operand}, rhs_precision_type = {operand}, \
         accumulation_type = {sum}, lhs_component_count = 1, rhs_component_count = 1, \
         num_primitive_operations = {products}, allow_imprecise_accumulation = {imprecise}>"
    ))
}

fn transfer_attributes(channel: Option<i64>, is_host_transfer: bool, receives: bool) -> Vec<String> {
    let kind = match (is_host_transfer, receives) {
        (false, _) => 1,
        (true, false) => 2,
        (true, true) => 3,
    };
    vec![channel_handle(channel.unwrap_or(0), kind), format!("is_host_transfer = {is_host_transfer}")]
}

/// An opcode in StableHLO's spelling.
fn underscored(opcode: Opcode) -> String {
    opcode.name().replace('-', "_")
}
