//! Scatters of several arrays that depend on each other, written out as a loop over the updates.
//!
//! Where each array is combined with its own updates only, the arrays are scattered one after another, and no loop is
//! needed. Here an update is a window of every array at once: they are read, combined and written back, one update after
//! another.

use super::functions::{applied, needed};
use super::numbers::{Number, filled, scalar};
use super::{array, beside};
use crate::rewrite::Rule;
use hloom_ir::attributes::{ComparisonDirection, ScatterDimensionNumbers};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType::{Pred, S64};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;

/// The rules.
pub(super) static RULES: &[Rule] = &[Rule {
    name: "dependent-scatter",
    statement: "scatter(x, y, indices, …) by a function of all → a loop that combines one update after another",
    opcodes: &[Opcode::Scatter],
    apply: dependent_scatter,
}];

/// Longer loops are left to who is quicker with single elements.
const MAX_UPDATES: i64 = 1 << 14;

/// A scatter being written out. The state of its loop is the number of the update, the indices as `[updates, components]`,
/// the arrays, and what they are updated with as `[updates, window…]`.
struct Updates {
    to_apply: ComputationId,
    dims: ScatterDimensionNumbers,
    arrays: usize,
    count: i64,
    /// The sizes of the arrays, and of a window in them.
    whole: DimVec,
    window: DimVec,
    state: Shape,
}

fn dependent_scatter(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Scatter(scatter) = &module[i].op else { return None };
    let (to_apply, dims) = (scatter.to_apply, scatter.dims.clone());
    let operands = module[i].operands().to_vec();
    let arrays = operands.len().checked_sub(1)? / 2;
    if arrays < 2 || !dims.input_batching_dims.is_empty() || !depend_on_each_other(module, to_apply, arrays)? {
        return None;
    }
    let sizes = |o: InstructionId| array(module, o).map(|a| DimVec::from(a.dims()));
    let (whole, update) = (sizes(operands[0])?, sizes(operands[arrays + 1])?);
    let is_window = |d: usize| dims.update_window_dims.contains(&(d as i64));
    let batch: Vec<usize> = (0..update.len()).filter(|&d| !is_window(d)).collect();
    let count =
        batch.iter().try_fold(1i64, |n, &d| n.checked_mul(update[d])).filter(|n| (1..=MAX_UPDATES).contains(n))?;
    let mut of_update = dims.update_window_dims.iter();
    let window: DimVec = (0..whole.len() as i64)
        .map(|d| match dims.inserted_window_dims.contains(&d) {
            true => Some(1),
            false => update.get(usize::try_from(*of_update.next()?).ok()?).copied(),
        })
        .collect::<Option<_>>()?;
    if window.iter().zip(&whole).any(|(w, size)| w > size || *w == 0) {
        return None;
    }
    let mut b = beside(module, i);
    let mut state = vec![b.constant(0i64).ok()?];
    state.push(components(&mut b, operands[arrays], &dims, count)?);
    state.extend(&operands[..arrays]);
    let order: Vec<i64> = batch.iter().map(|&d| d as i64).chain(dims.update_window_dims.iter().copied()).collect();
    for &update in &operands[arrays + 1..] {
        let turned = b.transpose(update, order.iter().copied()).ok()?;
        state.push(b.reshape(turned, [count].into_iter().chain(window.iter().copied())).ok()?);
    }
    let init = b.tuple(&state).ok()?;
    let updates = Updates { to_apply, dims, arrays, count, whole, window, state: b.shape(init).clone() };
    let condition = b
        .define("scatter_condition", |b| {
            let state = b.parameter(0, updates.state.clone(), "state")?;
            let number = b.get_tuple_element(state, 0)?;
            let end = b.constant(updates.count)?;
            b.compare(ComparisonDirection::Lt, number, end)
        })
        .ok()?;
    let body = updates.body(module)?;
    let mut b = beside(module, i);
    let end = b.while_loop(condition, body, init).ok()?;
    let results = (0..arrays).map(|n| b.get_tuple_element(end, 2 + n as i64).ok()).collect::<Option<Vec<_>>>()?;
    b.tuple(&results).ok()
}

/// Whether what becomes of an array depends on others than itself and its own updates.
fn depend_on_each_other(module: &Module, function: ComputationId, arrays: usize) -> Option<bool> {
    let root = module.root(function)?;
    let results = module[root].operands();
    if !matches!(module[root].op, Op::Tuple) || results.len() != arrays {
        return None;
    }
    for (n, &result) in results.iter().enumerate() {
        let is_foreign = |f: &InstructionId| match module[*f].op {
            Op::Parameter { number, .. } => usize::try_from(number).is_ok_and(|p| p % arrays != n),
            _ => false,
        };
        if needed(module, result)?.iter().any(is_foreign) {
            return Some(true);
        }
    }
    Some(false)
}

