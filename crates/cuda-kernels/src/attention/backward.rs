//! The gradients of attention.
