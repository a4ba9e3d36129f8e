//! From HLO to StableHLO text.

use hloom_ir::{Diagnostic, Module};

/// The module as StableHLO text.
pub fn from_hlo(module: &Module) -> Result<String, Box<Diagnostic>> {
    let _ = module;
    Ok(String::new())
}
