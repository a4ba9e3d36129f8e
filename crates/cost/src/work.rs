//! What is computed, counted in elements and by type: of one instruction, or of all that are fused.

use crate::element;
use crate::matmul::Matmul;
use hloom_ir::ElementType;
use hloom_ir::attributes::{Window, WindowDim};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::Instruction;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};
use smallvec::SmallVec;

/// Elements that instructions work on, by the kind of work.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Elementwise {
    /// Arithmetic, comparisons, selections.
    pub simple: f64,
    /// The same on elements of fewer than 32 bits.
    pub narrow: f64,
    /// Elements moved about.
    pub moved: f64,
    /// Exponentials, roots, divisions and the like.
    pub transcendental: f64,
    /// Conversions to another type.
    pub convert: f64,
    /// Elements that reductions read.
    pub reduced: f64,
}

impl std::ops::AddAssign for Elementwise {
    fn add_assign(&mut self, other: Elementwise) {
        self.simple += other.simple;
        self.narrow += other.narrow;
        self.moved += other.moved;
        self.transcendental += other.transcendental;
        self.convert += other.convert;
        self.reduced += other.reduced;
    }
}

impl std::ops::SubAssign for Elementwise {
    fn sub_assign(&mut self, other: Elementwise) {
        let take = |all: &mut f64, part: f64| *all = (*all - part).max(0.0);
        take(&mut self.simple, other.simple);
        take(&mut self.narrow, other.narrow);
        take(&mut self.moved, other.moved);
        take(&mut self.transcendental, other.transcendental);
        take(&mut self.convert, other.convert);
        take(&mut self.reduced, other.reduced);
    }
}

/// Element-wise work on elements of one type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TypeWork {
    /// The type.
    pub element_type: ElementType,
    /// Plain operations.
    pub vector: f64,
    /// Exponentials and the like.
    pub transcendental: f64,
}

/// What is computed.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Work {
    /// Elements by the kind of work.
    pub elementwise: Elementwise,
    /// The same by element type.
    pub by_type: SmallVec<[TypeWork; 2]>,
    /// Element-wise work as what a core with vectors takes for it, in additions of f32.
    pub additions: f64,
    /// Places in memory that are found by an index that is computed, each with what lies side by side there.
    pub lookups: f64,
    /// Operations that wait for one another, in additions: the longest chain.
    pub depth: f64,
    /// Elements that are moved to where the fastest dimension is another.
    pub transposed: f64,
    /// Whether rows that are too short for vectors are reduced.
    pub has_short_rows: bool,
    /// Whether columns are reduced, and rows are read by parts.
    pub has_columns: bool,
    /// Products and convolutions.
    pub matmuls: SmallVec<[Matmul; 1]>,
    /// Elements that are read or written in an order that memory does not like: gathered, scattered, sorted.
    pub scattered: f64,
    /// Bytes of them that lie side by side, at least.
    pub run_bytes: f64,
    /// Times that all data goes through memory, where once is not enough (a sort's passes).
    pub passes: f64,
}

impl Work {
    /// Floating-point operations of products and convolutions.
    pub fn matmul_flops(&self) -> f64 {
        self.matmuls.iter().map(|m| m.flops).sum()
    }

    /// All operations.
    pub fn flops(&self) -> f64 {
        self.matmul_flops() + self.by_type.iter().map(|t| t.vector + t.transcendental).sum::<f64>()
    }

    /// Counts work of the instruction's own kind, at what a function without a cost of its own takes.
    fn add_plain(&mut self, element_type: ElementType, vector: f64, transcendental: f64) {
        self.additions += (vector + FUNCTION * transcendental) * vectors_of(element_type);
        self.add_typed(element_type, vector, transcendental);
    }

    fn add_typed(&mut self, element_type: ElementType, vector: f64, transcendental: f64) {
        match self.by_type.iter_mut().find(|t| t.element_type == element_type) {
            Some(known) => {
                known.vector += vector;
                known.transcendental += transcendental;
            }
            None => self.by_type.push(TypeWork { element_type, vector, transcendental }),
        }
    }

