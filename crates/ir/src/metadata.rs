//! Where an instruction came from: the operation and the source line that made it, and the stack-frame table.

use std::sync::Arc;

/// `metadata={op_type="…" op_name="…" source_file="…" source_line=1 …}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Metadata {
    /// The framework's operation.
    pub op_type: Arc<str>,
    /// The path of scopes that led to it, as `jit(f)/mul`.
    pub op_name: Arc<str>,
    /// The file of the user's program.
    pub source_file: Arc<str>,
    /// The line there; 0 if unknown.
    pub source_line: i32,
    /// The last line; 0 if unknown.
    pub source_end_line: i32,
    /// The column; 0 if unknown.
    pub source_column: i32,
    /// The last column; 0 if unknown.
    pub source_end_column: i32,
    /// The frame in the module's [`StackFrames`], 1-based; 0 if none.
    pub stack_frame_id: i32,
    /// What few instructions have; `None` when all of it is empty.
    pub rare: Option<Box<RareMetadata>>,
}

/// Metadata that few instructions have.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RareMetadata {
    /// The name of the instruction this one was deduplicated into.
    pub deduplicated_name: Box<str>,
    /// The name that scheduling goes by.
    pub scheduling_name: Box<str>,
    /// `profile_type={1}`: kinds of profiles that were applied.
    pub profile_types: Vec<i32>,
    /// `metadata_payload="…"`.
    pub payload: Option<Box<[u8]>>,
    /// Fields of a proto that have no place here, encoded as they were.
    pub unknown_fields: Box<[u8]>,
}

impl Metadata {
    /// The rare parts, to set.
    pub fn rare_mut(&mut self) -> &mut RareMetadata {
        self.rare.get_or_insert_default()
    }
}

/// The table of source positions that `stack_frame_id` refers to. All ids in it are 1-based; 0 means none.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StackFrames {
    /// Names of files.
    pub file_names: Vec<Box<str>>,
    /// Names of functions.
    pub function_names: Vec<Box<str>>,
    /// Places in files.
    pub file_locations: Vec<FileLocation>,
    /// Frames: a place and the frame that called it.
    pub frames: Vec<StackFrame>,
}

/// A place in a source file.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct FileLocation {
    pub file_name_id: i32,
    pub function_name_id: i32,
    pub line: i32,
    pub end_line: i32,
    pub column: i32,
    pub end_column: i32,
}

/// A frame of a call stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StackFrame {
    /// Where it is, 1-based.
    pub file_location_id: i32,
    /// Its caller, 1-based; 0 for the outermost.
    pub parent_frame_id: i32,
}

impl StackFrames {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        *self == StackFrames::default()
    }
}
