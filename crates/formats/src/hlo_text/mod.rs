//! HLO text: reading it, with the side table of positions, and printing it.

pub mod print;
pub mod read;
pub mod source_map;

pub use print::{PrintOptions, print, print_array, print_instruction};
pub use read::{ReadResult, read};
pub use source_map::SourceMap;
