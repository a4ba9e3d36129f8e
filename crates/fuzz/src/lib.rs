//! Generators of modules, mutations of texts and protos, and the bodies of fuzz tests.
//!
//! [`generate`] makes well-typed modules that the verifier accepts and that can be run; [`mutate`] damages bytes the way
//! real inputs are damaged; [`bodies`] holds what must be true of the readers for any bytes at all; [`differential`]
//! compares programs by what they compute, which is how passes are tested against the evaluator, and [`engines`] does the
//! same for engines, which compute with other digits. All of it is plain code for the stable toolchain: `cargo test` runs a bounded number of cases, and the command of this crate runs them
//! for as long as one likes:
//!
//! ```text
//! cargo run --release -p hloom-fuzz -- text --seconds 600
//! cargo run --release -p hloom-fuzz -- proto --seconds 600
//! cargo run --release -p hloom-fuzz -- run --seconds 600
//! cargo run --release -p hloom-fuzz -- memory --seconds 600
//! cargo run --release -p hloom-fuzz -- dump --seconds 600
//! cargo run --release -p hloom-fuzz -- generate --seconds 600
//! cargo run --release -p hloom-fuzz -- text --file fuzz-failures/text-0123456789abcdef
//! ```

pub mod bodies;
pub mod choices;
pub mod differential;
pub mod engines;
pub mod generate;
pub mod memory;
pub mod mix_precision;
pub mod mutate;
pub mod seeds;
pub mod tpu_like;
