//! Types of the C API that are neither arguments nor handles.

use super::{Entry, c_structs};
use crate::status::Error;
use std::ffi::c_void;

/// Frees something that came with it.
pub type Deleter = unsafe extern "C" fn(*mut c_void);
/// Is told that an event is ready, and of the error if it failed, which it owns.
pub type OnReady = unsafe extern "C" fn(*mut Error, *mut c_void);
/// Is shown a payload of an error: key, size, value, size.
pub type PayloadVisitor = unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut c_void);
/// Is told that memory of the caller is not needed any more.
pub type OnDelete = unsafe extern "C" fn(*mut c_void, *mut c_void);

c_structs! {
    @plain ExtensionBase[24] { struct_size: usize = 0, type_: i32 = 8, next: *mut ExtensionBase = 16 }
    ApiVersion[24] { major_version: i32 = 16, minor_version: i32 = 20 }
    @plain LogicalDeviceIds[8] { replica: i32 = 0, partition: i32 = 4 }
    @plain Chunk[32] { data: *mut c_void = 0, size: usize = 8, deleter: *mut c_void = 16, deleter_arg: *mut c_void = 24 }
    BufferMemoryLayoutTiled[56] {
        minor_to_major: *const i64 = 16, minor_to_major_size: usize = 24, tile_dims: *const i64 = 32,
        tile_dim_sizes: *const usize = 40, num_tiles: usize = 48,
    }
    BufferMemoryLayoutStrides[32] { byte_strides: *const i64 = 16, num_byte_strides: usize = 24 }
    BufferMemoryLayout[76] { of: LayoutOf = 16, type_: i32 = 72 }
}

/// How the elements of an array lie in memory: the arm is said beside it.
#[repr(C)]
#[derive(Clone, Copy)]
pub union LayoutOf {
    /// Of dimensions in an order, maybe in tiles (0).
    pub tiled: BufferMemoryLayoutTiled,
    /// By distances in bytes (1).
    pub strides: BufferMemoryLayoutStrides,
}

/// A table of functions, which is what a plugin is.
#[repr(C)]
pub struct Api {
    /// Bytes up to the end.
    pub struct_size: usize,
    /// What the plugin has besides.
    pub extension_start: *const ExtensionBase,
    /// Which version of the C API this is.
    pub version: ApiVersion,
    /// The functions, in the order of the C API.
    pub functions: [Entry; FUNCTIONS],
}

/// Functions in version 0.112.
pub const FUNCTIONS: usize = 138;
const _: () = assert!(size_of::<Api>() == 1144);

// SAFETY: the table is never written, and what it points to neither.
unsafe impl Sync for Api {}
