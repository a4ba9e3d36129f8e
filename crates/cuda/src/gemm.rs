//! Matrix products as cuBLASLt takes them: which instruction is one, its sizes, strides and types.
//!
//! Arrays are row-major and cuBLASLt's matrices are column-major, so that the product that is asked of it is the transposed
//! one: its first matrix is the right operand, its rows are our columns. Any order of the dimensions of the operands that
//! has one stride along rows, columns and the sum is taken without a copy; the others are turned first, by the pass
//! `canonicalize-gemms`.

use hloom_ir::attributes::{DotAlgorithm, Precision, PrecisionConfig};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{Dot, Op};
use hloom_ir::shape::ArrayShape;

/// More calls than this for one product cost more than turning its operands.
const MAX_CALLS: usize = 16;
/// Products of f32 with fewer multiplications and additions are made in f32: launching one takes longer than it does, and
/// TF32 would round away digits for nothing.
const LEAST_TF32: u64 = 1 << 20;

/// A matrix product of row-major arrays.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Gemm {
    /// Rows of the left operand and of the result.
    pub(crate) m: u64,
    /// Columns of the right operand and of the result.
    pub(crate) n: u64,
    /// The length of the sums.
    pub(crate) k: u64,
    pub(crate) lhs: Matrix,
    pub(crate) rhs: Matrix,
    /// Elements from a row of the result to the next.
    pub(crate) result_row: u64,
    /// Products side by side, the innermost last.
    pub(crate) batch: Vec<BatchDim>,
    pub(crate) types: GemmTypes,
}

/// How an operand lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Matrix {
    /// Whether elements along the sum lie side by side; otherwise those along the rows or columns do.
    pub(crate) sum_is_contiguous: bool,
    /// Elements from one row or column to the next, along the other dimension.
    pub(crate) leading_dimension: u64,
    pub(crate) element_type: ElementType,
}

/// Products side by side, and the elements from one to the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BatchDim {
    pub(crate) size: u64,
    pub(crate) lhs: u64,
    pub(crate) rhs: u64,
    pub(crate) result: u64,
}

/// The types of a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GemmTypes {
    pub(crate) result: ElementType,
    pub(crate) compute: ComputeType,
}

/// In what products are made and summed, by the name that cuBLAS has for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ComputeType {
    F32,
    Tf32,
    F64,
    S32,
}

/// Why a dot is no product that cuBLASLt takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoGemm {
    /// There is none for its types or sizes.
    Types(String),
    /// Its dimensions are in no order that it takes: turned operands would do.
    Order,
}

impl std::fmt::Display for NoGemm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoGemm::Types(why) => f.write_str(why),
            NoGemm::Order => f.write_str("its dimensions are not in one stride"),
        }
    }
}

/// Whether cuBLASLt has products of those types.
pub(crate) fn has_product(lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
    use ElementType::{Bf16, C64, C128, F8e4m3fn, F8e5m2, F16, F32, F64, S8, S32};
    match (lhs, rhs) {
        (Bf16, Bf16) => matches!(to, Bf16 | F32),
        (F16, F16) => matches!(to, F16 | F32),
        (F32, F32) => to == F32,
        (F64, F64) => to == F64,
        (C64, C64) => to == C64,
        (C128, C128) => to == C128,
        (S8, S8) => to == S32,
        // Two of the wider range have no product.
        (F8e4m3fn, F8e4m3fn | F8e5m2) | (F8e5m2, F8e4m3fn) => matches!(to, Bf16 | F16 | F32),
        _ => false,
    }
}

/// Whether the sum has to be contiguous in both operands, and all sizes multiples of a number.
fn alignment(element_type: ElementType) -> Option<u64> {
    match element_type {
        ElementType::S8 => Some(4),
        ElementType::F8e4m3fn | ElementType::F8e5m2 => Some(16),
        _ => None,
    }
}

fn compute_type(from: ElementType, precision: &PrecisionConfig, operations: u64) -> ComputeType {
    use DotAlgorithm::{Tf32Tf32F32, Unset};
    match from {
        ElementType::F64 | ElementType::C128 => ComputeType::F64,
        ElementType::S8 => ComputeType::S32,
        ElementType::F32 | ElementType::C64 => {
            let is_default = precision.operand_precision.iter().all(|&p| p == Precision::Default);
            match precision.algorithm {
                Unset if is_default && operations >= LEAST_TF32 => ComputeType::Tf32,
                Tf32Tf32F32 => ComputeType::Tf32,
                _ => ComputeType::F32,
            }
        }
        _ => ComputeType::F32,
    }
}