/// The indices as `[updates, components]`, in 64 bits.
fn components(
    b: &mut Builder<'_>,
    indices: InstructionId,
    dims: &ScatterDimensionNumbers,
    count: i64,
) -> Option<InstructionId> {
    let rank = b.shape(indices).as_array()?.rank() as i64;
    let order = (0..rank).filter(|&d| d != dims.index_vector_dim);
    let order: Vec<i64> = order.chain((dims.index_vector_dim < rank).then_some(dims.index_vector_dim)).collect();
    let turned = b.transpose(indices, order).ok()?;
    let flat = b.reshape(turned, [count, dims.scatter_dims_to_operand_dims.len() as i64]).ok()?;
    b.convert(flat, S64).ok()
}

impl Updates {
    /// What becomes of the windows of all arrays, by those of the updates.
    fn combine(&self, module: &mut Module) -> Option<ComputationId> {
        let types = self.state.as_tuple()?[2..].iter().map(Shape::element_type).collect::<Option<Vec<_>>>()?;
        let mut b = Builder::new(module, "scatter_combine");
        let mut windows = Vec::new();
        for (n, &t) in (0..).zip(&types) {
            windows.push(b.parameter(n, Shape::array(t, self.window.iter().copied()), &format!("p{n}")).ok()?);
        }
        let root = b.tuple(&windows[..self.arrays]).ok()?;
        let computation = b.finish(root);
        let results = applied(module, root, self.to_apply, &windows, &self.window)?;
        let mut b = Builder::resume(module, computation);
        let root = b.tuple(&results).ok()?;
        Some(b.finish(root))
    }

    fn body(&self, module: &mut Module) -> Option<ComputationId> {
        let combine = self.combine(module)?;
        let mut b = Builder::new(module, "scatter_body");
        let state = b.parameter(0, self.state.clone(), "state").ok()?;
        let parts = 2 + 2 * self.arrays as i64;
        let mut next = (0..parts).map(|n| b.get_tuple_element(state, n).ok()).collect::<Option<Vec<_>>>()?;
        let (number, zero) = (next[0], b.constant(0i64).ok()?);
        let mut starts = vec![zero; self.whole.len()];
        let mut inside = scalar(&mut b, Pred, Number::Int(1))?;
        for (component, &d) in self.dims.scatter_dims_to_operand_dims.iter().enumerate() {
            let component = b.constant(component as i64).ok()?;
            let start = b.dynamic_slice(next[1], &[number, component], [1, 1]).ok()?;
            let start = b.reshape(start, []).ok()?;
            let d = usize::try_from(d).ok()?;
            let last = b.constant(self.whole.get(d)? - self.window.get(d)?).ok()?;
            // An update whose window does not lie inside as a whole is dropped as a whole.
            let not_before = b.compare(ComparisonDirection::Ge, start, zero).ok()?;
            let not_after = b.compare(ComparisonDirection::Le, start, last).ok()?;
            let fits = b.and(not_before, not_after).ok()?;
            inside = b.and(inside, fits).ok()?;
            *starts.get_mut(d)? = start;
        }
        let mut arguments = Vec::new();
        for &array in &next[2..2 + self.arrays] {
            arguments.push(b.dynamic_slice(array, &starts, self.window.iter().copied()).ok()?);
        }
        let own: Vec<InstructionId> = [number].into_iter().chain(self.window.iter().map(|_| zero)).collect();
        for &update in &next[2 + self.arrays..] {
            let sizes = [1].into_iter().chain(self.window.iter().copied());
            let row = b.dynamic_slice(update, &own, sizes).ok()?;
            arguments.push(b.reshape(row, self.window.iter().copied()).ok()?);
        }
        let combined = b.call(combine, &arguments).ok()?;
        let inside = match self.window.is_empty() {
            true => inside,
            false => b.broadcast(inside, self.window.iter().copied(), []).ok()?,
        };
        for n in 0..self.arrays {
            let value = b.get_tuple_element(combined, n as i64).ok()?;
            let kept = b.select(inside, value, arguments[n]).ok()?;
            next[2 + n] = b.dynamic_update_slice(next[2 + n], kept, &starts).ok()?;
        }
        let one = filled(&mut b, S64, &[], Number::Int(1))?;
        next[0] = b.add(number, one).ok()?;
        let root = b.tuple(&next).ok()?;
        Some(b.finish(root))
    }
}
