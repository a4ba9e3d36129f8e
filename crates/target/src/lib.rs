//! Descriptions of machines, as data: memory spaces, alignments, and how many bytes a value takes.
//!
//! A description is a small text file (`targets/*.toml`, in the part of TOML that [`text`] reads): nothing in the code
//! asks for a machine by its name, so one's own description works as well as those that come with hloom. What a file
//! does not say is not known: a size that is absent is no limit.

pub mod description;
pub mod recognize;
pub mod size;
pub mod text;

pub use description::{DumpDialect, MemorySpace, Target};
pub use recognize::{Recognized, recognize};
