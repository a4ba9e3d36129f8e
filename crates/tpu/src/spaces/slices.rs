//! Fetching an array in slices: each is copied by itself, and the joined array is their memory, one after another.
//!
//! What is fetched as a whole takes all of its place from the start of the copy on. In slices it takes a part of it more
//! with each of them, and so fits where there is room for all of it only shortly before it is read. The slices are started
//! at equal distances in time, so that each is hidden as well as the whole would be.

use super::apply::with_space;
use crate::edit::add;
use hloom_ir::attributes::SliceDim;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::layout::Layout;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{AsyncStart, CustomCall, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_target::Target;

/// How many slices are tried, the best number first.
const COUNTS: [i64; 2] = [4, 2];
/// Bytes of the least array that is worth it.
const LEAST_BYTES: i64 = 1 << 20;

/// The dimension that an array is cut along, into how many slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    dimension: usize,
    pub(super) count: usize,
}

/// How to cut an array so that each slice is a stretch of its memory of equal size, and begins where something may in the
/// memory that it goes to.
pub(super) fn cut(array: &ArrayShape, target: &Target, memory_space: i64) -> Option<Cut> {
    let bytes = target.byte_size(&array.clone().into()).filter(|&b| b >= LEAST_BYTES)?;
    let layout = array.layout.as_ref()?;
    let dimension = usize::try_from(*layout.minor_to_major.last()?).ok()?;
    let size = *array.dims().get(dimension)?;
    let tile = layout.tiles.first().map_or(&[][..], |t| &t.0);
    // What the tile says of the outermost dimension: nothing, if there are more dimensions than it has.
    let rows = if tile.len() < array.rank() { 1 } else { *tile.first()? };
    let is_plain = tile.len() <= array.rank() && rows > 0 && layout.rare.is_none();
    let goes = |&count: &i64| {
        size % (count * rows) == 0 && bytes % (count * target.alignment(memory_space).max(1)) == 0 && is_plain
    };
    let count = COUNTS.into_iter().find(goes)?;
    Some(Cut { dimension, count: usize::try_from(count).ok()? })
}

/// The instructions of a fetch in slices; the order is the caller's to set.
#[derive(Debug)]
pub(super) struct Sliced {
    pub(super) starts: Vec<InstructionId>,
    pub(super) dones: Vec<InstructionId>,
    /// The array that they are joined to.
    pub(super) whole: InstructionId,
}

/// Adds the fetch of `source`, an array, to a memory.
pub(super) fn fetch(module: &mut Module, source: InstructionId, memory_space: i64, cut: Cut) -> Option<Sliced> {
    let from = module[source].shape.clone();
    let array = from.as_array()?.clone();
    let size = array.dims()[cut.dimension] / cut.count as i64;
    let semaphore = Layout { memory_space: 2, ..Layout::default() };
    let word: Shape = ArrayShape::new(ElementType::S32, []).with_layout(semaphore).into();
    let mut sliced = Sliced { starts: Vec::new(), dones: Vec::new(), whole: source };
    for n in 0..cut.count as i64 {
        let dim = |(d, &all): (usize, &i64)| match d == cut.dimension {
            true => SliceDim { start: n * size, limit: (n + 1) * size, stride: 1 },
            false => SliceDim { start: 0, limit: all, stride: 1 },
        };
        let dims: Box<[SliceDim]> = array.dims().iter().enumerate().map(dim).collect();
        let sizes: Vec<i64> = dims.iter().map(|d| d.limit - d.start).collect();
        let part = ArrayShape::new(array.element_type, sizes).with_layout(array.layout.clone()?);
        let part = with_space(&part.into(), &[], memory_space);
        let calls = module.add_computation("async_computation");
        let mut inside = |name: &str, op: Op, shape: &Shape, operands: &[InstructionId]| {
            let operands = Operands::from_slice(operands);
            let new =
                NewInstruction { name: name.into(), op, shape: shape.clone(), operands, common: Common::default() };
            module.add_instruction(calls, new)
        };
        let parameter = inside("param_0", Op::Parameter { number: 0, replication: None }, &from, &[]);
        inside("slice", Op::Slice { dims }, &part, &[parameter]);
        let start = AsyncStart { calls, execution_thread: None, output_operand_aliasing: Vec::new() };
        let shape = Shape::tuple([Shape::tuple([from.clone()]), part.clone(), word.clone()]);
        let op = Op::AsyncStart(Box::new(start));
        let start = add(module, source, "slice-start", op, shape, &[source], Common::default());
        sliced.starts.push(start);
        sliced.dones.push(add(module, source, "slice-done", Op::AsyncDone, part, &[start], Common::default()));
    }
    let call = Op::CustomCall(Box::new(CustomCall::new("ConcatBitcast")));
    let to = with_space(&from, &[], memory_space);
    sliced.whole = add(module, source, "fetched", call, to, &sliced.dones, Common::default());
    Some(sliced)
}
