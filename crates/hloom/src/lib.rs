//! The Rust facade of hloom: the crates under one name, and the few functions that nearly every use begins with.
//!
//! Load, verify and run a program in ten lines:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let program = hloom::parse(
//!     "HloModule m
//!      ENTRY e {
//!        x = f32[3] parameter(0)
//!        ROOT y = f32[3] multiply(x, x)
//!      }",
//! )?;
//! let x = hloom::Array::new(&[3], &[1.0f32, 2.0, 3.0]).ok_or("three elements")?;
//! let results = hloom::run(&program, [x])?;
//! assert_eq!(results[0][0].as_slice::<f32>(), Some(&[1.0, 4.0, 9.0][..]));
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here prints: what goes wrong comes back as [`ir::diagnostic::Diagnostic`]s with the source they are about.

pub mod annotation_advice;
pub mod arrays;
pub mod check;
pub mod dump;
pub mod dump_form;
pub mod engine;
pub mod execute;
pub mod global;
pub mod load;
pub mod paths;

pub use engine::Engine;
pub use execute::run;
pub use hloom_analysis as analysis;
pub use hloom_comm as comm;
pub use hloom_compiler as compiler;
pub use hloom_cost as cost;
pub use hloom_cpu as cpu;
pub use hloom_eval as eval;
pub use hloom_formats as formats;
pub use hloom_ir as ir;
pub use hloom_passes as passes;
pub use hloom_plan as plan;
pub use hloom_report as report;
pub use hloom_runtime as runtime;
pub use hloom_simulate as simulate;
pub use hloom_spmd as spmd;
pub use hloom_stablehlo as stablehlo;
pub use hloom_target as target;
pub use hloom_tpu as tpu;
pub use hloom_value as value;
pub use hloom_value::Array;
pub use load::{Format, Loaded, Rejected, Source, Verified, load, load_bytes, parse};
