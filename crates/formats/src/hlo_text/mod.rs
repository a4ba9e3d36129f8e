//! HLO text: reading it, with the side table of positions, and printing it.

pub mod print;
pub mod read;
pub mod source_map;

pub use print::canonical::print_canonical;
pub use print::{
    InstructionParts, InstructionStyle, PrintOptions, print, print_array, print_instruction, print_parts,
    print_sharding, print_styled,
};
pub use read::{ReadResult, read, read_layout, read_sharding, read_watched};
pub use source_map::SourceMap;
