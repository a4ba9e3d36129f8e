//! What the shape of loops depends on: the machine's vectors.

/// The vectors of a processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Simd {
    /// The width of the vectors that kernels use.
    pub vector_bits: u32,
    /// Whether vector loads and stores of every element type take a mask.
    pub has_masks: bool,
}
