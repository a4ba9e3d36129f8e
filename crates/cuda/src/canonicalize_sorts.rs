//! The pass `canonicalize-sorts`: sorts along the last dimension, by one key each, as the kernels have them.
//!
//! A sort along another dimension is turned, and turned back. One by several keys is one by the last of them, whose results
//! are sorted by the one before, and so on: each is stable, so that what is equal stays in the order of the keys after. One
//! by a function of the elements is one by an array more, which holds what the function makes of them.

use crate::canonicalize::replace_each;
use hloom_eval::comparator::{Key, keys_of};
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::ArrayShape;
use hloom_passes::{Context, Pass};
use rustc_hash::{FxHashMap, FxHashSet};

/// The pass.
pub(crate) static PASS: Pass = Pass {
    name: "canonicalize-sorts",
    statement: "makes sorts those of rows by one key",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(canonicalize(module)) as Result<usize, Diagnostic>,
};

fn canonicalize(module: &mut Module) -> usize {
    replace_each(module, canonical)
}

/// The value to use instead of a sort, if it needs one.
fn canonical(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Sort { dimension, is_stable, to_apply } = module[i].op else { return None };
    let Some(keys) = keys_of(module, to_apply) else { return by_computed_key(module, i) };
    let operands = module[i].operands().to_vec();
    let types: Vec<ElementType> = operands.iter().map(|&o| module[o].shape.element_type()).collect::<Option<_>>()?;
    let rank = module[*operands.first()?].shape.as_array()?.rank() as i64;
    let last = rank - 1;
    if dimension == last && keys.len() == 1 {
        return None;
    }
    let comparators: Vec<ComputationId> = match keys.len() {
        1 => vec![to_apply],
        _ => keys.iter().rev().map(|key| comparator(module, &types, key)).collect::<Option<_>>()?,
    };
    let is_stable = is_stable || comparators.len() > 1;
    let parent = module[i].parent();
    let mut b = Builder::resume(module, parent);
    let to_last: Vec<i64> = (0..rank).filter(|&d| d != dimension).chain([dimension]).collect();
    let back: Vec<i64> = (0..rank)
        .map(|d| match d {
            d if d == dimension => last,
            d if d > dimension => d - 1,
            d => d,
        })
        .collect();
    let turn = |b: &mut Builder<'_>, x: InstructionId, order: &[i64]| match dimension == last {
        true => Some(x),
        false => b.transpose(x, order.iter().copied()).ok(),
    };
    let mut values = operands.iter().map(|&o| turn(&mut b, o, &to_last)).collect::<Option<Vec<_>>>()?;
    for to_apply in comparators {
        let sorted = b.push(Op::Sort { dimension: last, is_stable, to_apply }, &values).ok()?;
        values = match values.len() {
            1 => vec![sorted],
            n => (0..n as i64).map(|k| b.get_tuple_element(sorted, k).ok()).collect::<Option<_>>()?,
        };
    }
    let results = values.iter().map(|&v| turn(&mut b, v, &back)).collect::<Option<Vec<_>>>()?;
    match results[..] {
        [result] => Some(result),
        _ => b.tuple(&results).ok(),
    }
}

