//! Paddings and reversals that a convolution or a windowed reduction does by itself.

use super::functions::reducer;
use super::numbers::splat;
use super::reductions::is_neutral;
use super::{array, beside, dims, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::{PaddingDim, WindowDim};
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use smallvec::SmallVec;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-windows",
    statement: "lets convolutions and windowed reductions do the paddings and reversals of their operands",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "convolution-of-pad",
        statement: "convolution(pad(x, 0), k) → convolution(x, k), padded by the window",
        opcodes: &[Opcode::Convolution],
        apply: convolution_of_pad,
    },
    Rule {
        name: "convolution-of-reverse",
        statement: "convolution(x, reverse(k)) → convolution(x, k), reversed by the window",
        opcodes: &[Opcode::Convolution],
        apply: convolution_of_reverse,
    },
    Rule {
        name: "window-of-spread",
        statement: "reduce-window(pad(x, v), v) whose windows meet one element each → x, each element repeated",
        opcodes: &[Opcode::ReduceWindow],
        apply: window_of_spread,
    },
    Rule {
        name: "window-of-pad",
        statement: "reduce-window(pad(x, v), v) → reduce-window(x, v), padded by the window, where v changes nothing",
        opcodes: &[Opcode::ReduceWindow],
        apply: window_of_pad,
    },
];

/// A window that pads by itself as `padding` did before.
fn padded(window: &WindowDim, padding: &PaddingDim) -> Option<WindowDim> {
    if *padding == PaddingDim::default() {
        return Some(*window);
    }
    // What is between elements already would be between them and the padding, too; what is taken away stays away.
    let simple = window.base_dilation == 1 && padding.low >= 0 && padding.high >= 0 && padding.interior >= 0;
    simple.then_some(())?;
    Some(WindowDim {
        padding_low: window.padding_low.checked_add(padding.low)?,
        padding_high: window.padding_high.checked_add(padding.high)?,
        base_dilation: padding.interior.checked_add(1)?,
        ..*window
    })
}

fn convolution_of_pad(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[pad, kernel] = module[i].operands() else { return None };
    let (Op::Convolution(convolution), Op::Pad { padding }) = (&module[i].op, &module[pad].op) else { return None };
    let &[x, value] = module[pad].operands() else { return None };
    let zero = splat(module, value)?;
    (zero.is(0) && (zero.int().is_some() || !zero.is_neutral_zero())).then_some(())?;
    let same = array(module, x)?.element_type == array(module, pad)?.element_type;
    let at = |d: i64| padding.get(usize::try_from(d).ok()?);
    let only_spatial = [convolution.dims.input_batch, convolution.dims.input_feature]
        .iter()
        .all(|&d| at(d) == Some(&PaddingDim::default()));
    (same && only_spatial).then_some(())?;
    let mut new = convolution.clone();
    for (window, &d) in new.window.dims.iter_mut().zip(&convolution.dims.input_spatial) {
        *window = padded(window, at(d)?)?;
    }
    let shape = module[i].shape.clone();
    beside(module, i).push_shaped(Op::Convolution(new), &[x, kernel], shape).ok()
}

fn convolution_of_reverse(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, reverse] = module[i].operands() else { return None };
    let (Op::Convolution(convolution), Op::Reverse { dimensions }) = (&module[i].op, &module[reverse].op) else {
        return None;
    };
    let places = dimensions.iter().map(|d| convolution.dims.kernel_spatial.iter().position(|s| s == d));
    let places = places.collect::<Option<Vec<usize>>>()?;
    let mut new = convolution.clone();
    for place in places {
        let window = new.window.dims.get_mut(place)?;
        window.window_reversal = !window.window_reversal;
    }
    let (kernel, shape) = (operand(module, reverse, 0)?, module[i].shape.clone());
    beside(module, i).push_shaped(Op::Convolution(new), &[x, kernel], shape).ok()
}

