//! What is computed, counted in elements and by type: of one instruction, or of all that are fused.

use crate::element;
use crate::matmul::Matmul;
use hloom_ir::ElementType;
use hloom_ir::attributes::{Window, WindowDim};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};
use smallvec::SmallVec;

/// Elements that instructions work on, by the kind of work.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Elementwise {
    /// Arithmetic, comparisons, selections, and elements moved about.
    pub simple: f64,
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
        self.transcendental += other.transcendental;
        self.convert += other.convert;
        self.reduced += other.reduced;
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
                work.elementwise.convert = n;
                work.add_plain(result.element_type, n, 0.0);
            }
            Op::Unary { op, .. } if is_transcendental(*op) => work.transcendental(result.element_type, n),
            Op::Binary(BinaryOp::Divide | BinaryOp::Power | BinaryOp::Atan2 | BinaryOp::Remainder)
                if result.element_type.is_float() || result.element_type.is_complex() =>
            {
                work.transcendental(result.element_type, n);
            }
            Op::Reduce { .. } => work.reduced(computed, read),
            Op::ReduceWindow { window, .. } => {
                work.reduced(computed, read.max(n));
                work.add_plain(computed, n * window_steps(window, result), 0.0);
            }
            Op::SelectAndScatter { window, .. } => {
                let source = operand(1).map_or(n, elements);
                work.reduced(computed, n);
                work.add_plain(computed, source * window_elements(window), 0.0);
            }
            Op::Sort { dimension, .. } => {
                let along = usize::try_from(*dimension).ok().and_then(|d| result.dims().get(d).copied()).unwrap_or(1);
                let steps = (along.max(2) as f64).log2();
                work.elementwise.simple = n * steps;
                // Each step ends in a branch that nobody foresees: as long as an exponential, not as an addition.
                work.add_typed(computed, 0.0, n * steps);
                work.additions = SORT_STEP * n * steps;
                work.scattered = n;
                work.run_bytes = bytes_of_one(result);
                work.passes = (steps / 4.0).max(1.0);
            }
            Op::Gather(gather) => {
                work.elementwise.simple = n;
                work.scattered = n;
                work.run_bytes = operand(0).map_or(0.0, |from| run_bytes(from, &gather.slice_sizes));
            }
            Op::Scatter(_) => {
                let updates = operand(instruction.operands().len() / 2 + 1).map_or(n, elements);
                work.elementwise.simple = updates;
                work.add_plain(computed, updates, 0.0);
                work.scattered = updates;
                work.run_bytes = bytes_of_one(result);
            }
            Op::TopK { .. } => work.reduced(computed, read),
            Op::Fft { length, .. } => {
                let steps: f64 = length.iter().map(|&l| (l.max(2) as f64).log2()).sum();
                let each = 8.0 * steps * read;
                work.elementwise.simple = each;
                work.add_plain(result.element_type, each, 0.0);
            }
            Op::Cholesky { .. } | Op::TriangularSolve { .. } => {
                let last = operand(0).and_then(|a| a.dims().last().copied()).unwrap_or(1).max(1) as f64;
                let each = n.max(operand(1).map_or(0.0, elements)) * last;
                work.elementwise.simple = each;
                work.add_plain(computed, each, 0.0);
            }
            Op::BatchNormTraining { .. } | Op::BatchNormGrad { .. } | Op::BatchNormInference { .. } => {
                work.elementwise.simple = 4.0 * read;
                work.reduced(computed, read);
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
                work.elementwise.simple = n;
                work.add_plain(computed, n, 0.0);
            }
            Op::Map { .. } => {
                work.elementwise.simple = n;
                work.add_plain(result.element_type, n, 0.0);
            }
            // What moves elements about takes the vector units as long as an addition does, and computes nothing.
            _ => work.elementwise.simple = n,
        }
        let computed = if matches!(instruction.op, Op::Convert) { result.element_type } else { computed };
        let each = match &instruction.op {
            // By itself each piece is copied to its place.
            Op::Concatenate { .. } => Some(1.0),
            op => element::instruction(op, instruction.operands().len(), computed),
        };
        if let Some(each) = each {
            work.additions = each * n * vectors_of(computed);
        }
        work
    }

    fn transcendental(&mut self, element_type: ElementType, n: f64) {
        self.elementwise.transcendental = n;
        self.add_plain(element_type, 0.0, n);
    }

    fn reduced(&mut self, element_type: ElementType, n: f64) {
        self.elementwise.reduced = n;
        self.add_plain(element_type, n, 0.0);
    }
}

/// What a function takes that has no cost of its own, in additions.
const FUNCTION: f64 = 20.0;

/// A step of a sort, at a branch that nobody foresees, in additions.
const SORT_STEP: f64 = 80.0;
/// An element of a scan, which waits for the one before, in additions.
const SCAN_STEP: f64 = 64.0;

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

/// The elements of an array, as a float: no size is too large.
pub(crate) fn elements(shape: &ArrayShape) -> f64 {
    shape.dims().iter().map(|&d| d.max(0) as f64).product()
}
