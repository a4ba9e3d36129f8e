//! Functions of single elements (reducers, comparators, the body of map) as straight-line programs, so that applying one
//! to a million elements allocates nothing.
//!
//! A computation qualifies if every live instruction in it is element-wise on scalars, or a tuple of those at its root.
//! The functions called are the very ones the array kernels use ([`crate::ops::elementwise`]); here they are only strung
//! together. Computations that do not qualify are called through the interpreter.

use crate::mixed_precision::mixes;
use crate::ops::elementwise;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};
use rustc_hash::FxHashMap;

/// One element of any type: its bytes as in an array, little-endian, the rest zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scalar(pub u128);

/// A function of one element.
pub type Function1 = fn(Scalar) -> Scalar;
/// A function of two elements.
pub type Function2 = fn(Scalar, Scalar) -> Scalar;
/// A function of three elements.
pub type Function3 = fn(Scalar, Scalar, Scalar) -> Scalar;

impl Scalar {
    /// The element at row-major position `i` of `array`.
    pub fn load(array: &Array, i: usize) -> Scalar {
        let width = array.element_type().bytes();
        let mut bytes = [0u8; 16];
        bytes[..width].copy_from_slice(&array.bytes()[i * width..(i + 1) * width]);
        Scalar(u128::from_le_bytes(bytes))
    }
    /// Writes the element into its `bytes.len()` bytes.
    pub fn store(self, bytes: &mut [u8]) {
        let width = bytes.len();
        bytes.copy_from_slice(&self.0.to_le_bytes()[..width]);
    }
}

enum Code {
    Constant(Scalar),
    One(Function1, u32),
    Two(Function2, u32, u32),
    Three(Function3, u32, u32, u32),
}

/// A function from scalars to scalars.
pub struct Program {
    /// The number of parameters; they are in the first registers.
    pub parameters: usize,
    code: Vec<Code>,
    results: Vec<u32>,
    /// The types of the results.
    pub result_types: Vec<ElementType>,
}

/// The registers of a program, kept between calls.
#[derive(Default)]
pub struct Registers(Vec<Scalar>);

impl Program {
    /// The program of `computation`, or `None` if it does not qualify.
    pub fn compile(module: &Module, computation: ComputationId) -> Option<Program> {
        let parameters = module.parameters(computation);
        for &p in &parameters {
            module[p].shape.as_array().filter(|a| a.is_scalar())?;
        }
        let registers: Vec<Vec<u32>> = (0..parameters.len() as u32).map(|r| vec![r]).collect();
        let mut compiler = Compiler { module, code: Vec::new(), next: parameters.len() as u32, budget: 4096 };
        let results = compiler.computation(computation, &registers, 0)?;
        let shape = &module[module.root(computation)?].shape;
        let result_types = shape.leaves().iter().map(|(_, s)| s.element_type()).collect::<Option<Vec<_>>>()?;
        Some(Program { parameters: parameters.len(), code: compiler.code, results, result_types })
    }

    /// Applies the program to `arguments` and hands the results to `take`, in order.
    pub fn apply(&self, registers: &mut Registers, arguments: &[Scalar], mut take: impl FnMut(usize, Scalar)) {
        let r = &mut registers.0;
        r.clear();
        r.extend_from_slice(arguments);
        for code in &self.code {
            let value = match *code {
                Code::Constant(c) => c,
                Code::One(f, a) => f(r[a as usize]),
                Code::Two(f, a, b) => f(r[a as usize], r[b as usize]),
                Code::Three(f, a, b, c) => f(r[a as usize], r[b as usize], r[c as usize]),
            };
            r.push(value);
        }
        for (i, &register) in self.results.iter().enumerate() {
            take(i, r[register as usize]);
        }
    }

    /// Whether it is one function of its two parameters in order, and which: reducers mostly are.
    pub fn single_binary(&self) -> Option<Function2> {
        match (self.parameters, &self.code[..], &self.results[..]) {
            (2, &[Code::Two(f, 0, 1)], [2]) => Some(f),
            _ => None,
        }
    }
}

struct Compiler<'m> {
    module: &'m Module,
    code: Vec<Code>,
    next: u32,
    /// Instructions that may still be added: calls nest, and a program must stay small.
    budget: u32,
}

