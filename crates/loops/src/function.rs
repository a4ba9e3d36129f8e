//! Functions of single elements: what reductions, scatters and sorts apply, as straight-line code, with tuples, calls and
//! nested fusions dissolved.

use crate::graph::{MAX_DEPTH, ScalarOp, missing_operand};
use crate::unsupported::Unsupported;
use hloom_ir::attributes::ComparisonType;
use hloom_ir::op::{BinaryOp, ConstantValue, Op};
use hloom_ir::shape::Shape;
use hloom_ir::{ComputationId, ElementType, Instruction, InstructionId, Module};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// A function of single elements, straight-line.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    /// The types of its parameters.
    pub parameters: SmallVec<[ElementType; 2]>,
    /// Its steps, each after those it uses.
    pub code: Vec<FunctionStep>,
    /// The steps that are its results.
    pub results: SmallVec<[u32; 1]>,
}

/// A step of a [`Function`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FunctionStep {
    /// What it does.
    pub op: FunctionOp,
    /// The steps that it does it with.
    pub operands: SmallVec<[u32; 3]>,
    /// The type of its value.
    pub element_type: ElementType,
}

/// What a step of a [`Function`] does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FunctionOp {
    /// A parameter.
    Parameter(u32),
    /// The element in these bytes, of the type it is written in.
    Constant(ElementType, SmallVec<[u8; 16]>),
    /// An operation.
    Scalar(ScalarOp),
}

/// The operation on single elements that `instruction` is, applied to elements of `types`.
pub(crate) fn scalar_op(
    instruction: &Instruction,
    types: &[ElementType],
    to: ElementType,
) -> Result<ScalarOp, Unsupported> {
    let op = match &instruction.op {
        Op::Unary { op, .. } => ScalarOp::Unary(*op),
        Op::Binary(op) => ScalarOp::Binary(*op),
        Op::Compare { direction, kind } => {
            ScalarOp::Compare { direction: *direction, total: *kind == Some(ComparisonType::TotalOrder) }
        }
        Op::Select => ScalarOp::Select,
        Op::Clamp => ScalarOp::Clamp,
        Op::Convert => ScalarOp::Convert,
        Op::BitcastConvert => ScalarOp::BitcastConvert,
        Op::ReducePrecision { exponent_bits, mantissa_bits } => {
            ScalarOp::ReducePrecision { exponent_bits: *exponent_bits, mantissa_bits: *mantissa_bits }
        }
        other => return Err(Unsupported::new(other.opcode().name())),
    };
    crate::scalar_op::check(op, types, to)?;
    Ok(op)
}

/// The straight-line function that a computation of scalars is.
pub fn function_of(module: &Module, computation: ComputationId, widen: bool) -> Result<Function, Unsupported> {
    let parameters = module.parameters(computation);
    let mut function = Function { parameters: SmallVec::new(), code: Vec::new(), results: SmallVec::new() };
    let mut arguments: Vec<SmallVec<[u32; 1]>> = Vec::new();
    for (number, &p) in parameters.iter().enumerate() {
        let element_type = widened(scalar_type(&module[p].shape)?, widen);
        function.parameters.push(element_type);
        let op = FunctionOp::Parameter(number as u32);
        arguments.push(smallvec![function.push(op, &[], element_type)?]);
    }
    function.results = inline(module, computation, &arguments, widen, &mut function, 0)?;
    Ok(function)
}

impl Function {
    fn push(&mut self, op: FunctionOp, operands: &[u32], element_type: ElementType) -> Result<u32, Unsupported> {
        if self.code.len() >= 4096 {
            return Err(Unsupported::new("a function of too many instructions"));
        }
        self.code.push(FunctionStep { op, operands: operands.into(), element_type });
        Ok(self.code.len() as u32 - 1)
    }

    /// The operation, if the function is one commutative operation of its two parameters.
    pub fn single_operation(&self) -> Option<BinaryOp> {
        let step = match (&self.results[..], self.parameters.len()) {
            (&[result], 2) => &self.code[result as usize],
            _ => return None,
        };
        let of = |n: usize| self.code.get(*step.operands.get(n)? as usize).map(|s| &s.op);
        match (&step.op, of(0)?, of(1)?) {
            (FunctionOp::Scalar(ScalarOp::Binary(op)), FunctionOp::Parameter(a), FunctionOp::Parameter(b))
                if a != b =>
            {
                Some(*op)
            }
            _ => None,
        }
    }
}

