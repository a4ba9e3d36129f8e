//! Every dot as a convolution, which is what the matrix unit's emitter takes.
//!
//! One dimension of each kind has a name in a convolution: of those of the first operand alone the batch, of those of the
//! second alone the output feature, of those summed over the input feature. What is left becomes spatial:
//!
//! - further dimensions of the first operand: windows of size 1;
//! - further dimensions of the second, of size H: a mirrored window of size H over one element, padded by H - 1;
//! - further dimensions summed over: a window as large as the dimension;
//! - batch dimensions of the dot, of size B: a window of B over a base dilated by B, in strides of B - 1, so that exactly one
//!   element of the window meets one of the base for each result.
//!
//! An operand that lacks a spatial dimension gets one of size 1 by a bitcast, the most major one. Transposes of operands
//! and of the result go into the dimension numbers. A dot of so many dimensions that a convolution could not name them
//! stays one.

use crate::dot_results;
use crate::edit::{add, array_of, remove_dead};
use crate::stage::staged;
use crate::tiling::{retiled, tiled_array};
use hloom_ir::attributes::{ConvDimensionNumbers, ConvolutionKind, Window, WindowDim};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Common;
use hloom_ir::layout::{DimVec, Layout};
use hloom_ir::module::Module;
use hloom_ir::op::{Convolution, Dot, Op};
use hloom_ir::shape::ArrayShape;
use hloom_passes::Pass;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "dots-to-convolutions",
    statement: "makes convolutions of dots, transposes around them folded in",
    keeps_schedule: false,
    run: |module, context| {
        staged(module, context, |module, context| {
            let brought = dot_results::bring(module);
            if brought > 0 {
                remove_dead(module, context.target)?;
            }
            let changes = brought + convert_dots(module);
            remove_dead(module, context.target)?;
            Ok(changes) as Result<usize, Diagnostic>
        })
    },
};

fn convert_dots(module: &mut Module) -> usize {
    let mut changes = 0;
    for c in module.computations().to_vec() {
        for i in module[c].instructions().to_vec() {
            changes += usize::from(convert_dot(module, i).is_some());
        }
    }
    changes
}

/// The most spatial dimensions: in `dim_labels` each is one digit.
const MOST_SPATIAL: usize = 10;

/// An operand of the dot, seen through transposes, and which of its dimensions are what.
struct Side {
    value: InstructionId,
    dims: DimVec,
    batch: DimVec,
    contracting: DimVec,
    free: DimVec,
}

impl Side {
    fn new(module: &Module, value: InstructionId, batch: &[i64], contracting: &[i64]) -> Option<Side> {
        let dims = DimVec::from(array_of(module, value)?.dims());
        let free = (0..dims.len() as i64).filter(|d| !batch.contains(d) && !contracting.contains(d)).collect();
        let mut side = Side { value, dims, batch: batch.into(), contracting: contracting.into(), free };
        while let Op::Transpose { dimensions } = &module[side.value].op {
            let map = |list: &DimVec| -> DimVec { list.iter().map(|&d| dimensions[d as usize]).collect() };
            let before = module[side.value].operands()[0];
            side = Side {
                value: before,
                dims: array_of(module, before)?.dims().into(),
                batch: map(&side.batch),
                contracting: map(&side.contracting),
                free: map(&side.free),
            };
        }
        Some(side)
    }

    fn size(&self, dim: i64) -> i64 {
        self.dims[dim as usize]
    }
}

/// A spatial dimension of the convolution: where it is in each array (`None`: to be added with size 1), and its window.
struct Spatial {
    lhs: Option<i64>,
    rhs: Option<i64>,
    /// Its place among the dimensions of the dot's result; `None` if the dot sums over it.
    result: Option<usize>,
    window: WindowDim,
}

