//! Small whole-number arrays that can be worked out while translating: the sizes that dynamic operations take.
//!
//! It is asked for only where a program computes sizes, goes no further than [`MAX_ELEMENTS`], and follows operands with
//! a stack of its own.

use super::Translator;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, ConstantValue, UnaryOp};
use hloom_ir::{ArrayShape, ElementType, Literal, Op};

/// The most elements that are worked out.
const MAX_ELEMENTS: i64 = 4096;

/// Known values, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Folded {
    pub(super) values: Vec<i64>,
}

impl Translator<'_, '_> {
    /// The elements that `id` is known to have.
    pub(super) fn fold(&mut self, id: InstructionId) -> Option<Folded> {
        let mut stack = vec![id];
        while let Some(&top) = stack.last() {
            if self.folded.contains_key(&top) {
                stack.pop();
                continue;
            }
            let instruction = &self.out[top];
            let small = instruction.shape.as_array().is_some_and(|a| {
                let whole = a.element_type.is_integer() || a.element_type == ElementType::Pred;
                whole && a.element_count().is_some_and(|n| n <= MAX_ELEMENTS)
            });
            if !small {
                self.folded.insert(top, None);
                continue;
            }
            let missing = instruction.operands().iter().copied().filter(|o| !self.folded.contains_key(o));
            let before = stack.len();
            stack.extend(missing);
            if stack.len() == before {
                let value = self.folded_op(top);
                self.folded.insert(top, value);
            }
        }
        self.folded.get(&id).cloned().flatten()
    }

    fn folded_op(&self, id: InstructionId) -> Option<Folded> {
        let instruction = &self.out[id];
        let shape = instruction.shape.as_array()?;
        let count = usize::try_from(shape.element_count()?).ok()?;
        let operand = |i: usize| -> Option<&[i64]> {
            let id = instruction.operands().get(i)?;
            self.folded.get(id)?.as_ref().map(|f| &f.values[..])
        };
        let operand_shape =
            |i: usize| -> Option<&ArrayShape> { self.out[*instruction.operands().get(i)?].shape.as_array() };
        let values = match &instruction.op {
            Op::Constant(ConstantValue::Literal(literal)) => match &**literal {
                Literal::Array(a) => (0..a.len()).map(|i| number(a.element_type(), a.element(i))).collect(),
                _ => return None,
            },
            Op::Iota { dimension } => {
                let inner: usize = shape.dims().get(*dimension as usize + 1..)?.iter().map(|&d| d as usize).product();
                let size = *shape.dims().get(*dimension as usize)? as usize;
                (0..count).map(|i| (i / inner.max(1) % size.max(1)) as i64).collect()
            }
            Op::Reshape { .. } | Op::Convert => operand(0)?.to_vec(),
            Op::Broadcast { dimensions } => {
                let (from, x) = (operand_shape(0)?, operand(0)?);
                broadcast(x, from.dims(), dimensions, shape.dims())?
            }
            Op::Concatenate { .. } if shape.rank() == 1 => {
                let mut all = Vec::with_capacity(count);
                for i in 0..instruction.operands().len() {
                    all.extend_from_slice(operand(i)?);
                }
                all
            }
            Op::Slice { dims } if shape.rank() == 1 => {
                let d = dims.first()?;
                let (start, stride) = (usize::try_from(d.start).ok()?, usize::try_from(d.stride).ok()?.max(1));
                operand(0)?.get(start..usize::try_from(d.limit).ok()?)?.iter().copied().step_by(stride).collect()
            }
            Op::Unary { op, .. } => {
                let f: fn(i64) -> i64 = match op {
                    UnaryOp::Negate => i64::wrapping_neg,
                    UnaryOp::Abs => i64::wrapping_abs,
                    UnaryOp::Sign => i64::signum,
                    UnaryOp::Not if shape.element_type == ElementType::Pred => |x| i64::from(x == 0),
                    _ => return None,
                };
                operand(0)?.iter().map(|&x| f(x)).collect()
            }
            Op::Binary(op) => zip(operand(0)?, operand(1)?, |x, y| binary(*op, x, y))?,
            Op::Compare { direction, .. } => zip(operand(0)?, operand(1)?, |x, y| {
                Some(i64::from(match direction {
                    ComparisonDirection::Eq => x == y,
                    ComparisonDirection::Ne => x != y,
                    ComparisonDirection::Ge => x >= y,
                    ComparisonDirection::Gt => x > y,
                    ComparisonDirection::Le => x <= y,
                    ComparisonDirection::Lt => x < y,
                }))
            })?,
            Op::Select => {
                let (p, x, y) = (operand(0)?, operand(1)?, operand(2)?);
                let pick = |i: usize| {
                    let p = if p.len() == 1 { p[0] } else { *p.get(i)? };
                    if p != 0 { x.get(i).copied() } else { y.get(i).copied() }
                };
                (0..count).map(pick).collect::<Option<_>>()?
            }
            Op::Clamp => {
                let (lo, x, hi) = (operand(0)?, operand(1)?, operand(2)?);
                let at = |v: &[i64], i: usize| if v.len() == 1 { v[0] } else { v.get(i).copied().unwrap_or(0) };
                (0..count).map(|i| at(x, i).max(at(lo, i)).min(at(hi, i))).collect()
            }
            Op::Reduce { to_apply, .. } if shape.is_scalar() && instruction.operands().len() == 2 => {
                let root = self.out.root(*to_apply)?;
                let Op::Binary(op) = self.out[root].op else { return None };
                let plain = self.out[root].operands().iter().all(|&o| matches!(self.out[o].op, Op::Parameter { .. }));
                if !plain {
                    return None;
                }
                let init = *operand(1)?.first()?;
                vec![operand(0)?.iter().try_fold(init, |a, &x| binary(op, a, x))?]
            }
            _ => return None,
        };
        let element = shape.element_type;
        (values.len() == count).then(|| Folded { values: values.into_iter().map(|v| wrapped(element, v)).collect() })
    }
}

