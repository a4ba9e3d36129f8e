//! Collectives: windowed, narrowed, made asynchronous, carried through the fusions that hide them, and noted.

pub(crate) mod fuse;
pub(crate) mod narrow;
pub(crate) mod note;
pub(crate) mod start;
pub(crate) mod windowed_einsum;
