//! The memory of one computation, as far as its order decides about it.
//!
//! Each instruction makes buffers and holds on to others. A buffer is live from its making to the last instruction that
//! holds or reads it. Only main memory counts, and only what lives and dies within the computation: parameters are the
//! caller's, constants are always there, and what a loop carries round is the memory of what came in. A computation called
//! from several places is looked at once, on its own: nothing here asks who calls.

use super::graph::{Lists, Node};
use crate::dataflow::forwards;
use crate::in_place::InPlace;
use crate::overwrite::is_elementwise;
use crate::positions::{Position, Positions};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_target::Target;
use std::ops::Range;

/// A piece of memory within a computation.
pub(super) type Buffer = u32;

/// Memory that is not counted, and may be written: the caller's, or none at all.
const OUTSIDE: Buffer = u32::MAX;
/// Memory that is not counted, and may not be written: constants, and parameters of the entry that are not given away.
const FIXED: Buffer = u32::MAX - 1;
/// Where no value is known.
const NONE: u32 = u32::MAX;

/// The memory of a computation.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// The buffers that each node makes, holds or reads, each once.
    pub(super) touches: Lists,
    /// The nodes that do so, by buffer.
    pub(super) touched_by: Lists,
    /// Bytes of each buffer.
    pub(super) sizes: Vec<i64>,
    /// The node that makes each buffer.
    pub(super) maker: Vec<Node>,
    /// Whether a buffer is still needed after the computation's end.
    pub(super) kept: Vec<bool>,
    /// Bytes that each node makes.
    pub(super) fresh: Vec<i128>,
    /// Bytes that each node holds when it is done.
    pub(super) held: Vec<i128>,
    /// Buffers that the node may write its result over if it is the last to need them.
    pub(super) overwrites: Lists,
    /// The most that is live within the computations that a node calls.
    pub(super) inner: Vec<i128>,
    /// For a node that writes over what it reads, the others that read the same: they had better come before.
    pub(super) wishes: Vec<(Node, Node)>,
}

/// Works out the memory of computations, callees first.
pub(super) struct Model<'a, 'm> {
    positions: &'a Positions<'m>,
    in_place: &'a InPlace<'m>,
    target: &'a Target,
    /// Whether a loop whose body has its root here hands something else round than what came in, by position of the root.
    changed: Vec<bool>,
    /// Parts of entry parameters that share memory with results.
    aliased: Vec<bool>,
    loop_body: Vec<bool>,
    value_at: Vec<u32>,
}

/// What is known so far of the computation being looked at.
#[derive(Default)]
struct Known {
    /// The buffer of each value; a new value may be in an old buffer.
    buffer: Vec<Buffer>,
    sizes: Vec<i64>,
    maker: Vec<Node>,
    /// Values that a node writes over.
    written: Vec<(u32, Node)>,
}

impl<'a, 'm> Model<'a, 'm> {
    pub(super) fn new(positions: &'a Positions<'m>, in_place: &'a InPlace<'m>, target: &'a Target) -> Model<'a, 'm> {
        let module = positions.module();
        let mut aliased = vec![false; positions.len()];
        let parameters = module.entry().map(|e| module.parameters(e)).unwrap_or_default();
        for alias in &module.config.input_output_alias {
            let parameter = usize::try_from(alias.parameter).ok().and_then(|n| parameters.get(n));
            if let Some(part) = parameter.and_then(|&p| positions.part(p, &alias.parameter_index)) {
                aliased[part.start as usize] = true;
            }
        }
        let mut loop_body = vec![false; module.computation_slots()];
        for &computation in module.computations() {
            for &id in module[computation].instructions() {
                if let Op::While { body, .. } = module[id].op {
                    loop_body[body.index()] = true;
                }
            }
        }
        let count = positions.len();
        Model {
            positions,
            in_place,
            target,
            changed: vec![true; count],
            aliased,
            loop_body,
            value_at: vec![NONE; count],
        }
    }