    /// Adds what another computes.
    pub fn add(&mut self, other: &Work) {
        self.elementwise += other.elementwise;
        self.additions += other.additions;
        self.lookups += other.lookups;
        self.transposed += other.transposed;
        self.has_short_rows |= other.has_short_rows;
        self.has_columns |= other.has_columns;
        for t in &other.by_type {
            self.add_typed(t.element_type, t.vector, t.transcendental);
        }
        self.matmuls.extend(other.matmuls.iter().cloned());
        self.run_bytes = match (self.scattered > 0.0, other.scattered > 0.0) {
            (true, true) => self.run_bytes.min(other.run_bytes),
            (false, true) => other.run_bytes,
            _ => self.run_bytes,
        };
        self.scattered += other.scattered;
        self.passes = self.passes.max(other.passes);
    }

    /// What the instruction itself computes; nothing for one that calls computations as a whole.
    pub fn of(module: &Module, id: InstructionId) -> Work {
        let instruction = &module[id];
        let mut work = Work::default();
        let Some(result) = first_array(&instruction.shape) else { return work };
        let n = elements(result);
        let operand = |i: usize| instruction.operands().get(i).and_then(|&o| first_array(&module[o].shape));
        let read = operand(0).map_or(n, |a| elements(a).max(n));
        // What vector units of tiles take, padding included.
        let lanes = |a: &ArrayShape| tiles(a).map_or(elements(a), |t| t * TILE_ELEMENTS);
        let (filled, read_filled) = (lanes(result), operand(0).map_or(lanes(result), |a| lanes(a).max(lanes(result))));
        let computed = operand(0).map_or(result.element_type, |a| a.element_type);
        match &instruction.op {
            Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Iota { .. }
            | Op::ReplicaId
            | Op::PartitionId
            | Op::Bitcast
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::DynamicSlice { .. }
            | Op::DynamicUpdateSlice
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::AfterAll
            | Op::AddDependency
            | Op::OptBarrier
            | Op::Domain(_)
            | Op::GetDimensionSize { .. }
            | Op::SetDimensionSize { .. }
            | Op::While { .. }
            | Op::Conditional { .. }
            | Op::Call { .. }
            | Op::Fusion(_) => {}
            Op::Dot(_) | Op::ScaledDot(_) | Op::RaggedDot(_) | Op::Convolution(_) => {
                work.matmuls.extend(Matmul::of(module, id));
            }
            Op::Convert | Op::StochasticConvert | Op::ReducePrecision { .. } => {
                work.elementwise.convert = filled;
                work.add_plain(result.element_type, n, 0.0);
            }
            Op::Unary { op, .. } if is_transcendental(*op) => work.transcendental(result.element_type, n, filled),
            Op::Binary(BinaryOp::Divide | BinaryOp::Power | BinaryOp::Atan2 | BinaryOp::Remainder)
                if result.element_type.is_float() || result.element_type.is_complex() =>
            {
                work.transcendental(result.element_type, n, filled);
            }
            Op::Reduce { to_apply, dimensions } => {
                work.reduced(computed, read, read_filled);
                let minor = operand(0).and_then(|a| a.minor_to_major().first().copied());
                let by_rows = minor.is_some_and(|m| dimensions.contains(&m));
                work.has_short_rows = by_rows && n > 1.0 && read / n < SHORT_ROW;
                work.has_columns = !by_rows && n > 1.0;
                work.additions = read * combining(module, *to_apply) * instruction.shape.leaf_count() as f64;
            }
            Op::ReduceWindow { window, .. } => {
                // A window over all elements of a row hands its sum to each.
                match window.dims.iter().zip(result.dims()).any(|(w, &n)| w.size > n) {
                    true => work.elementwise.moved = filled,
                    false => work.elementwise.simple = filled,
                }
                work.add_plain(computed, read.max(n), 0.0);
                work.add_plain(computed, n * window_steps(window, result), 0.0);
                work.additions = n * window_additions(window, result) * vectors_of(computed);
            }
            Op::SelectAndScatter { window, .. } => {
                let source = operand(1).map_or(n, elements);
                work.reduced(computed, n, filled);
                work.add_plain(computed, source * window_elements(window), 0.0);
            }
            Op::Sort { dimension, .. } => {
                let along = usize::try_from(*dimension).ok().and_then(|d| result.dims().get(d).copied()).unwrap_or(1);
                let steps = (along.max(2) as f64).log2();
                work.elementwise.simple = n * steps;
                // Each step ends in a branch that nobody foresees: as long as an exponential, not as an addition.
                work.add_typed(computed, 0.0, n * steps);
                work.additions = n * (SORT + SORT_STEP * steps);
                work.scattered = n;
                work.run_bytes = bytes_of_one(result);
                work.passes = (steps / 4.0).max(1.0);
            }
            Op::Gather(gather) => {
                work.elementwise.simple = n;
                work.scattered = n;
                work.run_bytes = operand(0).map_or(0.0, |from| run_bytes(from, &gather.slice_sizes));
                work.lookups = n * bytes_of_one(result) / work.run_bytes.max(bytes_of_one(result));
            }
            Op::Scatter(scatter) => {
                let update = operand(instruction.operands().len() / 2 + 1);
                let updates = update.map_or(n, elements);
                // A window that ends with the fastest dimension is written at once.
                let minor = update.map_or(1, |u| minor_window(u, &scatter.dims.update_window_dims));
                work.lookups = SCATTERED * updates / minor.max(1) as f64;
                work.elementwise.simple = updates;
                work.add_plain(computed, updates, 0.0);
                work.scattered = updates;
                work.run_bytes = bytes_of_one(result);
            }
            Op::TopK { .. } => {
                work.reduced(computed, read, read_filled);
                work.additions = TOP_STEP * read;
            }
            Op::Fft { length, .. } => {
                let steps: f64 = length.iter().map(|&l| (l.max(2) as f64).log2()).sum();
                let each = 8.0 * steps * read;
                work.elementwise.simple = each;
                work.add_plain(result.element_type, each, 0.0);
            }
            op if factorises(op) => {
                let last = operand(0).and_then(|a| a.dims().last().copied()).unwrap_or(1).max(1) as f64;
                let each = n.max(operand(1).map_or(0.0, elements)) * last;
                work.elementwise.simple = each;
                work.add_plain(computed, each, 0.0);
            }
            Op::BatchNormTraining { .. } | Op::BatchNormGrad { .. } | Op::BatchNormInference { .. } => {
                work.elementwise.simple = 4.0 * read;
                work.reduced(computed, read, read_filled);
                work.add_plain(computed, 4.0 * read, 0.0);
            }
            Op::Rng { .. } | Op::RngBitGenerator { .. } => {
                let all: f64 =
                    instruction.shape.leaves().iter().filter_map(|(_, s)| first_array(s)).map(elements).sum();
                // A round of the usual generators is some twenty integer operations a number.
                work.elementwise.simple = 20.0 * all;
                work.add_plain(ElementType::U32, 20.0 * all, 0.0);
            }
            op if op.is_elementwise() => {
                // Predicates are made of what is compared.
                match result.element_type.is_float() && result.element_type.bits() < 32 {
                    true => work.elementwise.narrow = filled,
                    false => work.elementwise.simple = filled,
                }
                work.add_plain(computed, n, 0.0);
            }
            Op::Map { .. } => {
                work.elementwise.simple = n;
                work.add_plain(result.element_type, n, 0.0);
            }
            // What moves elements about takes the vector units, and computes nothing.
            _ => work.elementwise.moved = filled,
        }
        let computed = if matches!(instruction.op, Op::Convert) { result.element_type } else { computed };
        if moves_fastest(module, id) {
            work.transposed = n;
        }
        if let Some(each) = additions(instruction, computed) {
            work.additions = each * n * vectors_of(computed);
        }
        work.depth = element::depth(&instruction.op, instruction.operands().len(), computed);
        work
    }

