//! The Rust facade of hloom.