/// How often a window over a spread base meets each element, one after another, and how many windows meet none at the end;
/// `None` if a window meets several, or the first meet none.
fn repeats(window: &WindowDim) -> Option<(i64, i64)> {
    let (size, around) = (window.size, window.size.checked_sub(1)?);
    let each_once = window.stride == 1 && window.window_dilation == 1 && window.base_dilation == size;
    let after = window.padding_high.checked_sub(around)?;
    (each_once && window.padding_low == around && after >= 0).then_some((size, after))
}

fn window_of_spread(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[read, init] = module[i].operands() else { return None };
    let Op::ReduceWindow { window, to_apply } = &module[i].op else { return None };
    let (op, element_type) = (reducer(module, *to_apply)?, array(module, i)?.element_type);
    let value = splat(module, init)?;
    is_neutral(op, element_type, value).then_some(())?;
    let mut windows = window.dims.clone();
    let mut x = read;
    if let (Op::Pad { padding }, &[of, with]) = (&module[read].op, module[read].operands()) {
        let with = splat(module, with)?;
        (with == value && with.is_neutral_zero() == value.is_neutral_zero()).then_some(())?;
        for (window, padding) in windows.iter_mut().zip(padding) {
            *window = padded(window, padding)?;
        }
        x = of;
    }
    let same = [x, init].iter().all(|&o| array(module, o).is_some_and(|a| a.element_type == element_type));
    let times = windows.iter().map(repeats).collect::<Option<SmallVec<[(i64, i64); 4]>>>()?;
    (same && times.iter().any(|&(n, _)| n > 1)).then_some(())?;
    let from = DimVec::from(dims(module, x)?);
    let mut b = beside(module, i);
    let inits = if from.is_empty() { init } else { b.broadcast(init, from.iter().copied(), []).ok()? };
    // Each element meets the initial value once, and is then repeated in a dimension of its own.
    let met = b.push(Op::Binary(op), &[inits, x]).ok()?;
    let wide: DimVec = from.iter().zip(&times).flat_map(|(&size, &(n, _))| [size, n]).collect();
    let all = b.broadcast(met, wide, (0..from.len() as i64).map(|d| 2 * d)).ok()?;
    let sizes = from.iter().zip(&times).map(|(&size, &(n, _))| size.checked_mul(n)).collect::<Option<DimVec>>()?;
    let mut result = b.reshape(all, sizes).ok()?;
    if times.iter().any(|&(_, after)| after > 0) {
        let padding = times.iter().map(|&(_, high)| PaddingDim { low: 0, high, interior: 0 });
        result = b.pad(result, init, padding).ok()?;
    }
    module[result].shape.equal_ignoring_layout(&module[i].shape).then_some(result)
}

fn window_of_pad(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[pad, init] = module[i].operands() else { return None };
    let (Op::ReduceWindow { window, to_apply }, Op::Pad { padding }) = (&module[i].op, &module[pad].op) else {
        return None;
    };
    let &[x, value] = module[pad].operands() else { return None };
    let (op, element_type) = (reducer(module, *to_apply)?, array(module, i)?.element_type);
    let same = [x, init, value].iter().all(|&o| array(module, o).is_some_and(|a| a.element_type == element_type));
    let (a, b) = (splat(module, value)?, splat(module, init)?);
    let same_value = a == b && a.is_neutral_zero() == b.is_neutral_zero();
    (same && same_value && is_neutral(op, element_type, a)).then_some(())?;
    // Kernels for windows know nothing between the elements.
    padding.iter().all(|p| p.interior == 0).then_some(())?;
    let mut new = window.clone();
    for (window, padding) in new.dims.iter_mut().zip(padding) {
        *window = padded(window, padding)?;
    }
    let (op, shape) = (Op::ReduceWindow { window: new, to_apply: *to_apply }, module[i].shape.clone());
    beside(module, i).push_shaped(op, &[x, init], shape).ok()
}