impl Compiler<'_> {
    /// Adds the code of `computation` applied to values in registers; returns the registers of its result's leaves.
    fn computation(&mut self, computation: ComputationId, arguments: &[Vec<u32>], depth: usize) -> Option<Vec<u32>> {
        if depth > 16 {
            return None;
        }
        let module = self.module;
        let root = module.root(computation)?;
        let mut values: FxHashMap<InstructionId, Vec<u32>> = FxHashMap::default();
        for &i in module[computation].instructions() {
            if i != root && module[i].users().is_empty() {
                continue;
            }
            let instruction = &module[i];
            let operands = instruction.operands().iter().map(|o| values.get(o).cloned()).collect::<Option<Vec<_>>>()?;
            let result = match &instruction.op {
                Op::Parameter { number, .. } => arguments.get(usize::try_from(*number).ok()?)?.clone(),
                Op::Tuple => operands.concat(),
                Op::GetTupleElement { index } => {
                    let index = usize::try_from(*index).ok()?;
                    let tuple = module[instruction.operands()[0]].shape.as_tuple()?;
                    let start: usize = tuple[..index].iter().map(|s| s.leaf_count()).sum();
                    operands[0].get(start..start + tuple[index].leaf_count())?.to_vec()
                }
                // What enters a call may have to be rounded, which the interpreter does.
                Op::Call { .. } | Op::Fusion(_) if mixes(module, i) => return None,
                Op::Call { to_apply, .. } => self.computation(*to_apply, &operands, depth + 1)?,
                Op::Fusion(f) => self.computation(f.calls, &operands, depth + 1)?,
                _ => vec![self.element(i, &operands)?],
            };
            values.insert(i, result);
        }
        values.remove(&root)
    }

    /// Adds the code of one element-wise instruction on scalars.
    fn element(&mut self, i: InstructionId, operands: &[Vec<u32>]) -> Option<u32> {
        let instruction = &self.module[i];
        let to = instruction.shape.as_array().filter(|a| a.is_scalar())?.element_type;
        let from = match instruction.operands().last() {
            Some(&o) => self.module[o].shape.as_array().filter(|a| a.is_scalar())?.element_type,
            None => to,
        };
        // Operands of mixed precision are left to the interpreter, which widens them; only the first operand of select is
        // of another type by right.
        let same = instruction.operands().iter().skip(usize::from(matches!(instruction.op, Op::Select)));
        let mixed_result = from != to
            && from.is_float()
            && to.is_float()
            && !matches!(instruction.op, Op::Convert | Op::BitcastConvert);
        if mixed_result || same.map(|&o| self.module[o].shape.element_type()).any(|t| t != Some(from)) {
            return None;
        }
        let operand = |n: usize| operands.get(n).and_then(|o| o.first().copied());
        let code = match &instruction.op {
            Op::Constant(ConstantValue::Literal(literal)) => {
                let Literal::Array(literal) = &**literal else { return None };
                let array = Array::from_literal(literal).ok()?;
                Code::Constant(Scalar::load(&array, 0))
            }
            Op::Unary { op, .. } => Code::One(elementwise::unary_function(*op, from)?, operand(0)?),
            Op::Binary(op) => Code::Two(elementwise::binary_function(*op, from)?, operand(0)?, operand(1)?),
            Op::Compare { direction, kind } => {
                Code::Two(elementwise::compare_function(*direction, *kind, from)?, operand(0)?, operand(1)?)
            }
            Op::Convert => Code::One(elementwise::convert_function(from, to)?, operand(0)?),
            Op::Select => Code::Three(elementwise::select_function(), operand(0)?, operand(1)?, operand(2)?),
            Op::Clamp => Code::Three(elementwise::clamp_function(from)?, operand(0)?, operand(1)?, operand(2)?),
            Op::BitcastConvert if from.bits() == to.bits() => {
                Code::One(elementwise::convert_bits_function(from, to)?, operand(0)?)
            }
            Op::Bitcast | Op::Copy | Op::Reshape { .. } | Op::Broadcast { .. } | Op::Transpose { .. } if from == to => {
                return operand(0);
            }
            _ => return None,
        };
        self.budget = self.budget.checked_sub(1)?;
        self.code.push(code);
        self.next += 1;
        Some(self.next - 1)
    }
}

/// A function of scalars in whatever form it could be had.
pub enum ScalarFunction {
    /// Straight-line code.
    Program(Program),
    /// To be called through the interpreter.
    Computation(ComputationId),
}

impl ScalarFunction {
    /// Applies the function; `device` is used only for the general form.
    pub fn apply(
        &self,
        device: &mut crate::interpreter::Device<'_>,
        registers: &mut Registers,
        types: &[ElementType],
        arguments: &[Scalar],
        results: &mut [Scalar],
    ) -> Result<(), ExecutionError> {
        match self {
            ScalarFunction::Program(p) => {
                p.apply(registers, arguments, |i, s| results[i] = s);
                Ok(())
            }
            ScalarFunction::Computation(c) => {
                let mut values = Vec::with_capacity(arguments.len());
                for (s, &t) in arguments.iter().zip(types) {
                    values.push(Value::Array(Array::from_bytes(t, &[], &s.0.to_le_bytes()[..t.bytes()])?));
                }
                let value = device.apply(*c, values)?;
                for (result, leaf) in results.iter_mut().zip(value.leaves()) {
                    *result = Scalar::load(leaf.as_array()?, 0);
                }
                Ok(())
            }
        }
    }
}
