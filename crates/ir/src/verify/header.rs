//! The header against the entry computation: layouts, aliases, donors, counts; and what instructions say of their past.

use super::calls::index_text;
use super::shapes::check_in_header;
use super::{Context, Report, VerifyOptions, at};
use crate::attributes::AliasKind;
use crate::diagnostic::codes::verify as codes;
use crate::diagnostic::{Diagnostic, Part, Place, Severity};
use crate::entity::{ComputationId, InstructionId};
use crate::infer::{compatible, counted, text};
use crate::instruction::{OriginTree, OriginalValue};
use crate::module::Module;
use crate::shape::{ArrayShape, Shape, ShapeIndex};
use rustc_hash::FxHashMap;

/// Checks the header of a module whose structure is sound.
pub(super) fn check(context: &Context, options: &VerifyOptions, report: &mut Report) {
    let module = context.module;
    counts(module, options, report);
    recovery_table(module, report);
    let Some(entry) = module.entry() else { return };
    entry_layout(context, entry, report);
    aliases(context, entry, report);
}

fn header_error(code: &'static crate::diagnostic::Code, message: String) -> Diagnostic {
    Diagnostic::error(code, message).at_place(Place::Header)
}

fn counts(module: &Module, options: &VerifyOptions, report: &mut Report) {
    let (replicas, partitions) = (module.config.replica_count, module.config.num_partitions);
    for (what, count) in [("replica_count", replicas), ("num_partitions", partitions)] {
        if count < 1 {
            report.add(header_error(&codes::DEVICE_COUNTS, format!("{what} is {count}, but must be at least 1")));
        }
    }
    let Some(total) = replicas.checked_mul(partitions) else {
        report.add(header_error(
            &codes::DEVICE_COUNTS,
            format!("{replicas} replicas of {partitions} partitions are more devices than can be counted"),
        ));
        return;
    };
    match options.devices {
        Some(devices) if total > 1 && devices != total => report.add(
            header_error(
                &codes::DEVICE_COUNTS,
                format!("the program is for {total} devices, but is to run on {devices}"),
            )
            .note(format!("the header says replica_count={replicas}, num_partitions={partitions}")),
        ),
        _ => {}
    }
}

/// The programs in the recovery table are valid. Readers nest them no deeper than a few levels.
fn recovery_table(module: &Module, report: &mut Report) {
    for entry in &module.config.origin_recovery_table {
        let Some(recovery) = &entry.recovery else { continue };
        let findings = super::check(recovery, &VerifyOptions::default());
        if let Some(error) = findings.iter().find(|d| d.severity == Severity::Error) {
            report.add(header_error(
                &codes::RECOVERY_MODULE,
                format!("the module that recovers `{}` is wrong: {}", entry.old.instruction_name, error.message),
            ));
        }
    }
}

/// `entry_computation_layout` has the shapes of the entry's parameters and root.
fn entry_layout(context: &Context, entry: ComputationId, report: &mut Report) {
    let Some(layout) = &context.module.config.entry_layout else { return };
    layout.parameters.iter().chain([&layout.result]).for_each(|s| check_in_header(s, report));
    let parameters = context.facts.parameters(entry);
    if parameters.len() != layout.parameters.len() {
        report.add(
            header_error(
                &codes::ENTRY_LAYOUT,
                format!(
                    "entry_computation_layout has {}, but the entry `{}` has {}",
                    counted(layout.parameters.len(), "parameter"),
                    context.computation_name(entry),
                    parameters.len()
                ),
            )
            .note_at("the entry is defined here", Place::Computation(entry)),
        );
        return;
    }
    for (n, (&parameter, said)) in parameters.iter().zip(&layout.parameters).enumerate() {
        let shape = &context.module[parameter].shape;
        if !compatible(shape, said) {
            report.add(
                header_error(
                    &codes::ENTRY_LAYOUT,
                    format!(
                        "entry_computation_layout says {} for parameter {n}, but `{}` is {}",
                        text(said),
                        context.name(parameter),
                        text(shape)
                    ),
                )
                .note_at(format!("`{}` is here", context.name(parameter)), at(parameter)),
            );
        }
    }
    if let Some(root) = context.facts.root(entry) {
        let shape = &context.module[root].shape;
        if !compatible(shape, &layout.result) {
            report.add(
                header_error(
                    &codes::ENTRY_LAYOUT,
                    format!(
                        "entry_computation_layout says {} for the result, but `{}` is {}",
                        text(&layout.result),
                        context.name(root),
                        text(shape)
                    ),
                )
                .note_at(format!("`{}` is here", context.name(root)), at(root)),
            );
        }
    }
}

