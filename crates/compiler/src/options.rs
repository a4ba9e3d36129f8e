//! How a program is to be compiled.

use hloom_analysis::devices::DeviceGrid;
pub use hloom_passes::excess_precision::ExcessPrecision;

/// How a program is to be compiled. The machine is the backend's.
#[derive(Clone, Copy, Debug)]
pub struct CompileOptions {
    /// The devices.
    pub grid: DeviceGrid,
    /// Make up values for constants that the dump leaves out, instead of failing.
    pub fill_constants: bool,
    /// How much time the code is worth.
    pub effort: Effort,
    /// An instruction without native code is an error, instead of one for the evaluator.
    pub strict: bool,
    /// Which bf16 values may keep more digits than bf16 has.
    pub excess_precision: ExcessPrecision,
}

impl CompileOptions {
    /// Full effort for the devices of `grid`.
    pub fn new(grid: DeviceGrid) -> CompileOptions {
        CompileOptions {
            grid,
            fill_constants: false,
            effort: Effort::default(),
            strict: false,
            excess_precision: ExcessPrecision::default(),
        }
    }
}

/// How much time the code of a program is worth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Effort {
    /// Little: the program is to run once.
    Quick,
    /// What makes it fast.
    #[default]
    Full,
}
