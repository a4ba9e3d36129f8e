//! The pass `canonicalize-convolutions`: convolutions in the windows and the order of dimensions that cuDNN takes.
//!
//! What cuDNN has no word for is written out: padding on one side and holes in the image as a pad, turned windows as a
//! reversed filter, groups of batches as groups of features.

use crate::canonicalize::replace_each;
use crate::convolution::{Convolution, Orders, has_convolution};
use hloom_ir::attributes::{PaddingDim, WindowDim};
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{self, Op};
use hloom_ir::shape::ArrayShape;
use hloom_passes::{Context, Pass};

/// The pass.
pub(crate) static PASS: Pass = Pass {
    name: "canonicalize-convolutions",
    statement: "turns and pads the operands of convolutions to what cuDNN takes",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(canonicalize(module)) as Result<usize, Diagnostic>,
};

fn canonicalize(module: &mut Module) -> usize {
    replace_each(module, |module, i| {
        if !matches!(module[i].op, Op::Convolution(_)) {
            return None;
        }
        let written_out = written_out(module, i).unwrap_or(i);
        Some(turned(module, written_out).unwrap_or(written_out))
    })
}

fn array(module: &Module, i: InstructionId) -> Option<ArrayShape> {
    module[i].shape.as_array().filter(|a| !a.is_dynamic()).cloned()
}

/// A convolution with all that cuDNN has no word for written out; `None` if there is nothing, or nothing that helps.
fn written_out(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    if Convolution::new(module, i).is_ok() {
        return None;
    }
    let (Op::Convolution(conv), &[lhs, rhs]) = (&module[i].op, module[i].operands()) else { return None };
    let mut conv = conv.as_ref().clone();
    let (left, right, result) = (array(module, lhs)?, array(module, rhs)?, array(module, i)?);
    let has_kernel = has_convolution(left.element_type, right.element_type, result.element_type);
    if !has_kernel || conv.window.dims.len() > 3 || result.element_count()? == 0 {
        return None;
    }
    if conv.lhs_sparsity.is_some() || conv.rhs_sparsity.is_some() {
        return None;
    }
    let parent = module[i].parent();
    let mut b = Builder::resume(module, parent);
    let (mut x, mut w) = (lhs, rhs);
    if conv.batch_group_count > 1 {
        x = groups_of_features(&mut b, x, &mut conv)?;
    }
    let reversed: Vec<i64> = conv
        .window
        .dims
        .iter()
        .zip(&conv.dims.kernel_spatial)
        .filter(|(window, _)| window.window_reversal)
        .map(|(_, &d)| d)
        .collect();
    if !reversed.is_empty() {
        w = b.reverse(w, reversed).ok()?;
    }
    let rank = b.shape(x).as_array()?.rank();
    let mut padding = vec![PaddingDim::default(); rank];
    for (window, &d) in conv.window.dims.iter_mut().zip(&conv.dims.input_spatial) {
        window.window_reversal = false;
        let WindowDim { padding_low: low, padding_high: high, base_dilation, .. } = *window;
        if base_dilation == 1 && low == high && low >= 0 {
            continue;
        }
        *padding.get_mut(usize::try_from(d).ok()?)? = PaddingDim { low, high, interior: base_dilation - 1 };
        *window = WindowDim { padding_low: 0, padding_high: 0, base_dilation: 1, ..*window };
    }
    if padding.iter().any(|p| *p != PaddingDim::default()) {
        let zero = b.literal(Literal::zero(left.element_type)).ok()?;
        x = b.pad(x, zero, padding).ok()?;
    }
    let new = b.push_shaped(Op::Convolution(Box::new(conv)), &[x, w], result).ok()?;
    Some(new)
}

/// The left operand with its groups of batches beside each other among its features.
fn groups_of_features(b: &mut Builder<'_>, x: InstructionId, conv: &mut op::Convolution) -> Option<InstructionId> {
    if conv.feature_group_count > 1 {
        return None;
    }
    let groups = conv.batch_group_count;
    let shape = b.shape(x).as_array()?.clone();
    let rank = shape.rank() as i64;
    let (batch, feature) = (conv.dims.input_batch, conv.dims.input_feature);
    let size = |d: i64| shape.dims().get(usize::try_from(d).ok()?).copied();
    let (batches, features) = (size(batch)?, size(feature)?);
    // To [groups, batch of a group, the rest], from there with the groups before the features.
    let rest: Vec<i64> = (0..rank).filter(|&d| d != batch && d != feature).collect();
    let order: Vec<i64> = [batch].into_iter().chain(rest.iter().copied()).chain([feature]).collect();
    let x = b.transpose(x, order).ok()?;
    let rest_sizes = rest.iter().map(|&d| size(d)).collect::<Option<Vec<i64>>>()?;
    let apart = [groups, batches / groups].into_iter().chain(rest_sizes.iter().copied()).chain([features]);
    let x = b.reshape(x, apart).ok()?;
    let last = rank;
    let order: Vec<i64> = (1..last).chain([0, last]).collect();
    let x = b.transpose(x, order).ok()?;
    let together = [batches / groups].into_iter().chain(rest_sizes).chain([groups * features]);
    let x = b.reshape(x, together).ok()?;
    let place = |d: i64| rest.iter().position(|&r| r == d).map(|n| n as i64 + 1);
    let spatial = conv.dims.input_spatial.iter().map(|&d| place(d)).collect::<Option<_>>()?;
    conv.dims.input_spatial = spatial;
    conv.dims.input_batch = 0;
    conv.dims.input_feature = rank - 1;
    conv.feature_group_count = groups;
    conv.batch_group_count = 1;
    Some(x)
}