/// `input_output_alias` and `buffer_donor`.
fn aliases(context: &Context, entry: ComputationId, report: &mut Report) {
    let config = &context.module.config;
    let Some(result) = context.facts.root(entry).map(|r| &context.module[r].shape) else { return };
    let mut outputs: FxHashMap<&ShapeIndex, usize> = FxHashMap::default();
    let mut inputs: FxHashMap<(i64, &ShapeIndex), usize> = FxHashMap::default();
    for (n, alias) in config.input_output_alias.iter().enumerate() {
        let what = format!(
            "input_output_alias {}: ({}, {})",
            index_text(&alias.output_index),
            alias.parameter,
            index_text(&alias.parameter_index)
        );
        if outputs.insert(&alias.output_index, n).is_some() {
            let message = format!("{what}: part {} of the result is aliased already", index_text(&alias.output_index));
            report.add(header_error(&codes::ALIASED_TWICE, message));
        }
        if inputs.insert((alias.parameter, &alias.parameter_index), n).is_some() {
            report.add(header_error(
                &codes::ALIASED_TWICE,
                format!(
                    "{what}: part {} of parameter {} is aliased already",
                    index_text(&alias.parameter_index),
                    alias.parameter
                ),
            ));
        }
        let Some(input) = parameter_part(context, entry, &what, alias.parameter, &alias.parameter_index, report) else {
            continue;
        };
        let output = match result.at(&alias.output_index) {
            Some(Shape::Array(output)) => output,
            other => {
                let why = match other {
                    None => "does not exist".to_owned(),
                    Some(s) => format!("is {}, not an array", text(s)),
                };
                let message = format!("{what}: part {} of the result {why}", index_text(&alias.output_index));
                report.add(header_error(&codes::ALIAS_PART, message));
                continue;
            }
        };
        if !share_memory(input, output, alias.kind) {
            report.add(header_error(&codes::ALIAS_SHAPE, format!("{what}: {input} and {output} cannot share memory")));
        }
    }
    for donor in &config.buffer_donors {
        let what = format!("buffer_donor ({}, {})", donor.parameter, index_text(&donor.parameter_index));
        parameter_part(context, entry, &what, donor.parameter, &donor.parameter_index, report);
        if inputs.contains_key(&(donor.parameter, &donor.parameter_index)) {
            report.add(
                header_error(&codes::ALIASED_TWICE, format!("{what}: the same part is in input_output_alias"))
                    .help("leave one of the two out"),
            );
        }
    }
}

/// The array at `index` of an entry parameter, or a finding that there is none.
fn parameter_part<'m>(
    context: &Context<'m>,
    entry: ComputationId,
    what: &str,
    parameter: i64,
    index: &ShapeIndex,
    report: &mut Report,
) -> Option<&'m ArrayShape> {
    let parameters = context.facts.parameters(entry);
    let Some(&id) = usize::try_from(parameter).ok().and_then(|p| parameters.get(p)) else {
        report.add(header_error(
            &codes::ALIAS_PART,
            format!(
                "{what}: there is no parameter {parameter}, the entry `{}` has {}",
                context.computation_name(entry),
                parameters.len()
            ),
        ));
        return None;
    };
    let shape = &context.module[id].shape;
    let why = match shape.at(index) {
        Some(Shape::Array(array)) => return Some(array),
        None => "does not exist".to_owned(),
        Some(s) => format!("is {}, not an array", text(s)),
    };
    report.add(
        header_error(
            &codes::ALIAS_PART,
            format!("{what}: part {} of parameter {parameter} ({}) {why}", index_text(index), text(shape)),
        )
        .note_at(format!("`{}` is here", context.name(id)), at(id)),
    );
    None
}

/// What must share memory has one shape; what may has one size, unless tiles pad the two differently.
fn share_memory(input: &ArrayShape, output: &ArrayShape, kind: AliasKind) -> bool {
    let tiled = |a: &ArrayShape| a.layout.as_ref().is_some_and(|l| !l.tiles.is_empty());
    let unbounded = input.is_unbounded() || output.is_unbounded();
    input.same_dims_and_type(output)
        || unbounded
        || (kind == AliasKind::May && (tiled(input) || tiled(output) || input.byte_size() == output.byte_size()))
}

/// Warnings about where instruction `id` says it came from.
pub(super) fn check_provenance(context: &Context, id: InstructionId, report: &mut Report) {
    let instruction = &context.module[id];
    if let Some(metadata) = &instruction.common.metadata {
        let frames = context.module.stack_frames.frames.len();
        // Many dumps leave the table out altogether.
        if frames > 0 && usize::try_from(metadata.stack_frame_id).map_or(true, |f| f > frames) {
            report.add(
                Diagnostic::warning(
                    &codes::STACK_FRAME,
                    format!(
                        "`{}` names stack frame {}, but there are {frames}",
                        instruction.name(),
                        metadata.stack_frame_id
                    ),
                )
                .at_instruction(id, Part::Attribute("metadata")),
            );
        }
    }
    if let Some(OriginalValue::Tree(tree)) = instruction.common.rare.as_ref().and_then(|r| r.origin.as_ref())
        && !has_form(tree, &instruction.shape, 0)
    {
        report.add(
            Diagnostic::warning(
                &codes::ORIGIN_FORM,
                format!(
                    "the origin of `{}` does not have the form of its shape {}",
                    instruction.name(),
                    text(&instruction.shape)
                ),
            )
            .at_instruction(id, Part::Attribute("origin")),
        );
    }
}

fn has_form(tree: &OriginTree, shape: &Shape, depth: usize) -> bool {
    match (tree, shape) {
        (OriginTree::Tuple(parts), Shape::Tuple(shapes)) => {
            depth < Shape::MAX_DEPTH
                && parts.len() == shapes.len()
                && parts.iter().zip(shapes.iter()).all(|(p, s)| has_form(p, s, depth + 1))
        }
        (OriginTree::Leaf(_), Shape::Tuple(_)) | (OriginTree::Tuple(_), _) => false,
        (OriginTree::Leaf(_), _) => true,
    }
}
