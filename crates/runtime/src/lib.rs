//! Running compiled modules: the traits [`Client`] and [`LoadedExecutable`], [`Buffer`]s, and what clients on the host share.
//!
//! A [`Client`] owns devices, allocates buffers on them and loads compiled modules; whoever runs programs (`hloom`, the
//! plugin, the test suites) knows these traits only. [`memory`] is the host's caching allocator, [`pool`] the threads that
//! help with loops, [`float_mode`] how they treat subnormals, [`trace`] the record of a run, [`placement`] where a plan's
//! values lie, [`planned_values`] what lowering to thunks asks of them and [`lowering`] what of it all machines share.

mod affinity;
pub mod buffer;
pub mod client;
pub mod executable;
pub mod float_mode;
pub mod lowering;
pub mod memory;
pub mod placement;
pub mod planned_values;
pub mod pool;
pub mod trace;

pub use buffer::{Buffer, DeviceMemory, assemble};
pub use client::{Client, DeviceDescription};
pub use executable::{ExecuteOptions, LoadedExecutable, LocalDevices, check_arguments};
