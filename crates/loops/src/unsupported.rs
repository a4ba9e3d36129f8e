//! Why there is no kernel for an instruction.

use std::borrow::Cow;
use std::fmt;

/// What an instruction has that kernels cannot do. It is then run by other means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// In words that complete "there is no kernel for …".
    pub what: Cow<'static, str>,
}

impl Unsupported {
    /// Something that kernels do not do.
    pub fn new(what: impl Into<Cow<'static, str>>) -> Unsupported {
        Unsupported { what: what.into() }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no kernel for {}", self.what)
    }
}

impl std::error::Error for Unsupported {}
