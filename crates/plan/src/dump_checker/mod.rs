//! Checks the dump of a buffer assignment, ours or another compiler's, against the module that it is said to be of.
//!
//! Three things are asked, in this order: is it a dump, line by line and to the last byte, of values that the module has
//! ([`allocations`]); is what it says of them so, where each is found, who uses it, when it is needed ([`statements`]); and
//! is the assignment right ([`crate::check`], which takes nothing from the dump but the places). The first thing that does
//! not fit is named, with its place in the dump. The parts of dialect B are checked each for itself.

mod allocations;
mod cursor;
mod statements;

use crate::check::{Assignment, check};
use crate::dump::ASSIGNMENT_HEAD;
use crate::plan;
use cursor::Cursor;
use hloom_ir::diagnostic::codes::plan::BAD_DUMP;
use hloom_ir::diagnostic::{Blame, Diagnostic, Place, Span};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::shape::ShapeIndex;
use hloom_ir::verify::VerifiedModule;
use hloom_target::Target;
use rustc_hash::FxHashMap;

/// A dump whose allocations were read.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// The assignment; `None` if the text is another part of a dump.
    pub assignment: Option<Assignment>,
    /// The values that have places, by the numbers that the dump gives them.
    values: FxHashMap<i64, (InstructionId, ShapeIndex)>,
    /// Where the dump first speaks of an instruction.
    lines: FxHashMap<InstructionId, Span>,
    /// Where the rest of the dump begins.
    rest: usize,
    /// Whether the rest may be absent.
    is_whole: bool,
}

/// Reads the allocations of a dump of `module`. Errors are placed in `text`.
pub fn read_dump(module: &Module, text: &str) -> Result<Dump, Diagnostic> {
    let mut cursor = Cursor::new(text);
    let names = names(module);
    if text.starts_with(ASSIGNMENT_HEAD) {
        return allocations::read(module, &names, &mut cursor);
    }
    if text.starts_with("\nTotal bytes used: ") || text.starts_with("HloLiveRange (max ") {
        return Ok(Dump { is_whole: true, ..Dump::default() });
    }
    let expected = "expected `BufferAssignment:`, `Total bytes used:` or `HloLiveRange`";
    Err(cursor.error("this is not a dump of a buffer assignment", expected))
}

/// Everything that is wrong with the dump, as far as the first thing allows to go on. What is placed is placed in `text`.
pub fn check_dump(module: &VerifiedModule, target: &Target, text: &str) -> Vec<Diagnostic> {
    let dump = match read_dump(module.module(), text) {
        Ok(dump) => dump,
        Err(error) => return vec![error],
    };
    match plan(module, target) {
        Ok(planned) => {
            if let Err(error) = statements::compare(&planned, target, &dump, text) {
                return vec![error];
            }
        }
        // What cannot be planned has no statements to compare; the proof says what it can.
        Err(faults) if dump.assignment.is_none() => return faults.into_iter().map(|f| dump.placed(f)).collect(),
        Err(_) => {}
    }
    let Some(assignment) = &dump.assignment else { return Vec::new() };
    let faults = check(module, target, assignment);
    faults.into_iter().map(|fault| dump.placed(fault)).collect()
}

/// Bytes of a dump as text, or where they cease to be.
pub fn text_of(bytes: &[u8]) -> Result<&str, Diagnostic> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Diagnostic::error(&BAD_DUMP, "the dump is not text")
            .blame(Blame::Data)
            .at(Span::new(at, at + 1))
            .label("this byte is no UTF-8")
    })
}

impl Dump {
    /// A fault with its places in the dump: the lines of the values at fault.
    fn placed(&self, mut fault: Diagnostic) -> Diagnostic {
        let place = |place: &mut Place| {
            if let Place::Instruction(id, _) = place {
                *place = self.lines.get(id).map_or(Place::None, |&span| Place::Span(span));
            }
        };
        place(&mut fault.place);
        fault.notes.iter_mut().for_each(|note| place(&mut note.place));
        fault.blame(Blame::Data)
    }
}

type Names<'m> = FxHashMap<&'m str, InstructionId>;

fn names(module: &Module) -> Names<'_> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    all.map(|&id| (module[id].name(), id)).collect()
}
