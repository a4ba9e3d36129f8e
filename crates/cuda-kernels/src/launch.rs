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

impl Architecture {
    /// Whether a device of that compute capability runs what is assembled for this: machine code is for later ones of the
    /// same generation too, unless it uses what one architecture alone has.
    pub fn runs_on(self, capability: u32) -> bool {
        match self.accelerated {
            true => capability == self.capability,
            false => capability / 10 == self.capability / 10 && capability >= self.capability,
        }
    }
}

impl std::str::FromStr for Architecture {
    type Err = String;

    /// Reads what [`Display`](std::fmt::Display) writes.
    fn from_str(text: &str) -> Result<Architecture, String> {
        let wrong = || format!("`{text}` is no architecture such as sm_80 or sm_90a");
        let number = text.strip_prefix("sm_").ok_or_else(wrong)?;
        let (number, accelerated) = match number.strip_suffix('a') {
            Some(number) => (number, true),
            None => (number, false),
        };
        if !(2..=3).contains(&number.len()) || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        Ok(Architecture { capability: number.parse().map_err(|_| wrong())?, accelerated })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_read_as_they_are_written_and_run_on_their_own_generation() {
        for (text, runs, does_not) in [("sm_80", [80, 89], [75, 90]), ("sm_90a", [90, 90], [89, 100])] {
            let architecture: Architecture = text.parse().unwrap();
            assert_eq!(architecture.to_string(), text);
            assert!(runs.iter().all(|&c| architecture.runs_on(c)), "{text}");
            assert!(!does_not.iter().any(|&c| architecture.runs_on(c)), "{text}");
        }
        for text in ["", "sm_", "90", "sm_9", "sm_90b", "sm_1000", "sm_+9"] {
            assert!(text.parse::<Architecture>().is_err(), "{text}");
        }
    }
}
