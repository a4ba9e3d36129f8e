//! Where values lie, to be kept in a file and taken up again with the module read anew.
//!
//! Reading a module gives its computations and instructions other numbers; their order does not change. So positions are
//! counted here along that order, callees first. A plan that is taken up again is worked out but for its places, which are
//! what takes time.

use crate::assign::{Allocation, Assigned, PackedHeap, Place};
use crate::dataflow::Dataflow;
use crate::positions::{Position, Positions};
use crate::{Packer, Plan, plan_live};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::plan::BAD_DUMP;
use hloom_ir::order;
use hloom_ir::verify::VerifiedModule;
use hloom_target::Target;
use serde::{Deserialize, Serialize};

/// The places of a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavedPlan {
    allocations: Vec<SavedAllocation>,
    heaps: Vec<PackedHeap>,
    /// Whether values that collectives send are kept until these are over.
    beside_collectives: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct SavedAllocation {
    size: i64,
    memory_space: i64,
    parameter: Option<u32>,
    is_aliased: bool,
    is_constant: bool,
    is_thread_local: bool,
    is_live_out: bool,
    is_tuple: bool,
    /// Values by where they are made, with their offsets and sizes.
    places: Vec<(u32, i64, i64)>,
}

/// All positions in an order that a module keeps when it is written and read again.
fn lasting_order(positions: &Positions<'_>) -> Vec<Position> {
    let module = positions.module();
    let instructions = order::computations(module).into_iter().flat_map(|c| module[c].instructions().to_vec());
    instructions.flat_map(|i| positions.of(i)).collect()
}

impl SavedPlan {
    /// The places of `plan`; `None` if one of its values has no position of its own.
    pub fn new(plan: &Plan<'_>) -> Option<SavedPlan> {
        let positions = &plan.dataflow.positions;
        let mut number = vec![u32::MAX; positions.len()];
        for (n, position) in lasting_order(positions).into_iter().enumerate() {
            number[position as usize] = u32::try_from(n).ok()?;
        }
        let place = |p: &Place| {
            let position = plan.dataflow.value(p.value)?.position;
            let is_own = plan.dataflow.at(position) == Some(p.value);
            is_own.then_some((number[position as usize], p.offset, p.size))
        };
        let allocation = |a: &Allocation| {
            Some(SavedAllocation {
                size: a.size,
                memory_space: a.memory_space,
                parameter: a.parameter.map(|p| number[p as usize]),
                is_aliased: a.is_aliased,
                is_constant: a.is_constant,
                is_thread_local: a.is_thread_local,
                is_live_out: a.is_live_out,
                is_tuple: a.is_tuple,
                places: a.places.iter().map(place).collect::<Option<_>>()?,
            })
        };
        Some(SavedPlan {
            allocations: plan.allocations.iter().map(allocation).collect::<Option<_>>()?,
            heaps: plan.heaps.clone(),
            beside_collectives: plan.beside_collectives,
        })
    }

    /// The plan of `module`, which is the one that these places are of, on `target`.
    pub fn restore<'m>(&self, module: &'m VerifiedModule, target: &Target) -> Result<Plan<'m>, Vec<Diagnostic>> {
        // Nothing is packed: the packer is asked nothing.
        plan_live(module, target, Packer::Reference, self.beside_collectives, |facts| self.assigned(facts.dataflow))
    }

    fn assigned(&self, dataflow: &Dataflow<'_>) -> Result<Assigned, Vec<Diagnostic>> {
        let order = lasting_order(&dataflow.positions);
        let other = || vec![Diagnostic::error(&BAD_DUMP, "the places are those of another module")];
        let position = |n: u32| order.get(n as usize).copied().ok_or_else(other);
        let mut allocations = Vec::with_capacity(self.allocations.len());
        for a in &self.allocations {
            let place = |&(n, offset, size): &(u32, i64, i64)| {
                let value = dataflow.at(position(n)?).ok_or_else(other)?;
                let fits = offset >= 0 && size >= 0 && offset.checked_add(size).is_some_and(|end| end <= a.size);
                if fits { Ok(Place { value, offset, size }) } else { Err(other()) }
            };
            let mut places = a.places.iter().map(place).collect::<Result<Vec<Place>, _>>()?;
            places.sort_unstable();
            allocations.push(Allocation {
                size: a.size,
                memory_space: a.memory_space,
                parameter: a.parameter.map(position).transpose()?,
                is_aliased: a.is_aliased,
                is_constant: a.is_constant,
                is_thread_local: a.is_thread_local,
                is_live_out: a.is_live_out,
                is_tuple: a.is_tuple,
                places,
            });
        }
        Ok((allocations, self.heaps.clone()))
    }
}
