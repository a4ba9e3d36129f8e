//! Rules for single instructions, one file per family; the passes that are lists of them.

pub mod tuple;