    fn module(&self) -> &'m Module {
        self.positions.module()
    }

    /// The memory of `computation`, whose nodes are given with what they need before them.
    pub(super) fn computation(&mut self, computation: ComputationId, order: &[Node]) -> Memory {
        let module = self.module();
        let stored = module[computation].instructions();
        let is_entry = module.entry() == Some(computation);
        let mut known = Known::default();
        for &node in order {
            self.define(stored[node as usize], node, is_entry, &mut known);
        }
        let mut kept = vec![false; known.sizes.len()];
        if let Some(root) = module.root(computation) {
            self.compare_with_parameter(computation, root);
            for position in self.positions.of(root) {
                if let Some(kept) = self.buffer(&known, position).and_then(|b| kept.get_mut(b as usize)) {
                    *kept = true;
                }
            }
            if self.loop_body[computation.index()] {
                // Whoever called has made room for what is carried round.
                for (size, _) in known.sizes.iter_mut().zip(&kept).filter(|(_, kept)| **kept) {
                    *size = 0;
                }
            }
        }
        self.collect(stored, known, kept)
    }

    fn buffer(&self, known: &Known, position: Position) -> Option<Buffer> {
        let value = self.value_at[position as usize];
        known.buffer.get(value as usize).copied().filter(|&b| b < FIXED)
    }

    /// Finds the values of an instruction's result, and makes the buffers of those that are new.
    fn define(&mut self, id: InstructionId, node: Node, is_entry: bool, known: &mut Known) {
        let module = self.module();
        let here = self.positions.of(id);
        match &module[id].op {
            Op::Parameter { .. } => {
                for position in here {
                    let is_fixed = is_entry && !self.aliased[position as usize];
                    self.value_at[position as usize] = known.value(if is_fixed { FIXED } else { OUTSIDE });
                }
                return;
            }
            Op::Constant(_) => {
                here.for_each(|p| self.value_at[p as usize] = known.value(FIXED));
                return;
            }
            _ => here.clone().for_each(|p| self.value_at[p as usize] = NONE),
        }
        for forward in forwards(self.positions, id) {
            self.hand_on(forward.from, forward.to, forward.tables);
        }
        let first = module[id].operands().first().copied();
        match &module[id].op {
            Op::While { body, .. } => self.carry_round(id, *body, node, known),
            Op::AsyncUpdate { .. } | Op::AsyncDone => {
                let to =
                    if let Op::AsyncDone = module[id].op { Some(here.clone()) } else { self.positions.part(id, &[1]) };
                let from = first.and_then(|f| self.positions.part(f, &[1]));
                if let (Some(from), Some(to)) = (from, to) {
                    self.hand_on(from, to, false);
                }
            }
            _ => {}
        }
        for pair in self.in_place.pairs(id) {
            let operand = module[id].operands().get(pair.operand);
            let operand = operand.and_then(|&o| self.positions.part(o, &pair.operand_index));
            let output = self.positions.part(id, &pair.output_index);
            if let (Some(operand), Some(output)) = (operand, output) {
                self.write_over(operand.start, output.start, node, known);
            }
        }
        for position in here {
            if self.value_at[position as usize] == NONE {
                let shape = self.positions.shape(position);
                // Tables of tuples have memory of their own, whatever the order.
                let counts = !self.positions.is_tuple(position) && Target::memory_space(shape) == 0;
                let size = if counts { self.target.byte_size(shape).unwrap_or(0) } else { 0 };
                let buffer = known.make(size, node);
                self.value_at[position as usize] = known.value(buffer);
            }
        }
    }

    fn hand_on(&mut self, from: Range<Position>, to: Range<Position>, tables: bool) {
        for (from, to) in from.zip(to) {
            if tables || !self.positions.is_tuple(from) && !self.positions.is_tuple(to) {
                self.value_at[to as usize] = self.value_at[from as usize];
            }
        }
    }

    /// What a loop hands round is in the memory of what went in, unless it is the same to the end.
    fn carry_round(&mut self, id: InstructionId, body: ComputationId, node: Node, known: &mut Known) {
        let module = self.module();
        let (Some(&init), Some(root)) = (module[id].operands().first(), module.root(body)) else { return };
        let parts = self.positions.of(init).zip(self.positions.of(id)).zip(self.positions.of(root));
        for ((from, to), root) in parts {
            if self.changed[root as usize] {
                self.write_over(from, to, node, known);
            } else {
                self.value_at[to as usize] = self.value_at[from as usize];
            }
        }
    }

    /// Makes a value at `to` in the memory of the value at `from`, if that may be written.
    fn write_over(&mut self, from: Position, to: Position, node: Node, known: &mut Known) {
        let old = self.value_at[from as usize];
        let Some(&buffer) = known.buffer.get(old as usize).filter(|&&b| b != FIXED) else { return };
        known.written.push((old, node));
        self.value_at[to as usize] = known.value(buffer);
    }

    /// Remembers which parts of a loop's parameter come back as they were.
    fn compare_with_parameter(&mut self, computation: ComputationId, root: InstructionId) {
        let parameters = self.module().parameters(computation);
        let Some(&parameter) = parameters.first() else { return };
        for (root, parameter) in self.positions.of(root).zip(self.positions.of(parameter)) {
            self.changed[root as usize] = self.value_at[root as usize] != self.value_at[parameter as usize];
        }
    }

    fn collect(&self, stored: &[InstructionId], known: Known, kept: Vec<bool>) -> Memory {
        let module = self.module();
        let mut last_writer = vec![Node::MAX; known.buffer.len()];
        known.written.iter().for_each(|&(value, node)| last_writer[value as usize] = node);
        let mut memory = Memory { kept, ..Memory::default() };
        let (mut touches, mut overwrites) = (Vec::new(), Vec::new());
        let mut listed_for = vec![Node::MAX; known.sizes.len()];
        for (i, &id) in stored.iter().enumerate() {
            let node = i as Node;
            let mut held = 0i128;
            let mut touch = |position: Position| {
                let Some(buffer) = self.buffer(&known, position) else { return 0 };
                if known.sizes[buffer as usize] == 0 || listed_for[buffer as usize] == node {
                    return 0;
                }
                listed_for[buffer as usize] = node;
                touches.push((node, buffer));
                i128::from(known.sizes[buffer as usize])
            };
            for position in self.positions.of(id) {
                held += touch(position);
            }
            memory.held.push(held);
            if is_forwarder(&module[id].op) {
                continue;
            }
            for (slot, &operand) in module[id].operands().iter().enumerate() {
                for position in self.positions.of(operand) {
                    touch(position);
                    let writer = last_writer.get(self.value_at[position as usize] as usize);
                    if let Some(&writer) = writer.filter(|&&w| w != Node::MAX && w != node) {
                        memory.wishes.push((writer, node));
                    }
                }
                if module[id].shape.as_array().is_some()
                    && module[operand].shape == module[id].shape
                    && is_elementwise(module, id, slot)
                    && let Some(buffer) = self.buffer(&known, self.positions.whole(operand))
                {
                    overwrites.push((node, buffer));
                }
            }
        }
        memory.fresh = vec![0; stored.len()];
        for (&maker, &size) in known.maker.iter().zip(&known.sizes) {
            memory.fresh[maker as usize] += i128::from(size);
        }
        memory.touches = Lists::new(stored.len(), &touches);
        memory.touched_by = memory.touches.inverse(known.sizes.len());
        memory.overwrites = Lists::new(stored.len(), &overwrites);
        memory.maker = known.maker;
        memory.sizes = known.sizes;
        memory
    }
}

/// Whether it only hands on what it is given, without reading it.
fn is_forwarder(op: &Op) -> bool {
    matches!(
        op,
        Op::Tuple | Op::GetTupleElement { .. } | Op::Bitcast | Op::AddDependency | Op::OptBarrier | Op::Domain(_)
    )
}

impl Known {
    fn value(&mut self, buffer: Buffer) -> u32 {
        self.buffer.push(buffer);
        self.buffer.len() as u32 - 1
    }

    fn make(&mut self, size: i64, maker: Node) -> Buffer {
        if size == 0 {
            return OUTSIDE;
        }
        self.sizes.push(size);
        self.maker.push(maker);
        self.sizes.len() as Buffer - 1
    }
}
