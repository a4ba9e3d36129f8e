//! Fingerprints of instructions: of what one is by itself, of what it computes, and of what is done with its result.
//!
//! - A *label* covers opcode, shape, layout and attributes; names, ids, channel numbers, metadata and the called
//!   computations are not part of it. Equivalent ways to write one thing (`a > b` and `b < a`, replica groups as a list or
//!   an iota, a layout left out or written as the default, the order of keys in JSON) have one label.
//! - A *value* covers the label, the called computations and the values of the operands: instructions of equal values
//!   compute the same from the same parameters.
//! - *Uses* cover the labels of everything downstream and the operand positions that lead there.
//!
//! All of it takes time linear in the module, without recursion.

use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::instruction::Instruction;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Collective, ConstantValue, Op};
use hloom_ir::order::{self, PostOrder};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_ir::sharding::{LeafSharding, Sharding};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The fingerprints of a module, by the indices of instructions and computations.
pub(super) struct Fingerprints {
    /// What an instruction is by itself.
    pub(super) label: Vec<u64>,
    /// What it computes.
    pub(super) value: Vec<u64>,
    /// What is done with its result.
    pub(super) uses: Vec<u64>,
    /// Whether what it computes depends on a parameter or the outside world: what does not is a constant that could stand
    /// anywhere.
    pub(super) grounded: Vec<bool>,
    /// What a computation does.
    pub(super) computation: Vec<u64>,
    /// The place of an instruction in its computation's list.
    pub(super) place: Vec<u32>,
}

/// Hashes what is written to it.
struct HashWriter<'h>(&'h mut DefaultHasher);

impl Write for HashWriter<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// One hash of several.
fn mix(parts: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

impl Fingerprints {
    /// The fingerprints of everything in `module`.
    pub(super) fn new(module: &Module) -> Fingerprints {
        let (slots, computations) = (module.instruction_slots(), module.computation_slots());
        let mut prints = Fingerprints {
            label: vec![0; slots],
            value: vec![0; slots],
            uses: vec![0; slots],
            grounded: vec![false; slots],
            computation: vec![0; computations],
            place: vec![0; slots],
        };
        let mut post_order = PostOrder::new(module);
        for c in order::computations(module) {
            let order = post_order.instructions(c);
            for (place, &i) in module[c].instructions().iter().enumerate() {
                prints.place[i.index()] = place as u32;
            }
            prints.values(module, c, &order);
            prints.uses(module, c, &order);
        }
        prints
    }

    fn values(&mut self, module: &Module, c: ComputationId, order: &[InstructionId]) {
        let mut all = 0u64;
        for &i in order {
            let instruction = &module[i];
            let label = label(instruction);
            let called = instruction.op.called_computations();
            let mut parts = vec![label, called.len() as u64];
            parts.extend(called.iter().map(|c| self.computation[c.index()]));
            let operands = parts.len();
            parts.extend(instruction.operands().iter().map(|o| self.value[o.index()]));
            match operand_order(&instruction.op) {
                OperandOrder::Free => parts[operands..].sort_unstable(),
                OperandOrder::Swapped => parts[operands..].reverse(),
                OperandOrder::Fixed => {}
            }
            let predecessors = parts.len();
            parts.extend(instruction.common.control_predecessors().iter().map(|p| self.value[p.index()]));
            parts[predecessors..].sort_unstable();
            let value = mix(&parts);
            self.label[i.index()] = label;
            self.value[i.index()] = value;
            self.grounded[i.index()] =
                is_source(&instruction.op) || instruction.operands().iter().any(|o| self.grounded[o.index()]);
            all = all.wrapping_add(value);
        }
        let root = module.root(c).map_or(0, |r| self.value[r.index()]);
        self.computation[c.index()] = mix(&[root, all, order.len() as u64]);
    }

    fn uses(&mut self, module: &Module, c: ComputationId, order: &[InstructionId]) {
        const ROOT: u64 = 0x5eed;
        if let Some(root) = module.root(c) {
            self.uses[root.index()] = ROOT;
        }
        // From each user to what it reads, so that a value of very many users, or a user of very many values, costs no
        // more than its edges.
        for &i in order.iter().rev() {
            let instruction = &module[i];
            let own = mix(&[self.label[i.index()], self.uses[i.index()]]);
            let count = instruction.operands().len();
            for (position, operand) in instruction.operands().iter().enumerate() {
                let position = match operand_order(&instruction.op) {
                    OperandOrder::Free => 0,
                    OperandOrder::Swapped => count - 1 - position,
                    OperandOrder::Fixed => position,
                };
                let uses = &mut self.uses[operand.index()];
                *uses = uses.wrapping_add(mix(&[own, position as u64]));
            }
        }
    }
}

/// Whether the operation brings something in that its operands do not determine.
fn is_source(op: &Op) -> bool {
    matches!(
        op,
        Op::Parameter { .. }
            | Op::ReplicaId
            | Op::PartitionId
            | Op::Infeed { .. }
            | Op::Recv(_)
            | Op::RngGetAndUpdateState { .. }
    ) || matches!(op, Op::CustomCall(call) if call.has_side_effect)
}

/// What the order of an operation's operands means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperandOrder {
    /// As it stands.
    Fixed,
    /// Nothing.
    Free,
    /// The other way round: the label is of the operation with its two operands exchanged.
    Swapped,
}

