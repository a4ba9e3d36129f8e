//! Regions: kernels, copies, loops and branches as one native function, so that what lies between small kernels costs
//! nothing.
//!
//! A region is described by whoever knows where arrays lie and in which order things are done. Its function gets the
//! table of the addresses of all arrays, and a [`RegionControl`](crate::abi::RegionControl) through which it asks to go on, has done what it cannot
//! do itself, and finds kernels that are functions of their own.

use hloom_ir::ElementType;

/// What a region does.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Region {
    /// The steps.
    pub steps: Vec<RegionStep>,
    /// The arrays that the steps name by their numbers.
    pub arrays: Vec<RegionArray>,
}

/// An array of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionArray {
    /// The entry of the table with its address.
    pub entry: u32,
    /// The type of its elements.
    pub element_type: ElementType,
    /// How many there are.
    pub elements: i64,
    /// Nobody but the steps that name it reads or writes it meanwhile, so that it may be kept in a register.
    pub is_private: bool,
    /// What is in memory before the region is needed.
    pub is_live_in: bool,
    /// What the region leaves in it is needed afterwards.
    pub is_live_out: bool,
}

/// A step of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegionStep {
    /// The whole kernel of a request, written out here, on these arrays: leaves of the operands, then of the result.
    Inline {
        /// The number of the request.
        request: usize,
        /// The arrays.
        arrays: Vec<u32>,
    },
    /// A call of a kernel, whose arrays stand in the table side by side.
    Call {
        /// The number of the function.
        function: u32,
        /// The entry of the first array.
        entry: u32,
        /// All of its units.
        units: i64,
    },
    /// A copy of one array to another of as many bytes.
    Copy {
        /// The array that is read.
        from: u32,
        /// The array that is written.
        to: u32,
    },
    /// What is done by [`RegionControl::outside`](crate::abi::RegionControl::outside).
    Outside(u32),
    /// A loop.
    While(Box<RegionWhile>),
    /// One of several branches.
    Conditional {
        /// The scalar that says which: a pred (the first branch if it is true), or an s32.
        selector: u32,
        /// The branches; a number out of range means the last.
        branches: Vec<Vec<RegionStep>>,
    },
}

/// A loop of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionWhile {
    /// Its number, for [`RegionControl::poll`](crate::abi::RegionControl::poll).
    pub number: u32,
    /// Makes `truth`.
    pub condition: Vec<RegionStep>,
    /// The pred scalar that says whether to go on.
    pub truth: u32,
    /// One iteration.
    pub body: Vec<RegionStep>,
    /// How many steps an iteration is worth.
    pub cost: i64,
    /// The arrays of its state.
    pub state: Vec<u32>,
}

impl RegionStep {
    /// A measure of how much code it is, where `of` says so of the kernel of a request.
    pub fn size(&self, of: &dyn Fn(usize) -> usize) -> usize {
        let all = |steps: &[RegionStep]| -> usize { steps.iter().map(|s| s.size(of)).sum() };
        match self {
            RegionStep::Inline { request, .. } => of(*request),
            RegionStep::Call { .. } | RegionStep::Copy { .. } | RegionStep::Outside(_) => 5,
            RegionStep::While(repeat) => 20 + all(&repeat.condition) + all(&repeat.body),
            RegionStep::Conditional { branches, .. } => 20 + branches.iter().map(|b| all(b)).sum::<usize>(),
        }
    }

    /// Calls `f` with every array that the step or one inside of it names, and whether it is written.
    pub fn for_each_array(&self, inputs: &dyn Fn(usize) -> usize, f: &mut dyn FnMut(u32, bool)) {
        let all = |steps: &[RegionStep], f: &mut dyn FnMut(u32, bool)| {
            steps.iter().for_each(|s| s.for_each_array(inputs, f));
        };
        match self {
            RegionStep::Inline { request, arrays } => {
                let inputs = inputs(*request);
                arrays.iter().enumerate().for_each(|(n, &a)| f(a, n >= inputs));
            }
            RegionStep::Copy { from, to } => {
                f(*from, false);
                f(*to, true);
            }
            RegionStep::Call { .. } | RegionStep::Outside(_) => {}
            RegionStep::While(repeat) => {
                all(&repeat.condition, f);
                f(repeat.truth, false);
                all(&repeat.body, f);
            }
            RegionStep::Conditional { selector, branches } => {
                f(*selector, false);
                branches.iter().for_each(|b| all(b, f));
            }
        }
    }
}
