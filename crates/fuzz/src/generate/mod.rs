//! Random well-typed modules.
//!
//! A module is grown one instruction at a time: a step picks an operation, finds or makes operands that fit, works out
//! the result's shape by itself (so that shape inference is tested against a second opinion) and adds the instruction.
//! Every module passes the verifier. It also ends when it is run: loops count to a constant, collectives are met by all
//! devices in the same order. With [`Options::runnable`] nothing is left to the machine either: no random numbers, no
//! feeds, no unknown custom calls, so that two engines must agree on the result.

mod annotate;
mod body;
mod collectives;
mod control;
mod elementwise;
mod foreign;
mod index;
mod linear;
mod literals;
mod reduce;
mod shapes;
mod structure;

pub use literals::literal_of;

use crate::choices::Choices;
use body::Body;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::ComputationId;
use hloom_ir::layout::{DimVec, Layout};
use hloom_ir::module::Module;
use hloom_ir::op::BinaryOp;
use rustc_hash::FxHashMap;

/// What sort of modules to generate.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many instructions a module has, about.
    pub max_instructions: usize,
    /// How many elements an array has at most.
    pub max_elements: i64,
    /// Whether the result follows from the program and its inputs alone, and every operation is one that an evaluator
    /// of a single program knows.
    pub runnable: bool,
    /// How many replicas the program is for; with more than one there are collectives.
    pub replicas: i64,
    /// How many partitions the header names; shardings are over that many devices.
    pub partitions: i64,
    /// Whether there are metadata, shardings, frontend attributes and other things that change no value.
    pub annotations: bool,
    /// Whether there are layouts other than row-major.
    pub layouts: bool,
    /// Whether dimensions may be dynamic.
    pub dynamic: bool,
    /// The element types to use.
    pub element_types: Vec<ElementType>,
}

impl Default for Options {
    /// Everything the language has, in small modules.
    fn default() -> Self {
        Options {
            max_instructions: 60,
            max_elements: 256,
            runnable: false,
            replicas: 4,
            partitions: 4,
            annotations: true,
            layouts: true,
            dynamic: true,
            element_types: ElementType::ALL.to_vec(),
        }
    }
}

impl Options {
    /// Programs that an evaluator can run on one device, whose results are fully determined.
    pub fn runnable() -> Options {
        Options {
            runnable: true,
            replicas: 1,
            partitions: 1,
            annotations: false,
            layouts: false,
            dynamic: false,
            ..Options::default()
        }
    }
}

/// A random module.
pub fn generate(choices: &mut Choices<'_>, options: &Options) -> Module {
    let mut generator = Generator {
        module: Module::new("generated"),
        options,
        budget: options.max_instructions,
        layouts: FxHashMap::default(),
        scalar_computations: FxHashMap::default(),
        next_channel: 1,
        choices,
    };
    generator.module.config.replica_count = options.replicas;
    generator.module.config.num_partitions = options.partitions;
    let entry = generator.entry();
    generator.module.set_entry(entry);
    if options.annotations {
        annotate::annotate(&mut generator);
    }
    generator.module
}

/// The module so far, and what all steps share.
struct Generator<'a, 'b> {
    module: Module,
    choices: &'a mut Choices<'b>,
    options: &'a Options,
    /// Instructions that may still be added.
    budget: usize,
    /// The layout of every array with these dimensions: as a function of the dimensions, layouts always agree.
    layouts: FxHashMap<DimVec, Layout>,
    /// Computations of two scalars, by operation and type.
    scalar_computations: FxHashMap<(BinaryOp, ElementType), ComputationId>,
    next_channel: i64,
}

/// One way to grow a computation; `None` if nothing there fits.
type Step = fn(&mut Generator<'_, '_>, &mut Body) -> Option<()>;

