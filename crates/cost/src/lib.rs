//! The one cost model: how long an instruction takes on a target, what bounds it, and how long a collective takes on its
//! links. Fusion, scheduling, memory-space assignment and the simulator all ask here.
//!
//! - [`CostModel`] knows a module: what every fused computation computes and reads is worked out once, so that asking for
//!   an instruction ([`CostModel::instruction`]) takes constant time. Where its values lie is read off their layouts, or
//!   given ([`CostModel::placed`]), so that a memory-space assignment may ask what would be.
//! - [`Kernel`] is what is asked about, as plain data: the [`Work`] and the arrays that come in and go out. Whoever
//!   weighs a fusion that does not exist yet puts one together and asks [`CostModel::kernel_cost`].
//! - A target with `[windows]` has its kernels cut into windows that are copied and computed in turn ([`windows`]: cycles
//!   by formulas that were fitted to a compiler's own estimates). A target with threads is a processor ([`processor`]).
//!   Any other has a roofline: launches, rates by element type, bandwidths of memory and caches ([`roofline`]).
//! - [`carried_chain`] is what the rounds of a loop wait for, one after another.
//! - [`element`] is what one element of an operation takes, [`CoreCost`] what that means on a core of the target: for
//!   choices between loops that do not exist yet.
//! - [`Communication`] knows a topology, and the time of collectives and copies between devices on it.
//!
//! Nothing here recurses or panics, whatever the module; absurd sizes give absurd times, as floats. A rate that is needed
//! and that the target does not give is a diagnostic.

mod chain;
pub mod collective;
mod core;
pub mod custom_call;
pub mod dumped;
pub mod element;
mod fused;
pub mod kernel;
pub mod matmul;
mod model;
mod processor;
mod product;
mod roofline;
mod window_sizes;
mod windows;
pub mod work;

pub use crate::core::CoreCost;
pub use chain::carried_chain;
pub use collective::{CollectiveKind, Communication, GroupShape, LinkUse, Transfer};
pub use custom_call::CustomCost;
pub use kernel::{ArrayUse, Kernel, KernelKind, Placement};
pub use matmul::Matmul;
pub use model::{Bound, CostModel, InstructionCost};
pub use product::MatmulWindows;
pub use work::Work;
