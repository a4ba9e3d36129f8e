//! Products and convolutions of types for which the machine has no kernel, in types for which it has one.
//!
//! Operands are converted to the type that products are summed in (f32, f64, or 32-bit integers, whose sums wrap as those
//! of fewer bits do), and the result is rounded or cut once, at the end. A product of complex numbers is four products of
//! their parts. Scales of blocks are multiplied into the operands first. What remains is what no product of whole types
//! gives: sums of 64-bit integers are written out as such, and so are convolutions
//! of few terms ([`terms`]), the others of wide integers cut into pieces ([`pieces`]).

mod pieces;
mod terms;

use crate::pass::{Context, Pass, TargetInfo};
use crate::rules::{array, beside, dims};
use hloom_ir::attributes::{DotAlgorithm, DotDimensionNumbers};
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType::{self, Bf16, C64, C128, F16, F32, F64, Pred, S32, S64};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;
use pieces::are_small;

/// The pass.
pub static PASS: Pass = Pass {
    name: "legalize-products",
    statement: "makes products and convolutions of types that the machine has kernels for of those that it has none for",
    keeps_schedule: false,
    run: legalize,
};

fn legalize(module: &mut Module, context: &Context<'_>) -> Result<usize, Diagnostic> {
    let mut changes = 0;
    for c in module.computations().to_vec() {
        // What is added comes last, and must not become the root by that.
        if let Some(root) = module.root(c) {
            module.set_root(root);
        }
        for i in module[c].instructions().to_vec() {
            let is_product = matches!(module[i].op, Op::Dot(_) | Op::ScaledDot(_) | Op::Convolution(_));
            if !is_product || module[i].users().is_empty() && module.root(c) != Some(i) {
                continue;
            }
            let before = module.instruction_slots();
            let legal = legalized(module, i, context.info);
            for added in (before..module.instruction_slots()).map(InstructionId::from_index) {
                module.instruction_mut(added).common.metadata = module[i].common.metadata.clone();
                changes += 1;
            }
            if let Some(legal) = legal {
                let _same_computation = module.replace_all_uses(i, legal);
            }
        }
    }
    Ok(changes)
}

/// The value to use instead of a product, if it needs one.
fn legalized(module: &mut Module, i: InstructionId, info: &dyn TargetInfo) -> Option<InstructionId> {
    let operands = module[i].operands().to_vec();
    let (&lhs, &rhs) = (operands.first()?, operands.get(1)?);
    let is_dynamic = |i: InstructionId| array(module, i).is_none_or(ArrayShape::is_dynamic);
    if operands.iter().any(|&o| is_dynamic(o)) || is_dynamic(i) {
        return None;
    }
    let type_of = |module: &Module, i: InstructionId| array(module, i).map(|a| a.element_type);
    let to = type_of(module, i)?;
    let types = [type_of(module, lhs)?, type_of(module, rhs)?, to];
    let counts = to.is_integer() && types.iter().all(|t| !t.is_float() && !t.is_complex());
    let mut product = DotOrConvolution { to, counts, dims: dims(module, i)?.into(), op: module[i].op.clone() };
    let has_kernel = |t: [ElementType; 3]| match &product.op {
        Op::Convolution(_) => info.has_convolution(t[0], t[1], t[2]),
        _ => info.has_product(t[0], t[1], t[2]),
    };
    if let Op::ScaledDot(dot) = &product.op {
        let &[lhs, rhs, lhs_scale, rhs_scale] = &operands[..] else { return None };
        product.op = Op::Dot(dot.clone());
        product.forget_algorithm();
        let mut b = beside(module, i);
        let (x, y) = (scaled(&mut b, lhs, lhs_scale)?, scaled(&mut b, rhs, rhs_scale)?);
        return product.made(&mut b, x, y, if to == F64 { F64 } else { F32 });
    }
    if let (Op::Convolution(convolution), true) = (&product.op, info.writes_out_stencils() && types == [to; 3]) {
        let (convolution, shape) = (convolution.clone(), array(module, i)?.clone());
        if matches!(to, F32 | F64) && terms::is_stencil(module, &convolution, rhs, &shape) {
            return terms::written_out(&mut beside(module, i), &convolution, [lhs, rhs], &shape);
        }
    }
    let rounded = product.operand_type().filter(|_| types[..2].iter().any(|t| matches!(t, F32 | F64)));
    if rounded.is_none() && has_kernel(types) {
        return None;
    }
    if types.iter().any(|t| t.is_complex()) {
        let part = if types.iter().any(|t| matches!(t, C128 | F64)) { F64 } else { F32 };
        return (to.is_complex() && has_kernel([part; 3])).then(|| product.of_parts(module, i, [lhs, rhs], part))?;
    }
    let compute = compute_type(types)?;
    let (with_kernel, compute) = match &product.op {
        Op::Convolution(_) if compute == S32 => ([lhs, rhs].iter().all(|&o| are_small(module, o)), F64),
        _ => (true, compute),
    };
    let is_gain = rounded.is_some() || types != [compute; 3];
    if with_kernel && is_gain && has_kernel([compute; 3]) {
        product.forget_algorithm();
        let mut b = beside(module, i);
        let [x, y] = [lhs, rhs].map(|o| {
            let narrow = rounded.filter(|_| matches!(b.shape(o).element_type(), Some(F32 | F64)));
            converted(&mut b, o, narrow.unwrap_or(compute))
        });
        return product.made(&mut b, x?, y?, compute);
    }
    match &product.op {
        Op::Dot(dot) if to.is_integer() => sum_of_products(&mut beside(module, i), [lhs, rhs], &dot.dims.clone(), to),
        Op::Convolution(convolution) if product.counts => {
            let convolution = convolution.clone();
            let shape = array(module, i)?.clone();
            let mut b = beside(module, i);
            let (x, y) = (converted(&mut b, lhs, to)?, converted(&mut b, rhs, to)?);
            terms::written_out(&mut b, &convolution, [x, y], &shape).or_else(|| {
                let made = |b: &mut Builder<'_>, x, y| product.in_type(b, x, y, F64);
                has_kernel([F64; 3]).then(|| pieces::by_pieces(&mut b, &convolution, [x, y], to, made))?
            })
        }
        _ => None,
    }
}

