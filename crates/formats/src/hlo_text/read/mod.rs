//! The HLO text reader: one pass over the bytes, straight into the module.
//!
//! - Any bytes are accepted. What is wrong with them is reported with its place; after an error the reader goes on with
//!   the next statement or computation, and does not blame what follows from an error it reported already.
//! - Nothing is allocated for a size that the text only claims, and nesting is limited, so that memory stays a small
//!   multiple of the text's length and the stack stays small.
//! - Names, layouts and shapes that XLA's own reader fills in or makes unique are filled in and made unique here, so
//!   that both read the same module from the same text.

mod async_op;
mod attributes;
mod build;
mod computation;
mod cursor;
mod header;
mod instruction;
mod literal;
mod metadata;
mod op;
mod other_names;
mod report;
mod settle;
mod shape;
mod sharding;
mod values;

pub(crate) use cursor::{ident_end, is_ident_start, skip_space};

use super::source_map::SourceMap;
use hloom_ir::diagnostic::{Diagnostic, Severity, Span};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::layout::Layout;
use hloom_ir::module::Module;
use hloom_ir::names::UniqueNames;
use hloom_ir::shape::Shape;
use hloom_ir::sharding::Sharding;
use rustc_hash::FxHashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// What reading a text gave.
#[derive(Clone, Debug)]
pub struct ReadResult {
    /// The module; absent if there was an error.
    pub module: Option<Module>,
    /// Where its parts are in the text.
    pub positions: SourceMap,
    /// Everything there is to say about the text, in the order of its places.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads a module. Any bytes are accepted: whatever is wrong with them is in the diagnostics.
pub fn read(text: &[u8]) -> ReadResult {
    read_nested(text, 0, None)
}

/// The same; meanwhile another thread sees in `position` how many bytes are behind the reader.
pub fn read_watched(text: &[u8], position: &AtomicUsize) -> ReadResult {
    read_nested(text, 0, Some(position))
}

/// Reads a module that stands inside `depth` others.
fn read_nested<'a>(text: &'a [u8], depth: usize, watched: Option<&'a AtomicUsize>) -> ReadResult {
    let mut reader = Reader::new(text, depth);
    reader.watched = watched;
    reader.read_module();
    let Reader { module, positions, diagnostics, .. } = reader;
    let is_sound = !diagnostics.iter().any(|d| d.severity == Severity::Error) && module.entry().is_some();
    ReadResult { module: is_sound.then_some(module), positions, diagnostics }
}

/// Reads a sharding by itself, as `{devices=[2,1]<=[2]}`.
pub fn read_sharding(text: &[u8]) -> Result<Sharding, Vec<Diagnostic>> {
    let mut reader = Reader::new(text, 0);
    let sharding = reader.sharding();
    reader.skip();
    match sharding {
        Ok(sharding) if reader.diagnostics.is_empty() && reader.pos == text.len() => Ok(sharding),
        _ => Err(reader.diagnostics),
    }
}

/// Reads a layout as HLO text writes it, `{1,0:T(8,128)}`, of an array of `rank` dimensions.
pub fn read_layout(text: &[u8], rank: usize) -> Result<Layout, Vec<Diagnostic>> {
    let mut reader = Reader::new(text, 0);
    let layout = reader.layout(rank);
    reader.skip();
    match layout {
        Ok(layout) if reader.diagnostics.is_empty() && reader.pos == text.len() => Ok(layout),
        _ => Err(reader.diagnostics),
    }
}

/// An error was reported; what was being read is given up.
#[derive(Clone, Copy, Debug)]
struct Failed;

type Read<T> = Result<T, Failed>;

