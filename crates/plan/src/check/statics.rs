//! What can be said of an assignment without running anything: sizes, bounds, alignments, memory spaces, and that a
//! parameter's or a constant's memory is its own.

use super::assignment::{Assigned, Assignment, Piece};
use crate::positions::Positions;
use hloom_ir::diagnostic::codes::plan::{BAD_DUMP, DUMP_NAMES, MISALIGNED, OUT_OF_BOUNDS, WRONG_KIND, WRONG_SIZE};
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_target::Target;
use rustc_hash::FxHashSet;

pub(super) fn check(positions: &Positions<'_>, target: &Target, assignment: &Assignment, faults: &mut Vec<Diagnostic>) {
    let mut seen = FxHashSet::default();
    let aliases = &positions.module().config.input_output_alias;
    let donated: FxHashSet<(i64, &[i64])> = aliases.iter().map(|a| (a.parameter, &a.parameter_index[..])).collect();
    for (number, allocation) in assignment.allocations.iter().enumerate() {
        for piece in &allocation.pieces {
            let at = |d: Diagnostic| d.at_instruction(piece.instruction, Part::Whole);
            let name = positions.module()[piece.instruction].name();
            let Some(part) = positions.part(piece.instruction, &piece.index) else {
                let message = format!("`{name}` has no part {:?}, which allocation {number} holds", &piece.index[..]);
                faults.push(at(Diagnostic::error(&DUMP_NAMES, message)));
                continue;
            };
            if !seen.insert(part.start) {
                faults.push(at(Diagnostic::error(&DUMP_NAMES, format!("`{name}` has two places"))));
            }
            let shape = positions.shape(part.start);
            if let Some(fault) = piece_fault(target, number, allocation, piece, shape, name) {
                faults.push(at(fault));
            }
        }
        if let Some(fault) = kind_fault(positions, &donated, number, allocation) {
            faults.push(fault);
        }
        faults.extend(given_faults(positions, number, allocation));
    }
    let total: i128 = assignment.allocations.iter().map(|a| i128::from(a.size)).sum();
    if let Some(stated) = assignment.stated_total.filter(|&s| i128::from(s) != total) {
        let message = format!("the dump says that {stated} bytes are used, but its allocations are {total}");
        faults.push(Diagnostic::error(&BAD_DUMP, message));
    }
}

fn piece_fault(
    target: &Target,
    number: usize,
    allocation: &Assigned,
    piece: &Piece,
    shape: &Shape,
    name: &str,
) -> Option<Diagnostic> {
    let end = piece.offset.checked_add(piece.size);
    if piece.offset < 0 || piece.size < 0 || end.is_none_or(|end| end > allocation.size) {
        let message = format!(
            "`{name}` takes {} bytes from {} of allocation {number}, which has {}",
            piece.size, piece.offset, allocation.size
        );
        return Some(Diagnostic::error(&OUT_OF_BOUNDS, message));
    }
    if target.byte_size(shape).is_none_or(|needed| piece.size < needed) {
        let needed = target.byte_size(shape).map_or("more than there are".to_owned(), |n| n.to_string());
        let message = format!("`{name}` is given {} bytes, and {shape} takes {needed} on {}", piece.size, target.name);
        return Some(Diagnostic::error(&WRONG_SIZE, message));
    }
    let alignment = target.alignment(allocation.memory_space);
    if piece.offset % alignment != 0 {
        let message = format!("`{name}` begins at {}, which is not a multiple of {alignment}", piece.offset);
        return Some(Diagnostic::error(&MISALIGNED, message));
    }
    let memory_space = Target::memory_space(shape);
    if memory_space != allocation.memory_space {
        let message = format!(
            "`{name}` belongs into memory space {memory_space}, but allocation {number} is in {}",
            allocation.memory_space
        );
        return Some(Diagnostic::error(&WRONG_KIND, message));
    }
    None
}

/// Memory that may not be written holds one value.
fn kind_fault(
    positions: &Positions<'_>,
    donated: &FxHashSet<(i64, &[i64])>,
    number: usize,
    allocation: &Assigned,
) -> Option<Diagnostic> {
    let module = positions.module();
    let is_aliased = allocation.parameter.as_ref().is_some_and(|(p, index)| donated.contains(&(*p, &index[..])));
    let read_only = allocation.is_constant || allocation.parameter.is_some() && !is_aliased;
    let is_source = |piece: &&Piece| match module[piece.instruction].op {
        Op::Constant(_) => allocation.is_constant,
        Op::Parameter { number, .. } => {
            allocation.parameter.as_ref().is_some_and(|p| p.0 == number && p.1 == piece.index)
        }
        _ => false,
    };
    if !read_only {
        return None;
    }
    // What takes no bytes, as tokens do, writes nothing.
    let intruder = allocation.pieces.iter().find(|p| !is_source(p) && !p.is_phi && p.size > 0)?;
    let what = if allocation.is_constant { "a constant" } else { "a parameter that is not donated" };
    let name = module[intruder.instruction].name();
    let message = format!("allocation {number} holds {what}, and `{name}` is written there");
    Some(Diagnostic::error(&WRONG_KIND, message).at_instruction(intruder.instruction, Part::Whole))
}

/// What the caller hands over, and what is there before the run, lies at the beginning of memory that is just as large.
fn given_faults(positions: &Positions<'_>, number: usize, allocation: &Assigned) -> Option<Diagnostic> {
    let module = positions.module();
    let wrong = |piece: &Piece, message: String| {
        Some(Diagnostic::error(&WRONG_KIND, message).at_instruction(piece.instruction, Part::Whole))
    };
    for piece in &allocation.pieces {
        let instruction = &module[piece.instruction];
        let name = instruction.name();
        let (what, is_at_home) = match instruction.op {
            Op::Parameter { number, .. } if module.entry() == Some(instruction.parent()) => {
                let home = allocation.parameter.as_ref();
                ("the parameter's own", home.is_some_and(|h| h.0 == number && h.1 == piece.index))
            }
            Op::Constant(_) => ("a constant's", allocation.is_constant || allocation.is_thread_local),
            _ => continue,
        };
        if !is_at_home {
            return wrong(piece, format!("`{name}` needs {what} memory, which allocation {number} is not"));
        }
        if piece.offset != 0 {
            return wrong(
                piece,
                format!("`{name}` begins at {} of allocation {number}, not at its beginning", piece.offset),
            );
        }
        // What is aliased with it may be larger; nobody else is there.
        let largest = allocation.pieces.iter().map(|p| p.size).max().unwrap_or(0);
        if allocation.parameter.is_some() && allocation.size != largest {
            return wrong(
                piece,
                format!("`{name}` has {largest} bytes, but allocation {number} has {}", allocation.size),
            );
        }
    }
    None
}