impl Gemm {
    /// The product that a dot is.
    pub(crate) fn new(module: &Module, id: InstructionId) -> Result<Gemm, NoGemm> {
        let none = |why: &str| NoGemm::Types(why.to_owned());
        let (Op::Dot(dot), &[lhs, rhs]) = (&module[id].op, module[id].operands()) else {
            return Err(none("it is no dot of two operands"));
        };
        let array = |i: InstructionId| module[i].shape.as_array().ok_or_else(|| none("an operand is no array"));
        Gemm::of(dot, array(lhs)?, array(rhs)?, array(id)?.element_type)
    }

    /// The product that a dot of such operands is.
    pub(crate) fn of(dot: &Dot, left: &ArrayShape, right: &ArrayShape, to: ElementType) -> Result<Gemm, NoGemm> {
        let from = left.element_type;
        if !has_product(from, right.element_type, to) {
            return Err(NoGemm::Types(format!("there is no product of {from} by {} to {to}", right.element_type)));
        }
        if left.is_dynamic() || right.is_dynamic() {
            return Err(NoGemm::Types("it has a size that is known at run time only".to_owned()));
        }
        if [left, right].iter().any(|a| a.element_count().unwrap_or(0) == 0) {
            return Err(NoGemm::Types("it has no elements".to_owned()));
        }
        let dims = &dot.dims;
        let rest = |shape: &ArrayShape, lists: [&[i64]; 2]| -> Vec<i64> {
            (0..shape.rank() as i64).filter(|d| !lists.iter().any(|l| l.contains(d))).collect()
        };
        let mut rows = rest(left, [&dims.lhs_batch, &dims.lhs_contracting]);
        let mut columns = rest(right, [&dims.rhs_batch, &dims.rhs_contracting]);
        let size_of = |shape: &ArrayShape, dims: &[i64]| dims.iter().map(|&d| size(shape, d)).product::<u64>();
        let (all_rows, all_columns) = (size_of(left, &rows), size_of(right, &columns));
        let (left_strides, right_strides) = (strides(left), strides(right));
        // Outer rows and columns that do not follow the inner ones in one stride are products of their own.
        let mut extra = Vec::new();
        let (m, left_row) = loop {
            if let Some(joint) = joined(left, &rows) {
                break joint;
            }
            let outer = rows.remove(0);
            let result = size_of(left, &rows) * all_columns;
            extra.push(BatchDim { size: size(left, outer), lhs: left_strides[outer as usize], rhs: 0, result });
        };
        let (n, right_column) = loop {
            if let Some(joint) = joined(right, &columns) {
                break joint;
            }
            let outer = columns.remove(0);
            let result = size_of(right, &columns);
            extra.push(BatchDim { size: size(right, outer), lhs: 0, rhs: right_strides[outer as usize], result });
        };
        let (k, left_column) = joined(left, &dims.lhs_contracting).ok_or(NoGemm::Order)?;
        let (_, right_row) = joined(right, &dims.rhs_contracting).ok_or(NoGemm::Order)?;
        let mut batch = Vec::new();
        let mut stride = all_rows * all_columns;
        for (&l, &r) in dims.lhs_batch.iter().zip(&dims.rhs_batch).rev() {
            let (lhs, rhs) = (left_strides[l as usize], right_strides[r as usize]);
            batch.push(BatchDim { size: size(left, l), lhs, rhs, result: stride });
            stride *= size(left, l);
        }
        batch.reverse();
        batch.extend(extra);
        let batch = merged(batch);
        let calls = batch.iter().rev().skip(1).map(|b| b.size as usize).product::<usize>();
        let lhs = matrix(left.element_type, (m, left_row), (k, left_column));
        let rhs = matrix(right.element_type, (n, right_column), (k, right_row));
        let (Some(lhs), Some(rhs)) = (lhs, rhs) else { return Err(NoGemm::Order) };
        if calls > MAX_CALLS {
            return Err(NoGemm::Order);
        }
        if let Some(alignment) = alignment(from) {
            if [m, n, k].iter().any(|size| size % alignment != 0) {
                return Err(NoGemm::Types(format!("its sizes are no multiples of {alignment}")));
            }
            if !(lhs.sum_is_contiguous && rhs.sum_is_contiguous) {
                return Err(NoGemm::Order);
            }
        }
        let types = GemmTypes { result: to, compute: ComputeType::F32 };
        let mut gemm = Gemm { m, n, k, lhs, rhs, result_row: all_columns, batch, types };
        gemm.types.compute = compute_type(from, &dot.precision, gemm.operations());
        Ok(gemm)
    }

    /// Multiplications and additions.
    pub(crate) fn operations(&self) -> u64 {
        let batch = self.batch.iter().map(|b| b.size);
        batch.chain([2, self.m, self.n, self.k]).fold(1, u64::saturating_mul)
    }

