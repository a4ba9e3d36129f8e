//! What the tests of the planner share.

use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};

/// The module of a text, which must be right.
pub(crate) fn parse(text: &str) -> VerifiedModule {
    let result = hlo_text::read(text.as_bytes());
    let module = result.module.unwrap_or_else(|| panic!("{:?}", result.diagnostics.first()));
    verify(module, &VerifyOptions { devices: None }).unwrap_or_else(|e| panic!("{:?}", e.diagnostics.first()))
}
