//! Select-and-scatter over windows of any form, of elements of any type: one window after another.
//!
//! For what neither the fast kernel nor the rewriting into plain operations knows. Known are comparisons of the two
//! elements, and single operations that combine what is scattered.

use crate::library_call::{NoRoutine, array, slice, slice_mut};
use hloom_eval::fold::Fold;
use hloom_eval::ops::elementwise::{binary_function, compare_function};
use hloom_eval::scalar::{Function2, Scalar};
use hloom_eval::window::WindowWalk;
use hloom_ir::attributes::Window;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_value::strided::Indices;

/// A select-and-scatter with all it has to know but the arrays.
#[derive(Debug)]
pub(crate) struct GeneralSelection {
    window: Window,
    operand_dims: Vec<i64>,
    source_dims: Vec<i64>,
    /// The bytes of an element.
    width: usize,
    select: Function2,
    /// Whether the comparison takes the new element first.
    swapped: bool,
    scatter: Function2,
}

impl GeneralSelection {
    /// The one that an instruction is, or why there is none.
    pub(crate) fn new(module: &Module, id: InstructionId) -> Result<GeneralSelection, NoRoutine> {
        let (Op::SelectAndScatter { window, select, scatter }, &[operand, source, init]) =
            (&module[id].op, module[id].operands())
        else {
            return Err("it is no selection from windows".into());
        };
        let (operand, source, init) = (array(module, operand)?, array(module, source)?, array(module, init)?);
        let t = operand.element_type;
        if [source, init].iter().any(|a| a.element_type != t) || module[id].shape.element_type() != Some(t) {
            return Err("its arrays are of several types".into());
        }
        let (select, swapped) =
            comparison(module, *select, t).ok_or("what it selects is none that the kernel knows")?;
        let combine = Fold::known_operation(module, *scatter).and_then(|op| binary_function(op, t));
        let scatter = combine.ok_or("how it scatters is none that the kernel knows")?;
        WindowWalk::new(operand.dims(), window).map_err(|_| "its window does not fit")?;
        Ok(GeneralSelection {
            window: (**window).clone(),
            operand_dims: operand.dims().to_vec(),
            source_dims: source.dims().to_vec(),
            width: t.bytes(),
            select,
            swapped,
            scatter,
        })
    }

    /// Runs it; `None` if the arrays do not fit.
    ///
    /// # Safety
    /// The addresses must be those of operand, source, initial value and result, `bytes` long, of which the result overlaps
    /// none.
    pub(crate) unsafe fn run(&self, arrays: &[*mut u8], bytes: &[usize]) -> Option<()> {
        let (&[operand, source, init, result], &[m, n, i, r]) = (arrays, bytes) else { return None };
        // SAFETY: the caller's promise.
        let (operand, source, init): (&[u8], &[u8], &[u8]) =
            unsafe { (slice(operand, m), slice(source, n), slice(init, i)) };
        // SAFETY: the caller's promise.
        let result: &mut [u8] = unsafe { slice_mut(result, r) };
        result.chunks_exact_mut(self.width).for_each(|e| e.copy_from_slice(&init[..self.width]));
        let load = |bytes: &[u8], at: usize| {
            let mut wide = [0; 16];
            wide[..self.width].copy_from_slice(&bytes[at * self.width..(at + 1) * self.width]);
            Scalar(u128::from_le_bytes(wide))
        };
        let keeps = |best: usize, next: usize| {
            let (a, b) = (load(operand, best), load(operand, next));
            let truth = if self.swapped { (self.select)(b, a) } else { (self.select)(a, b) };
            truth.0 != 0
        };
        let walk = WindowWalk::new(&self.operand_dims, &self.window).ok()?;
        let mut positions = Vec::new();
        for (n, index) in Indices::new(&self.source_dims).enumerate() {
            walk.positions(&index, &mut positions);
            let selected = positions.iter().copied().reduce(|best, next| if keeps(best, next) { best } else { next });
            let Some(at) = selected else { continue };
            let combined = (self.scatter)(load(result, at), load(source, n));
            combined.store(&mut result[at * self.width..(at + 1) * self.width]);
        }
        Some(())
    }
}

/// The comparison of its two parameters that a function is, and whether it takes the second first.
fn comparison(
    module: &Module,
    function: ComputationId,
    t: hloom_ir::element_type::ElementType,
) -> Option<(Function2, bool)> {
    let root = module.root(function)?;
    let Op::Compare { direction, kind } = &module[root].op else { return None };
    let [a, b] = module.parameters(function)[..] else { return None };
    let swapped = module[root].operands() == [b, a];
    if !swapped && module[root].operands() != [a, b] || module[a].shape.element_type() != Some(t) {
        return None;
    }
    Some((compare_function(*direction, *kind, t)?, swapped))
}
