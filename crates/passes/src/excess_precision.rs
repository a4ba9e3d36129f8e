//! Where bf16 arithmetic is rounded: after every operation, but for the operations that these passes make f32.
//!
//! Everything below takes the types as they are written: an operation of bf16 values makes a bf16 value. What may keep
//! more digits is decided here, once, and is seen in the program as f32 operations and converts. There are three answers
//! ([`ExcessPrecision`]): none keeps more; those keep more that the program widens to f32 at once, as XLA has it by default
//! (`widen-converted`); and chains of arithmetic keep more throughout (`widen-arithmetic`), which differs from the program
//! by more than a last digit where it takes a difference of near values or rounds on purpose. What the program itself
//! narrows (`convert`, `reduce-precision`) and what stands behind an `optimization-barrier` is rounded in all of them.
//! f16 is never widened.

use crate::mixed_precision::builder;
use crate::pass::{Context, Pass};
use hloom_ir::diagnostic::{Blame, Diagnostic, Part};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::infer::ShapeError;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::order::PostOrder;
use rustc_hash::FxHashMap;

/// Which bf16 values may keep more digits than bf16 has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum ExcessPrecision {
    /// None.
    Never,
    /// Those that are converted to f32 at once, as XLA has it by default. None in a scheduled module: the compiler that
    /// scheduled it has decided which they are.
    #[default]
    Converted,
    /// These, and chains of arithmetic but for what their last operation makes.
    Arithmetic,
}

impl ExcessPrecision {
    /// What it means for a module, before any pass.
    pub fn for_module(self, module: &Module) -> ExcessPrecision {
        match self {
            ExcessPrecision::Converted if module.is_scheduled => ExcessPrecision::Never,
            other => other,
        }
    }

    /// The pass in the place of `name` in a pipeline that is written for the default.
    pub fn step(self, name: &'static str) -> Option<&'static str> {
        match self {
            _ if name != CONVERTED.name => Some(name),
            ExcessPrecision::Never => None,
            ExcessPrecision::Converted => Some(CONVERTED.name),
            ExcessPrecision::Arithmetic => Some(ARITHMETIC.name),
        }
    }
}

/// The pass for [`ExcessPrecision::Converted`].
pub static CONVERTED: Pass = Pass {
    name: "widen-converted",
    statement: "makes bf16 arithmetic that is converted to f32 at once arithmetic of f32",
    keeps_schedule: false,
    run: |module: &mut Module, context: &Context<'_>| {
        let products = context.info.widens_products();
        widen(module, |module, i, twins| widen_converted(module, i, twins, products))
    },
};

/// The pass for [`ExcessPrecision::Arithmetic`].
pub static ARITHMETIC: Pass = Pass {
    name: "widen-arithmetic",
    statement: "makes chains of bf16 arithmetic f32, rounded where bits are seen and at their ends",
    keeps_schedule: false,
    run: |module: &mut Module, context: &Context<'_>| {
        let products = context.info.widens_products();
        // What is converted at once keeps its digits as well, and is no end of a chain.
        let converted = widen(module, |module, i, twins| widen_converted(module, i, twins, products))?;
        Ok(converted + widen(module, widen_arithmetic)?)
    },
};

/// The f32 values that stand for bf16 ones.
type Twins = FxHashMap<InstructionId, InstructionId>;

fn widen(
    module: &mut Module,
    one: impl Fn(&mut Module, InstructionId, &mut Twins) -> Result<bool, ShapeError>,
) -> Result<usize, Diagnostic> {
    let mut order = PostOrder::new(module);
    let all: Vec<InstructionId> = module.computations().iter().flat_map(|&c| order.instructions(c)).collect();
    let mut twins = Twins::default();
    let mut changes = 0;
    for i in all {
        let changed = one(module, i, &mut twins);
        let failed = |e: ShapeError| Diagnostic::error(e.code, e.message).blame(Blame::Hloom);
        changes += usize::from(changed.map_err(|e| failed(e).at_instruction(i, Part::Whole))?);
    }
    Ok(changes)
}

fn element_type(module: &Module, i: InstructionId) -> Option<ElementType> {
    module[i].shape.as_array().map(|a| a.element_type)
}

/// `convert(op(x))` to f32 of bf16 → `op(convert(x))`, rounded for whoever else uses it. What it is made of is rounded: the
/// converts that this puts in are not looked at. A product is rounded unless `products` are widened, too, and it
/// [`is_convolution_or_matrix_product`].
fn widen_converted(
    module: &mut Module,
    i: InstructionId,
    twins: &mut Twins,
    products: bool,
) -> Result<bool, ShapeError> {
    let Op::Convert = module[i].op else { return Ok(false) };
    let &[x] = module[i].operands() else { return Ok(false) };
    let types = (element_type(module, x), element_type(module, i));
    if types != (Some(ElementType::Bf16), Some(ElementType::F32)) {
        return Ok(false);
    }
    let wide = match twins.get(&x) {
        Some(&wide) => wide,
        None if rounds(&module[x].op) || products && is_convolution_or_matrix_product(module, x) => {
            let wide = in_f32(module, x, &Twins::default())?;
            round_for_others(module, x, wide, twins)?;
            wide
        }
        None => return Ok(false),
    };
    let replaced = module.replace_all_uses(i, wide);
    debug_assert!(replaced.is_ok());
    Ok(true)
}

