//! How often a loop runs: what its `backend_config` says, or what can be read off a counter that goes from one constant
//! to another.

use crate::cost::known_trip_count;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op};

/// Values are looked through that many copies, conversions and fusions.
const MOST_STEPS: usize = 32;

/// How often the body of a while loop runs, if that is written down or can be seen.
pub fn trip_count(module: &Module, id: InstructionId) -> Option<u64> {
    known_trip_count(&module[id]).or_else(|| counted(module, id))
}

/// What an integer value of a computation is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Integer {
    Constant(i128),
    /// Part `index` of the computation's tuple parameter, and so much more.
    Counter {
        index: i64,
        plus: i128,
    },
}

/// How often the body of a while loop runs, if it can be seen: a counter that goes from one constant to another. What the
/// program says of itself is not asked.
pub fn counted(module: &Module, id: InstructionId) -> Option<u64> {
    let Op::While { condition, body } = module[id].op else { return None };
    let (test, call) = through_fusion(module, module.root(condition)?, None)?;
    let Op::Compare { direction, .. } = module[test].op else { return None };
    let &[a, b] = module[test].operands() else { return None };
    let (a, b) = (integer(module, a, call)?, integer(module, b, call)?);
    let start_of = |index: i64| {
        let init = tuple_part(module, *module[id].operands().first()?, index)?;
        match integer(module, init, None)? {
            Integer::Constant(n) => Some(n),
            Integer::Counter { .. } => None,
        }
    };
    // What each iteration adds to a part of the loop's state.
    let step_of = |index: i64| {
        let next = tuple_part(module, module.root(body)?, index)?;
        match integer(module, next, None)? {
            Integer::Counter { index: from, plus } if from == index => Some(plus),
            _ => None,
        }
    };
    let (start, step, limit, direction) = match (counter(a, &start_of, &step_of)?, counter(b, &start_of, &step_of)?) {
        ((start, step), (limit, 0)) => (start, step, limit, direction),
        ((limit, 0), (start, step)) => (start, step, limit, mirrored(direction)),
        _ => return None,
    };
    iterations(direction, start, step, limit)
}

/// Where a value starts and what each iteration adds to it.
fn counter(
    value: Integer,
    start_of: &impl Fn(i64) -> Option<i128>,
    step_of: &impl Fn(i64) -> Option<i128>,
) -> Option<(i128, i128)> {
    match value {
        Integer::Constant(n) => Some((n, 0)),
        Integer::Counter { index, plus } => Some((start_of(index)?.checked_add(plus)?, step_of(index)?)),
    }
}

/// The direction of the same comparison with its operands in the other order.
pub fn mirrored(direction: ComparisonDirection) -> ComparisonDirection {
    use ComparisonDirection::*;
    match direction {
        Lt => Gt,
        Le => Ge,
        Gt => Lt,
        Ge => Le,
        Eq | Ne => direction,
    }
}

/// How often a counter that starts at `start` and moves by `step` passes the comparison with `limit`, as if it could not
/// leave its type on the way.
pub fn iterations(direction: ComparisonDirection, start: i128, step: i128, limit: i128) -> Option<u64> {
    use ComparisonDirection::*;
    let up_to = |distance: i128, step: i128| if distance <= 0 { 0 } else { (distance + step - 1) / step };
    let count = match direction {
        Lt if step > 0 => up_to(limit - start, step),
        Le if step > 0 => up_to(limit + 1 - start, step),
        Gt if step < 0 => up_to(start - limit, -step),
        Ge if step < 0 => up_to(start - limit + 1, -step),
        Ne if step != 0 && (limit - start) % step == 0 && (limit - start) / step >= 0 => (limit - start) / step,
        Lt if start >= limit => 0,
        Le if start > limit => 0,
        Gt if start <= limit => 0,
        Ge if start < limit => 0,
        Eq if start != limit => 0,
        _ => return None,
    };
    u64::try_from(count).ok()
}

/// A fusion whose inside a value belongs to.
type Call = Option<InstructionId>;

/// The instruction that makes a value: of a fusion, its root.
fn through_fusion(module: &Module, id: InstructionId, call: Call) -> Option<(InstructionId, Call)> {
    match &module[id].op {
        Op::Fusion(fusion) if call.is_none() => Some((module.root(fusion.calls)?, Some(id))),
        Op::Fusion(_) => None,
        _ => Some((id, call)),
    }
}

/// The part of a tuple that is made by a tuple instruction, seen through copies.
fn tuple_part(module: &Module, id: InstructionId, index: i64) -> Option<InstructionId> {
    let mut id = id;
    for _ in 0..MOST_STEPS {
        match module[id].op {
            Op::Tuple => return module[id].operands().get(usize::try_from(index).ok()?).copied(),
            Op::Copy | Op::OptBarrier => id = *module[id].operands().first()?,
            _ => return None,
        }
    }
    None
}

