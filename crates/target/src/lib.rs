//! Descriptions of machines, as data: memories with sizes and bandwidths, compute rates by element type, caches, lanes,
//! launch costs, links and their topology, alignments, and how many bytes a value takes.
//!
//! A description is a small text file (`targets/*.toml`, in the part of TOML that [`text`] reads): nothing in the code
//! asks for a machine by its name, so one's own description works as well as those that come with hloom. What a file
//! does not say is not known: a size that is absent is no limit, and whoever needs a rate that is absent gets a
//! diagnostic that names it ([`Target::clock`], [`Target::bandwidth`], [`Target::matmul_rate`], …).
//!
//! - [`Description`] is the file: it can be changed by key (`memory.0.bandwidth=2x`) and written again.
//! - [`Target`] is what it says, typed.
//! - [`Topology`] is how many devices there are and how they are joined, given a target's [`Link`]s.

pub mod compute;
pub mod description;
pub mod edit;
mod entries;
pub mod links;
pub mod recognize;
pub mod size;
pub mod text;
pub mod windows;

pub use compute::{Cache, Compute, Rate};
pub use description::{DumpDialect, MemorySpace, Target};
pub use edit::Description;
pub use links::{Link, LinkKind, Topology};
pub use recognize::{Recognized, recognize};
pub use windows::WindowModel;
