//! Why code cannot be loaded.

use std::fmt;

/// What is wrong with object code, or with the machine that is to run it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The object is damaged, or of another kind than compilers of kernels make.
    Malformed(&'static str),
    /// It refers to something in a way that is not known here.
    UnknownReference {
        /// The number of the kind of relocation.
        kind: u32,
    },
    /// It calls a function that no kernel may call.
    UnknownFunction(String),
    /// There is no object of that number.
    NoObject(usize),
    /// There is no function of that name.
    NoFunction(String),
    /// The system gives no memory, or lets no code be run in it.
    Memory(&'static str),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Malformed(what) | LoadError::Memory(what) => f.write_str(what),
            LoadError::UnknownReference { kind } => write!(f, "the code has a reference of kind {kind}"),
            LoadError::UnknownFunction(name) => write!(f, "the code calls {name}"),
            LoadError::NoObject(number) => write!(f, "there is no object {number}"),
            LoadError::NoFunction(name) => write!(f, "the function {name} is missing"),
        }
    }
}

impl std::error::Error for LoadError {}
