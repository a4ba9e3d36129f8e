//! The HLO text reader.

use super::source_map::SourceMap;
use hloom_ir::diagnostic::{Diagnostic, codes};
use hloom_ir::module::Module;

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
    let _ = text;
    let error = Diagnostic::error(&codes::text::UNEXPECTED_TOKEN, "the reader of HLO text is not there yet");
    ReadResult { module: None, positions: SourceMap::default(), diagnostics: vec![error] }
}
