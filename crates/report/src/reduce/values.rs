//! Plainer numbers in inputs and constants: zeros, ones, one number everywhere, whole numbers.

use super::Search;
use super::case::{Case, all_instructions};
use hloom_eval::ops::elementwise::convert;
use hloom_ir::element_type::ElementType;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::op::{ConstantValue, Op};
use hloom_value::{Array, Value};
use std::sync::Arc;

/// Tries plainer numbers, one input or constant after another.
pub(super) fn simplify(search: &mut Search<'_>) {
    let parameters = search.best.inputs.first().map_or(0, Vec::len);
    for parameter in 0..parameters {
        let candidates = WAYS.iter().filter_map(|way| with_input(&search.best, parameter, *way)).collect();
        search.take_first(candidates);
        if search.stopped() {
            return;
        }
    }
    search.sweep(
        |case| case.module.instruction_count(),
        |case, n| {
            let Some(&i) = all_instructions(&case.module).get(n) else { return Vec::new() };
            let Op::Constant(ConstantValue::Literal(literal)) = &case.module[i].op else { return Vec::new() };
            let Literal::Array(array) = &**literal else { return Vec::new() };
            let Ok(value) = Array::from_literal(array) else { return Vec::new() };
            let changed = |way: &Way| {
                let plain = way(&value)?;
                let literal = ArrayLiteral::new(array.shared_shape().clone(), plain.bytes().to_vec()).ok()?;
                case.edited(|module| {
                    let op = Op::Constant(ConstantValue::Literal(Arc::new(Literal::Array(literal))));
                    module.instruction_mut(i).op = op;
                    Some(())
                })
            };
            WAYS.iter().filter_map(changed).collect()
        },
    );
}

/// A plainer array of the same type and sizes; `None` if it is that already or the type has no such numbers.
type Way = fn(&Array) -> Option<Array>;

const WAYS: &[Way] = &[zeros, ones, the_first, whole];

fn zeros(array: &Array) -> Option<Array> {
    filled(array, &vec![0; array.element_type().bytes()])
}

fn ones(array: &Array) -> Option<Array> {
    filled(array, &one(array.element_type())?)
}

fn the_first(array: &Array) -> Option<Array> {
    let first = array.bytes().get(..array.element_type().bytes())?.to_vec();
    filled(array, &first)
}

fn filled(array: &Array, element: &[u8]) -> Option<Array> {
    let bytes = element.repeat(array.len());
    let is_new = bytes != array.bytes();
    is_new.then(|| Array::from_bytes(array.element_type(), array.dims(), &bytes).ok()).flatten()
}

/// Every number rounded to a whole one.
fn whole(array: &Array) -> Option<Array> {
    let element_type = array.element_type();
    if !element_type.is_float() {
        return None;
    }
    let mut wide = convert(array.clone(), ElementType::F64).ok()?;
    for b in wide.bytes_mut().as_chunks_mut::<8>().0 {
        *b = f64::from_le_bytes(*b).round().to_le_bytes();
    }
    let rounded = convert(wide, element_type).ok()?;
    (rounded.bytes() != array.bytes()).then_some(rounded)
}

/// The bytes of the number one.
pub(super) fn one(element_type: ElementType) -> Option<Vec<u8>> {
    let wide = Array::new(&[], &[1.0f64])?;
    Some(convert(wide, element_type).ok()?.bytes().to_vec())
}

/// The case with every leaf of one parameter made plainer on every device.
fn with_input(case: &Case, parameter: usize, way: Way) -> Option<Case> {
    fn plain(value: &Value, way: Way, changed: &mut bool) -> Value {
        match value {
            Value::Array(array) => match way(array) {
                Some(plain) => {
                    *changed = true;
                    Value::Array(plain)
                }
                None => value.clone(),
            },
            Value::Tuple(elements) => Value::Tuple(elements.iter().map(|e| plain(e, way, changed)).collect()),
            other => other.clone(),
        }
    }
    let mut case = case.clone();
    let mut changed = false;
    for arguments in &mut case.inputs {
        let value = arguments.get_mut(parameter)?;
        *value = plain(value, way, &mut changed);
    }
    changed.then_some(case)
}
