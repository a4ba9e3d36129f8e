//! Positions: every part of every instruction's result, tuples included, under one number each.
//!
//! The parts of a result stand next to each other in pre-order (`{}`, `{0}`, `{0,0}`, `{1}` …), so that a part with all
//! that is in it is a range of numbers, and forwarding a value is copying a range. Instructions stand in the order of
//! the module.

use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::shape::{Shape, ShapeIndex};
use std::ops::Range;

/// The number of a position.
pub type Position = u32;

/// The positions of a module.
#[derive(Debug)]
pub struct Positions<'m> {
    module: &'m Module,
    /// The first position of each instruction, by its index.
    first: Vec<Position>,
    /// The instruction of each position.
    owner: Vec<InstructionId>,
    is_tuple: Vec<bool>,
    /// Where the elements of tuple-shaped instructions begin, counted from the instruction's first position, with the
    /// end after the last element; `elements_at` says where an instruction's list begins.
    elements: Vec<u32>,
    elements_at: Vec<u32>,
}

/// The number of parts of a shape, itself included.
fn part_count(shape: &Shape) -> usize {
    match shape {
        Shape::Tuple(elements) => 1 + elements.iter().map(part_count).sum::<usize>(),
        _ => 1,
    }
}

impl<'m> Positions<'m> {
    /// The positions of `module`; `None` if there are more than can be numbered.
    pub fn new(module: &'m Module) -> Option<Positions<'m>> {
        let slots = module.instruction_slots();
        let mut positions = Positions {
            module,
            first: vec![0; slots + 1],
            owner: Vec::new(),
            is_tuple: Vec::new(),
            elements: Vec::new(),
            elements_at: vec![0; slots],
        };
        for &computation in module.computations() {
            for &id in module[computation].instructions() {
                positions.add(id)?;
            }
        }
        Some(positions)
    }

    fn add(&mut self, id: InstructionId) -> Option<()> {
        let shape = &self.module[id].shape;
        self.first[id.index()] = u32::try_from(self.owner.len()).ok()?;
        self.elements_at[id.index()] = u32::try_from(self.elements.len()).ok()?;
        let start = self.owner.len();
        if let Shape::Tuple(elements) = shape {
            let mut at = 1usize;
            for element in elements.iter() {
                self.elements.push(u32::try_from(at).ok()?);
                at += part_count(element);
            }
            self.elements.push(u32::try_from(at).ok()?);
        }
        mark_tuples(shape, &mut self.is_tuple);
        self.owner.resize(self.is_tuple.len(), id);
        u32::try_from(self.owner.len()).ok()?;
        debug_assert!(self.owner.len() > start);
        Some(())
    }

    /// The module.
    pub fn module(&self) -> &'m Module {
        self.module
    }

    /// The number of positions.
    pub fn len(&self) -> usize {
        self.owner.len()
    }

    /// Whether the module has no instructions.
    pub fn is_empty(&self) -> bool {
        self.owner.is_empty()
    }

    /// All positions of an instruction.
    pub fn of(&self, id: InstructionId) -> Range<Position> {
        let first = self.first[id.index()];
        let length = match &self.module[id].shape {
            Shape::Tuple(elements) => {
                let last = self.elements_at[id.index()] as usize + elements.len();
                self.elements.get(last).copied().unwrap_or(1)
            }
            _ => 1,
        };
        first..first + length
    }

    /// The position `{}` of an instruction.
    pub fn whole(&self, id: InstructionId) -> Position {
        self.first[id.index()]
    }

    /// The positions of the part at `index` and all that is in it.
    pub fn part(&self, id: InstructionId, index: &[i64]) -> Option<Range<Position>> {
        let Some((&outer, inner)) = index.split_first() else { return Some(self.of(id)) };
        let elements = self.module[id].shape.as_tuple()?;
        let outer = usize::try_from(outer).ok().filter(|&i| i < elements.len())?;
        let list = self.elements_at[id.index()] as usize;
        let mut start = self.first[id.index()] + *self.elements.get(list + outer)?;
        let mut shape = &elements[outer];
        for &i in inner {
            let elements = shape.as_tuple()?;
            let i = usize::try_from(i).ok().filter(|&i| i < elements.len())?;
            start += 1 + elements[..i].iter().map(part_count).sum::<usize>() as u32;
            shape = &elements[i];
        }
        Some(start..start + part_count(shape) as u32)
    }

    /// The instruction that a position belongs to.
    pub fn instruction(&self, position: Position) -> InstructionId {
        self.owner[position as usize]
    }

    /// Whether the part there is a tuple.
    pub fn is_tuple(&self, position: Position) -> bool {
        self.is_tuple[position as usize]
    }

    /// Whether it is an instruction's whole result.
    pub fn is_whole(&self, position: Position) -> bool {
        self.whole(self.instruction(position)) == position
    }

    /// The shape of the part there.
    pub fn shape(&self, position: Position) -> &'m Shape {
        self.walk(position, |_| {})
    }

    /// The path to the part there.
    pub fn index(&self, position: Position) -> ShapeIndex {
        let mut index = ShapeIndex::new();
        self.walk(position, |i| index.push(i as i64));
        index
    }

    /// Goes from the whole to the part at `position`, telling each step.
    fn walk(&self, position: Position, mut step: impl FnMut(usize)) -> &'m Shape {
        let id = self.instruction(position);
        let mut shape = &self.module[id].shape;
        let mut left = (position - self.whole(id)) as usize;
        if left == 0 {
            return shape;
        }
        if let Shape::Tuple(elements) = shape {
            let list = self.elements_at[id.index()] as usize;
            let starts = &self.elements[list..list + elements.len()];
            let element = starts.partition_point(|&s| s as usize <= left).saturating_sub(1);
            step(element);
            left -= starts[element] as usize;
            shape = &elements[element];
        }
        while left > 0 {
            let Shape::Tuple(elements) = shape else { break };
            left -= 1;
            let mut chosen = 0;
            for (i, element) in elements.iter().enumerate() {
                chosen = i;
                let parts = part_count(element);
                if left < parts {
                    break;
                }
                left -= parts;
            }
            step(chosen);
            shape = &elements[chosen];
        }
        shape
    }
}

fn mark_tuples(shape: &Shape, marks: &mut Vec<bool>) {
    match shape {
        Shape::Tuple(elements) => {
            marks.push(true);
            elements.iter().for_each(|e| mark_tuples(e, marks));
        }
        _ => marks.push(false),
    }
}
