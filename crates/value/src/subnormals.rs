//! Whether the floating-point numbers of this thread may be subnormal.
//!
//! Programs are run with subnormal numbers taken for zero, as operands and as results, as XLA runs them on CPUs: what is
//! below the least normal number vanishes, and costs nothing (a processor takes a hundred times as long for an operation
//! that makes a subnormal number). Moves and operations on bits keep them. The mode is the thread's: whoever runs
//! programs on a thread takes [`flush`], and what is called from within one and is no part of it takes [`keep`].

#![allow(unsafe_code, reason = "the mode is in a register that only assembly reaches")]

use std::marker::PhantomData;

/// A mode of the thread, until it is dropped: then the one before is back.
#[derive(Debug)]
#[must_use = "the mode ends with the guard"]
pub struct Mode {
    before: register::Bits,
    /// The register is the thread's.
    not_send: PhantomData<*const ()>,
}

/// From here on subnormal numbers count as zero on this thread.
pub fn flush() -> Mode {
    change(|bits| bits | register::FLUSH)
}

/// From here on subnormal numbers are what they are, as everywhere else.
pub fn keep() -> Mode {
    change(|bits| bits & !register::FLUSH)
}

fn change(mode: impl FnOnce(register::Bits) -> register::Bits) -> Mode {
    let before = register::read();
    let after = mode(before);
    if after != before {
        register::write(after);
    }
    Mode { before, not_send: PhantomData }
}

impl Drop for Mode {
    fn drop(&mut self) {
        // The flags of what has happened since are not looked at by anybody.
        if register::read() & register::FLUSH != self.before & register::FLUSH {
            register::write(self.before);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod register {
    pub(super) type Bits = u32;

    /// Results become zero (bit 15), operands count as zero (bit 6).
    pub(super) const FLUSH: Bits = 1 << 15 | 1 << 6;

    pub(super) fn read() -> Bits {
        let mut bits: Bits = 0;
        // SAFETY: it stores four bytes, which are there.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut bits, options(nostack, preserves_flags)) };
        bits
    }

    pub(super) fn write(bits: Bits) {
        // SAFETY: the bits are those that were read but for `FLUSH`, which every such processor has.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &bits, options(nostack, readonly, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    pub(super) type Bits = u64;

    pub(super) const FLUSH: Bits = 1 << 24;

    pub(super) fn read() -> Bits {
        let bits: Bits;
        // SAFETY: it reads a register that every such processor has.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) bits, options(nomem, nostack, preserves_flags)) };
        bits
    }

    pub(super) fn write(bits: Bits) {
        // SAFETY: the bits are those that were read but for `FLUSH`.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) bits, options(nomem, nostack, preserves_flags)) };
    }
}

/// Other processors keep their mode.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(super) type Bits = u32;
    pub(super) const FLUSH: Bits = 0;
    pub(super) fn read() -> Bits {
        0
    }
    pub(super) fn write(_: Bits) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::{flush, keep};
    use std::hint::black_box;

    fn double(bits: u32) -> f32 {
        black_box(f32::from_bits(black_box(bits))) * black_box(2.0)
    }

    #[test]
    fn subnormal_numbers_vanish_while_the_guard_lives() {
        assert!(double(5) > 0.0);
        {
            let _mode = flush();
            assert_eq!(double(5), 0.0);
            {
                let _mode = keep();
                assert!(double(5) > 0.0);
            }
            assert_eq!(double(5), 0.0);
        }
        assert!(double(5) > 0.0);
    }
}
