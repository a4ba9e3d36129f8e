//! The pass `canonicalize-gemms`: dots in an order and in types that cuBLASLt takes.
//!
//! Operands whose dimensions have no one stride are turned (a transpose that fuses with what makes the operand); f8 of odd
//! sizes is multiplied as bf16, which holds its values; sums of integers that there is no product for are written out.

use crate::gemm::{Gemm, NoGemm};
use hloom_ir::attributes::DotDimensionNumbers;
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{Dot, Op};
use hloom_ir::shape::ArrayShape;
use hloom_passes::facts::flow_computations;
use hloom_passes::legalize_products::sum_of_products;
use hloom_passes::{Context, Pass};

/// The pass.
pub(crate) static PASS: Pass = Pass {
    name: "canonicalize-gemms",
    statement: "turns and converts the operands of products to what cuBLASLt takes",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(canonicalize(module)) as Result<usize, Diagnostic>,
};

fn canonicalize(module: &mut Module) -> usize {
    replace_each(module, canonical)
}

/// Gives each instruction of the program's flow that is used to `replacement`, and puts what that answers in its place;
/// gives how many were replaced. What is added has the metadata of what it replaces.
pub(crate) fn replace_each(
    module: &mut Module,
    replacement: impl Fn(&mut Module, InstructionId) -> Option<InstructionId>,
) -> usize {
    let mut changes = 0;
    for c in flow_computations(module) {
        // What is added comes last, and must not become the root by that.
        if let Some(root) = module.root(c) {
            module.set_root(root);
        }
        for i in module[c].instructions().to_vec() {
            if module[i].users().is_empty() && module.root(c) != Some(i) {
                continue;
            }
            let before = module.instruction_slots();
            let Some(new) = replacement(module, i).filter(|&new| new != i) else { continue };
            for added in (before..module.instruction_slots()).map(InstructionId::from_index) {
                module.instruction_mut(added).common.metadata = module[i].common.metadata.clone();
            }
            let _same_computation = module.replace_all_uses(i, new);
            changes += 1;
        }
    }
    changes
}

/// The value to use instead of a dot, if it needs one.
fn canonical(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (Op::Dot(dot), &[lhs, rhs]) = (&module[i].op, module[i].operands()) else { return None };
    let dot = dot.clone();
    let array = |i: InstructionId| module[i].shape.as_array().filter(|a| !a.is_dynamic()).cloned();
    let (left, right, result) = (array(lhs)?, array(rhs)?, array(i)?);
    let to = result.element_type;
    let parent = module[i].parent();
    match Gemm::of(&dot, &left, &right, to) {
        Ok(_) => None,
        Err(NoGemm::Order) => {
            let turns = [(true, false), (false, true), (true, true)];
            let turned = |(l, r): (bool, bool)| {
                let (l, r) = (Turn::new(&dot, &left, l, true), Turn::new(&dot, &right, r, false));
                let new = Dot { dims: joint(&l, &r), precision: dot.precision.clone() };
                Gemm::of(&new, &l.shape(&left), &r.shape(&right), to).is_ok().then_some((l, r, new))
            };
            let (l, r, new) = turns.into_iter().find_map(turned)?;
            let mut b = Builder::resume(module, parent);
            let (x, y) = (l.apply(&mut b, lhs)?, r.apply(&mut b, rhs)?);
            b.push_shaped(Op::Dot(Box::new(new)), &[x, y], result).ok()
        }
        Err(NoGemm::Types(_)) if to.is_integer() => {
            sum_of_products(&mut Builder::resume(module, parent), [lhs, rhs], &dot.dims, to)
        }
        // One is true where any of the products is.
        Err(NoGemm::Types(_)) if to == ElementType::Pred => {
            let mut b = Builder::resume(module, parent);
            let count = sum_of_products(&mut b, [lhs, rhs], &dot.dims, ElementType::S32)?;
            b.convert(count, to).ok()
        }
        Err(NoGemm::Types(_)) => {
            let is_f8 = |a: &ArrayShape| a.element_type.is_float() && a.element_type.bits() == 8;
            if !is_f8(&left) || !is_f8(&right) {
                return None;
            }
            let mut b = Builder::resume(module, parent);
            let (x, y) = (b.convert(lhs, ElementType::Bf16).ok()?, b.convert(rhs, ElementType::Bf16).ok()?);
            // What f16 is asked for has no product of its own of bf16.
            let between = if to == ElementType::F16 { ElementType::F32 } else { to };
            let shape = result.with_element_type(between);
            let product = b.push_shaped(Op::Dot(dot), &[x, y], shape).ok()?;
            if between == to { Some(product) } else { b.convert(product, to).ok() }
        }
    }
}

