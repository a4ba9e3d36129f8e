//! Runs a kernel's text on the host, thread by thread, so that what it computes can be checked without a GPU.
//!
//! The instructions that [`crate::ptx`]'s kernels use are known; any other is an error, as is a read or write outside of a
//! buffer, a warp-wide instruction that not all threads of the warp reach, and a block that cannot go on. What a GPU does
//! later than it is told to (copies, products of a warpgroup) happens here as late as the text allows, so that a wait
//! that is missing shows. Blocks run one after the other.

mod machine;
mod parse;
mod scalar;
mod tensor;

use crate::launch::{KernelArgument, KernelSequence};

/// What went wrong, and in which instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmulationError {
    /// What went wrong.
    pub message: String,
    /// The instruction.
    pub instruction: String,
}

impl EmulationError {
    fn new(message: impl Into<String>, instruction: &str) -> Self {
        EmulationError { message: message.into(), instruction: instruction.to_string() }
    }
}

impl std::fmt::Display for EmulationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in `{}`", self.message, self.instruction)
    }
}

impl std::error::Error for EmulationError {}

/// Runs the kernels of a sequence in order over the bytes of its operands, and gives the bytes of its results.
///
/// Results and scratch memory that need not be zero start out as bytes of 0xA5, so that what was not written shows.
pub fn run(
    sequence: &KernelSequence,
    operands: &[Vec<u8>],
    result_bytes: &[usize],
) -> Result<Vec<Vec<u8>>, EmulationError> {
    let mut memory = machine::Memory::default();
    let operand_addresses: Vec<u64> = operands.iter().map(|bytes| memory.allocate(bytes.clone())).collect();
    let result_addresses: Vec<u64> = result_bytes.iter().map(|&n| memory.allocate(vec![0xA5; n])).collect();
    let scratch_addresses: Vec<u64> = sequence
        .scratch
        .iter()
        .map(|s| memory.allocate(vec![if s.zeroed { 0 } else { 0xA5 }; s.bytes as usize]))
        .collect();
    for kernel in &sequence.kernels {
        let parameters: Vec<u64> = kernel
            .arguments
            .iter()
            .map(|argument| match *argument {
                KernelArgument::Operand(i) => operand_addresses[i as usize],
                KernelArgument::Result(i) => result_addresses[i as usize],
                KernelArgument::Scratch(i) => scratch_addresses[i as usize],
                KernelArgument::U32(n) => n.into(),
                KernelArgument::U64(n) => n,
            })
            .collect();
        machine::run_kernel(kernel, &parameters, &mut memory)?;
    }
    Ok(result_addresses.iter().map(|&address| memory.take(address)).collect())
}