/// What an integer is, as a constant or by a part of the computation's parameter.
fn integer(module: &Module, id: InstructionId, call: Call) -> Option<Integer> {
    let (mut id, mut call, mut plus) = (id, call, 0i128);
    for _ in 0..MOST_STEPS {
        let instruction = &module[id];
        let operand = |n: usize| instruction.operands().get(n).copied();
        match &instruction.op {
            Op::Constant(ConstantValue::Literal(literal)) => {
                return Some(Integer::Constant(scalar(literal)?.checked_add(plus)?));
            }
            Op::Copy | Op::Bitcast | Op::Convert | Op::OptBarrier | Op::Reshape { .. } | Op::CopyDone => {
                id = operand(0)?;
            }
            Op::CopyStart { .. } => id = operand(0)?,
            Op::Broadcast { .. } if instruction.shape.as_array()?.is_scalar() => id = operand(0)?,
            // Inside of a fusion a parameter is an operand outside.
            Op::Parameter { number, .. } if call.is_some() => {
                id = *module[call?].operands().get(usize::try_from(*number).ok()?)?;
                call = None;
            }
            Op::GetTupleElement { index } => {
                let tuple = operand(0)?;
                return match module[tuple].op {
                    Op::Parameter { .. } => Some(Integer::Counter { index: *index, plus }),
                    // One of several results of a fusion.
                    Op::Fusion(ref fusion) if call.is_none() => {
                        id = tuple_part(module, module.root(fusion.calls)?, *index)?;
                        call = Some(tuple);
                        continue;
                    }
                    _ => {
                        id = tuple_part(module, tuple, *index)?;
                        continue;
                    }
                };
            }
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Subtract)) => {
                let (a, b) = (operand(0)?, operand(1)?);
                let constant = |id| match constant(module, id, call) {
                    Some(n) if *op == BinaryOp::Subtract => n.checked_neg(),
                    other => other,
                };
                match (constant(b), constant(a)) {
                    (Some(n), _) => (id, plus) = (a, plus.checked_add(n)?),
                    (None, Some(n)) if *op == BinaryOp::Add => (id, plus) = (b, plus.checked_add(n)?),
                    _ => return None,
                }
            }
            Op::Fusion(_) => (id, call) = through_fusion(module, id, call)?,
            _ => return None,
        }
    }
    None
}

/// The value of a constant, seen through copies and the parameters of a fusion.
fn constant(module: &Module, id: InstructionId, call: Call) -> Option<i128> {
    let (mut id, mut call) = (id, call);
    for _ in 0..MOST_STEPS {
        match &module[id].op {
            Op::Constant(ConstantValue::Literal(literal)) => return scalar(literal),
            Op::Copy | Op::Convert | Op::Bitcast | Op::Reshape { .. } => id = *module[id].operands().first()?,
            Op::Parameter { number, .. } if call.is_some() => {
                id = *module[call?].operands().get(usize::try_from(*number).ok()?)?;
                call = None;
            }
            _ => return None,
        }
    }
    None
}

/// The value of an integer literal of one element.
fn scalar(literal: &Literal) -> Option<i128> {
    let array = literal.as_array()?;
    let element_type = array.element_type();
    let bytes = array.bytes();
    if !element_type.is_integer() || bytes.is_empty() || bytes.len() > 8 || bytes.len() != element_type.bytes() {
        return None;
    }
    let mut wide = [0u8; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let value = u64::from_le_bytes(wide);
    let unused = 64 - 8 * bytes.len() as u32;
    Some(match element_type.is_signed_integer() {
        true => i128::from((value as i64) << unused >> unused),
        false => i128::from(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    fn trips(condition: &str, next: &str, start: i64, extra: &str) -> Option<u64> {
        let text = format!(
            "HloModule m
plus {{
  p = s32[] parameter(0)
  q = s32[] parameter(1)
  ROOT s = s32[] add(p, q)
}}
body {{
  b.p = (s32[], s32[], f32[10]) parameter(0)
  b.i = s32[] get-tuple-element(b.p), index=0
  b.n = s32[] get-tuple-element(b.p), index=1
  b.x = f32[10] get-tuple-element(b.p), index=2
  b.c = s32[] constant(3)
  b.j = s32[] {next}
  ROOT b.t = (s32[], s32[], f32[10]) tuple(b.j, b.n, b.x)
}}
condition {{
  c.p = (s32[], s32[], f32[10]) parameter(0)
  c.i = s32[] get-tuple-element(c.p), index=0
  c.n = s32[] get-tuple-element(c.p), index=1
  c.c = s32[] constant(10)
  ROOT c.r = pred[] {condition}
}}
ENTRY e {{
  x = f32[10] parameter(0)
  i = s32[] constant({start})
  n = s32[] constant(7)
  t = (s32[], s32[], f32[10]) tuple(i, n, x)
  ROOT w = (s32[], s32[], f32[10]) while(t), condition=condition, body=body{extra}
}}"
        );
        let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        trip_count(&module, module.instruction_by_name("w").expect("it is there"))
    }

    #[test]
    fn counters_are_followed() {
        let up = "add(b.i, b.c)";
        assert_eq!(trips("compare(c.i, c.c), direction=LT", up, 0, ""), Some(4));
        assert_eq!(trips("compare(c.c, c.i), direction=GT", up, 0, ""), Some(4));
        assert_eq!(trips("compare(c.i, c.c), direction=LT", up, 10, ""), Some(0));
        assert_eq!(trips("compare(c.i, c.n), direction=LE", up, -2, ""), Some(4), "the limit is carried along");
        assert_eq!(
            trips("compare(c.i, c.c), direction=LT", "fusion(b.i, b.c), kind=kLoop, calls=plus", 1, ""),
            Some(3)
        );
        assert_eq!(trips("compare(c.i, c.c), direction=GE", "subtract(b.i, b.c)", 20, ""), Some(4));
    }

    #[test]
    fn what_cannot_be_seen_is_not_known() {
        assert_eq!(trips("compare(c.i, c.c), direction=LT", "multiply(b.i, b.c)", 1, ""), None);
        assert_eq!(trips("compare(c.i, c.c), direction=LT", "subtract(b.i, b.c)", 1, ""), None);
        let config = ", backend_config={\"known_trip_count\":{\"n\":\"5\"}}";
        assert_eq!(trips("compare(c.i, c.c), direction=LT", "multiply(b.i, b.c)", 1, config), Some(5));
    }
}
