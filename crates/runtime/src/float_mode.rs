//! How a thread's processor treats subnormal floats.
//!
//! Compiled programs run with subnormals as zeros, both those that they read and those that would come out, as in XLA on
//! CPUs; whoever uses JAX there has seen nothing else. It is a mode of the thread: it holds for kernels, for what the
//! evaluator does for them and for custom calls alike, it is set when a run begins and put back when it ends, and threads
//! that help take it over. The evaluator alone, and constants that are folded, keep to IEEE 754.

use std::marker::PhantomData;

/// The mode of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FloatMode(Register);

#[cfg(target_arch = "aarch64")]
type Register = u64;
#[cfg(not(target_arch = "aarch64"))]
type Register = u32;

/// The bits that make zeros of subnormals: of operands, and of results.
#[cfg(target_arch = "x86_64")]
const FLUSH: Register = 1 << 6 | 1 << 15;
#[cfg(target_arch = "aarch64")]
const FLUSH: Register = 1 << 24;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FLUSH: Register = 0;

impl FloatMode {
    /// That of this thread.
    pub fn current() -> FloatMode {
        FloatMode(read())
    }

    /// This mode, but with subnormals as zeros.
    #[must_use]
    pub fn with_subnormals_as_zeros(self) -> FloatMode {
        FloatMode(self.0 | FLUSH)
    }

    /// Puts this thread into the mode until what is returned is dropped.
    #[must_use]
    pub fn enter(self) -> Entered {
        let before = FloatMode::current();
        if before != self {
            write(self.0);
        }
        Entered { before, _of_this_thread: PhantomData }
    }
}

/// A mode that a thread is in; puts back the one before.
#[derive(Debug)]
pub struct Entered {
    before: FloatMode,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if FloatMode::current() != self.before {
            write(self.before.0);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn read() -> Register {
    let mut register: u32 = 0;
    // SAFETY: it stores the 32 bits of the register where it is told to.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut register, options(nostack, preserves_flags)) };
    // Exceptions that were noted so far are no mode.
    register & !0x3f
}

#[cfg(target_arch = "x86_64")]
fn write(register: Register) {
    // SAFETY: the bits were read from the register, or are among those that every x86-64 processor has.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const register, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
fn read() -> Register {
    let register: u64;
    // SAFETY: it reads a register of this thread.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) register, options(nostack, nomem, preserves_flags)) };
    register
}

#[cfg(target_arch = "aarch64")]
fn write(register: Register) {
    // SAFETY: the bits were read from the register, or are among those that every processor has.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) register, options(nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read() -> Register {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn write(_: Register) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn subnormals_are_zeros_until_the_mode_is_left() {
        let half = || black_box(f32::MIN_POSITIVE) * black_box(0.5);
        assert!(half() > 0.0);
        let entered = FloatMode::current().with_subnormals_as_zeros().enter();
        assert_eq!(half().to_bits(), 0);
        drop(entered);
        assert!(half() > 0.0);
    }
}