/// A sort by a function of the elements: by what the function makes of all of them, which is computed first.
fn by_computed_key(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Sort { dimension, is_stable, to_apply } = module[i].op else { return None };
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
    let dims = module[*operands.first()?].shape.as_array()?.dims().to_vec();
    debug_assert_ne!(left, right, "a parameter is no mirror of itself");
    let computed = needed(module, left)?;
    let mut values: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
    let parent = module[i].parent();
    for f in computed {
        let op = module[f].op.clone();
        let read = module[f].operands().iter().map(|o| values.get(o).copied()).collect::<Option<Vec<_>>>()?;
        let element_type = module[f].shape.element_type()?;
        let mut b = Builder::resume(module, parent);
        let value = match op {
            Op::Parameter { number, .. } => *operands.get(usize::try_from(number / 2).ok()?)?,
            Op::Constant(_) => {
                let scalar = b.push_shaped(op, &[], ArrayShape::new(element_type, [])).ok()?;
                b.broadcast(scalar, dims.iter().copied(), []).ok()?
            }
            _ => b.push_shaped(op, &read, ArrayShape::new(element_type, dims.iter().copied())).ok()?,
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
    let sorted = canonical(module, sorted).unwrap_or(sorted);
    let mut b = Builder::resume(module, parent);
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
                Op::BitcastConvert => same_width(*module[f].operands().first()?)?,
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
fn comparator(module: &mut Module, types: &[ElementType], key: &Key) -> Option<ComputationId> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    fn after(text: &str) -> Module {
        let mut module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        assert_eq!(canonicalize(&mut module), 1);
        let options = hloom_ir::verify::VerifyOptions::default();
        hloom_ir::verify::verify(module.clone(), &options).unwrap_or_else(|e| panic!("{:?}", e.diagnostics));
        module
    }

    fn live(module: &Module) -> String {
        let entry = module.entry().unwrap();
        let is_live = |&&i: &&InstructionId| !module[i].users().is_empty() || module.root(entry) == Some(i);
        let names: Vec<&str> =
            module[entry].instructions().iter().filter(is_live).map(|&i| module[i].opcode().name()).collect();
        names.join(" ")
    }

    #[test]
    fn columns_are_turned_and_turned_back() {
        let module = after(
            "HloModule m

             lt {
               a = f32[] parameter(0)
               b = f32[] parameter(1)
               ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER
             }

             ENTRY e {
               x = f32[8,100,3] parameter(0)
               ROOT s = f32[8,100,3] sort(x), dimensions={1}, to_apply=lt
             }",
        );
        assert_eq!(live(&module), "parameter transpose sort transpose");
        let root = module.root(module.entry().unwrap()).unwrap();
        assert_eq!(module[root].shape.as_array().unwrap().dims(), [8, 100, 3]);
    }

    #[test]
    fn what_elements_are_compared_by_is_computed_first() {
        let of = |left: &str, right: &str| {
            format!(
                "HloModule m

                 lt {{
                   a = f32[] parameter(0)
                   b = f32[] parameter(1)
                   x = f32[] abs(a)
                   y = f32[] abs(b)
                   ROOT c = pred[] compare({left}, {right}), direction=LT
                 }}

                 ENTRY e {{
                   x = f32[100] parameter(0)
                   ROOT s = f32[100] sort(x), dimensions={{0}}, to_apply=lt
                 }}"
            )
        };
        let module = after(&of("x", "y"));
        assert_eq!(live(&module), "parameter abs sort get-tuple-element");
        let descends = |module: &Module| {
            let entry = module.entry().unwrap();
            let comparators = module[entry].instructions().iter().filter_map(|&i| match module[i].op {
                Op::Sort { to_apply, .. } if !module[i].users().is_empty() => keys_of(module, to_apply),
                _ => None,
            });
            comparators.flatten().map(|k| k.descending).collect::<Vec<_>>()
        };
        assert_eq!(descends(&module), [false]);
        assert_eq!(descends(&after(&of("y", "x"))), [true]);
        // What is compared here are different things of both.
        let mut module = hlo_text::read(of("x", "b").as_bytes()).module.unwrap();
        assert_eq!(canonicalize(&mut module), 0);
    }

    #[test]
    fn the_last_of_several_keys_is_sorted_by_first() {
        let module = after(
            "HloModule m

             lt {
               a = s32[] parameter(0)
               b = s32[] parameter(1)
               c = f32[] parameter(2)
               d = f32[] parameter(3)
               e = pred[] compare(a, b), direction=EQ
               f = pred[] compare(c, d), direction=GT, type=TOTALORDER
               g = pred[] compare(a, b), direction=LT
               ROOT h = pred[] select(e, f, g)
             }

             ENTRY e {
               x = s32[100] parameter(0)
               y = f32[100] parameter(1)
               ROOT s = (s32[100], f32[100]) sort(x, y), dimensions={0}, to_apply=lt
             }",
        );
        let sorts: Vec<Vec<Key>> = module[module.entry().unwrap()]
            .instructions()
            .iter()
            .filter(|&&i| !module[i].users().is_empty())
            .filter_map(|&i| match module[i].op {
                Op::Sort { to_apply, is_stable: true, .. } => keys_of(&module, to_apply),
                _ => None,
            })
            .collect();
        let columns: Vec<Vec<(usize, bool)>> =
            sorts.iter().map(|keys| keys.iter().map(|k| (k.column, k.descending)).collect()).collect();
        assert_eq!(columns, [[(1, true)], [(0, false)]]);
    }
}
