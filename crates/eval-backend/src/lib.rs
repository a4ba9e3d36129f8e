//! The evaluator behind the traits: a backend that compiles nothing, and a client whose devices are interpreted.

mod backend;
mod client;

pub use backend::EvalBackend;
pub use client::EvalClient;
