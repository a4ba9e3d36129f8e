//! The Rust facade of hloom: the crates under one name, and the few functions that nearly every use begins with.
//!
//! ```
//! let text = b"HloModule m\n\nENTRY e {\n  ROOT c = f32[] constant(1)\n}\n";
//! let loaded = hloom::load_bytes("m.hlo", text.to_vec(), None).map_err(|e| e.diagnostics.len());
//! let verified = loaded.and_then(|l| l.verify(None).map_err(|e| e.diagnostics.len()));
//! assert!(verified.is_ok());
//! ```
//!
//! Nothing here prints: what goes wrong comes back as [`ir::diagnostic::Diagnostic`]s with the source they are about.

pub mod arrays;
pub mod execute;
pub mod load;

pub use execute::run;
pub use hloom_analysis as analysis;
pub use hloom_eval as eval;
pub use hloom_eval::Array;
pub use hloom_formats as formats;
pub use hloom_ir as ir;
pub use load::{Format, Loaded, Rejected, Source, Verified, load, load_bytes};
