//! Memories of devices. All are the host's; the kinds are what JAX asks for by name.

use crate::abi::{
    ExtensionBase, Handle, MemoryAddressableByDevicesArgs, MemoryDebugStringArgs, MemoryIdArgs, MemoryKindArgs,
    MemoryKindIdArgs, MemoryToStringArgs,
};
use crate::device::Device;
use crate::status::Status;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The kinds of memory that each device has, the default one first.
pub const KINDS: [&str; 3] = ["device", "pinned_host", "unpinned_host"];

/// A memory of a device.
#[repr(C)]
pub struct Memory {
    table: *const MemoryTable,
    /// What the caller keeps with it. Entries are only ever added.
    user_data: [UserData; 4],
    /// A number of its own.
    pub id: i32,
    /// Which of [`KINDS`].
    pub kind: usize,
    /// The number of its device.
    pub device: usize,
    /// The handle of its device, set when the client is complete.
    pub(crate) devices: [Handle<Device>; 1],
    text: String,
}

// SAFETY: handles are to devices of the same client, which live as long; the rest is atomic or never changed.
unsafe impl Send for Memory {}
// SAFETY: likewise.
unsafe impl Sync for Memory {}

#[derive(Default)]
struct UserData {
    key: AtomicPtr<c_void>,
    data: AtomicPtr<c_void>,
    destroy: AtomicPtr<c_void>,
}

/// The functions of a memory.
#[repr(C)]
struct MemoryTable {
    struct_size: usize,
    extension_start: *mut ExtensionBase,
    instance_struct_size: usize,
    get_user_data: unsafe extern "C" fn(*mut Memory, *const c_void) -> *mut c_void,
    set_user_data: unsafe extern "C" fn(*mut Memory, *const c_void, *mut c_void, Option<Destroy>),
}

type Destroy = unsafe extern "C" fn(*mut c_void);

const _: () = assert!(size_of::<MemoryTable>() == 40);

// SAFETY: functions and numbers only.
unsafe impl Sync for MemoryTable {}

static TABLE: MemoryTable = MemoryTable {
    struct_size: size_of::<MemoryTable>(),
    extension_start: null_mut(),
    instance_struct_size: size_of::<*const MemoryTable>(),
    get_user_data,
    set_user_data,
};

/// # Safety
/// `memory` is one of ours, or null.
unsafe extern "C" fn get_user_data(memory: *mut Memory, key: *const c_void) -> *mut c_void {
    // SAFETY: see above.
    let Some(memory) = (unsafe { memory.as_ref() }) else { return null_mut() };
    let entry = memory.user_data.iter().find(|e| e.key.load(Ordering::Acquire).cast_const() == key);
    entry.map_or(null_mut(), |e| e.data.load(Ordering::Acquire))
}

/// # Safety
/// `memory` is one of ours, or null; `destroy` takes `data`.
unsafe extern "C" fn set_user_data(
    memory: *mut Memory,
    key: *const c_void,
    data: *mut c_void,
    destroy: Option<Destroy>,
) {
    // SAFETY: see above.
    let Some(memory) = (unsafe { memory.as_ref() }) else { return };
    for entry in &memory.user_data {
        let key = key.cast_mut();
        let taken = entry.key.compare_exchange(null_mut(), key, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_ok() || taken == Err(key) {
            let old = entry.data.swap(data, Ordering::AcqRel);
            let new = destroy.map_or(null_mut(), |f| f as *mut c_void);
            let old_destroy = entry.destroy.swap(new, Ordering::AcqRel);
            destroy_user_data(old_destroy, old);
            return;
        }
    }
    // No room for more kinds of data: the caller finds nothing there and keeps its own.
    if let Some(destroy) = destroy {
        // SAFETY: the caller's data with the caller's function.
        unsafe { destroy(data) };
    }
}

fn destroy_user_data(destroy: *mut c_void, data: *mut c_void) {
    if !destroy.is_null() && !data.is_null() {
        // SAFETY: the pointer was made of such a function in `set_user_data`.
        unsafe { std::mem::transmute::<*mut c_void, Destroy>(destroy)(data) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for entry in &mut self.user_data {
            destroy_user_data(*entry.destroy.get_mut(), *entry.data.get_mut());
        }
    }
}

impl Memory {
    /// A memory of that kind on a device.
    pub(crate) fn new(device: usize, kind: usize) -> Memory {
        let id = device * KINDS.len() + kind;
        Memory {
            table: &TABLE,
            user_data: Default::default(),
            id: i32::try_from(id).unwrap_or(i32::MAX),
            kind,
            device,
            devices: [Handle::null()],
            text: format!("{}(id={id}, device={device})", KINDS[kind]),
        }
    }

    /// The name of its kind.
    pub fn kind_name(&self) -> &'static str {
        KINDS[self.kind]
    }
}

pub(crate) fn id(args: &mut MemoryIdArgs) -> Result<(), Status> {
    args.id = args.memory.get()?.id;
    Ok(())
}

pub(crate) fn kind(args: &mut MemoryKindArgs) -> Result<(), Status> {
    let kind = args.memory.get()?.kind_name();
    (args.kind, args.kind_size) = (kind.as_ptr(), kind.len());
    Ok(())
}

pub(crate) fn kind_id(args: &mut MemoryKindIdArgs) -> Result<(), Status> {
    args.kind_id = args.memory.get()?.kind as i32;
    Ok(())
}

pub(crate) fn debug_string(args: &mut MemoryDebugStringArgs) -> Result<(), Status> {
    let text = &args.memory.get()?.text;
    (args.debug_string, args.debug_string_size) = (text.as_ptr(), text.len());
    Ok(())
}

pub(crate) fn to_string(args: &mut MemoryToStringArgs) -> Result<(), Status> {
    let text = &args.memory.get()?.text;
    (args.to_string, args.to_string_size) = (text.as_ptr(), text.len());
    Ok(())
}

pub(crate) fn addressable_by_devices(args: &mut MemoryAddressableByDevicesArgs) -> Result<(), Status> {
    let devices = &args.memory.get()?.devices;
    (args.devices, args.num_devices) = (devices.as_ptr().cast_mut(), devices.len());
    Ok(())
}
