//! The functions outside that kernels may call: those of the C library that LLVM calls for operations without an
//! instruction of their own, and functions of f64 lanes that are too rare for code of their own.

use std::ffi::c_void;

unsafe extern "C" {
    #[link_name = "fmod"]
    fn c_fmod(x: f64, y: f64) -> f64;
    fn fmodf(x: f32, y: f32) -> f32;
    fn memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memset(to: *mut c_void, byte: i32, bytes: usize) -> *mut c_void;
}

/// The functions that LLVM calls for operations without an instruction of their own.
pub(crate) fn external(name: &str) -> Option<usize> {
    Some(match name {
        "fmod" => c_fmod as *const () as usize,
        "fmodf" => fmodf as *const () as usize,
        "memcpy" => memcpy as *const () as usize,
        "memmove" => memmove as *const () as usize,
        "memset" => memset as *const () as usize,
        _ => return by_name(name),
    })
}

/// Replaces each `x` by a function of it and the `y` beside it.
macro_rules! by_lanes {
    ($($name:ident |$x:ident, $y:ident| $value:expr;)*) => {
        $(
            unsafe extern "C" fn $name(x: *mut f64, y: *const f64, count: i64) {
                for n in 0..usize::try_from(count).unwrap_or(0) {
                    // SAFETY: the kernel passes two arrays of `count` numbers of its own stack.
                    unsafe {
                        let ($x, $y) = (x.add(n).read(), y.add(n).read());
                        let _ = $y;
                        x.add(n).write($value);
                    }
                }
            }
        )*
        /// The address of the function of that name that kernels call.
        fn by_name(name: &str) -> Option<usize> {
            match name.strip_prefix("hloom_")? {
                $(stringify!($name) => Some($name as *const () as usize),)*
                _ => None,
            }
        }
    };
}

by_lanes! {
    sin |x, y| x.sin();
    cos |x, y| x.cos();
    tan |x, y| x.tan();
    pow |x, y| x.powf(y);
    fmod |x, y| x % y;
}