impl Function {
    /// Result `n` of a function of two lists, as a function of the elements `n` of both, if it is made of these alone.
    pub fn part(&self, n: usize) -> Option<Function> {
        let half = self.parameters.len() / 2;
        let result = *self.results.get(n)?;
        let mut needed = vec![false; self.code.len()];
        *needed.get_mut(result as usize)? = true;
        for (id, step) in self.code.iter().enumerate().rev() {
            if needed[id] {
                step.operands.iter().for_each(|&o| needed[o as usize] = true);
            }
        }
        let mut code = self.code.clone();
        for (step, needed) in code.iter_mut().zip(needed) {
            let FunctionOp::Parameter(number) = &mut step.op else { continue };
            *number = match *number as usize {
                k if k == n => 0,
                k if k == half + n => 1,
                _ if needed => return None,
                // What is not needed is still computed from something: it must only be there.
                _ => {
                    step.op = FunctionOp::Constant(step.element_type, smallvec![0; step.element_type.bytes()]);
                    continue;
                }
            };
        }
        let parameters = smallvec![*self.parameters.get(n)?, *self.parameters.get(half + n)?];
        Some(Function { parameters, code, results: smallvec![result] })
    }

    /// The parameter that the function gives back, if it does only that.
    pub fn forwarded_parameter(&self) -> Option<u32> {
        match (&self.results[..], self.code.get(*self.results.first()? as usize).map(|s| &s.op)) {
            ([_], Some(FunctionOp::Parameter(p))) => Some(*p),
            _ => None,
        }
    }
}

fn scalar_type(shape: &Shape) -> Result<ElementType, Unsupported> {
    match shape.as_array() {
        Some(a) if a.is_scalar() => Ok(a.element_type),
        _ => Err(Unsupported::new(format!("a function of {shape}"))),
    }
}

fn widened(t: ElementType, widen: bool) -> ElementType {
    if widen && matches!(t, ElementType::F16 | ElementType::Bf16) { ElementType::F32 } else { t }
}

fn inline(
    module: &Module,
    computation: ComputationId,
    arguments: &[SmallVec<[u32; 1]>],
    widen: bool,
    function: &mut Function,
    depth: usize,
) -> Result<SmallVec<[u32; 1]>, Unsupported> {
    if depth > MAX_DEPTH {
        return Err(Unsupported::new("calls nested too deep"));
    }
    let root = module.root(computation).ok_or_else(missing_operand)?;
    let mut values: FxHashMap<InstructionId, SmallVec<[u32; 1]>> = FxHashMap::default();
    for &i in module[computation].instructions() {
        let instruction = &module[i];
        if i != root && instruction.users().is_empty() {
            continue;
        }
        let operands: Option<Vec<_>> = instruction.operands().iter().map(|o| values.get(o).cloned()).collect();
        let operands = operands.ok_or_else(missing_operand)?;
        let result = match &instruction.op {
            Op::Parameter { number, .. } => {
                let argument = usize::try_from(*number).ok().and_then(|n| arguments.get(n));
                argument.cloned().ok_or_else(missing_operand)?
            }
            Op::Tuple => operands.concat().into(),
            Op::GetTupleElement { index } => {
                let tuple = module[instruction.operands()[0]].shape.as_tuple().ok_or_else(missing_operand)?;
                if tuple.iter().any(Shape::is_tuple) {
                    return Err(Unsupported::new("a function of nested tuples"));
                }
                smallvec![*operands[0].get(*index as usize).ok_or_else(missing_operand)?]
            }
            Op::Call { to_apply, .. } => inline(module, *to_apply, &operands, widen, function, depth + 1)?,
            Op::Fusion(f) => inline(module, f.calls, &operands, widen, function, depth + 1)?,
            op => {
                let to = scalar_type(&instruction.shape)?;
                let operands: SmallVec<[u32; 3]> = operands.iter().filter_map(|o| o.first().copied()).collect();
                match op {
                    Op::Constant(ConstantValue::Literal(literal)) => {
                        let bytes = literal.as_array().map_or(&[][..], |a| a.bytes()).into();
                        smallvec![function.push(FunctionOp::Constant(to, bytes), &[], widened(to, widen))?]
                    }
                    Op::Bitcast | Op::Copy | Op::Reshape { .. } | Op::Broadcast { .. } | Op::Transpose { .. } => {
                        operands.first().into_iter().copied().collect()
                    }
                    _ => {
                        let types: SmallVec<[ElementType; 3]> =
                            operands.iter().map(|&o| function.code[o as usize].element_type).collect();
                        let to = widened(to, widen);
                        let op = scalar_op(instruction, &types, to)?;
                        if widen && op == ScalarOp::BitcastConvert {
                            return Err(Unsupported::new("the bits of a number that is carried in another type"));
                        }
                        smallvec![function.push(FunctionOp::Scalar(op), &operands, to)?]
                    }
                }
            }
        };
        values.insert(i, result);
    }
    values.remove(&root).ok_or_else(missing_operand)
}