fn number(element: ElementType, bytes: &[u8]) -> i64 {
    let mut wide = [0u8; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    wrapped(element, i64::from_le_bytes(wide))
}

/// The number that the type makes of it.
fn wrapped(element: ElementType, value: i64) -> i64 {
    let unused = 64 - (8 * element.bytes() as u32).min(64);
    match element {
        ElementType::Pred => i64::from(value != 0),
        t if t.is_signed_integer() => value << unused >> unused,
        _ => ((value as u64) << unused >> unused) as i64,
    }
}

fn zip(x: &[i64], y: &[i64], f: impl Fn(i64, i64) -> Option<i64>) -> Option<Vec<i64>> {
    if x.len() != y.len() {
        return None;
    }
    x.iter().zip(y).map(|(&x, &y)| f(x, y)).collect()
}

fn binary(op: BinaryOp, x: i64, y: i64) -> Option<i64> {
    Some(match op {
        BinaryOp::Add => x.wrapping_add(y),
        BinaryOp::Subtract => x.wrapping_sub(y),
        BinaryOp::Multiply => x.wrapping_mul(y),
        BinaryOp::Divide => x.checked_div(y)?,
        BinaryOp::Remainder => x.checked_rem(y)?,
        BinaryOp::Maximum => x.max(y),
        BinaryOp::Minimum => x.min(y),
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Xor => x ^ y,
        _ => return None,
    })
}

fn broadcast(x: &[i64], from: &[i64], dimensions: &[i64], to: &[i64]) -> Option<Vec<i64>> {
    let count = usize::try_from(to.iter().product::<i64>()).ok()?;
    if let [one] = x {
        return Some(vec![*one; count]);
    }
    let mut out = Vec::with_capacity(count);
    for i in 0..count {
        let mut rest = i;
        let mut index = vec![0usize; to.len()];
        for d in (0..to.len()).rev() {
            index[d] = rest % to[d] as usize;
            rest /= to[d] as usize;
        }
        let mut at = 0usize;
        for (&n, &d) in from.iter().zip(dimensions) {
            at = at * n as usize + index.get(usize::try_from(d).ok()?)?;
        }
        out.push(*x.get(at)?);
    }
    Some(out)
}