    fn transcendental(&mut self, element_type: ElementType, n: f64, filled: f64) {
        self.elementwise.transcendental = filled;
        self.add_plain(element_type, 0.0, n);
    }

    fn reduced(&mut self, element_type: ElementType, n: f64, filled: f64) {
        self.elementwise.reduced = filled;
        self.add_plain(element_type, n, 0.0);
    }
}

/// What an element of type `t` takes, in additions, as far as the vector units are concerned.
fn additions(instruction: &Instruction, t: ElementType) -> Option<f64> {
    match &instruction.op {
        // By itself each piece is copied to its place, and what is found by an index that is computed is counted by the
        // places where it lies.
        Op::Concatenate { .. } | Op::Gather(_) => Some(1.0),
        op => element::instruction(op, instruction.operands().len(), t),
    }
}

/// Whether matrices are factored or solved for: each element takes about as many steps as a row is long.
pub(crate) fn factorises(op: &Op) -> bool {
    match op {
        Op::Cholesky { .. } | Op::TriangularSolve { .. } => true,
        Op::CustomCall(call) => call.target.starts_with("lapack_"),
        _ => false,
    }
}

/// Elements that vector units of tiles take at once.
pub(crate) const TILE_ELEMENTS: f64 = 1024.0;

/// What a function takes that has no cost of its own, in additions.
const FUNCTION: f64 = 20.0;

