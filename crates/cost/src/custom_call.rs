//! What calls to the outside cost: by what is given for them, or by a formula for the libraries found in dumps.
//!
//! A call of which neither is known is an error that names it, never a guess.

use crate::kernel::{Kernel, KernelKind};
use crate::matmul::Matmul;
use crate::model::{CostModel, InstructionCost};
use crate::work::{Work, elements, factorises};
use hloom_ir::ElementType;
use hloom_ir::attributes::PrecisionConfig;
use hloom_ir::diagnostic::codes::simulate::UNKNOWN_COST;
use hloom_ir::diagnostic::{Blame, Diagnostic, Part};
use hloom_ir::entity::InstructionId;
use hloom_ir::op::CustomCall;
use hloom_ir::shape::{ArrayShape, Shape};

/// What a call costs, as someone says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CustomCost {
    /// So many seconds.
    Seconds(f64),
    /// So many cycles of the target.
    Cycles(f64),
    /// So many operations at the rate of products of its first operand's type, or its traffic if that takes longer.
    Flops(f64),
    /// Its traffic.
    Traffic,
    /// Attention: the scores of its first operand (queries) with its second (keys), and their product with the values.
    Attention {
        /// The gradients of it.
        is_backward: bool,
    },
}

impl CustomCost {
    /// What is written so: `12us`, `1.5ms`, `0.2s`, `3e6cycles`, `4e12flops`, `attention`, `attention-backward`, `memory`.
    pub fn parse(text: &str) -> Option<CustomCost> {
        let number = |unit: &str| {
            let n: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            (n.is_finite() && n >= 0.0).then_some(n)
        };
        match text {
            "attention" => return Some(CustomCost::Attention { is_backward: false }),
            "attention-backward" => return Some(CustomCost::Attention { is_backward: true }),
            "memory" => return Some(CustomCost::Traffic),
            _ => {}
        }
        number("cycles")
            .map(CustomCost::Cycles)
            .or_else(|| number("flops").map(CustomCost::Flops))
            .or_else(|| number("ns").map(|n| CustomCost::Seconds(n * 1e-9)))
            .or_else(|| number("us").map(|n| CustomCost::Seconds(n * 1e-6)))
            .or_else(|| number("ms").map(|n| CustomCost::Seconds(n * 1e-3)))
            .or_else(|| number("s").map(CustomCost::Seconds))
    }

    /// What the instruction costs by it.
    pub(crate) fn cost(self, model: &CostModel<'_>, id: InstructionId) -> Result<InstructionCost, Diagnostic> {
        match self {
            CustomCost::Seconds(seconds) => {
                let cycles = model.target().compute.clock_hz.map(|hz| seconds * hz);
                Ok(InstructionCost { cycles, ..InstructionCost::of_seconds(seconds) })
            }
            CustomCost::Cycles(cycles) => {
                let seconds = cycles / model.target().clock()?;
                Ok(InstructionCost { cycles: Some(cycles), ..InstructionCost::of_seconds(seconds) })
            }
            CustomCost::Traffic => called(model, id, Work::default()),
            CustomCost::Flops(flops) => {
                let mut matmul = product_of_operands(model, id)
                    .ok_or_else(|| unknown(model, id, "its operands have no type to compute with"))?;
                matmul.flops = flops;
                called(model, id, Work { matmuls: [matmul].into_iter().collect(), ..Work::default() })
            }
            CustomCost::Attention { is_backward } => {
                let matmul = attention(model, id, is_backward)
                    .ok_or_else(|| unknown(model, id, "its first two operands are no queries and keys"))?;
                called(model, id, Work { matmuls: [matmul].into_iter().collect(), ..Work::default() })
            }
        }
    }
}

/// What the call costs: as `given`, or by the formula for its target.
pub(crate) fn cost(
    model: &CostModel<'_>,
    id: InstructionId,
    call: &CustomCall,
    given: Option<&CustomCost>,
) -> Result<InstructionCost, Diagnostic> {
    if let Some(given) = given {
        return given.cost(model, id);
    }
    if factorises(&model.module()[id].op) {
        return called(model, id, Work::of(model.module(), id));
    }
    match formula(&call.target) {
        Some(Formula::Free) => Ok(InstructionCost::free()),
        Some(Formula::Traffic) => CustomCost::Traffic.cost(model, id),
        Some(Formula::Attention { is_backward }) => CustomCost::Attention { is_backward }.cost(model, id),
        Some(Formula::Gemm) => {
            let gemm = gemm(model, id).ok_or_else(|| unknown(model, id, "its operands are no matrices"))?;
            called(model, id, Work { matmuls: [gemm].into_iter().collect(), ..Work::default() })
        }
        Some(Formula::Convolution) => {
            let conv =
                convolution(model, id, call).ok_or_else(|| unknown(model, id, "its operands are no convolution's"))?;
            called(model, id, Work { matmuls: [conv].into_iter().collect(), ..Work::default() })
        }
        None => Err(unknown(model, id, "there is no formula for it")),
    }
}

