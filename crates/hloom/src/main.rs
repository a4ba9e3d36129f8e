//! The `hloom` command.
fn main() {}
