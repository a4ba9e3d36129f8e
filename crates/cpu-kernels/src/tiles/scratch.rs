//! Memory that a thread keeps from one tile to the next, so that it is there and warm.

use std::cell::RefCell;

/// What the processor moves at once.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "it is room")] [u8; 64]);

/// More than this is given back at once.
const MOST_KEPT: usize = 32 << 20;

thread_local! {
    /// One inside of another gets memory of its own.
    static KEPT: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with the address of `bytes` bytes of whatever they hold, aligned to a line.
pub(crate) fn with_bytes<R>(bytes: usize, body: impl FnOnce(*mut u8) -> R) -> R {
    let mut memory = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
    let lines = bytes.div_ceil(64);
    if memory.len() < lines {
        memory.clear();
        memory.resize(lines, Line([0; 64]));
    }
    let result = body(memory.as_mut_ptr().cast());
    if memory.len() * 64 <= MOST_KEPT {
        KEPT.with_borrow_mut(|kept| kept.push(memory));
    }
    result
}

/// Calls `body` with room for so many values in two places.
pub(crate) fn with_two<T, R>(first: usize, second: usize, body: impl FnOnce(*mut T, *mut T) -> R) -> R {
    const { assert!(align_of::<T>() <= 64) }
    let line = |values: usize| (values * size_of::<T>()).next_multiple_of(64);
    with_bytes(line(first) + line(second), |at| body(at.cast(), at.wrapping_add(line(first)).cast()))
}
