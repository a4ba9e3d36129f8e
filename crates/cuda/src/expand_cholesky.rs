//! The pass `expand-cholesky`: a cholesky as the call of cuSOLVER, and what its result has to be besides.
//!
//! cuSOLVER writes one triangle and a word that says whether there is a factor. In HLO the other triangle is zero, and a
//! matrix without a factor gives NaN: that is written as element-wise work, which fuses with what comes after.

use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::infer::ShapeError;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{CustomCall, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_passes::facts::flow_computations;
use hloom_passes::{Context, Pass};

/// The pass.
pub(crate) static PASS: Pass = Pass {
    name: "expand-cholesky",
    statement: "makes each cholesky a call of cuSOLVER, with zeros and NaN where they have to be",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| expand(module),
};

fn expand(module: &mut Module) -> Result<usize, Diagnostic> {
    let mut changes = 0;
    for c in flow_computations(module) {
        // What is added comes last, and must not become the root by that.
        if let Some(root) = module.root(c) {
            module.set_root(root);
        }
        for i in module[c].instructions().to_vec() {
            let (&Op::Cholesky { lower }, &[a]) = (&module[i].op, module[i].operands()) else { continue };
            let shape = module[a].shape.as_array().filter(|s| !s.is_dynamic() && s.rank() >= 2).cloned();
            let Some(shape) = shape else { continue };
            let Some(not_a_number) = nan(shape.element_type) else { continue };
            let before = module.instruction_slots();
            let mut b = Builder::resume(module, c);
            let Ok(new) = expanded(&mut b, a, &shape, lower, not_a_number) else { continue };
            for added in (before..module.instruction_slots()).map(InstructionId::from_index) {
                module.instruction_mut(added).common.metadata = module[i].common.metadata.clone();
                if matches!(module[added].op, Op::CustomCall(_)) {
                    let config = format!("{{lower = {lower}}}").into_bytes();
                    module.instruction_mut(added).common.backend_config = Some(config.into());
                }
                changes += 1;
            }
            let _same_computation = module.replace_all_uses(i, new);
        }
    }
    Ok(changes)
}

/// What a matrix without a factor is filled with, for the types that cuSOLVER has.
fn nan(element_type: ElementType) -> Option<Literal> {
    Some(match element_type {
        ElementType::F32 => Literal::scalar(f32::NAN),
        ElementType::F64 => Literal::scalar(f64::NAN),
        _ => return None,
    })
}

fn expanded(
    b: &mut Builder<'_>,
    a: InstructionId,
    shape: &ArrayShape,
    lower: bool,
    nan: Literal,
) -> Result<InstructionId, ShapeError> {
    let plain = ArrayShape::new(shape.element_type, shape.dims().iter().copied()).with_default_layout();
    let dims = plain.dims().to_vec();
    let outer = dims.len() - 2;
    let words = ArrayShape::new(ElementType::S32, dims[..outer].iter().copied()).with_default_layout();
    let call = Op::CustomCall(Box::new(CustomCall::new("cusolver_potrf_ffi")));
    let results = Shape::tuple([plain.clone().into(), words.into()]);
    let call = b.push_shaped(call, &[a], results)?;
    let (factor, word) = (b.get_tuple_element(call, 0)?, b.get_tuple_element(call, 1)?);
    let index = ArrayShape::new(ElementType::S32, dims.iter().copied()).with_default_layout();
    let (row, column) = (b.iota(index.clone(), outer as i64)?, b.iota(index, outer as i64 + 1)?);
    let direction = if lower { ComparisonDirection::Ge } else { ComparisonDirection::Le };
    let inside = b.compare(direction, row, column)?;
    let spread = |b: &mut Builder<'_>, literal: Literal| {
        let number = b.literal(literal)?;
        b.broadcast(number, dims.iter().copied(), [])
    };
    let zero = spread(b, Literal::zero(plain.element_type))?;
    let triangle = b.select(inside, factor, zero)?;
    let word = b.broadcast(word, dims.iter().copied(), 0..outer as i64)?;
    let none = spread(b, Literal::zero(ElementType::S32))?;
    let found = b.compare(ComparisonDirection::Eq, word, none)?;
    let nan = spread(b, nan)?;
    b.select(found, triangle, nan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;
    use hloom_ir::verify::{VerifyOptions, verify};

    #[test]
    fn a_cholesky_is_a_call_with_its_other_triangle_zero() {
        let text =
            "HloModule m\n\nENTRY e {\na = f64[3,4,4] parameter(0)\nROOT c = f64[3,4,4] cholesky(a), lower=true\n}\n";
        let mut module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        assert!(expand(&mut module).unwrap() > 0);
        let module = verify(module, &VerifyOptions::default()).expect("it is valid").into_module();
        let root = module.root(module.entry().unwrap()).unwrap();
        assert!(matches!(module[root].op, Op::Select), "{:?}", module[root].op);
        let entry = module[module.entry().unwrap()].instructions();
        assert_eq!(entry.iter().filter(|&&i| matches!(module[i].op, Op::CustomCall(_))).count(), 1);
    }
}
