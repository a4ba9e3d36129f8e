//! The forms in which what a stage made can be printed.

/// What to print of a compiled module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emit {
    /// The module after the passes for every machine.
    Hlo,
    /// The final scheduled module.
    Schedule,
    /// Its buffer assignment.
    Memory,
    /// The loop programs of its kernels.
    Loops,
    /// What is executed, in order.
    Thunks,
    /// LLVM's code.
    Llvm,
    /// Machine code as assembly.
    Asm,
    /// Code for NVIDIA's GPUs.
    Ptx,
}

impl Emit {
    /// All forms.
    pub const ALL: [Emit; 8] =
        [Emit::Hlo, Emit::Schedule, Emit::Memory, Emit::Loops, Emit::Thunks, Emit::Llvm, Emit::Asm, Emit::Ptx];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Emit::Hlo => "hlo",
            Emit::Schedule => "schedule",
            Emit::Memory => "memory",
            Emit::Loops => "loops",
            Emit::Thunks => "thunks",
            Emit::Llvm => "llvm",
            Emit::Asm => "asm",
            Emit::Ptx => "ptx",
        }
    }
}