/// The state of reading one text.
struct Reader<'a> {
    text: &'a [u8],
    pos: usize,
    /// Where to say at each statement how far the reader is.
    watched: Option<&'a AtomicUsize>,
    module: Module,
    positions: SourceMap,
    diagnostics: Vec<Diagnostic>,
    /// There were too many errors.
    stopped: bool,
    /// Levels of nesting around the place where the reader stands.
    depth: usize,
    /// Modules around this one (in a recovery table).
    outer_modules: usize,
    /// Shapes by their text.
    shapes: FxHashMap<&'a [u8], Shape>,
    /// Strings of metadata by their text.
    strings: FxHashMap<&'a [u8], Arc<str>>,
    /// The computation at hand.
    scope: Scope<'a>,
    /// Computations around it, when it is written in place.
    outer_scopes: Vec<Scope<'a>>,
    /// Computations by name.
    computations: FxHashMap<&'a [u8], NamedComputation>,
    /// Names like `add.anon`, which are made for instructions in place of operands.
    made_names: UniqueNames,
    /// The start of each chain that an async-update belongs to.
    async_starts: FxHashMap<InstructionId, InstructionId>,
    /// Computations that were put on a thread together with all they call.
    threaded: FxHashMap<ComputationId, Option<Box<str>>>,
    /// In a text that is one instruction: how many parameters were made.
    single: Option<i64>,
    /// Computations in place in such a text, which are named after the entry.
    unfinished: Vec<ComputationId>,
    entry: Option<(ComputationId, Span)>,
    /// Bytes of literals that are zero without being written.
    zero_bytes: usize,
    /// For each stack frame whether instructions may refer to it.
    sound_frames: Vec<bool>,
    /// How far the text was searched for the end of a computation.
    searched_to: usize,
    /// Room for the attributes of the next instruction.
    spare_values: Option<Box<attributes::Values>>,
}

/// A computation that the text names.
#[derive(Clone, Copy)]
struct NamedComputation {
    /// Absent if it was called but not defined.
    id: Option<ComputationId>,
    span: Span,
    report: Option<ReportId>,
}

/// What a name means in a computation.
#[derive(Clone, Copy)]
struct Symbol {
    /// Absent if its statement is wrong, or it was used but not defined.
    id: Option<InstructionId>,
    span: Span,
    /// The diagnostic that says it is not defined.
    report: Option<ReportId>,
}

/// A diagnostic, counted from one.
type ReportId = NonZeroU32;

/// What is known while a computation is read.
struct Scope<'a> {
    computation: ComputationId,
    names: FxHashMap<&'a [u8], Symbol>,
    /// Elements of tuples made for `name#0`.
    elements: FxHashMap<(InstructionId, i64), InstructionId>,
    root: Option<(InstructionId, Span)>,
}

impl Scope<'_> {
    fn new(computation: ComputationId) -> Self {
        Scope { computation, names: FxHashMap::default(), elements: FxHashMap::default(), root: None }
    }
}

impl<'a> Reader<'a> {
    /// How deep shapes, literals, operands and computations in place may nest, all together.
    const MAX_DEPTH: usize = Shape::MAX_DEPTH;
    /// After this many diagnostics reading stops.
    const MAX_DIAGNOSTICS: usize = 100;

    fn new(text: &'a [u8], outer_modules: usize) -> Reader<'a> {
        Reader {
            text,
            pos: 0,
            watched: None,
            module: Module::new("_"),
            positions: SourceMap::default(),
            diagnostics: Vec::new(),
            stopped: false,
            depth: 0,
            outer_modules,
            shapes: FxHashMap::default(),
            strings: FxHashMap::default(),
            scope: Scope::new(ComputationId::from_index(0)),
            outer_scopes: Vec::new(),
            computations: FxHashMap::default(),
            made_names: UniqueNames::default(),
            async_starts: FxHashMap::default(),
            threaded: FxHashMap::default(),
            single: None,
            unfinished: Vec::new(),
            entry: None,
            zero_bytes: 0,
            sound_frames: Vec::new(),
            searched_to: 0,
            spare_values: None,
        }
    }

    /// The computation at hand.
    #[inline]
    fn scope(&mut self) -> &mut Scope<'a> {
        &mut self.scope
    }

    /// Room for the attributes of an instruction, all at their defaults.
    #[inline]
    fn take_values(&mut self) -> Box<attributes::Values> {
        self.spare_values.take().unwrap_or_default()
    }

    /// Gives room back that [`Reader::take_values`] gave.
    #[inline]
    fn give_back(&mut self, mut values: Box<attributes::Values>) {
        values.clear();
        self.spare_values = Some(values);
    }

    /// The id of the diagnostic that is reported next.
    fn next_report(&self) -> Option<ReportId> {
        NonZeroU32::new(u32::try_from(self.diagnostics.len() + 1).ok()?)
    }

    /// Adds a note to a diagnostic reported before.
    fn add_note(&mut self, report: ReportId, note: &str, span: Span) {
        if let Some(diagnostic) = self.diagnostics.get_mut(report.get() as usize - 1) {
            let place = hloom_ir::diagnostic::Place::Span(span);
            *diagnostic = diagnostic.clone().note_at(note, place);
        }
    }
}
