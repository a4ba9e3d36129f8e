//! Plain loops compiled for the vectors that the processor has.
//!
//! What such a loop calls has to be inlined into the function that may use those vectors, or it is compiled for the least
//! of processors. The attribute on a closure sees to that only if it can be called but once: one that could be called
//! again is reached through a function of the compiler's, which has no attribute and is not inlined where it is long.

/// The value of an expression, whose loops use the vectors that the processor has.
macro_rules! with_vectors {
    ($body:expr) => {{
        struct Once;
        let once = Once;
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                let _once = once;
                $body
            },
        )
    }};
}

pub(crate) use with_vectors;