fn convert_dot(module: &mut Module, dot: InstructionId) -> Option<()> {
    let Op::Dot(attributes) = &module[dot].op else { return None };
    let Dot { dims, precision } = (**attributes).clone();
    if array_of(module, dot)?.is_dynamic() || array_of(module, dot)?.element_type.is_complex() {
        return None;
    }
    let (&[x, y], result) = (module[dot].operands(), array_of(module, dot)?.clone()) else { return None };
    let lhs = Side::new(module, x, &dims.lhs_batch, &dims.lhs_contracting)?;
    let rhs = Side::new(module, y, &dims.rhs_batch, &dims.rhs_contracting)?;
    if lhs.free.is_empty() && rhs.free.is_empty() && lhs.batch.is_empty() {
        return None;
    }
    let (first_free, first_rhs) = (lhs.batch.len(), lhs.batch.len() + lhs.free.len());
    // The last dimension of each kind is the most minor one, and is named.
    let batch = lhs.free.len().checked_sub(1);
    let output = rhs.free.len().checked_sub(1);
    let contracted = (0..lhs.contracting.len()).max_by_key(|&n| lhs.contracting[n]);
    let mut spatial = Vec::new();
    for (n, (&l, &r)) in lhs.batch.iter().zip(&rhs.batch).enumerate() {
        let size = lhs.size(l);
        let mut window = WindowDim::of_size(size);
        if size > 1 {
            (window.stride, window.base_dilation) = (size - 1, size);
        }
        spatial.push(Spatial { lhs: Some(l), rhs: Some(r), result: Some(n), window });
    }
    for (n, &l) in lhs.free.iter().enumerate().filter(|&(n, _)| Some(n) != batch) {
        let result = Some(first_free + n);
        spatial.push(Spatial { lhs: Some(l), rhs: None, result, window: WindowDim::of_size(1) });
    }
    for (n, &r) in rhs.free.iter().enumerate().filter(|&(n, _)| Some(n) != output) {
        let size = rhs.size(r);
        let mut window = WindowDim::of_size(size);
        if size > 1 {
            (window.padding_low, window.padding_high, window.window_reversal) = (size - 1, size - 1, true);
        }
        spatial.push(Spatial { lhs: None, rhs: Some(r), result: Some(first_rhs + n), window });
    }
    for (n, (&l, &r)) in lhs.contracting.iter().zip(&rhs.contracting).enumerate() {
        if Some(n) != contracted {
            let window = WindowDim::of_size(lhs.size(l));
            spatial.push(Spatial { lhs: Some(l), rhs: Some(r), result: None, window });
        }
    }
    if spatial.len() > MOST_SPATIAL {
        return None;
    }
    // An empty array has no windows to speak of.
    if lhs.dims.contains(&0) || rhs.dims.contains(&0) {
        return None;
    }
    let (mut l, mut r) = (Extended::new(&lhs.dims), Extended::new(&rhs.dims));
    // A transpose that is all that reads the dot gives the order of the result.
    let (top, order) = result_order(module, dot, result.rank());
    let mut out = Extended::new(&order.iter().map(|&d| result.dims()[d as usize]).collect::<DimVec>());
    let in_result = |n: usize| order.iter().position(|&d| d == n as i64).map(|p| p as i64);
    let mut dims = ConvDimensionNumbers {
        input_batch: l.dim(batch.map(|n| lhs.free[n])),
        input_feature: l.dim(contracted.map(|n| lhs.contracting[n])),
        kernel_input_feature: r.dim(contracted.map(|n| rhs.contracting[n])),
        kernel_output_feature: r.dim(output.map(|n| rhs.free[n])),
        output_batch: out.dim(batch.and_then(|n| in_result(first_free + n))),
        output_feature: out.dim(output.and_then(|n| in_result(first_rhs + n))),
        ..ConvDimensionNumbers::default()
    };
    for s in &spatial {
        dims.input_spatial.push(l.dim(s.lhs));
        dims.kernel_spatial.push(r.dim(s.rhs));
        dims.output_spatial.push(out.dim(s.result.and_then(in_result)));
    }
    let x = l.bitcast(module, lhs.value)?;
    let y = r.bitcast(module, rhs.value)?;
    let convolution = Convolution {
        window: Window { dims: spatial.iter().map(|s| s.window).collect() },
        dims,
        feature_group_count: 1,
        batch_group_count: 1,
        precision,
        kind: ConvolutionKind::Unset,
        lhs_sparsity: None,
        rhs_sparsity: None,
    };
    let narrow = array_of(module, top)?.clone();
    let shape = out.shape(&narrow);
    let common = Common { metadata: module[dot].common.metadata.clone(), ..Common::default() };
    let mut made = add(module, top, "convolution", Op::Convolution(Box::new(convolution)), shape, &[x, y], common);
    if out.added > 0 {
        made = add(module, top, "bitcast", Op::Bitcast, tiled_array(&narrow), &[made], Common::default());
    }
    module.replace_all_uses(top, made).ok()
}

/// The instruction that the convolution stands for, the dot or the transpose of it, and for each dimension of its result the
/// dimension of the dot's.
fn result_order(module: &Module, dot: InstructionId, rank: usize) -> (InstructionId, DimVec) {
    let identity: DimVec = (0..rank as i64).collect();
    match module[dot].users() {
        &[user] if module.root(module[dot].parent()) != Some(dot) => match &module[user].op {
            Op::Transpose { dimensions } => (user, dimensions.clone()),
            _ => (dot, identity),
        },
        _ => (dot, identity),
    }
}

/// Dimensions of an array and those of size 1 that are added at the end.
struct Extended {
    dims: DimVec,
    added: usize,
}

impl Extended {
    fn new(dims: &[i64]) -> Extended {
        Extended { dims: dims.into(), added: 0 }
    }

    /// The dimension, or a new one.
    fn dim(&mut self, dim: Option<i64>) -> i64 {
        dim.unwrap_or_else(|| {
            self.dims.push(1);
            self.added += 1;
            self.dims.len() as i64 - 1
        })
    }

    /// The array of these dimensions that lies in memory as `narrow` does.
    fn shape(&self, narrow: &ArrayShape) -> ArrayShape {
        let added = narrow.rank() as i64..self.dims.len() as i64;
        let order = narrow.minor_to_major().into_iter().chain(added);
        let wide = ArrayShape::new(narrow.element_type, self.dims.iter().copied());
        retiled(&wide.with_layout(Layout::new(order)))
    }

    /// `value` with these dimensions.
    fn bitcast(&self, module: &mut Module, value: InstructionId) -> Option<InstructionId> {
        if self.added == 0 {
            return Some(value);
        }
        let shape = self.shape(array_of(module, value)?);
        Some(add(module, value, "bitcast", Op::Bitcast, shape, &[value], Common::default()))
    }
}