/// The type in which products of real numbers are made and summed.
fn compute_type(types: [ElementType; 3]) -> Option<ElementType> {
    let [_, _, to] = types;
    if types == [Pred; 3] {
        // How many pairs are true: the sum is true where it is not zero.
        Some(F32)
    } else if types.contains(&F64) {
        Some(F64)
    } else if types.iter().any(|t| t.is_float()) {
        Some(F32)
    } else {
        (to != Pred && to.bits() <= 32).then_some(S32).or_else(|| to.is_integer().then_some(to))
    }
}

/// A product being written otherwise.
struct DotOrConvolution {
    to: ElementType,
    /// Whether operands and result are integers.
    counts: bool,
    dims: DimVec,
    op: Op,
}

impl DotOrConvolution {
    /// The type to which the operands are rounded before they are multiplied, if there is one.
    fn operand_type(&self) -> Option<ElementType> {
        let precision = match &self.op {
            Op::Dot(dot) => &dot.precision,
            _ => return None,
        };
        match precision.algorithm {
            DotAlgorithm::Bf16Bf16Bf16 | DotAlgorithm::Bf16Bf16F32 => Some(Bf16),
            DotAlgorithm::F16F16F16 | DotAlgorithm::F16F16F32 => Some(F16),
            _ => None,
        }
    }

    /// What it says of operands of one type does not hold for those of another.
    fn forget_algorithm(&mut self) {
        if let Op::Dot(dot) = &mut self.op {
            dot.precision.algorithm = DotAlgorithm::Unset;
        }
    }

    fn in_type(
        &self,
        b: &mut Builder<'_>,
        x: InstructionId,
        y: InstructionId,
        t: ElementType,
    ) -> Option<InstructionId> {
        let (x, y) = (converted(b, x, t)?, converted(b, y, t)?);
        let shape = ArrayShape::new(t, self.dims.iter().copied()).with_default_layout();
        b.push_shaped(self.op.clone(), &[x, y], shape).ok()
    }

    /// The product made in `compute`, as the type that is wanted.
    fn made(
        &self,
        b: &mut Builder<'_>,
        x: InstructionId,
        y: InstructionId,
        compute: ElementType,
    ) -> Option<InstructionId> {
        let mut product = self.in_type(b, x, y, compute)?;
        if self.counts && compute == F64 {
            // Sums of integers wrap, and do not stop at the largest.
            product = b.convert(product, S64).ok()?;
        }
        converted(b, product, self.to)
    }

    /// The product of complex numbers from those of their parts.
    fn of_parts(
        &self,
        module: &mut Module,
        i: InstructionId,
        operands: [InstructionId; 2],
        part: ElementType,
    ) -> Option<InstructionId> {
        let complex = if part == F64 { C128 } else { C64 };
        let mut b = beside(module, i);
        let b = &mut b;
        let [x, y] = operands.map(|o| converted(b, o, complex));
        let (x, y) = (x?, y?);
        let [xr, xi, yr, yi] = [b.real(x).ok()?, b.imag(x).ok()?, b.real(y).ok()?, b.imag(y).ok()?];
        let (rr, ii) = (self.in_type(b, xr, yr, part)?, self.in_type(b, xi, yi, part)?);
        let (ri, ir) = (self.in_type(b, xr, yi, part)?, self.in_type(b, xi, yr, part)?);
        let (re, im) = (b.subtract(rr, ii).ok()?, b.add(ri, ir).ok()?);
        let product = b.complex(re, im).ok()?;
        converted(b, product, self.to)
    }
}

