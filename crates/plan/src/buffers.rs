//! Buffers: sets of values that must share memory.
//!
//! What goes into a loop, what is carried round it and what comes out; the results of a conditional's branches; the
//! operand and the result of an in-place operation; a result and the parameter it is aliased with. Every value is in
//! exactly one buffer. Buffers are numbered as XLA numbers them: the larger of two sets takes in the smaller, and a set
//! has the place of the value it grew from.

use crate::calls::{Calls, Context};
use crate::dataflow::{Dataflow, ValueId};
use crate::in_place::InPlace;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;

/// The number of a buffer.
pub type BufferId = u32;

/// The buffers of a module.
#[derive(Debug)]
pub struct Buffers {
    of_value: Vec<BufferId>,
    start: Vec<u32>,
    members: Vec<ValueId>,
    live_out: Vec<bool>,
}

impl Buffers {
    /// The buffers of the values of `dataflow`.
    pub fn new(dataflow: &Dataflow<'_>, calls: &Calls, in_place: &InPlace<'_>) -> Buffers {
        let aliases = aliases(dataflow, calls, in_place);
        let mut sets = Sets::new(dataflow.value_slots());
        let mut at = 0;
        for (id, _) in dataflow.values() {
            let from = at + aliases[at..].partition_point(|a| a.0 < id);
            let to = from + aliases[from..].partition_point(|a| a.0 == id);
            at = to;
            sets.merge(id, aliases[from..to].iter().map(|a| a.1));
        }
        Buffers::collect(dataflow, &mut sets)
    }

    fn collect(dataflow: &Dataflow<'_>, sets: &mut Sets) -> Buffers {
        let slots = dataflow.value_slots();
        let mut number_of_slot = vec![u32::MAX; slots];
        let mut occupied: Vec<u32> = dataflow.values().map(|(id, _)| sets.slot_of(id)).collect();
        occupied.sort_unstable();
        occupied.dedup();
        for (number, &slot) in occupied.iter().enumerate() {
            number_of_slot[slot as usize] = number as BufferId;
        }
        let mut of_value = vec![BufferId::MAX; slots];
        let mut start = vec![0u32; occupied.len() + 1];
        for (id, _) in dataflow.values() {
            let buffer = number_of_slot[sets.slot_of(id) as usize];
            of_value[id as usize] = buffer;
            start[buffer as usize + 1] += 1;
        }
        for i in 0..occupied.len() {
            start[i + 1] += start[i];
        }
        let mut next = start.clone();
        let mut members = vec![0; start.last().copied().unwrap_or(0) as usize];
        for (id, _) in dataflow.values() {
            let at = &mut next[of_value[id as usize] as usize];
            members[*at as usize] = id;
            *at += 1;
        }
        let mut live_out = vec![false; occupied.len()];
        let module = dataflow.module();
        if let Some(root) = module.entry().and_then(|e| module.root(e)) {
            for position in dataflow.positions.of(root) {
                if let Some(value) = dataflow.at(position) {
                    live_out[of_value[value as usize] as usize] = true;
                }
            }
        }
        Buffers { of_value, start, members, live_out }
    }

    /// The number of buffers.
    pub fn len(&self) -> usize {
        self.live_out.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live_out.is_empty()
    }

    /// The buffer that a value is in.
    pub fn of(&self, value: ValueId) -> BufferId {
        self.of_value[value as usize]
    }

    /// The values of a buffer, by number.
    pub fn values(&self, buffer: BufferId) -> &[ValueId] {
        &self.members[self.start[buffer as usize] as usize..self.start[buffer as usize + 1] as usize]
    }

    /// Whether a part of the program's result is in it.
    pub fn is_live_out(&self, buffer: BufferId) -> bool {
        self.live_out[buffer as usize]
    }
}