/// An element of a sort in additions, and what each doubling of the rows adds: keys are distributed by their digits
/// rather than compared.
const SORT: f64 = 800.0;
const SORT_STEP: f64 = 56.0;
/// An element of a scan, which waits for the one before, in additions.
const SCAN_STEP: f64 = 64.0;
/// The same, and of a window, from row to row: elements of a row do not wait for each other.
const ROW_SCAN_STEP: f64 = 4.0;
/// An element of a window along the fastest dimension, which is loaded by itself, in additions.
const WINDOW_STEP: f64 = 14.0;
/// An element that the largest so far are compared with, in additions.
const TOP_STEP: f64 = 90.0;
/// A place that is written waits for the one before it, which may be the same: as long as so many that are read.
const SCATTERED: f64 = 2.0;
/// Rows that are shorter than this are not reduced by vectors.
const SHORT_ROW: f64 = 16.0;

/// What one more element takes in a reduction by a computation, in additions; what calls others is as much as its
/// instructions.
fn combining(module: &Module, computation: ComputationId) -> f64 {
    let each = |&id: &InstructionId| {
        let instruction = &module[id];
        let array = first_array(&instruction.shape)?;
        let computed = instruction.operands().first().and_then(|&o| first_array(&module[o].shape)).unwrap_or(array);
        let each = additions(instruction, computed.element_type)?;
        Some(each * vectors_of(computed.element_type))
    };
    module[computation].instructions().iter().filter_map(each).sum::<f64>().max(1.0)
}

/// Whether the fastest dimension of a transpose's result is not that of its operand.
fn moves_fastest(module: &Module, id: InstructionId) -> bool {
    let instruction = &module[id];
    let Op::Transpose { dimensions } = &instruction.op else { return false };
    let from = instruction.operands().first().and_then(|&o| first_array(&module[o].shape));
    let (Some(from), Some(to)) = (from, first_array(&instruction.shape)) else { return false };
    let fastest = |a: &ArrayShape| a.minor_to_major().into_iter().find(|&d| size_of(a, d) > 1);
    let source = fastest(to).and_then(|d| usize::try_from(d).ok()).and_then(|d| dimensions.get(d).copied());
    source.is_some() && source != fastest(from)
}

fn size_of(array: &ArrayShape, dimension: i64) -> i64 {
    usize::try_from(dimension).ok().and_then(|d| array.dims().get(d).copied()).unwrap_or(1)
}

/// The elements of an update that are written side by side.
fn minor_window(update: &ArrayShape, window_dims: &[i64]) -> i64 {
    let inside = update.minor_to_major().into_iter().take_while(|d| window_dims.contains(d));
    inside.map(|d| size_of(update, d)).fold(1, i64::saturating_mul)
}

/// Vectors of a type for one of as many f32.
fn vectors_of(t: ElementType) -> f64 {
    // Narrower ones are computed with as f32, or do not come in larger vectors for want of loads.
    if t.bits() > 32 { f64::from(t.bits()) / 32.0 } else { 1.0 }
}

/// What takes a series or a table, or as long as that.
fn is_transcendental(op: UnaryOp) -> bool {
    op.takes_result_accuracy() || matches!(op, UnaryOp::Rsqrt | UnaryOp::Sqrt | UnaryOp::Tanh | UnaryOp::Logistic)
}