/// `x` in the type `to`.
fn converted(b: &mut Builder<'_>, x: InstructionId, to: ElementType) -> Option<InstructionId> {
    if b.shape(x).element_type() == Some(to) { Some(x) } else { b.convert(x, to).ok() }
}

/// `x` in f32 with each element multiplied by the scale of its block; a scalar scale is one that is not given.
fn scaled(b: &mut Builder<'_>, x: InstructionId, scale: InstructionId) -> Option<InstructionId> {
    let (sizes, blocks) = (dims(b.module(), x)?.to_vec(), dims(b.module(), scale)?.to_vec());
    let wide = converted(b, x, F32)?;
    if blocks.is_empty() {
        return Some(wide);
    }
    let (mut split, mut kept) = (DimVec::new(), DimVec::new());
    for (d, (&size, &blocks)) in sizes.iter().zip(&blocks).enumerate() {
        (blocks > 0 && size % blocks == 0).then_some(())?;
        split.extend([blocks, size / blocks]);
        kept.push(2 * d as i64);
    }
    let scale = converted(b, scale, F32)?;
    let repeated = b.broadcast(scale, split, kept).ok()?;
    let repeated = b.reshape(repeated, sizes).ok()?;
    b.multiply(wide, repeated).ok()
}

/// A product of integers as a sum of products: batch dimensions first, then the rest of the left, then that of the right,
/// then what is summed.
pub fn sum_of_products(
    b: &mut Builder<'_>,
    operands: [InstructionId; 2],
    numbers: &DotDimensionNumbers,
    to: ElementType,
) -> Option<InstructionId> {
    let [lhs, rhs] = operands;
    let sizes_of = |b: &Builder<'_>, i| dims(b.module(), i).map(<[i64]>::to_vec);
    let (lhs_sizes, rhs_sizes) = (sizes_of(b, lhs)?, sizes_of(b, rhs)?);
    let rest = |sizes: &[i64], batch: &[i64], contracting: &[i64]| -> Vec<i64> {
        (0..sizes.len() as i64).filter(|d| !batch.contains(d) && !contracting.contains(d)).collect()
    };
    let lhs_rest = rest(&lhs_sizes, &numbers.lhs_batch, &numbers.lhs_contracting);
    let rhs_rest = rest(&rhs_sizes, &numbers.rhs_batch, &numbers.rhs_contracting);
    let at = |sizes: &[i64], d: i64| sizes.get(usize::try_from(d).ok()?).copied();
    let batch = numbers.lhs_batch.iter().map(|&d| at(&lhs_sizes, d));
    let left = lhs_rest.iter().map(|&d| at(&lhs_sizes, d));
    let right = rhs_rest.iter().map(|&d| at(&rhs_sizes, d));
    let summed = numbers.lhs_contracting.iter().map(|&d| at(&lhs_sizes, d));
    let all: DimVec = batch.chain(left).chain(right).chain(summed).collect::<Option<_>>()?;
    // Where each dimension of an operand goes.
    let after_left = numbers.lhs_batch.len() + lhs_rest.len();
    let after_right = after_left + rhs_rest.len();
    let place = |d: i64, lists: [(&[i64], usize); 3]| {
        lists.iter().find_map(|(list, first)| Some((first + list.iter().position(|&l| l == d)?) as i64))
    };
    let of_lhs =
        [(&numbers.lhs_batch[..], 0), (&lhs_rest, numbers.lhs_batch.len()), (&numbers.lhs_contracting, after_right)];
    let of_rhs = [(&numbers.rhs_batch[..], 0), (&rhs_rest, after_left), (&numbers.rhs_contracting, after_right)];
    let to_lhs: DimVec = (0..lhs_sizes.len() as i64).map(|d| place(d, of_lhs)).collect::<Option<_>>()?;
    let to_rhs: DimVec = (0..rhs_sizes.len() as i64).map(|d| place(d, of_rhs)).collect::<Option<_>>()?;
    let (x, y) = (converted(b, lhs, to)?, converted(b, rhs, to)?);
    let x = broadcast_to(b, x, &all, &to_lhs)?;
    let y = broadcast_to(b, y, &all, &to_rhs)?;
    let products = b.multiply(x, y).ok()?;
    b.sum(products, after_right as i64..all.len() as i64).ok()
}

/// `x` repeated to an array of those sizes, its dimensions in any order.
fn broadcast_to(b: &mut Builder<'_>, x: InstructionId, sizes: &DimVec, places: &DimVec) -> Option<InstructionId> {
    let mut order: DimVec = (0..places.len() as i64).collect();
    order.sort_by_key(|&d| places[d as usize]);
    let sorted: DimVec = order.iter().map(|&d| places[d as usize]).collect();
    let x = if sorted == *places { x } else { b.transpose(x, order).ok()? };
    b.broadcast(x, sizes.iter().copied(), sorted).ok()
}