/// Whether a call is estimated by a formula that someone may want to know of: attention.
pub fn is_estimated_as_attention(target: &str) -> bool {
    matches!(formula(target), Some(Formula::Attention { .. }))
}

enum Formula {
    Free,
    Traffic,
    Gemm,
    Convolution,
    Attention { is_backward: bool },
}

/// The formula for a call of that target.
fn formula(target: &str) -> Option<Formula> {
    Some(match target {
        // Annotations, and values seen in another way.
        "Sharding"
        | "SPMDFullToShardShape"
        | "SPMDShardToFullShape"
        | "ConcatBitcast"
        | "AllocateBuffer"
        | "AssumeGatherIndicesInBound"
        | "AsyncCollectiveStart"
        | "AsyncCollectiveDone"
        | "annotate_device_placement"
        | "LayoutConstraint"
        | "xla.sdy.FuncResultSharding" => Formula::Free,
        "X64SplitLow"
        | "X64SplitHigh"
        | "X64Combine"
        | "GatherScatterIndicesBitpacked"
        | "TopK"
        | "PadToStatic"
        | "SliceToDynamic"
        | "MoveToHost"
        | "MoveToDevice"
        | "__gpu$TopK"
        | "__op$quantize"
        | "__op$dequantize"
        | "__cublas$triangularSolve" => Formula::Traffic,
        t if t.starts_with("__cub$") || t.starts_with("xla.gpu.ext.cub_") => Formula::Traffic,
        t if t.starts_with("__cublas$") || t == "__onednn$matmul" || t == "__triton_gemm" => Formula::Gemm,
        t if t.starts_with("__cudnn$conv") || t == "__onednn$convolution" => Formula::Convolution,
        t if t.starts_with("te_fused_attn_") || t.starts_with("__cudnn$fmha") => {
            Formula::Attention { is_backward: t.contains("backward") || t.contains("Backward") }
        }
        t if t.starts_with("te_") && t.contains("norm") => Formula::Traffic,
        t if t.starts_with("__cudnn$") => Formula::Traffic,
        _ => return None,
    })
}

fn unknown(model: &CostModel<'_>, id: InstructionId, why: &str) -> Diagnostic {
    let instruction = &model.module()[id];
    let target = match &instruction.op {
        hloom_ir::op::Op::CustomCall(call) => call.target.to_string(),
        _ => instruction.name().to_owned(),
    };
    let message = format!("what `{}` costs is not known: it calls `{target}`, and {why}", instruction.name());
    Diagnostic::error(&UNKNOWN_COST, message)
        .at_instruction(id, Part::Attribute("custom_call_target"))
        .blame(Blame::Data)
        .help(format!("say it with `--cost {target}=12us` (or …cycles, …flops, memory, attention)"))
}

/// The cost of a call that computes `work` and reads and writes its arrays once.
fn called(model: &CostModel<'_>, id: InstructionId, work: Work) -> Result<InstructionCost, Diagnostic> {
    let mut kernel: Kernel = model.kernel(id);
    kernel.kind = if work.matmuls.is_empty() { KernelKind::Single } else { KernelKind::Matmul };
    kernel.work = work;
    model.kernel_cost(&kernel)
}

fn operand<'m>(model: &CostModel<'m>, id: InstructionId, n: usize) -> Option<&'m ArrayShape> {
    let module = model.module();
    module[*module[id].operands().get(n)?].shape.as_array()
}

fn result<'m>(model: &CostModel<'m>, id: InstructionId) -> Option<&'m ArrayShape> {
    match &model.module()[id].shape {
        Shape::Tuple(parts) => parts.first()?.as_array(),
        shape => shape.as_array(),
    }
}

/// A product whose flops someone else knows.
fn product_of_operands(model: &CostModel<'_>, id: InstructionId) -> Option<Matmul> {
    let lhs = operand(model, id, 0)?;
    let element_type = if lhs.element_type.is_float() { lhs.element_type } else { ElementType::F32 };
    let shape = ArrayShape::new(element_type, [1]);
    Some(Matmul::dot(&shape, &shape, &shape, 1.0, 1.0, &PrecisionConfig::default()))
}

