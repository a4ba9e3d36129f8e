//! The C side of the plugin: structs as the C API lays them out, and the edge that every call crosses.
//!
//! A caller may be older or newer than this library: its argument structs are then shorter or longer. [`call`] copies
//! what there is of them into a struct of our own, zero where the caller has nothing, and copies back no more than came;
//! what is behind the edge never looks at the caller's struct itself. It also is where panics stop.

mod args;
mod named_value;
mod types;

pub use args::*;
pub use named_value::{NamedValue, NamedValueKind, NamedValues, OptionValue, read_options};
pub use types::*;

use crate::status::{Error, Status};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A struct of the C API.
///
/// # Safety
/// Bytes of zero are a value of the type, and so is anything a caller writes in the fields; the first field is the size.
pub unsafe trait CStruct: Copy {
    /// Bytes up to the end of the last field.
    const SIZE: usize;
}

/// Structs as C lays them out: the fields with their offsets, which are checked. Unless `@plain`, a struct begins with
/// its size and a list of extensions.
macro_rules! c_structs {
    ($($(@$plain:ident)? $name:ident[$size:literal] { $($body:tt)* })*) => {
        $($crate::abi::c_struct! { $(@$plain)? $name[$size] { $($body)* } })*
    };
}
use c_structs;
pub(crate) use c_structs as c_structs_for_extensions;

macro_rules! c_struct {
    (@plain $name:ident[$size:literal] { $($field:ident: $type:ty = $offset:literal),* $(,)? }) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "the struct and its fields have the names of the C API")]
        pub struct $name { $(pub $field: $type),* }
        const _: () = { $(assert!(std::mem::offset_of!($name, $field) == $offset);)* };
        // SAFETY: numbers, pointers and optional functions, all of which may be zero.
        unsafe impl $crate::abi::CStruct for $name { const SIZE: usize = $size; }
    };
    ($name:ident[$size:literal] { $($body:tt)* }) => {
        $crate::abi::c_struct! {
            @plain $name[$size] { struct_size: usize = 0, extension_start: *mut ExtensionBase = 8, $($body)* }
        }
    };
}
pub(crate) use c_struct;

/// A pointer that a caller gives us to something that we gave it before, or null.
#[repr(transparent)]
pub struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Handle<T> {
    /// Null.
    pub const fn null() -> Handle<T> {
        Handle(std::ptr::null_mut())
    }

    /// Gives a value to the caller, who hands it back to be destroyed.
    pub fn give(value: T) -> Handle<T> {
        Handle(Box::into_raw(Box::new(value)))
    }

    /// Shows the caller something that somebody else keeps.
    pub fn lend(value: &T) -> Handle<T> {
        Handle(std::ptr::from_ref(value).cast_mut())
    }

    /// Whether there is nothing.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address.
    pub fn as_ptr(self) -> *mut T {
        self.0
    }

    /// What it points to. A caller that passes something other than what it got from us, or what it destroyed before,
    /// breaks the rules of the C API; null is an error.
    pub fn get<'a>(self) -> Result<&'a T, Status> {
        // SAFETY: handles come from `give` or `lend`, and live until the caller destroys them.
        unsafe { self.0.as_ref() }.ok_or_else(|| {
            let name = std::any::type_name::<T>().rsplit("::").next().unwrap_or("handle");
            Status::invalid(format!("a null pointer is given where a {name} is needed"))
        })
    }

    /// Takes back what was given, to be destroyed. Null is nothing.
    pub fn take(self) -> Option<Box<T>> {
        // SAFETY: it came from `give`, and a caller destroys it once.
        (!self.0.is_null()).then(|| unsafe { Box::from_raw(self.0) })
    }
}

/// `count` values at `start`; nothing when null.
///
/// # Safety
/// Unless null or empty, there are that many values for as long as they are looked at.
pub unsafe fn slice<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if start.is_null() || count == 0 || count > isize::MAX as usize / size_of::<T>().max(1) {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// A struct of the caller as far as it goes, zero beyond; `None` when null.
///
/// # Safety
/// Unless null, it is a struct of the C API that begins with its size.
pub unsafe fn read<T: CStruct>(from: *const T) -> Option<T> {
    if from.is_null() {
        return None;
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: the first field is the size, and says how many bytes there are; zero is a value (see `CStruct`).
    unsafe {
        let size = from.cast::<usize>().read().min(T::SIZE);
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), size);
        Some(copy.assume_init())
    }
}

/// A function of the C API: all take a pointer to their arguments and return an error or null. Two return nothing in C,
/// which is the same to a caller.
pub type Entry = unsafe extern "C" fn(*mut c_void) -> *mut Error;

/// Calls `function` with a copy of the caller's arguments and copies results back.
///
/// # Safety
/// `args` is null or points to a struct that begins with its size.
pub unsafe fn call<A: CStruct>(args: *mut c_void, function: fn(&mut A) -> Result<(), Status>) -> *mut Error {
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as the caller promises.
        let Some(mut copy) = (unsafe { read::<A>(args.cast()) }) else {
            return Err(Status::invalid("the arguments are a null pointer"));
        };
        // SAFETY: it is not null, since it could be read.
        let size = unsafe { args.cast::<usize>().read() };
        if size < size_of::<usize>() * 2 {
            return Err(Status::invalid(format!("the size of the arguments, {size}, is smaller than any")));
        }
        function(&mut copy)?;
        // SAFETY: that many bytes are the caller's, and it waits for us to write them.
        unsafe { std::ptr::copy_nonoverlapping((&raw const copy).cast::<u8>(), args.cast::<u8>(), size.min(A::SIZE)) };
        Ok(())
    }));
    match result {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(status)) => status.into_error(),
        Err(panic) => Status::from_panic(panic.as_ref()).into_error(),
    }
}

/// The [`Entry`] for a function over arguments of that type.
macro_rules! entry {
    ($args:ty, $function:path) => {{
        unsafe extern "C" fn entry(args: *mut std::ffi::c_void) -> *mut $crate::status::Error {
            // SAFETY: a caller of the C API passes its arguments.
            unsafe { $crate::abi::call::<$args>(args, $function) }
        }
        entry as $crate::abi::Entry
    }};
}
pub(crate) use entry;
