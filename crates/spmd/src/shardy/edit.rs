//! Reading and changing programs in MLIR: who uses a value, copies of operations, new ones among the old.

use hloom_stablehlo::mlir::{AttrId, Module, NameId, OpId, OpKind, OpName, Operation, Region, RegionId, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Where each value is defined and used.
pub(super) struct Uses {
    /// The operation whose result each value is; `None` for arguments of blocks.
    pub def: Vec<Option<OpId>>,
    /// Operations that use each value, with the operand's number, in order.
    pub uses: Vec<SmallVec<[(OpId, u32); 2]>>,
    /// The region whose argument each value is.
    pub region: Vec<Option<RegionId>>,
    /// The function whose argument each value is, and its number there.
    pub argument: FxHashMap<ValueId, (OpId, usize)>,
    /// The region that each operation stands in, and its place there.
    pub place: FxHashMap<OpId, (RegionId, usize)>,
}

impl Uses {
    /// Of all operations that are in the program.
    pub(super) fn new(module: &Module<'_>) -> Uses {
        let count = module.values.len();
        let mut found = Uses {
            def: vec![None; count],
            uses: vec![SmallVec::new(); count],
            region: vec![None; count],
            argument: FxHashMap::default(),
            place: FxHashMap::default(),
        };
        for (r, region) in module.regions.iter().enumerate() {
            let id = RegionId(r as u32);
            for block in &region.blocks {
                for i in 0..block.argument_count {
                    found.region[block.first_argument.index() + i as usize] = Some(id);
                }
                found.place.extend(block.ops.iter().enumerate().map(|(n, &op)| (op, (id, n))));
            }
        }
        for (_, function) in module.functions() {
            if let Some(&region) = module.op(function).regions.first() {
                let arguments = module.arguments(region).map(ValueId).enumerate();
                found.argument.extend(arguments.map(|(i, v)| (v, (function, i))));
            }
        }
        for op in all_ops(module) {
            let node = module.op(op);
            for value in node.results() {
                found.def[value.index()] = Some(op);
            }
            for (i, value) in node.operands.iter().enumerate() {
                found.uses[value.index()].push((op, i as u32));
            }
        }
        found
    }

    /// Makes an operand another value.
    pub(super) fn replace(&mut self, module: &mut Module<'_>, user: OpId, number: u32, new: ValueId) {
        let slot = &mut module.ops[user.index()].operands[number as usize];
        let old = std::mem::replace(slot, new);
        self.uses[old.index()].retain(|u| *u != (user, number));
        self.grow(new);
        self.uses[new.index()].push((user, number));
    }

    /// Notes a new operation of one operand.
    pub(super) fn note(&mut self, op: OpId, input: ValueId, result: ValueId) {
        self.grow(result);
        self.def[result.index()] = Some(op);
        self.uses[input.index()].push((op, 0));
    }

    fn grow(&mut self, value: ValueId) {
        let count = self.def.len().max(value.index() + 1);
        self.def.resize(count, None);
        self.uses.resize(count, SmallVec::new());
        self.region.resize(count, None);
    }

    pub(super) fn users(&self, value: ValueId) -> &[(OpId, u32)] {
        self.uses.get(value.index()).map_or(&[], |u| u)
    }
}

/// All operations of the program, each before those in its regions.
pub(super) fn all_ops(module: &Module<'_>) -> Vec<OpId> {
    let mut order = Vec::with_capacity(module.ops.len());
    let mut stack: Vec<OpId> = module.body().iter().rev().copied().collect();
    while let Some(op) = stack.pop() {
        order.push(op);
        for &region in module.op(op).regions.iter().rev() {
            for block in module.region(region).blocks.iter().rev() {
                stack.extend(block.ops.iter().rev());
            }
        }
    }
    order
}

/// The operations of a region and of all regions within, each before those in its regions.
pub(super) fn ops_within(module: &Module<'_>, region: RegionId) -> Vec<OpId> {
    let mut order = Vec::new();
    let mut stack: Vec<OpId> = Vec::new();
    for block in module.region(region).blocks.iter().rev() {
        stack.extend(block.ops.iter().rev());
    }
    while let Some(op) = stack.pop() {
        order.push(op);
        for &region in module.op(op).regions.iter().rev() {
            for block in module.region(region).blocks.iter().rev() {
                stack.extend(block.ops.iter().rev());
            }
        }
    }
    order
}

/// The values that the only block of a region gives.
pub(super) fn returned(module: &Module<'_>, region: RegionId) -> SmallVec<[ValueId; 4]> {
    let last = module.region(region).blocks.first().and_then(|b| b.ops.last().copied());
    last.filter(|&op| module.kind(op).is_return()).map(|op| module.op(op).operands.clone()).unwrap_or_default()
}

/// The name of an operation as one of the program's.
pub(super) fn name_id(module: &mut Module<'_>, name: &'static str) -> NameId {
    if let Some(i) = module.names.iter().position(|n| n.name == name) {
        return NameId(i as u32);
    }
    module.names.push(OpName { name: name.into(), kind: OpKind::from_name(name) });
    NameId(module.names.len() as u32 - 1)
}

/// Adds an operation of one operand with a result of the same type; it is in no block yet.
pub(super) fn add_unary(
    module: &mut Module<'_>,
    name: &'static str,
    input: ValueId,
    attribute: Option<(&'static str, AttrId)>,
    like: Option<OpId>,
) -> (OpId, ValueId) {
    let name = name_id(module, name);
    let ty = module.value_type(input);
    let result = module.add_value(ty);
    let (location, span) = match like {
        Some(op) => (module.op(op).location, module.op(op).span),
        None => Default::default(),
    };
    module.ops.push(Operation {
        name,
        location,
        span,
        operands: SmallVec::from_slice(&[input]),
        first_result: result,
        result_count: 1,
        attributes: attribute.into_iter().map(|(n, id)| (n.into(), id)).collect(),
        regions: SmallVec::new(),
    });
    (OpId(module.ops.len() as u32 - 1), result)
}

/// New operations at their places in blocks: before or after others, or at the start of a block.
#[derive(Default)]
pub(super) struct Insertions {
    before: FxHashMap<OpId, Vec<OpId>>,
    after: FxHashMap<OpId, Vec<OpId>>,
    at_start: FxHashMap<RegionId, Vec<OpId>>,
    removed: rustc_hash::FxHashSet<OpId>,
}

impl Insertions {
    pub(super) fn before(&mut self, place: OpId, op: OpId) {
        self.before.entry(place).or_default().push(op);
    }
    pub(super) fn after(&mut self, place: OpId, op: OpId) {
        self.after.entry(place).or_default().push(op);
    }
    /// Before what was put there earlier.
    pub(super) fn at_start(&mut self, region: RegionId, op: OpId) {
        self.at_start.entry(region).or_default().insert(0, op);
    }
    pub(super) fn remove(&mut self, op: OpId) {
        self.removed.insert(op);
    }

    /// Puts them there. What is moved is removed from its old place first.
    pub(super) fn apply(self, module: &mut Module<'_>) {
        if self.before.is_empty() && self.after.is_empty() && self.at_start.is_empty() && self.removed.is_empty() {
            return;
        }
        for i in 0..module.regions.len() {
            let first = self.at_start.get(&RegionId(i as u32));
            for (b, block) in module.regions[i].blocks.iter_mut().enumerate() {
                let mut ops = Vec::with_capacity(block.ops.len());
                if let Some(first) = first.filter(|_| b == 0) {
                    ops.extend_from_slice(first);
                }
                for &op in &block.ops {
                    if let Some(new) = self.before.get(&op) {
                        ops.extend_from_slice(new);
                    }
                    if !self.removed.contains(&op) {
                        ops.push(op);
                    }
                    if let Some(new) = self.after.get(&op) {
                        ops.extend_from_slice(new);
                    }
                }
                block.ops = ops;
            }
        }
    }
}

/// A copy of an operation without regions of its own, reading what `map` says instead of the old values.
pub(super) fn clone_op(module: &mut Module<'_>, op: OpId, map: &mut FxHashMap<ValueId, ValueId>) -> OpId {
    let mut copy = module.op(op).clone();
    copy.operands.iter_mut().for_each(|v| *v = map.get(v).copied().unwrap_or(*v));
    let mut first = None;
    for value in module.op(op).results() {
        let ty = module.value_type(value);
        let new = module.add_value(ty);
        first.get_or_insert(new);
        map.insert(value, new);
    }
    if let Some(first) = first {
        copy.first_result = first;
    }
    module.ops.push(copy);
    OpId(module.ops.len() as u32 - 1)
}

/// A copy of an operation with all that is in its regions.
pub(super) fn clone_deep(module: &mut Module<'_>, op: OpId, map: &mut FxHashMap<ValueId, ValueId>) -> OpId {
    let copy = clone_op(module, op, map);
    // Regions still to copy: the operation that gets them and the old region.
    let mut pending: Vec<(OpId, usize, RegionId)> =
        module.op(op).regions.iter().enumerate().map(|(i, &r)| (copy, i, r)).collect();
    pending.reverse();
    while let Some((owner, number, old)) = pending.pop() {
        let old = module.region(old).clone();
        let first = module.values.len() as u32;
        let mut region = Region { blocks: SmallVec::new(), values: first..first };
        for block in old.blocks {
            let mut new = block.clone();
            for i in 0..block.argument_count {
                let value = ValueId(block.first_argument.0 + i);
                let ty = module.value_type(value);
                let fresh = module.add_value(ty);
                if i == 0 {
                    new.first_argument = fresh;
                }
                map.insert(value, fresh);
            }
            new.ops = block.ops.iter().map(|&op| clone_op(module, op, map)).collect();
            for (&from, &to) in block.ops.iter().zip(&new.ops) {
                let inner = module.op(from).regions.clone();
                pending.extend(inner.iter().enumerate().rev().map(|(i, &r)| (to, i, r)));
            }
            region.blocks.push(new);
        }
        region.values = first..module.values.len() as u32;
        module.regions.push(region);
        let id = RegionId(module.regions.len() as u32 - 1);
        module.ops[owner.index()].regions[number] = id;
    }
    copy
}
