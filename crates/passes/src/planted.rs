//! Faults planted on purpose, to test what looks for faults: only in builds with debug assertions, and only where
//! `HLOOM_PLANTED_FAULT=WHERE:KIND` asks for one.
//!
//! WHERE is a pass, after whose first run the fault is made, or a backend, whose code is then made of a faulty module. A
//! fault is one small wrong rewrite, made wherever it fits; the module stays valid and only its values become wrong.

use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::elementwise::{BinaryOp, UnaryOp};
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Operands;
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// The variable that asks for a fault.
pub const VARIABLE: &str = "HLOOM_PLANTED_FAULT";

/// The kinds of faults.
pub const KINDS: &[&str] = &[
    "add-subtracts",
    "subtract-swapped",
    "multiply-adds",
    "divide-swapped",
    "maximum-minimum",
    "minimum-first",
    "negate-abs",
    "exponential-expm1",
    "tanh-sine",
    "sine-cosine",
    "abs-negate",
    "floor-ceil",
    "compare-inclusive",
    "compare-swapped",
    "select-swapped",
    "clamp-swapped",
    "and-or",
    "or-xor",
    "slice-shifted",
    "pad-mirrored",
    "concatenate-swapped",
    "reverse-forgotten",
    "transpose-forgotten",
    "broadcast-exchanged",
    "iota-dimension",
];

/// Makes the fault that is asked for at `place`, if one is; says how often.
pub fn plant(module: &mut Module, place: &str) -> usize {
    asked_at(place).map_or(0, |kind| make(module, &kind))
}

/// The kind of fault that is asked for at `place`, if one is.
pub fn asked_at(place: &str) -> Option<String> {
    if !cfg!(debug_assertions) {
        return None;
    }
    let asked = std::env::var(VARIABLE).ok()?;
    asked.split_once(':').filter(|(at, _)| *at == place).map(|(_, kind)| kind.to_owned())
}

fn make(module: &mut Module, kind: &str) -> usize {
    let all: Vec<InstructionId> =
        module.computations().iter().flat_map(|&c| module[c].instructions()).copied().collect();
    let fits = |i: &InstructionId| {
        // Counters and addresses decide whether a program ends: these are left alone.
        let array = module[*i].shape.as_array();
        array.is_some_and(|a| a.rank() > 0)
    };
    let all: Vec<InstructionId> = all.into_iter().filter(fits).collect();
    all.into_iter().filter(|&i| change(module, i, kind).is_some()).count()
}

/// Changes one instruction; `None` if the fault does not fit it.
fn change(module: &mut Module, i: InstructionId, kind: &str) -> Option<()> {
    use BinaryOp::{Add, And, Divide, Maximum, Minimum, Multiply, Or, Subtract, Xor};
    let swapped = |module: &mut Module, a: usize, b: usize| {
        let mut operands: Operands = module[i].operands().into();
        let same = module[*operands.get(a)?].shape == module[*operands.get(b)?].shape;
        operands.swap(a, b);
        same.then(|| module.set_operands(i, operands).ok()).flatten()
    };
    let op = module[i].op.clone();
    let new = match (kind, op) {
        ("add-subtracts", Op::Binary(Add)) => Op::Binary(Subtract),
        ("multiply-adds", Op::Binary(Multiply)) => Op::Binary(Add),
        ("maximum-minimum", Op::Binary(Maximum)) => Op::Binary(Minimum),
        ("and-or", Op::Binary(And)) => Op::Binary(Or),
        ("or-xor", Op::Binary(Or)) => Op::Binary(Xor),
        ("subtract-swapped", Op::Binary(Subtract)) | ("divide-swapped", Op::Binary(Divide)) => {
            return swapped(module, 0, 1);
        }
        ("minimum-first", Op::Binary(Minimum)) => Op::Binary(Maximum),
        ("select-swapped", Op::Select) => return swapped(module, 1, 2),
        ("clamp-swapped", Op::Clamp) => return swapped(module, 0, 2),
        ("concatenate-swapped", Op::Concatenate { .. }) => return swapped(module, 0, 1),
        ("compare-swapped", Op::Compare { .. }) => return swapped(module, 0, 1),
        ("negate-abs", Op::Unary { op: UnaryOp::Negate, accuracy }) => Op::Unary { op: UnaryOp::Abs, accuracy },
        ("abs-negate", Op::Unary { op: UnaryOp::Abs, accuracy }) if !is_complex(module, i) => {
            Op::Unary { op: UnaryOp::Negate, accuracy }
        }
        ("exponential-expm1", Op::Unary { op: UnaryOp::Exponential, accuracy }) => {
            Op::Unary { op: UnaryOp::ExponentialMinusOne, accuracy }
        }
        ("tanh-sine", Op::Unary { op: UnaryOp::Tanh, accuracy }) => Op::Unary { op: UnaryOp::Sine, accuracy },
        ("sine-cosine", Op::Unary { op: UnaryOp::Sine, accuracy }) => Op::Unary { op: UnaryOp::Cosine, accuracy },
        ("floor-ceil", Op::Unary { op: UnaryOp::Floor, accuracy }) => Op::Unary { op: UnaryOp::Ceil, accuracy },
        ("compare-inclusive", Op::Compare { direction: ComparisonDirection::Lt, kind }) => {
            Op::Compare { direction: ComparisonDirection::Ge, kind }
        }
        ("slice-shifted", Op::Slice { mut dims }) => {
            let operand = module[*module[i].operands().first()?].shape.as_array()?.dims().to_vec();
            let at = dims.iter().zip(&operand).position(|(d, &size)| d.start > 0 || d.limit < size)?;
            let by = if dims[at].limit < operand[at] { 1 } else { -1 };
            (dims[at].start, dims[at].limit) = (dims[at].start + by, dims[at].limit + by);
            Op::Slice { dims }
        }
        ("pad-mirrored", Op::Pad { mut padding }) => {
            let at = padding.iter().position(|p| p.low != p.high)?;
            (padding[at].low, padding[at].high) = (padding[at].high, padding[at].low);
            Op::Pad { padding }
        }
        ("reverse-forgotten", Op::Reverse { .. }) => Op::Reverse { dimensions: Default::default() },
        ("transpose-forgotten", Op::Transpose { mut dimensions }) => {
            let dims = module[i].shape.as_array()?.dims();
            let (a, b) = equal_sizes(dims)?;
            dimensions.swap(a, b);
            Op::Transpose { dimensions }
        }
        ("broadcast-exchanged", Op::Broadcast { mut dimensions }) => {
            let operand = module[*module[i].operands().first()?].shape.as_array()?.dims();
            let (a, b) = equal_sizes(operand)?;
            dimensions.swap(a, b);
            Op::Broadcast { dimensions }
        }
        ("iota-dimension", Op::Iota { dimension }) => {
            let rank = module[i].shape.as_array()?.rank() as i64;
            (rank > 1).then_some(Op::Iota { dimension: (dimension + 1) % rank })?
        }
        _ => return None,
    };
    module.instruction_mut(i).op = new;
    Some(())
}

fn is_complex(module: &Module, i: InstructionId) -> bool {
    let operand = module[i].operands().first().and_then(|&o| module[o].shape.element_type());
    operand.is_some_and(|t| t.is_complex())
}

/// The first two dimensions that are alike.
fn equal_sizes(dims: &[i64]) -> Option<(usize, usize)> {
    let pairs = (0..dims.len()).flat_map(|a| (a + 1..dims.len()).map(move |b| (a, b)));
    pairs.into_iter().find(|&(a, b)| dims[a] == dims[b] && dims[a] > 1)
}
