//! Diagnostics: the one type for everything hloom has to say about an input.
//!
//! A diagnostic has a stable [`Code`] (`hloom explain H0123` tells what it means), a severity, a message, a place, notes,
//! and says whose fault it is. It holds no rendered text: the command renders it, on a terminal or as JSON.

pub mod codes;

use crate::entity::{ComputationId, InstructionId};
use std::fmt;

/// A kind of diagnostic, with what `hloom explain` prints about it.
#[derive(PartialEq, Eq, Debug)]
pub struct Code {
    /// The number in `H0123`; never reused for anything else.
    pub number: u16,
    /// A line that names the kind.
    pub title: &'static str,
    /// What it means and what to do about it.
    pub explanation: &'static str,
    /// An input that gives it.
    pub example: &'static str,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "H{:04}", self.number)
    }
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The input cannot be used.
    Error,
    /// The input can be used, but is probably not what was meant.
    Warning,
}

/// Whose fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Blame {
    /// The program is wrong.
    Program,
    /// The data given to the program are wrong.
    Data,
    /// The machine lacks something (memory, a device, time).
    Machine,
    /// hloom has a bug.
    Hloom,
}

/// Where in the input something is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nowhere in particular.
    None,
    /// Bytes of the source text.
    Span(Span),
    /// The module's header.
    Header,
    /// A computation.
    Computation(ComputationId),
    /// A part of an instruction.
    Instruction(InstructionId, Part),
}

/// Bytes `start..end` of the source text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// The bytes `start..end`; positions beyond 4 GiB are clamped.
    pub fn new(start: usize, end: usize) -> Span {
        let clamp = |n| u32::try_from(n).unwrap_or(u32::MAX);
        Span { start: clamp(start), end: clamp(end) }
    }
}

/// A part of an instruction. The reader's side table knows where the instruction is; the part is found there again when
/// the diagnostic is shown, so that no position of a part has to be kept for the millions that are right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// Its name.
    Name,
    /// Its shape.
    Shape,
    /// Its opcode.
    Opcode,
    /// One of its operands.
    Operand(usize),
    /// The attribute of that name.
    Attribute(&'static str),
}

/// One thing to say about an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// The kind.
    pub code: &'static Code,
    /// How bad it is.
    pub severity: Severity,
    /// Whose fault it is.
    pub blame: Blame,
    /// What is wrong, in a line, with the names and numbers at hand.
    pub message: String,
    /// Where.
    pub place: Place,
    /// A few words at the caret: what is there, or what is expected there.
    pub label: String,
    /// More to know.
    pub notes: Vec<Note>,
}

/// More to know about a diagnostic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// What sort of note.
    pub kind: NoteKind,
    /// The text.
    pub message: String,
    /// Where, if it points somewhere ("first defined here").
    pub place: Place,
}

/// What sort of note.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoteKind {
    /// A fact.
    Note,
    /// What to do.
    Help,
}

impl Diagnostic {
    /// An error in the program.
    pub fn error(code: &'static Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            blame: Blame::Program,
            message: message.into(),
            place: Place::None,
            label: String::new(),
            notes: Vec::new(),
        }
    }
    /// The same as a warning.
    pub fn warning(code: &'static Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, message) }
    }
    /// The same at bytes of the source.
    pub fn at(mut self, span: Span) -> Diagnostic {
        self.place = Place::Span(span);
        self
    }
    /// The same at an instruction.
    pub fn at_instruction(mut self, id: InstructionId, part: Part) -> Diagnostic {
        self.place = Place::Instruction(id, part);
        self
    }
    /// The same at `place`.
    pub fn at_place(mut self, place: Place) -> Diagnostic {
        self.place = place;
        self
    }
    /// The same with words at the caret.
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }
    /// The same with the fault elsewhere.
    pub fn blame(mut self, blame: Blame) -> Diagnostic {
        self.blame = blame;
        self
    }
    /// The same with one more fact.
    pub fn note(mut self, message: impl Into<String>) -> Diagnostic {
        self.notes.push(Note { kind: NoteKind::Note, message: message.into(), place: Place::None });
        self
    }
    /// The same with one more fact about a place.
    pub fn note_at(mut self, message: impl Into<String>, place: Place) -> Diagnostic {
        self.notes.push(Note { kind: NoteKind::Note, message: message.into(), place });
        self
    }
    /// The same with advice.
    pub fn help(mut self, message: impl Into<String>) -> Diagnostic {
        self.notes.push(Note { kind: NoteKind::Help, message: message.into(), place: Place::None });
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}[{}]: {}", self.code, self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// The candidate that `wanted` is most likely a misspelling of, for "did you mean".
pub fn did_you_mean<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wanted.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|c| Some((edit_distance(wanted, c, limit)?, c)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// Levenshtein distance, if it is at most `limit`.
fn edit_distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Names of hostile length are not worth a suggestion, nor the quadratic work.
    if a.len().abs_diff(b.len()) > limit || a.len() > 64 {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().filter(|&d| d <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_near_names_only() {
        let opcodes = crate::opcode::Opcode::ALL.iter().map(|o| o.name());
        assert_eq!(did_you_mean("trnspose", opcodes.clone()), Some("transpose"));
        assert_eq!(did_you_mean("ad", opcodes.clone()), Some("add"));
        assert_eq!(did_you_mean("frobnicate", opcodes), None);
    }
}