fn bytes_of_one(array: &ArrayShape) -> f64 {
    f64::from(array.element_type.bits()) / 8.0
}

/// The bytes of a slice of that size that lie side by side in an array.
fn run_bytes(array: &ArrayShape, slice_sizes: &[i64]) -> f64 {
    let mut run = bytes_of_one(array);
    for d in array.minor_to_major() {
        let Ok(d) = usize::try_from(d) else { break };
        let (Some(&whole), Some(&taken)) = (array.dims().get(d), slice_sizes.get(d)) else { break };
        run *= taken.max(0) as f64;
        if taken != whole {
            break;
        }
    }
    run
}

/// What an element of a windowed reduction takes: as many steps as the window has elements, but one along a dimension of
/// which it has all elements up to its own: that is a scan.
fn window_steps(window: &Window, result: &ArrayShape) -> f64 {
    let steps = |(d, &n): (&WindowDim, &i64)| {
        let is_scan = n > 1 && d.size == n && d.stride == 1 && d.padding_low + d.padding_high == n - 1;
        if is_scan { SCAN_STEP } else { d.size.max(0) as f64 }
    };
    window.dims.iter().zip(result.dims()).map(steps).product()
}

/// The same in additions.
fn window_additions(window: &Window, result: &ArrayShape) -> f64 {
    let minor = result.minor_to_major().into_iter().next();
    let mut additions = 1.0;
    let (mut is_window, mut is_along) = (false, false);
    for (dim, (d, &n)) in window.dims.iter().zip(result.dims()).enumerate() {
        let is_scan = n > 1 && d.size == n && d.stride == 1 && d.padding_low + d.padding_high == n - 1;
        if is_scan {
            additions *= if minor == i64::try_from(dim).ok() { SCAN_STEP } else { ROW_SCAN_STEP };
        } else {
            additions *= d.size.max(0) as f64;
            is_window |= d.size > 1;
            is_along |= d.size > 1 && minor == i64::try_from(dim).ok();
        }
    }
    match (is_window, is_along) {
        (true, true) => additions * WINDOW_STEP,
        (true, false) => additions * ROW_SCAN_STEP,
        (false, _) => additions,
    }
}

fn window_elements(window: &Window) -> f64 {
    window.dims.iter().map(|d| d.size.max(0) as f64).product()
}

/// The array, or the first array of a tuple: operations over several arrays work on them in step.
pub(crate) fn first_array(shape: &Shape) -> Option<&ArrayShape> {
    let mut shape = shape;
    loop {
        match shape {
            Shape::Array(a) | Shape::Buffer(a) => return Some(a),
            Shape::Tuple(t) => shape = t.first()?,
            Shape::Token | Shape::Opaque => return None,
        }
    }
}

/// The elements of a tile of an array's layout.
pub(crate) fn tile_elements(array: &ArrayShape) -> Option<f64> {
    let tile = array.layout.as_ref()?.tiles.first()?;
    Some(tile.0.iter().map(|&t| t.max(1) as f64).product())
}

/// How many tiles of its layout an array takes; one of more elements than vector units take at once is several.
pub(crate) fn tiles(array: &ArrayShape) -> Option<f64> {
    let tile = array.layout.as_ref()?.tiles.first()?;
    let slowest_first = array.minor_to_major().into_iter().rev();
    let sizes: SmallVec<[f64; 6]> = slowest_first.map(|d| size_of(array, d).max(0) as f64).collect();
    let tile: SmallVec<[f64; 2]> = tile.0.iter().map(|&t| t.max(1) as f64).collect();
    let cut = sizes.len().checked_sub(tile.len())?;
    let counts = sizes[cut..].iter().zip(&tile).map(|(n, t)| (n / t).ceil());
    let each = (tile_elements(array)? / TILE_ELEMENTS).max(1.0);
    Some(sizes[..cut].iter().product::<f64>() * counts.product::<f64>() * each)
}

/// The elements of an array, as a float: no size is too large.
pub(crate) fn elements(shape: &ArrayShape) -> f64 {
    shape.dims().iter().map(|&d| d.max(0) as f64).product()
}
