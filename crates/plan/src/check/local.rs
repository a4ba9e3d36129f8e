//! Values of computations that are applied to elements (the sum of a reduction, the order of a sort): memory of each
//! thread's own, one place each.

use super::assignment::Assignment;
use crate::positions::Positions;
use hloom_ir::diagnostic::codes::plan::{DUMP_NAMES, OVERLAP, WRONG_KIND};
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashSet;

/// How a computation is run, by what leads to it from the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Not at all, or within a fusion, which has no memory inside.
    None,
    Step,
    Local,
}

pub(super) fn check(positions: &Positions<'_>, assignment: &Assignment, faults: &mut Vec<Diagnostic>) {
    let module = positions.module();
    let kinds = kinds(module);
    let kind_of = |id: InstructionId| kinds[module[id].parent().index()];
    let mut placed: FxHashSet<u32> = FxHashSet::default();
    let inner = module.computations().iter().filter(|c| kinds[c.index()] != Kind::Step);
    let has_steps = inner.flat_map(|&c| module[c].instructions()).any(|&id| is_step(&module[id].op));
    for (number, allocation) in assignment.allocations.iter().enumerate() {
        // Sorted by where they begin, so that neighbours are all there is to compare.
        let mut local: Vec<(i64, i64, InstructionId)> = Vec::new();
        for piece in &allocation.pieces {
            let at = |d: Diagnostic| d.at_instruction(piece.instruction, Part::Whole);
            let name = module[piece.instruction].name();
            placed.extend(positions.part(piece.instruction, &piece.index).map(|p| p.start));
            match (kind_of(piece.instruction), allocation.is_thread_local) {
                (Kind::Local, true) => local.push((piece.offset, piece.size, piece.instruction)),
                (Kind::Local, false) if !allocation.is_constant => {
                    let message = format!("`{name}` is local to a thread, but allocation {number} is not");
                    faults.push(at(Diagnostic::error(&WRONG_KIND, message)));
                }
                (Kind::Step, true) => {
                    let message = format!("allocation {number} is local to a thread, but `{name}` is not");
                    faults.push(at(Diagnostic::error(&WRONG_KIND, message)));
                }
                _ => {}
            }
        }
        // What such computations call and carry round lies where it came from; there are hardly any that do.
        if has_steps {
            continue;
        }
        local.sort_unstable_by_key(|l| (l.0, l.1));
        for pair in local.windows(2) {
            let [(start, size, a), (next, _, b)] = pair else { continue };
            if *size > 0 && start + size > *next && !writes_into(module, *a, *b) && !writes_into(module, *b, *a) {
                let (a_name, b_name) = (module[*a].name(), module[*b].name());
                let message = format!("`{a_name}` and `{b_name}` lie over each other in allocation {number}");
                faults.push(Diagnostic::error(&OVERLAP, message).at_instruction(*b, Part::Whole));
            }
        }
    }
    if has_steps {
        return;
    }
    for &computation in module.computations().iter().filter(|c| kinds[c.index()] == Kind::Local) {
        for &id in module[computation].instructions() {
            if makes_a_value(&module[id].op) && !placed.contains(&positions.whole(id)) {
                let message = format!("`{}` has no place", module[id].name());
                faults.push(Diagnostic::error(&DUMP_NAMES, message).at_instruction(id, Part::Whole));
            }
        }
    }
}

/// Whether one of them is an in-place operation on the other.
fn writes_into(module: &Module, writer: InstructionId, operand: InstructionId) -> bool {
    let in_place = matches!(module[writer].op, Op::DynamicUpdateSlice | Op::Scatter(_) | Op::SetDimensionSize { .. });
    in_place && module[writer].operands().contains(&operand)
}

fn makes_a_value(op: &Op) -> bool {
    !matches!(
        op,
        Op::Bitcast
            | Op::GetTupleElement { .. }
            | Op::AddDependency
            | Op::OptBarrier
            | Op::Domain(_)
            | Op::CopyDone
            | Op::AllReduceDone
            | Op::While { .. }
            | Op::Conditional { .. }
            | Op::Call { .. }
            | Op::AsyncDone
            | Op::AllGatherDone
            | Op::CollectivePermuteDone
    )
}

fn is_step(op: &Op) -> bool {
    matches!(op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_))
}

fn kinds(module: &Module) -> Vec<Kind> {
    let mut kinds = vec![Kind::None; module.computation_slots()];
    let mut in_fusion = vec![false; module.computation_slots()];
    let mut stack: Vec<(ComputationId, Kind)> = module.entry().into_iter().map(|e| (e, Kind::Step)).collect();
    // Steps first: what is both is a step.
    let mut later = Vec::new();
    while let Some((computation, kind)) = stack.pop().or_else(|| later.pop()) {
        let slot = &mut kinds[computation.index()];
        if *slot == Kind::Step || *slot == kind {
            continue;
        }
        *slot = kind;
        for &id in module[computation].instructions() {
            let op = &module[id].op;
            for callee in op.called_computations() {
                in_fusion[callee.index()] |= matches!(op, Op::Fusion(_));
                match is_step(op) && kind == Kind::Step {
                    true => stack.push((callee, Kind::Step)),
                    false => later.push((callee, Kind::Local)),
                }
            }
        }
    }
    for (kind, is_fused) in kinds.iter_mut().zip(in_fusion) {
        if is_fused && *kind == Kind::Local {
            *kind = Kind::None;
        }
    }
    kinds
}