    /// The bytes that the operands and the result reach over.
    pub(crate) fn bytes(&self) -> [usize; 3] {
        let reach = |last: u64, stride: fn(&BatchDim) -> u64, t: ElementType| {
            let elements = self.batch.iter().fold(last, |n, b| n + (b.size - 1) * stride(b));
            elements as usize * t.bytes()
        };
        let side = |m: &Matrix, free: u64| {
            let (contiguous, other) = if m.sum_is_contiguous { (self.k, free) } else { (free, self.k) };
            (other.max(1) - 1) * m.leading_dimension + contiguous
        };
        [
            reach(side(&self.lhs, self.m), |b| b.lhs, self.lhs.element_type),
            reach(side(&self.rhs, self.n), |b| b.rhs, self.rhs.element_type),
            reach((self.m.max(1) - 1) * self.result_row + self.n, |b| b.result, self.types.result),
        ]
    }

    /// The products of one call, and where the others begin: elements from the starts of the operands and the result.
    pub(crate) fn calls(&self) -> (Option<BatchDim>, Vec<[u64; 3]>) {
        let mut offsets = vec![[0u64; 3]];
        let (inner, outer) = match self.batch.split_last() {
            Some((inner, outer)) => (Some(*inner), outer),
            None => (None, &[][..]),
        };
        for dim in outer {
            let each = |at: [u64; 3]| {
                (0..dim.size).map(move |i| [at[0] + i * dim.lhs, at[1] + i * dim.rhs, at[2] + i * dim.result])
            };
            offsets = offsets.into_iter().flat_map(each).collect();
        }
        (inner, offsets)
    }
}

impl std::fmt::Display for Gemm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = |m: &Matrix| if m.sum_is_contiguous { "k" } else { "-" };
        write!(f, "gemm {}x{}x{}", self.m, self.n, self.k)?;
        for dim in &self.batch {
            write!(f, " x{}", dim.size)?;
        }
        let (l, r) = (&self.lhs, &self.rhs);
        write!(f, " {}[{}] {}[{}] -> {}", l.element_type, side(l), r.element_type, side(r), self.types.result)?;
        write!(f, " in {:?}", self.types.compute)
    }
}

fn size(shape: &ArrayShape, dim: i64) -> u64 {
    usize::try_from(dim).ok().and_then(|d| shape.dims().get(d)).map_or(1, |&n| n.max(0) as u64)
}

/// The strides of a row-major array, in elements.
pub(crate) fn strides(shape: &ArrayShape) -> Vec<u64> {
    let mut strides = vec![1u64; shape.rank()];
    for d in (0..shape.rank().saturating_sub(1)).rev() {
        strides[d] = strides[d + 1].saturating_mul(shape.dims()[d + 1].max(1) as u64);
    }
    strides
}

/// Dimensions as one: their joint size, and the stride along it; `None` if there is no one stride.
fn joined(shape: &ArrayShape, dims: &[i64]) -> Option<(u64, u64)> {
    let strides = strides(shape);
    let mut joint: Option<(u64, u64)> = None;
    for &d in dims.iter().rev() {
        let (size, stride) = (size(shape, d), *strides.get(d as usize)?);
        joint = match joint {
            _ if size == 1 && joint.is_some() => joint,
            None | Some((1, _)) => Some((size, stride)),
            Some((n, s)) if stride == s.checked_mul(n)? => Some((n.checked_mul(size)?, s)),
            Some(_) => return None,
        };
    }
    Some(joint.unwrap_or((1, 1)))
}

/// An operand with sizes and strides along its rows or columns and along the sum; `None` if nothing is contiguous.
fn matrix(element_type: ElementType, (free, free_stride): (u64, u64), (k, sum_stride): (u64, u64)) -> Option<Matrix> {
    let leading = |stride: u64, contiguous: u64| stride.max(contiguous).max(1);
    if (sum_stride == 1 || k == 1) && (free == 1 || free_stride >= k) {
        let leading_dimension = leading(if free == 1 { k } else { free_stride }, k);
        return Some(Matrix { sum_is_contiguous: true, leading_dimension, element_type });
    }
    if (free_stride == 1 || free == 1) && (k == 1 || sum_stride >= free) {
        let leading_dimension = leading(if k == 1 { free } else { sum_stride }, free);
        return Some(Matrix { sum_is_contiguous: false, leading_dimension, element_type });
    }
    None
}

