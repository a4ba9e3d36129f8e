//! Reads the allocations of a dump, in dialect A or B.
//!
//! Only what the checker needs is read: allocations, the values in them, and the total. Names are looked up in the
//! module; a dump of another module is found out by them.

use super::assignment::{Assigned, Assignment, Piece};
use hloom_ir::diagnostic::codes::plan::{BAD_DUMP, DUMP_NAMES};
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::shape::ShapeIndex;
use rustc_hash::FxHashMap;

/// The assignment that `text` is a dump of; `file` is what errors call it.
pub fn read_dump(module: &Module, text: &str, file: &str) -> Result<Assignment, Diagnostic> {
    let bad = |line: usize, message: &str| {
        Diagnostic::error(&BAD_DUMP, format!("{file}:{}: {message}", line + 1)).blame(Blame::Data)
    };
    let mut names: FxHashMap<&str, InstructionId> = FxHashMap::default();
    for &computation in module.computations() {
        names.extend(module[computation].instructions().iter().map(|&id| (module[id].name(), id)));
    }
    let mut assignment = Assignment::default();
    let mut lines = text.lines().enumerate();
    if lines.next().map(|(_, first)| first.trim_end()) != Some("BufferAssignment:") {
        return Err(bad(0, "expected `BufferAssignment:`"));
    }
    for (n, line) in lines {
        if let Some(head) = line.strip_prefix("allocation ") {
            let allocation = allocation(head).ok_or_else(|| bad(n, "this is not an allocation as dumps write them"))?;
            assignment.allocations.push(allocation);
        } else if let Some(value) = line.strip_prefix(" value: ") {
            let (name, piece) = value_line(value).ok_or_else(|| bad(n, "this is not a value as dumps write them"))?;
            let Some(&instruction) = names.get(name) else {
                let message = format!("{file}:{}: the module has no instruction `{name}`", n + 1);
                return Err(Diagnostic::error(&DUMP_NAMES, message).blame(Blame::Data));
            };
            let Some(last) = assignment.allocations.last_mut() else {
                return Err(bad(n, "a value outside of any allocation"));
            };
            last.pieces.push(Piece { instruction, ..piece });
        } else if let Some(total) = line.strip_prefix("Total bytes used: ") {
            let number = total.split(' ').next().and_then(|t| t.parse().ok());
            assignment.stated_total = Some(number.ok_or_else(|| bad(n, "this is not a number of bytes"))?);
            break;
        } else if !line.trim().is_empty() {
            return Err(bad(n, "expected an allocation, a value or the total"));
        }
    }
    Ok(assignment)
}

/// `0: size 512, color 1, parameter 4, shape |…| at ShapeIndex {}, thread-local:`.
fn allocation(head: &str) -> Option<Assigned> {
    let (number, rest) = head.split_once(": size ")?;
    number.parse::<u64>().ok()?;
    let rest = rest.strip_suffix(':')?;
    let (size, mut rest) = leading_number(rest)?;
    let mut allocation = Assigned { size, ..Assigned::default() };
    while !rest.is_empty() {
        rest = rest.strip_prefix(", ")?;
        if let Some(after) = rest.strip_prefix("color ") {
            (allocation.colour, rest) = leading_number(after)?;
        } else if let Some(after) = rest.strip_prefix("page ") {
            (_, rest) = leading_number(after)?;
        } else if let Some(after) = rest.strip_prefix("parameter ") {
            let (number, after) = leading_number(after)?;
            let after = after.strip_prefix(", shape |")?;
            let (_, after) = after.split_once("| at ShapeIndex ")?;
            let (index, after) = leading_index(after)?;
            allocation.parameter = Some((number, index));
            rest = after;
        } else if let Some(after) = rest.strip_prefix("output shape is |") {
            (_, rest) = after.split_once('|')?;
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            match &rest[..end] {
                "constant" => allocation.is_constant = true,
                "thread-local" => allocation.is_thread_local = true,
                "maybe-live-out" => allocation.is_live_out = true,
                "preallocated-temp" => {}
                _ => return None,
            }
            rest = &rest[end..];
        }
    }
    Some(allocation)
}

/// `<30 copy-start.1{2} (phi) @2> (size=4,offset=0): u32[]`.
fn value_line(line: &str) -> Option<(&str, Piece)> {
    let rest = line.strip_prefix('<')?;
    let (_, rest) = leading_number(rest)?;
    let (label, rest) = rest.strip_prefix(' ')?.split_once(" @")?;
    let (_, rest) = leading_number(rest)?;
    let rest = rest.strip_prefix("> (size=")?;
    let (size, rest) = leading_number(rest)?;
    let (offset, rest) = leading_number(rest.strip_prefix(",offset=")?)?;
    rest.strip_prefix("): ")?;
    let (label, is_phi) = match label.strip_suffix(" (phi)") {
        Some(label) => (label, true),
        None => (label, false),
    };
    let (name, index) = match label.find('{') {
        Some(at) => (&label[..at], leading_index(&label[at..])?.0),
        None => (label, ShapeIndex::new()),
    };
    // The instruction is filled in by whoever knows the names.
    let nowhere = hloom_ir::entity::EntityId::from_index(0);
    Some((name, Piece { instruction: nowhere, index, is_phi, offset, size }))
}

fn leading_number(text: &str) -> Option<(i64, &str)> {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// `{1,0}` at the beginning.
fn leading_index(text: &str) -> Option<(ShapeIndex, &str)> {
    let (inner, rest) = text.strip_prefix('{')?.split_once('}')?;
    if inner.is_empty() {
        return Some((ShapeIndex::new(), rest));
    }
    let index: Option<ShapeIndex> = inner.split(',').map(|n| n.parse().ok()).collect();
    Some((index?, rest))
}
