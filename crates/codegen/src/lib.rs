//! Fusions and single instructions to native kernels, by LLVM 19.
//!
//! A kernel is a function over plain buffers ([`KernelFn`]): those of the operands' leaf arrays in order, then those of
//! the result's. Arrays are row-major and dense. Its work is cut into units, which are independent: whoever calls it may
//! hand any range of units to any thread. A result may take the place of an operand if the operand is read at the index
//! that is written, and nowhere else.
//!
//! ```no_run
//! # fn example(module: &hloom_ir::Module, instruction: hloom_ir::InstructionId, buffers: &[*mut u8]) -> Result<(), hloom_codegen::Refused> {
//! use hloom_codegen::{KernelRequest, Options, compile};
//!
//! let requests = [KernelRequest { instruction, in_place: false, product: None }];
//! let library = compile(module, &requests, &Options::default());
//! let kernel = library.kernel(0)?;
//! // SAFETY: the buffers have the sizes that the instruction's operands and result say.
//! unsafe { (kernel.function)(buffers.as_ptr(), 0, kernel.work_units) };
//! # Ok(())
//! # }
//! ```
//!
//! How one is made: [`graph`] takes the instruction (or the body of the fusion) apart into plain data, by which equal
//! kernels are found; [`lowering`] decides on the nests of loops, and [`lower`] works out the value of every node at every
//! index that is needed, as a [`program`] of loops; [`emit`] writes LLVM code with explicit vectors, without any pass over
//! it afterwards; [`library`] has LLVM make machine code of it, in several threads, and [`loader`] brings that into memory.

mod affine;
mod conversion;
mod cut;
mod elementwise;
mod emit;
mod failure;
mod gate;
mod generator;
mod graph;
mod keep;
mod library;
mod loader;
mod lower;
mod lower_moving;
mod lowering;
mod machine;
mod math;
mod place;
mod program;
pub mod region;
mod rows;
mod running;
mod tile;
mod unsupported;
mod warm;

pub use generator::Effort;
pub use library::{
    Kernel, KernelFacts, KernelFn, KernelLibrary, KernelRequest, Options, Prepared, Product, Refused, compile, llvm_ir,
    prepare, supports,
};
pub use machine::Machine;
pub use region::{Region, RegionArray, RegionControl, RegionFn, RegionStep, RegionWhile};
pub use unsupported::Unsupported;
pub use warm::warm_up;