/// The product that a gemm of a library is: what it contracts follows from the sizes, batch dimensions set aside.
fn gemm(model: &CostModel<'_>, id: InstructionId) -> Option<Matmul> {
    let (lhs, rhs, result) = (operand(model, id, 0)?, operand(model, id, 1)?, result(model, id)?);
    let rank = result.rank();
    let batch: f64 = result.dims()[..rank.saturating_sub(2)].iter().map(|&d| d.max(1) as f64).product();
    let (l, r, o) = (elements(lhs) / batch, elements(rhs) / batch, elements(result) / batch);
    // Rows × contracted, contracted × columns and rows × columns give the square of what is contracted.
    let contracted = (l * r / o.max(1.0)).sqrt().round();
    Some(Matmul::dot(lhs, rhs, result, contracted, batch, &PrecisionConfig::default()))
}

fn convolution(model: &CostModel<'_>, id: InstructionId, call: &CustomCall) -> Option<Matmul> {
    let (lhs, rhs, result) = (operand(model, id, 0)?, operand(model, id, 1)?, result(model, id)?);
    let (window, dims) = (call.window.as_ref()?, call.conv_dims.as_ref()?);
    let groups = call.batch_group_count.max(1) as f64;
    Some(Matmul::convolution(lhs, rhs, result, window, dims, groups, &PrecisionConfig::default()))
}

/// Scores and their product with the values, as one product: twice the contracted elements of the scores.
fn attention(model: &CostModel<'_>, id: InstructionId, is_backward: bool) -> Option<Matmul> {
    let (queries, keys) = (operand(model, id, 0)?, operand(model, id, 1)?);
    let (&[qb, q1, q2, qd], &[_, k1, k2, _]) = (queries.dims(), keys.dims()) else { return None };
    // Heads and positions are in either order: there are more positions than heads wherever it matters.
    let (positions, heads) = (q1.max(q2).max(1) as f64, q1.min(q2).max(1) as f64);
    let keys_seen = k1.max(k2).max(1) as f64;
    let config = model.module()[id].common.backend_config.as_deref().and_then(|c| std::str::from_utf8(c).ok());
    let share = if config.is_some_and(is_causal) { 0.5 } else { 1.0 };
    // Five products instead of two.
    let products = if is_backward { 5.0 } else { 2.0 };
    let batch = qb.max(1) as f64 * heads;
    let flops = 2.0 * products * share * batch * positions * keys_seen * qd.max(1) as f64;
    let shape = ArrayShape::new(queries.element_type, [1]);
    let mut matmul = Matmul::dot(&shape, &shape, &shape, 1.0, 1.0, &PrecisionConfig::default());
    (matmul.rows, matmul.columns, matmul.contracted) = (positions, keys_seen, products * share * qd.max(1) as f64);
    (matmul.batch, matmul.flops) = (batch, flops);
    Some(matmul)
}

/// Whether the configuration of an attention says that positions see those before them only.
fn is_causal(config: &str) -> bool {
    let mask = config.split_once("mask_type").map(|(_, rest)| rest.trim_start_matches([' ', '=', ':', '"']));
    mask.is_some_and(|m| m.starts_with(['2', '3', '4', '5']) || m.to_ascii_uppercase().starts_with("CAUSAL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_written_with_their_unit() {
        assert_eq!(CustomCost::parse("12us"), Some(CustomCost::Seconds(12.0 * 1e-6)));
        assert_eq!(CustomCost::parse("2s"), Some(CustomCost::Seconds(2.0)));
        assert_eq!(CustomCost::parse("3e6cycles"), Some(CustomCost::Cycles(3e6)));
        assert_eq!(CustomCost::parse("4e12flops"), Some(CustomCost::Flops(4e12)));
        assert_eq!(CustomCost::parse("attention-backward"), Some(CustomCost::Attention { is_backward: true }));
        for wrong in ["12", "us", "-1us", "nanus", "infs", "12 parsecs", ""] {
            assert_eq!(CustomCost::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn masks_are_read() {
        assert!(is_causal("is_training = true, mask_type = 3 : i64"));
        assert!(is_causal(r#"{"mask_type":"CAUSAL"}"#));
        assert!(!is_causal("mask_type = 0 : i64") && !is_causal("bias = 2"));
    }
}