/// Which values each value must share memory with, as seen from it; sorted by the value.
fn aliases(dataflow: &Dataflow<'_>, calls: &Calls, in_place: &InPlace<'_>) -> Vec<(ValueId, ValueId)> {
    let module = dataflow.module();
    let mut aliases = Vec::new();
    let mut add = |from: Option<ValueId>, to: Option<ValueId>| {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            aliases.push((from, to));
        }
    };
    let parameters = module.entry().map(|e| module.parameters(e)).unwrap_or_default();
    let root = module.entry().and_then(|e| module.root(e));
    for alias in &module.config.input_output_alias {
        let parameter = usize::try_from(alias.parameter).ok().and_then(|n| parameters.get(n).copied());
        let value = |id: Option<InstructionId>, index: &[i64]| dataflow.at(dataflow.positions.part(id?, index)?.start);
        add(value(root, &alias.output_index), value(parameter, &alias.parameter_index));
    }
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            let here = dataflow.positions.of(id);
            if let Op::While { .. } = module[id].op
                && let Some(&init) = module[id].operands().first()
            {
                for (init, result) in dataflow.positions.of(init).zip(here.clone()) {
                    add(dataflow.at(init), dataflow.at(result));
                }
            }
            for pair in in_place.pairs(id) {
                let operand = module[id].operands().get(pair.operand);
                let operand = operand.and_then(|&o| dataflow.positions.part(o, &pair.operand_index));
                let output = dataflow.positions.part(id, &pair.output_index);
                if let (Some(operand), Some(output)) = (operand, output) {
                    add(dataflow.at(output.start), dataflow.at(operand.start));
                    add(dataflow.at(operand.start), dataflow.at(output.start));
                }
            }
        }
        let Context::Flow(caller) = calls.context(computation) else { continue };
        let result = dataflow.positions.of(caller);
        if let Op::While { .. } = module[caller].op {
            for parameter in module.parameters(computation) {
                for (position, result) in dataflow.positions.of(parameter).zip(result.clone()) {
                    // Only what the parameter makes itself: what it merely passes on is tied by its own use.
                    let own =
                        dataflow.at(position).filter(|&v| dataflow.value(v).is_some_and(|v| v.position == position));
                    add(own, dataflow.at(result));
                }
            }
        }
        let carries = match &module[caller].op {
            Op::While { body, .. } => *body == computation,
            Op::Conditional { .. } => true,
            _ => false,
        };
        if let Some(root) = module.root(computation).filter(|_| carries) {
            for (position, result) in dataflow.positions.of(root).zip(result) {
                add(dataflow.at(position), dataflow.at(result));
            }
        }
    }
    aliases.sort_unstable();
    aliases.dedup();
    aliases
}

/// Sets that grow together (union-find). Each set has a slot: the value whose set the others were poured into.
struct Sets {
    parent: Vec<u32>,
    size: Vec<u32>,
    /// The slot of the set that has its root here.
    slot: Vec<u32>,
}

impl Sets {
    fn new(count: usize) -> Sets {
        Sets { parent: (0..count as u32).collect(), size: vec![1; count], slot: (0..count as u32).collect() }
    }

    fn find(&mut self, mut at: u32) -> u32 {
        while self.parent[at as usize] != at {
            let up = self.parent[self.parent[at as usize] as usize];
            self.parent[at as usize] = up;
            at = up;
        }
        at
    }

    fn slot_of(&mut self, value: ValueId) -> u32 {
        let root = self.find(value);
        self.slot[root as usize]
    }

    /// Puts the sets of `value` and `others` together, into the largest; of equal ones into that of the smallest value.
    fn merge(&mut self, value: ValueId, others: impl Iterator<Item = ValueId>) {
        let mut least: FxHashMap<u32, ValueId> = FxHashMap::default();
        for v in others.chain([value]) {
            let root = self.find(v);
            least.entry(root).and_modify(|l| *l = v.min(*l)).or_insert(v);
        }
        if least.len() < 2 {
            return;
        }
        let largest = least.iter().max_by_key(|&(&root, &v)| (self.size[root as usize], std::cmp::Reverse(v)));
        let Some((&into, _)) = largest else { return };
        for &root in least.keys().filter(|&&r| r != into) {
            self.parent[root as usize] = into;
            self.size[into as usize] += self.size[root as usize];
        }
    }
}

/// Whether an entry parameter's part is aliased with a result: its memory may then be written.
pub fn aliased_parameters(dataflow: &Dataflow<'_>) -> Vec<bool> {
    let module = dataflow.module();
    let mut aliased = vec![false; dataflow.positions.len()];
    let Some(entry) = module.entry() else { return aliased };
    let parameters = module.parameters(entry);
    for alias in &module.config.input_output_alias {
        let parameter = usize::try_from(alias.parameter).ok().and_then(|n| parameters.get(n));
        if let Some(part) = parameter.and_then(|&p| dataflow.positions.part(p, &alias.parameter_index)) {
            aliased[part.start as usize] = true;
        }
    }
    aliased
}

/// Whether an instruction is a parameter of the entry.
pub fn is_entry_parameter(dataflow: &Dataflow<'_>, id: InstructionId) -> bool {
    let module = dataflow.module();
    matches!(module[id].op, Op::Parameter { .. })
        && module.entry().is_some_and(|e| e.index() == module[id].parent().index())
}
