//! A sequence of kernels that computes the results of one instruction from its operands.
//!
//! Whoever makes kernels (by hand here, or from the body of a fusion by a code generator) gives this; the CUDA backend
//! assembles the text, plans the scratch memory with the other temporaries, and launches in order.

use serde::{Deserialize, Serialize};

/// What PTX is made for: the compute capability, and whether the instructions of this architecture alone may be used
/// (`sm_90a`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Architecture {
    /// 80 for 8.0, 90 for 9.0.
    pub capability: u32,
    /// The `a` in `sm_90a`: `wgmma`, register reallocation.
    pub accelerated: bool,
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}{}", self.capability, if self.accelerated { "a" } else { "" })
    }
}

/// The kernels of one instruction, launched in order on one stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct KernelSequence {
    /// The kernels. Equal text is assembled once.
    pub kernels: Vec<PtxKernel>,
    /// Memory that they need beside operands and results.
    pub scratch: Vec<Scratch>,
}

/// Memory that a sequence of kernels works in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Scratch {
    /// How many bytes.
    pub bytes: u64,
    /// Whether it has to be zero before the first kernel.
    pub zeroed: bool,
}

/// A kernel as text, and one launch of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PtxKernel {
    /// The name of the `.entry` in the text.
    pub name: String,
    /// A whole PTX module: version, target, address size, the entry and what it calls.
    pub ptx: String,
    /// How many threads.
    pub launch: Launch,
    /// What it is given, in the order of its parameters.
    pub arguments: Vec<KernelArgument>,
}

/// How many threads run a kernel, and what a block of them shares.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Shared memory beside what the text declares, in bytes (above 48 KiB the limit is raised first).
    pub dynamic_shared_bytes: u32,
    /// Blocks of a cluster along x; 1 where there are no clusters.
    pub cluster: u32,
}

/// A parameter of a kernel. Buffers are passed by address (`.u64`); the leaves of operands and results are numbered flat,
/// in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum KernelArgument {
    /// A leaf of the operands.
    Operand(u32),
    /// A leaf of the results.
    Result(u32),
    /// A piece of [`KernelSequence::scratch`].
    Scratch(u32),
    /// A number, `.u32`.
    U32(u32),
    /// A number, `.u64`.
    U64(u64),
}
