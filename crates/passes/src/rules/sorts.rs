//! Sorts in the forms that kernels know.

use crate::rewrite::Rule;
use hloom_eval::comparator::{Key, keys_of};
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;
use rustc_hash::{FxHashMap, FxHashSet};

/// The rules.
pub(super) static RULES: &[Rule] = &[Rule {
    name: "sort-by-function",
    statement: "sort(x), by f(a) < f(b) → what belongs to x in sort(f(x), x), by the first",
    opcodes: &[Opcode::Sort],
    apply: by_function,
}];

/// A sort by a function of the elements: by what the function makes of all of them, which is computed first.
fn by_function(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Sort { dimension, is_stable, to_apply } = module[i].op else { return None };
    if keys_of(module, to_apply).is_some() {
        return None;
    }
    let root = module.root(to_apply)?;
    let (&Op::Compare { direction, kind }, &[left, right]) = (&module[root].op, module[root].operands()) else {
        return None;
    };
    let descending = match direction {
        ComparisonDirection::Lt => false,
        ComparisonDirection::Gt => true,
        _ => return None,
    };
    // With the sides exchanged the order is the other way round.
    let (left, right, descending) = match mirrored(module, left, right) {
        true => (left, right, descending),
        false => mirrored(module, right, left).then_some((right, left, !descending))?,
    };
    let operands = module[i].operands().to_vec();
    let first = module[*operands.first()?].shape.as_array()?;
    // What is the same on both sides depends on no element, and is no key.
    if left == right || first.is_dynamic() {
        return None;
    }
    let dims = first.dims().to_vec();
    let computed = needed(module, left)?;
    let array = |t: ElementType| ArrayShape::new(t, dims.iter().copied()).with_default_layout();
    let mut values: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
    let parent = module[i].parent();
    for f in computed {
        let op = module[f].op.clone();
        let read = module[f].operands().iter().map(|o| values.get(o).copied()).collect::<Option<Vec<_>>>()?;
        let element_type = module[f].shape.element_type()?;
        let mut b = Builder::resume(module, parent);
        let value = match op {
            Op::Parameter { number, .. } => {
                let all = *operands.get(usize::try_from(number / 2).ok()?)?;
                (b.shape(all).element_type() == Some(element_type)).then_some(all)?
            }
            Op::Constant(_) => {
                let scalar = b.push_shaped(op, &[], ArrayShape::new(element_type, [])).ok()?;
                b.broadcast(scalar, dims.iter().copied(), []).ok()?
            }
            // Of the memory of a single number the bits are seen.
            Op::Bitcast => b.push_shaped(Op::BitcastConvert, &read, array(element_type)).ok()?,
            _ => b.push_shaped(op, &read, array(element_type)).ok()?,
        };
        values.insert(f, value);
    }
    let key = *values.get(&left)?;
    let element_type = module[key].shape.element_type()?;
    let types = [key].iter().chain(&operands).map(|&o| module[o].shape.element_type()).collect::<Option<Vec<_>>>()?;
    let total = kind == Some(ComparisonType::TotalOrder);
    let by_key = comparator(module, &types, &Key { column: 0, element_type, total, descending, without_nan: false })?;
    let mut b = Builder::resume(module, parent);
    let all: Vec<InstructionId> = [key].into_iter().chain(operands).collect();
    let sorted = b.push(Op::Sort { dimension, is_stable, to_apply: by_key }, &all).ok()?;
    let results = (1..all.len()).map(|n| b.get_tuple_element(sorted, n as i64).ok()).collect::<Option<Vec<_>>>()?;
    match results[..] {
        [result] => Some(result),
        _ => b.tuple(&results).ok(),
    }
}

/// The most instructions of a function that is computed for whole arrays.
const MAX_FUNCTION: usize = 64;

/// What an element-wise function needs, each after what it reads; `None` if it is more than that, or long.
fn needed(module: &Module, root: InstructionId) -> Option<Vec<InstructionId>> {
    let (mut order, mut seen, mut stack) = (Vec::new(), FxHashSet::default(), vec![(root, false)]);
    while let Some((f, entered)) = stack.pop() {
        if entered {
            order.push(f);
        } else if seen.insert(f) {
            let same_width = |from: InstructionId| {
                Some(module[from].shape.element_type()?.bits() == module[f].shape.element_type()?.bits())
            };
            let is_plain = match &module[f].op {
                Op::Parameter { .. } | Op::Constant(ConstantValue::Literal(_)) => true,
                Op::Bitcast | Op::BitcastConvert => same_width(*module[f].operands().first()?)?,
                op => op.is_elementwise(),
            };
            let is_scalar = module[f].shape.as_array().is_some_and(ArrayShape::is_scalar);
            (is_plain && is_scalar && seen.len() <= MAX_FUNCTION).then_some(())?;
            stack.push((f, true));
            stack.extend(module[f].operands().iter().rev().map(|&o| (o, false)));
        }
    }
    Some(order)
}

/// Whether `right` makes of the right elements what `left` makes of the left ones.
fn mirrored(module: &Module, left: InstructionId, right: InstructionId) -> bool {
    let (mut seen, mut stack) = (FxHashSet::default(), vec![(left, right)]);
    while let Some((l, r)) = stack.pop() {
        if !seen.insert((l, r)) {
            continue;
        }
        let alike = match (&module[l].op, &module[r].op) {
            (Op::Parameter { number: a, .. }, Op::Parameter { number: b, .. }) => a % 2 == 0 && *b == a + 1,
            (a, b) => a == b && module[l].operands().len() == module[r].operands().len(),
        };
        if !alike || seen.len() > MAX_FUNCTION || module[l].shape != module[r].shape {
            return false;
        }
        stack.extend(module[l].operands().iter().copied().zip(module[r].operands().iter().copied()));
    }
    true
}

/// An order by one key of arrays of these types.
pub fn comparator(module: &mut Module, types: &[ElementType], key: &Key) -> Option<ComputationId> {
    let mut b = Builder::new(module, "by_key");
    let mut pairs = Vec::new();
    for (n, &t) in (0..).zip(types) {
        let mut parameter = |number: i64| b.parameter(number, ArrayShape::new(t, []), &format!("p{number}")).ok();
        pairs.push([parameter(2 * n)?, parameter(2 * n + 1)?]);
    }
    let direction = if key.descending { ComparisonDirection::Gt } else { ComparisonDirection::Lt };
    let kind = key.total.then_some(ComparisonType::TotalOrder).filter(|_| key.element_type.is_float());
    let root = b.push(Op::Compare { direction, kind }, pairs.get(key.column)?).ok()?;
    Some(b.finish(root))
}