/// Whether `x` is a convolution, or a dot of matrices or vectors as they are, behind the dimensions of a batch. XLA makes
/// all other dots of such ones and reshapes, and a convert behind a reshape does not see the product.
fn is_convolution_or_matrix_product(module: &Module, x: InstructionId) -> bool {
    if let Op::Convolution(_) = module[x].op {
        return true;
    }
    let (Op::Dot(dot), &[lhs, rhs]) = (&module[x].op, module[x].operands()) else { return false };
    let is_matrix = |operand: InstructionId, batch: &[i64], contracting: &[i64]| {
        let rank = module[operand].shape.as_array().map_or(usize::MAX, |a| a.dims().len());
        contracting.len() == 1 && rank <= batch.len() + 2 && batch.iter().copied().eq(0..batch.len() as i64)
    };
    let dims = &dot.dims;
    is_matrix(lhs, &dims.lhs_batch, &dims.lhs_contracting) && is_matrix(rhs, &dims.rhs_batch, &dims.rhs_contracting)
}

/// Arithmetic of bf16 → arithmetic of f32 whose operands are f32 where they are arithmetic, rounded for whoever else uses
/// it.
fn widen_arithmetic(module: &mut Module, i: InstructionId, twins: &mut Twins) -> Result<bool, ShapeError> {
    if element_type(module, i) != Some(ElementType::Bf16) || !(rounds(&module[i].op) || selects(&module[i].op)) {
        return Ok(false);
    }
    let wide = in_f32(module, i, twins)?;
    round_for_others(module, i, wide, twins)?;
    Ok(true)
}

/// Lets those who use `x` use `wide`, which is the same in f32, rounded.
fn round_for_others(
    module: &mut Module,
    x: InstructionId,
    wide: InstructionId,
    twins: &mut Twins,
) -> Result<(), ShapeError> {
    let parent = module[x].parent();
    let rounded = builder(module, parent).convert(wide, ElementType::Bf16)?;
    twins.insert(rounded, wide);
    let replaced = module.replace_all_uses(x, rounded);
    debug_assert!(replaced.is_ok());
    Ok(())
}

/// `x` computed in f32, of operands as `twins` has them, or else of what they are in bf16.
fn in_f32(module: &mut Module, x: InstructionId, twins: &Twins) -> Result<InstructionId, ShapeError> {
    let Some(shape) = module[x].shape.as_array().map(|a| a.with_element_type(ElementType::F32)) else { return Ok(x) };
    let (op, parent) = (module[x].op.clone(), module[x].parent());
    let mut operands = module[x].operands().to_vec();
    // Products take narrow operands and make a wide result.
    if !matches!(op, Op::Dot(_) | Op::Convolution(_)) {
        for o in &mut operands {
            *o = match twins.get(o) {
                Some(&wide) => wide,
                None if element_type(module, *o) == Some(ElementType::Bf16) => {
                    builder(module, parent).convert(*o, ElementType::F32)?
                }
                None => *o,
            };
        }
    }
    let metadata = module[x].common.metadata.clone();
    let wide = builder(module, parent).push_shaped(op, &operands, shape)?;
    module.instruction_mut(wide).common.metadata = metadata;
    Ok(wide)
}

/// Whether an operation on floats makes more digits than its operands have, and shows no more of theirs than it has to.
fn rounds(op: &Op) -> bool {
    match op {
        Op::Unary { op, .. } => !matches!(
            op,
            UnaryOp::Abs
                | UnaryOp::Negate
                | UnaryOp::Sign
                | UnaryOp::Floor
                | UnaryOp::Ceil
                | UnaryOp::RoundNearestAfz
                | UnaryOp::RoundNearestEven
                | UnaryOp::IsFinite
                | UnaryOp::Real
                | UnaryOp::Imag
        ),
        Op::Binary(op) => !matches!(op, BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::Remainder),
        _ => false,
    }
}

/// Whether the result is one of the operands, or that but for its sign.
fn selects(op: &Op) -> bool {
    match op {
        Op::Select | Op::Clamp => true,
        Op::Unary { op, .. } => matches!(op, UnaryOp::Abs | UnaryOp::Negate),
        Op::Binary(op) => matches!(op, BinaryOp::Maximum | BinaryOp::Minimum),
        _ => false,
    }
}
