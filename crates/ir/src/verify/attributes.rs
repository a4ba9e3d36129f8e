//! Attributes that shapes do not depend on; all others are checked by [`crate::infer`].

use super::{Context, Report, shardings};
use crate::attributes::{ComparisonType, ResultAccuracy};
use crate::diagnostic::codes::verify as codes;
use crate::diagnostic::{Diagnostic, Part};
use crate::element_type::ElementType;
use crate::entity::InstructionId;
use crate::op::Op;

/// Checks the attributes of instruction `id`.
pub(super) fn check(context: &Context, id: InstructionId, report: &mut Report) {
    let instruction = &context.module[id];
    match &instruction.op {
        Op::Parameter { replication: Some(replication), .. } => {
            let leaves = instruction.shape.leaf_count();
            if replication.len() != leaves {
                report.add(
                    Diagnostic::error(
                        &codes::PARAMETER_REPLICATION,
                        format!(
                            "parameter_replication of `{}` has {} entries, but the parameter has {leaves} leaves",
                            instruction.name(),
                            replication.len()
                        ),
                    )
                    .at_instruction(id, Part::Attribute("parameter_replication")),
                );
            }
        }
        Op::Unary { op, accuracy } if *accuracy != ResultAccuracy::Default && !op.takes_result_accuracy() => report
            .add(
                Diagnostic::error(
                    &codes::RESULT_ACCURACY,
                    format!("{} `{}` is exact and takes no result_accuracy", op.opcode(), instruction.name()),
                )
                .at_instruction(id, Part::Attribute("result_accuracy")),
            ),
        Op::Unary { accuracy: ResultAccuracy::Tolerance { atol, rtol, ulps }, .. } => {
            let bounds = [f64::from_bits(*atol), f64::from_bits(*rtol), *ulps as f64];
            // NaN is no bound either.
            if !bounds.iter().all(|b| *b >= 0.0) {
                report.add(
                    Diagnostic::error(
                        &codes::RESULT_ACCURACY,
                        format!("result_accuracy of `{}` has a tolerance below zero", instruction.name()),
                    )
                    .at_instruction(id, Part::Attribute("result_accuracy")),
                );
            }
        }
        Op::Compare { kind: Some(kind), .. } => comparison(context, id, *kind, report),
        Op::Domain(domain) => {
            shardings::check(context, id, "domain", &domain.entry, report);
            shardings::check(context, id, "domain", &domain.exit, report);
        }
        _ => {}
    }
    if let Some(sharding) = &instruction.common.sharding {
        shardings::check(context, id, "sharding", sharding, report);
    }
}

/// Only a warning: XLA's own path through MLIR drops the type and compares as the operands' type wants it.
fn comparison(context: &Context, id: InstructionId, kind: ComparisonType, report: &mut Report) {
    let instruction = &context.module[id];
    let Some(t) = instruction.operands().first().and_then(|&o| context.module[o].shape.element_type()) else { return };
    let fits = match kind {
        ComparisonType::Float => t.is_float() || t.is_complex(),
        ComparisonType::TotalOrder => t.is_float(),
        ComparisonType::Signed => t.is_signed_integer(),
        ComparisonType::Unsigned => t.is_unsigned_integer() || t == ElementType::Pred,
    };
    if !fits {
        report.add(
            Diagnostic::warning(
                &codes::COMPARISON_TYPE,
                format!("`{}` compares {t}, which type={kind} is not for", instruction.name()),
            )
            .at_instruction(id, Part::Attribute("type")),
        );
    }
}
