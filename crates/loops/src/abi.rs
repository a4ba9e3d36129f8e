//! How kernels and regions are called: the types of their functions, the same whoever made the code.

use std::ffi::c_void;

/// The code of a kernel. `buffers` points to the leaf arrays of the operands in order, then to those of the result;
/// `begin..end` is a share of its work units.
pub type KernelFn = unsafe extern "C" fn(buffers: *const *mut u8, begin: i64, end: i64);

/// The code of a region: 0 when it is done, 1 when it was told to stop.
pub type RegionFn = unsafe extern "C" fn(table: *const *mut u8, control: *mut RegionControl) -> u32;

/// What a region is told at run time, and what it calls.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RegionControl {
    /// How many steps may be done before `poll` is to be called.
    pub left: i64,
    /// Handed to the functions.
    pub context: *mut c_void,
    /// Does the thing of that number; 0 if it went well.
    pub outside: unsafe extern "C" fn(context: *mut c_void, number: u32) -> u32,
    /// Asked after an iteration of the loop of that number, whose state is in memory then: how many steps may be done
    /// from here; [`STOP`]; or [`LEAVE`].
    pub poll: unsafe extern "C" fn(context: *mut c_void, number: u32) -> i64,
    /// The kernels that are functions of their own.
    pub functions: *const KernelFn,
}

/// The region is to end.
pub const STOP: i64 = -1;
/// The loop is to end.
pub const LEAVE: i64 = -2;