/// Steps that make sense anywhere, with how often they are taken.
const PLAIN_STEPS: &[(usize, Step)] = &[
    (10, elementwise::unary),
    (14, elementwise::binary),
    (4, elementwise::compare),
    (3, elementwise::select),
    (2, elementwise::clamp),
    (5, elementwise::convert),
    (2, elementwise::bitcast_convert),
    (1, elementwise::reduce_precision),
    (1, elementwise::complex_parts),
    (3, structure::constant),
    (3, structure::iota),
    (5, structure::reshape),
    (5, structure::broadcast),
    (4, structure::transpose),
    (3, structure::reverse),
    (4, structure::concatenate),
    (4, structure::slice),
    (3, structure::dynamic_slice),
    (3, structure::dynamic_update_slice),
    (3, structure::pad),
    (2, structure::copy),
    (3, structure::tuple),
    (1, structure::nested_tuple),
    (2, structure::dimension_size),
    (1, structure::barrier),
];

/// Steps that are not taken inside fusions and other small computations.
const LARGE_STEPS: &[(usize, Step)] = &[
    (3, linear::dot),
    (3, linear::convolution),
    (1, linear::fft),
    (1, linear::triangular_solve),
    (1, linear::batch_norm),
    (1, linear::ragged_dot),
    (4, reduce::reduce),
    (1, reduce::reduce_many),
    (3, reduce::reduce_window),
    (2, reduce::select_and_scatter),
    (2, reduce::sort),
    (1, reduce::top_k),
    (1, reduce::map),
    (1, reduce::scan),
    (3, index::gather),
    (3, index::scatter),
    (3, control::fusion),
    (3, control::call),
    (2, control::repeat),
    (2, control::conditional),
    (1, control::after_all),
];

/// Steps whose results are not determined by the program alone, or that only programs for a device have.
const FOREIGN_STEPS: &[(usize, Step)] = &[
    (2, foreign::custom_call),
    (1, foreign::random),
    (1, foreign::feed),
    (1, foreign::transfer),
    (1, foreign::asynchronous),
    (1, foreign::copy_ahead),
    (1, foreign::domain),
    (1, foreign::cholesky),
    (1, foreign::stochastic_convert),
    (1, foreign::dynamic_reshape),
    (1, foreign::bitcast),
];

/// Steps in which devices meet.
const COLLECTIVE_STEPS: &[(usize, Step)] = &[
    (2, collectives::all_reduce),
    (1, collectives::all_gather),
    (1, collectives::reduce_scatter),
    (1, collectives::all_to_all),
    (1, collectives::permute),
    (1, collectives::broadcast),
    (1, collectives::identity),
];

impl Generator<'_, '_> {
    /// Takes one step in `body`, if the one chosen fits.
    fn step(&mut self, body: &mut Body) {
        let mut tables = vec![PLAIN_STEPS];
        if !body.small {
            tables.push(LARGE_STEPS);
            if !self.options.runnable {
                tables.push(FOREIGN_STEPS);
            }
            if self.options.replicas > 1 && body.uniform {
                tables.push(COLLECTIVE_STEPS);
            }
        }
        let total = tables.iter().flat_map(|t| t.iter()).map(|s| s.0).sum();
        let mut at = self.choices.below(total);
        for (weight, step) in tables.into_iter().flatten() {
            if at < *weight {
                step(self, body);
                return;
            }
            at -= weight;
        }
    }

    /// The entry computation.
    fn entry(&mut self) -> ComputationId {
        let mut body = Body::new(&mut self.module, "main");
        body.uniform = true;
        body.grows_parameters = true;
        for _ in 0..self.choices.between(1, 4) {
            let shape = self.any_shape();
            self.parameter(&mut body, shape.into());
        }
        // Steps that do not fit add nothing: the number of tries is bounded, too.
        let mut tries = 3 * self.options.max_instructions;
        while self.budget > 0 && tries > 0 {
            self.step(&mut body);
            tries -= 1;
        }
        self.finish(&mut body);
        body.computation
    }
}
