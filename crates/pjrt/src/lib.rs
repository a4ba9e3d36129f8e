//! hloom as a PJRT plugin: the C API by which JAX and others find devices, move arrays, compile and run programs.
//!
//! A caller loads the library, asks [`GetPjrtApi`] for a table of functions, and calls those. Everything unsafe is at that
//! edge: [`abi`] says how the caller's structs look and copies them; what lies behind deals with handles and copies.
//! No panic crosses the edge, and wrong use that can be told gives an error.

pub mod abi;
mod api;
pub mod buffer;
pub mod client;
pub mod custom_partitioner;
pub mod device;
mod dispatch;
pub mod dump;
pub mod element_type;
pub mod event;
pub mod executable;
mod execute;
pub mod ffi;
pub mod layouts;
mod log;
pub mod memory;
pub mod options;
pub mod processes;
pub mod profiler;
pub mod program;
pub mod promised;
pub mod shardings;
pub mod status;
pub mod topology;
pub mod transfer;

/// The plugin's table of functions; the same every time.
#[unsafe(no_mangle)]
pub extern "C" fn GetPjrtApi() -> *const abi::Api {
    &raw const api::API
}