/// What the order of the operands means.
pub(super) fn operand_order(op: &Op) -> OperandOrder {
    use BinaryOp::{Add, And, Maximum, Minimum, Mulhi, Multiply, Or, Xor};
    use ComparisonDirection as Direction;
    match op {
        Op::Binary(Add | And | Maximum | Minimum | Mulhi | Multiply | Or | Xor) | Op::AfterAll => OperandOrder::Free,
        Op::Compare { direction: Direction::Eq | Direction::Ne, .. } => OperandOrder::Free,
        Op::Compare { direction: Direction::Gt | Direction::Ge, .. } => OperandOrder::Swapped,
        _ => OperandOrder::Fixed,
    }
}

fn label(instruction: &Instruction) -> u64 {
    let mut hasher = DefaultHasher::new();
    (instruction.opcode() as u32).hash(&mut hasher);
    let text = &mut HashWriter(&mut hasher);
    // Writing into a hash does not fail.
    let _ = match &instruction.op {
        Op::Parameter { number, .. } => write!(text, "{number}"),
        Op::Constant(_) | Op::CustomCall(_) => write!(text, "{:?}", without_literal(&canonical(&instruction.op))),
        op => write!(text, "{:?}", canonical(op)),
    };
    let _ = write!(text, "{:?}", shape(&instruction.shape));
    let _ = match sharding(instruction) {
        Some(sharding) => write!(text, "{sharding:?}"),
        None => Ok(()),
    };
    match &instruction.op {
        Op::Constant(ConstantValue::Literal(l)) => hash_literal(l, &mut hasher),
        Op::CustomCall(call) => call.literal.iter().for_each(|l| hash_literal(l, &mut hasher)),
        _ => {}
    }
    backend_config(instruction).hash(&mut hasher);
    frontend_attributes(instruction).hash(&mut hasher);
    hasher.finish()
}

/// Literals may be large: their bytes are hashed, not their text.
fn hash_literal(literal: &Literal, hasher: &mut DefaultHasher) {
    let mut stack = vec![literal];
    while let Some(literal) = stack.pop() {
        match literal {
            Literal::Array(array) => array.bytes().hash(hasher),
            Literal::Tuple(elements) => {
                elements.len().hash(hasher);
                stack.extend(elements);
            }
            Literal::Token => 0u8.hash(hasher),
        }
    }
}

fn without_literal(op: &Op) -> Op {
    match op {
        Op::Constant(_) => Op::Constant(ConstantValue::Elided),
        Op::CustomCall(call) => {
            let mut call = call.clone();
            call.literal = None;
            Op::CustomCall(call)
        }
        op => op.clone(),
    }
}

/// The operation in the one form that all equivalent ways to write it have, its operands' order apart.
pub(super) fn canonical(op: &Op) -> Op {
    use ComparisonDirection as Direction;
    if matches!(op, Op::Constant(_)) {
        return op.clone();
    }
    let mut op = op.clone();
    for callee in op.called_computations_mut() {
        *callee = ComputationId::from_index(0);
    }
    match &mut op {
        Op::Compare { direction, kind } => {
            // But for the total order of floats, the operands' type says it.
            *kind = kind.filter(|k| *k == ComparisonType::TotalOrder);
            match direction {
                Direction::Gt => *direction = Direction::Lt,
                Direction::Ge => *direction = Direction::Le,
                _ => {}
            }
        }
        Op::AllReduce(a) | Op::AllReduceStart(a) => canonical_groups(&mut a.collective),
        Op::AllGather(a) | Op::AllGatherStart(a) => canonical_groups(&mut a.collective),
        Op::ReduceScatter(r) => canonical_groups(&mut r.collective),
        Op::CollectiveReduce(r) => canonical_groups(&mut r.collective),
        Op::AllToAll { collective, .. }
        | Op::RaggedAllToAll { collective, .. }
        | Op::CollectiveBroadcast { collective, .. } => canonical_groups(collective),
        Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) => p.channel_id = p.channel_id.map(|_| 0),
        Op::Send(t) | Op::SendDone(t) | Op::Recv(t) | Op::RecvDone(t) => t.channel_id = t.channel_id.map(|_| 0),
        Op::Reshape { inferred_dimension } => *inferred_dimension = None,
        _ => {}
    }
    op
}

fn canonical_groups(collective: &mut Collective) {
    collective.channel_id = collective.channel_id.map(|_| 0);
    if let Some(groups) = collective.replica_groups.expand() {
        collective.replica_groups = ReplicaGroups::Explicit(groups);
    }
}

/// The shape with the default layout where none is written.
pub(super) fn shape(shape: &Shape) -> Shape {
    shape.map_arrays(&mut |array: &ArrayShape| match array.layout {
        Some(_) => array.clone(),
        None => array.clone().with_default_layout(),
    })
}

/// The sharding without word of where it came from.
pub(super) fn sharding(instruction: &Instruction) -> Option<Vec<LeafSharding>> {
    let sharding: &Sharding = instruction.common.sharding.as_deref()?;
    let plain = |leaf: &LeafSharding| {
        let kind = leaf.kind.clone().canonical();
        LeafSharding { kind, group: leaf.group, metadata: Vec::new() }
    };
    Some(sharding.leaves().iter().map(plain).collect())
}

/// The configuration for a compiler; in JSON the order of keys and white space do not matter.
pub(super) fn backend_config(instruction: &Instruction) -> Option<Vec<u8>> {
    let config = instruction.common.backend_config.as_deref()?;
    let json: Option<serde_json::Value> = serde_json::from_slice(config).ok();
    Some(json.map_or_else(|| config.to_vec(), |json| json.to_string().into_bytes()))
}

/// `frontend_attributes` as a list.
pub(super) fn frontend_attributes(instruction: &Instruction) -> Vec<(&str, &str)> {
    let rare = instruction.common.rare.iter();
    rare.flat_map(|r| &r.frontend_attributes).map(|(k, v)| (&**k, &**v)).collect()
}