/// An operand's dimensions in another order: those of the batch, then the rows or columns, then those summed over.
struct Turn {
    order: Option<DimVec>,
    batch: DimVec,
    contracting: DimVec,
}

impl Turn {
    fn new(dot: &Dot, shape: &ArrayShape, turns: bool, is_left: bool) -> Turn {
        let dims = &dot.dims;
        let (batch, contracting) = match is_left {
            true => (&dims.lhs_batch, &dims.lhs_contracting),
            false => (&dims.rhs_batch, &dims.rhs_contracting),
        };
        if !turns {
            return Turn { order: None, batch: batch.clone(), contracting: contracting.clone() };
        }
        let free = (0..shape.rank() as i64).filter(|d| !batch.contains(d) && !contracting.contains(d));
        let order: DimVec = batch.iter().copied().chain(free).chain(contracting.iter().copied()).collect();
        let rank = shape.rank() as i64;
        let contracting = (rank - contracting.len() as i64..rank).collect();
        Turn { order: Some(order), batch: (0..batch.len() as i64).collect(), contracting }
    }

    fn shape(&self, shape: &ArrayShape) -> ArrayShape {
        match &self.order {
            Some(order) => ArrayShape::new(shape.element_type, order.iter().map(|&d| shape.dims()[d as usize])),
            None => shape.clone(),
        }
    }

    fn apply(&self, b: &mut Builder<'_>, x: InstructionId) -> Option<InstructionId> {
        match &self.order {
            Some(order) if order.iter().enumerate().any(|(n, &d)| n as i64 != d) => {
                b.transpose(x, order.iter().copied()).ok()
            }
            _ => Some(x),
        }
    }
}

fn joint(left: &Turn, right: &Turn) -> DotDimensionNumbers {
    DotDimensionNumbers {
        lhs_contracting: left.contracting.clone(),
        rhs_contracting: right.contracting.clone(),
        lhs_batch: left.batch.clone(),
        rhs_batch: right.batch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    fn after(text: &str) -> String {
        let text = format!("HloModule m\n\nENTRY e {{\n{text}\n}}\n");
        let mut module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        canonicalize(&mut module);
        let entry = module.entry().unwrap();
        let live: Vec<String> = module[entry]
            .instructions()
            .iter()
            .filter(|&&i| !module[i].users().is_empty() || module.root(entry) == Some(i))
            .map(|&i| module[i].opcode().name().to_owned())
            .collect();
        live.join(" ")
    }

    #[test]
    fn only_the_operand_that_is_in_no_order_is_turned() {
        let text = "a = f32[4,8,5] parameter(0)\nb = f32[4,5,16] parameter(1)\nROOT d = f32[8,16] dot(a, b), \
             lhs_contracting_dims={0,2}, rhs_contracting_dims={0,1}";
        assert_eq!(after(text), "parameter parameter transpose dot");
    }

    #[test]
    fn integers_without_a_product_are_summed() {
        let text = "a = s32[4,8] parameter(0)\nb = s32[8,16] parameter(1)\nROOT d = s32[4,16] dot(a, b), \
             lhs_contracting_dims={1}, rhs_contracting_dims={0}";
        assert!(after(text).ends_with("reduce"), "{}", after(text));
    }

    #[test]
    fn products_of_truths_are_counted() {
        let text = "a = pred[4,8] parameter(0)\nb = pred[8,16] parameter(1)\nROOT d = pred[4,16] dot(a, b), \
             lhs_contracting_dims={1}, rhs_contracting_dims={0}";
        assert!(after(text).ends_with("reduce convert"), "{}", after(text));
    }

    #[test]
    fn f8_of_odd_sizes_is_multiplied_as_bf16() {
        let text = "a = f8e4m3fn[4,8] parameter(0)\nb = f8e4m3fn[16,8] parameter(1)\nROOT d = f32[4,16] dot(a, b), \
             lhs_contracting_dims={1}, rhs_contracting_dims={1}";
        assert_eq!(after(text), "parameter parameter convert convert dot");
    }
}