/// Neighbouring dimensions that are one in all three arrays as one; those of size 1 left out.
fn merged(batch: Vec<BatchDim>) -> Vec<BatchDim> {
    let mut merged: Vec<BatchDim> = Vec::new();
    for dim in batch.into_iter().filter(|d| d.size != 1) {
        let fits = |outer: &BatchDim| {
            outer.lhs == dim.lhs * dim.size && outer.rhs == dim.rhs * dim.size && outer.result == dim.result * dim.size
        };
        match merged.last_mut() {
            Some(outer) if fits(outer) => *outer = BatchDim { size: outer.size * dim.size, ..dim },
            _ => merged.push(dim),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemm(text: &str) -> Result<Gemm, NoGemm> {
        let text = format!("HloModule m\n\nENTRY e {{\n{text}\n}}\n");
        let module = hloom_formats::hlo_text::read(text.as_bytes()).module.expect("it can be read");
        let root = module.root(module.entry().unwrap()).unwrap();
        Gemm::new(&module, root)
    }

    #[test]
    fn transposes_are_taken_without_a_copy() {
        let dot = |lhs: &str, rhs: &str, dims: &str| {
            gemm(&format!("a = {lhs} parameter(0)\nb = {rhs} parameter(1)\nROOT d = f32[8,16] dot(a, b), {dims}"))
        };
        let plain = dot("f32[8,4]", "f32[4,16]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}").unwrap();
        assert_eq!((plain.m, plain.n, plain.k), (8, 16, 4));
        assert!(plain.lhs.sum_is_contiguous && !plain.rhs.sum_is_contiguous);
        assert_eq!((plain.lhs.leading_dimension, plain.rhs.leading_dimension), (4, 16));
        assert_eq!((plain.bytes(), plain.operations()), ([4 * 32, 4 * 64, 4 * 128], 2 * 8 * 16 * 4));
        let turned = dot("f32[4,8]", "f32[16,4]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}").unwrap();
        assert!(!turned.lhs.sum_is_contiguous && turned.rhs.sum_is_contiguous);
        assert_eq!((turned.lhs.leading_dimension, turned.rhs.leading_dimension), (8, 4));
    }

    #[test]
    fn heads_between_rows_and_columns_are_a_batch_with_strides() {
        let g = gemm(
            "q = bf16[2,64,4,32] parameter(0)\nk = bf16[2,64,4,32] parameter(1)\nROOT d = bf16[2,4,64,64] dot(q, k), \
             lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}",
        )
        .unwrap();
        assert_eq!((g.m, g.n, g.k), (64, 64, 32));
        assert_eq!(g.lhs.leading_dimension, 4 * 32);
        let (inner, calls) = g.calls();
        assert_eq!(inner, Some(BatchDim { size: 4, lhs: 32, rhs: 32, result: 64 * 64 }));
        assert_eq!(calls, [[0, 0, 0], [64 * 4 * 32, 64 * 4 * 32, 4 * 64 * 64]]);
    }

    #[test]
    fn precision_decides_in_what_f32_is_multiplied() {
        let of_rows = |rows: i64, attributes: &str| {
            let dot = "lhs_contracting_dims={1}, rhs_contracting_dims={0}";
            let text = format!(
                "a = f32[{rows},64] parameter(0)\nb = f32[64,64] parameter(1)\n\
                 ROOT d = f32[{rows},64] dot(a, b), {dot}{attributes}"
            );
            gemm(&text).unwrap().types.compute
        };
        let of = |attributes: &str| of_rows(128, attributes);
        assert_eq!(of(""), ComputeType::Tf32);
        // Nothing is gained by rounding what is small.
        assert_eq!(of_rows(127, ""), ComputeType::F32);
        assert_eq!(of_rows(1, ", algorithm=dot_tf32_tf32_f32"), ComputeType::Tf32);
        assert_eq!(of(", operand_precision={highest,highest}"), ComputeType::F32);
        assert_eq!(of(", operand_precision={default,high}"), ComputeType::F32);
        assert_eq!(of(", algorithm=dot_f32_f32_f32"), ComputeType::F32);
        assert_eq!(of(", algorithm=dot_tf32_tf32_f32"), ComputeType::Tf32);
    }

    #[test]
    fn what_is_summed_over_in_two_places_is_turned_first() {
        let g = gemm(
            "a = f32[4,8,5] parameter(0)\nb = f32[4,5,16] parameter(1)\nROOT d = f32[8,16] dot(a, b), \
             lhs_contracting_dims={0,2}, rhs_contracting_dims={0,1}",
        );
        assert_eq!(g, Err(NoGemm::Order));
    }

    #[test]
    fn bytes_are_multiplied_along_contiguous_sums_only() {
        let of = |lhs: &str, rhs: &str, l: i64, r: i64| {
            gemm(&format!(
                "a = {lhs} parameter(0)\nb = {rhs} parameter(1)\nROOT d = s32[8,16] dot(a, b), \
                 lhs_contracting_dims={{{l}}}, rhs_contracting_dims={{{r}}}"
            ))
        };
        assert!(of("s8[8,32]", "s8[16,32]", 1, 1).is_ok());
        assert_eq!(of("s8[8,32]", "s8[32,16]", 1, 0), Err(NoGemm::Order));
        assert!(matches!(of("s8[8,30]", "s8[16,30]", 1, 1), Err(NoGemm::Types(_))));
    }
}
