//! The reference evaluator: any verified module, on any number of virtual devices, by plain code.
//!
//! It is the oracle of the project: everything fast is tested against it, so here correctness must be evident. A module
//! runs as it is. Layouts, tiles, memory spaces, fusion kinds and schedules say where and when, not what, and are set
//! aside; an array is its elements in row-major order ([`hloom_value::Array`]).
//!
//! How a run goes: [`plan`] orders the live instructions of each computation once and notes where each value is used
//! for the last time; [`interpreter`] walks that plan, one thread per device; [`ops`] has one file per family of
//! operations; functions that are applied per element (reducers, comparators, map) become a [`scalar`] program first, so
//! that nothing is allocated per element. Devices meet in `hloom-comm`.

// Where addresses are used: `matmul::product` calls the gemm kernels; `reducer` and `ops::collective::meet` work on the
// arrays of other devices.
#![deny(unsafe_code)]

pub mod collective_work;
pub mod comparator;
pub mod custom_call;
pub mod fold;
pub mod interpreter;
pub mod linear_algebra;
pub mod matmul;
pub mod mixed_precision;
pub mod observe;
pub mod ops;
pub mod padding;
pub mod plan;
pub mod reducer;
pub mod run;
pub mod scalar;
pub mod window;

pub use run::{DeviceGrid, Options, run};
