//! Copy insertion: makes a program whose values can all lie where they must.
//!
//! Some values must share memory: what goes into a loop, what is carried round it and what comes out; the results of a
//! conditional's branches; the operand and the result of an in-place operation; a result and the parameter that it is
//! aliased with. Where one of them is still needed when another is made, one has to be copied. And what a program returns
//! has to be memory of its own: not a constant's, not a parameter's that is not aliased with it, not another result's.
//!
//! It is the problem of leaving SSA form, and is solved as compilers do. At first every such place (an [`sites::Edge`])
//! has a copy, which is right by construction; then, edge by edge, those in the innermost loops and of the largest values
//! first, the copy is left out if nothing that shares memory on its one side is needed together with anything on its
//! other side ([`classes`]). When something is needed is told by [`moments`] on the order of the instructions: that of the
//! schedule, or, where there is none, one that lets readers come before whoever writes over what they read
//! ([`arrange`]). Copies that are left and belong to the same place happen at once in thought; [`place`] puts them in a
//! sequence. In a module without a schedule control dependencies then say which readers must come before which writers
//! ([`keep_order`]), so that any schedule will do, and the instructions go back to where they stood ([`restore`]).

mod arrange;
mod classes;
mod keep_order;
mod moments;
mod place;
mod restore;
mod sites;

use crate::calls::Calls;
use crate::dataflow::Dataflow;
use crate::in_place::InPlace;
use crate::order::Orders;
use crate::overwrite::Overwrite;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::plan::TOO_LARGE;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_target::Target;
use moments::Moments;

/// What was done to a module.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Inserted {
    /// Copies of arrays that were added.
    pub copies: usize,
    /// Tuples that were made anew, or of which elements were replaced.
    pub tuples: usize,
    /// Control dependencies that were added.
    pub dependencies: usize,
}

impl Inserted {
    /// All changes together.
    pub fn changes(&self) -> usize {
        self.copies + self.tuples + self.dependencies
    }
}

/// Adds the copies that `module` needs before its memory can be planned for `target`. Computations of the flow must have
/// one caller each ([`crate::flatten`]). A schedule stays one; a module without one gets control dependencies that keep
/// the copies right in every order, and stays in the order in which it stands as far as those allow.
pub fn insert_copies(module: &mut Module, target: &Target) -> Result<Inserted, Vec<Diagnostic>> {
    let (order, cuts) = {
        let module = &*module;
        let calls = Calls::new(module, target)?;
        let orders = Orders::new(module, &calls, target);
        let dataflow = Dataflow::new(module, &calls, &orders).ok_or_else(too_large)?;
        let in_place = InPlace::new(module, calls.post_order());
        let overwrite = Overwrite::new(&dataflow, &in_place, target);
        let order = match module.is_scheduled {
            true => as_it_stands(module),
            false => arrange::arrange(&dataflow, &calls, &orders, &in_place),
        };
        let moments = Moments::new(module, &order).ok_or_else(too_large)?;
        let edges = sites::edges(&dataflow, &moments, &in_place);
        let cuts = classes::cuts(&dataflow, &moments, &overwrite, edges);
        (order, cuts)
    };
    let before = if module.is_scheduled { Order::new() } else { as_it_stands(module) };
    let mut inserted = place::place(module, order, &cuts);
    if !module.is_scheduled {
        inserted.dependencies = keep_order::keep_order(module, target)?;
        restore::restore(module, &before);
    }
    Ok(inserted)
}

fn too_large() -> Vec<Diagnostic> {
    vec![Diagnostic::error(&TOO_LARGE, "the module's results have more than 2^32 parts")]
}

/// The instructions of each computation, by its index.
type Order = Vec<Vec<InstructionId>>;

fn as_it_stands(module: &Module) -> Order {
    let mut order = vec![Vec::new(); module.computation_slots()];
    for &computation in module.computations() {
        order[computation.index()] = module[computation].instructions().to_vec();
    }
    order
}