/// A convolution with its operands and its result in the order that cuDNN takes, turned back; `None` if it is there.
fn turned(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (_, orders) = Convolution::new(module, i).ok()?;
    if Convolution::is_in_order(&orders) {
        return None;
    }
    let (Op::Convolution(conv), &[lhs, rhs]) = (&module[i].op, module[i].operands()) else { return None };
    let mut conv = conv.as_ref().clone();
    let result = array(module, i)?;
    let parent = module[i].parent();
    let Orders { lhs: of_lhs, rhs: of_rhs, result: of_result } = orders;
    let at = |order: &[i64], d: i64| order.iter().position(|&o| o == d).map(|n| n as i64);
    let dims = &mut conv.dims;
    dims.input_batch = at(&of_lhs, dims.input_batch)?;
    dims.input_feature = at(&of_lhs, dims.input_feature)?;
    dims.kernel_input_feature = at(&of_rhs, dims.kernel_input_feature)?;
    dims.kernel_output_feature = at(&of_rhs, dims.kernel_output_feature)?;
    dims.output_batch = at(&of_result, dims.output_batch)?;
    dims.output_feature = at(&of_result, dims.output_feature)?;
    for (list, order) in [
        (&mut dims.input_spatial, &of_lhs),
        (&mut dims.kernel_spatial, &of_rhs),
        (&mut dims.output_spatial, &of_result),
    ] {
        for d in list.iter_mut() {
            *d = at(order, *d)?;
        }
    }
    let is_identity = |order: &[i64]| order.iter().enumerate().all(|(n, &d)| n as i64 == d);
    let mut b = Builder::resume(module, parent);
    let mut turn = |x: InstructionId, order: &[i64]| match is_identity(order) {
        true => Some(x),
        false => b.transpose(x, order.iter().copied()).ok(),
    };
    let (x, w) = (turn(lhs, &of_lhs)?, turn(rhs, &of_rhs)?);
    let sizes = of_result.iter().map(|&d| result.dims().get(d as usize).copied()).collect::<Option<Vec<i64>>>()?;
    let shape = ArrayShape::new(result.element_type, sizes);
    let new = b.push_shaped(Op::Convolution(Box::new(conv)), &[x, w], shape).ok()?;
    let mut back = vec![0; of_result.len()];
    for (n, &d) in of_result.iter().enumerate() {
        back[d as usize] = n as i64;
    }
    if is_identity(&back) { Some(new) } else { b.transpose(new, back).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    /// The opcodes of what is left, and whether the convolution is one for cuDNN.
    fn after(lhs: &str, rhs: &str, rest: &str) -> (String, bool) {
        let text = format!(
            "HloModule m\n\nENTRY e {{\na = f32[{lhs}] parameter(0)\nb = f32[{rhs}] parameter(1)\nROOT c = {rest}\n}}\n"
        );
        let mut module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        canonicalize(&mut module);
        let entry = module.entry().unwrap();
        let needed = |i: &&InstructionId| !module[**i].users().is_empty() || module.root(entry) == Some(**i);
        let is_dead = |i: InstructionId| {
            matches!(module[i].op, Op::Convolution(_)) && module[i].users().is_empty() && module.root(entry) != Some(i)
        };
        let live: Vec<InstructionId> = module[entry].instructions().iter().filter(needed).copied().collect();
        let live: Vec<InstructionId> = live.into_iter().filter(|&i| !is_dead(i)).collect();
        let names: Vec<&str> = live.iter().map(|&i| module[i].opcode().name()).collect();
        let ready = live
            .iter()
            .filter(|&&i| matches!(module[i].op, Op::Convolution(_)))
            .all(|&i| Convolution::new(&module, i).is_ok_and(|(_, orders)| Convolution::is_in_order(&orders)));
        (names.join(" "), ready)
    }

    #[test]
    fn a_filter_in_the_usual_order_is_turned() {
        let (left, ready) = after(
            "8,32,32,16",
            "3,3,16,64",
            "f32[8,32,32,64] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        );
        assert_eq!(left, "parameter parameter transpose convolution");
        assert!(ready);
    }

    #[test]
    fn padding_on_one_side_is_a_pad() {
        let (left, ready) = after(
            "8,32,32,16",
            "64,3,3,16",
            "f32[8,32,32,64] convolution(a, b), window={size=3x3 pad=0_2x0_2}, dim_labels=b01f_o01i->b01f",
        );
        assert_eq!(left, "parameter parameter constant pad convolution");
        assert!(ready);
    }

    #[test]
    fn groups_of_batches_become_groups_of_features() {
        let (left, ready) = after(
            "4,8,8,2",
            "6,3,3,2",
            "f32[2,6,6,6] convolution(a, b), window={size=3x3}, dim_labels=b01f_o01i->b01f, batch_group_count=2",
        );
        assert!(left.ends_with("convolution"), "{left}");
        assert!(ready, "{left}");
    }
}
