//! Steps of linear algebra: products, convolutions, transforms, solves and normalisations.

use super::Generator;
use super::body::Body;
use super::reduce::{any_window_dim, window_result};
use super::shapes::without;
use hloom_ir::attributes::*;
use hloom_ir::element_type::ElementType::{self, C64, C128, F32, F64, S32};
use hloom_ir::layout::DimVec;
use hloom_ir::op::{Convolution, Dot, Op, RaggedDot};
use hloom_ir::shape::{ArrayShape, Shape};

/// Types that products are made of.
fn multiplies(t: ElementType) -> bool {
    t != ElementType::Pred
}

/// The type of a product's result: that of its operands, or sometimes a wider one.
fn product_type(g: &mut Generator<'_, '_>, t: ElementType) -> ElementType {
    match t {
        ElementType::Bf16 | ElementType::F16 if g.choices.chance(50) => F32,
        ElementType::S8 if g.choices.chance(50) => S32,
        _ => t,
    }
}

fn any_precision(g: &mut Generator<'_, '_>) -> PrecisionConfig {
    let operand_precision = match g.choices.below(4) {
        3 => [Precision::High, Precision::Default].into_iter().collect(),
        2 => [Precision::Highest, Precision::Highest].into_iter().collect(),
        _ => Default::default(),
    };
    PrecisionConfig { operand_precision, algorithm: DotAlgorithm::Unset }
}

/// A product with any batch and contracting dimensions.
pub(super) fn dot(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (lhs, shape) = g.find_static(body, |a| multiplies(a.element_type) && a.rank() < 5)?;
    let mut order: Vec<usize> = (0..shape.rank()).collect();
    g.choices.shuffle(&mut order);
    let batch_count = if g.choices.chance(40) { g.choices.below(order.len() + 1) } else { 0 };
    let (batch, rest) = order.split_at(batch_count);
    let (contracting, _) = rest.split_at(g.choices.below(rest.len() + 1));
    // The right side has the same batch and contracting sizes in any order, and dimensions of its own.
    let mut rhs: Vec<(i64, Option<usize>)> =
        batch.iter().chain(contracting).map(|&d| (shape.dims()[d], Some(d))).collect();
    for _ in 0..g.choices.below(3) {
        rhs.push((g.any_size(5), None));
    }
    g.choices.shuffle(&mut rhs);
    let rhs_dim = |d: &usize| rhs.iter().position(|r| r.1 == Some(*d)).unwrap_or(0) as i64;
    let dims = DotDimensionNumbers {
        lhs_contracting: contracting.iter().map(|&d| d as i64).collect(),
        rhs_contracting: contracting.iter().map(rhs_dim).collect(),
        lhs_batch: batch.iter().map(|&d| d as i64).collect(),
        rhs_batch: batch.iter().map(rhs_dim).collect(),
    };
    let mut result: DimVec = batch.iter().map(|&d| shape.dims()[d]).collect();
    result.extend(without(shape.dims(), &order[..batch_count + contracting.len()]));
    result.extend(rhs.iter().filter(|r| r.1.is_none()).map(|r| r.0));
    let rhs_sizes: Vec<i64> = rhs.iter().map(|r| r.0).collect();
    if !g.is_small_enough(&result) || !g.is_small_enough(&rhs_sizes) {
        return None;
    }
    let rhs = g.value_of(body, &ArrayShape::new(shape.element_type, rhs_sizes));
    let t = product_type(g, shape.element_type);
    let precision = any_precision(g);
    g.add(body, Op::Dot(Box::new(Dot { dims, precision })), Shape::array(t, result), [lhs, rhs]);
    Some(())
}

/// A product whose left rows belong to groups, each with a matrix of its own.
pub(super) fn ragged_dot(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let fits = |t: ElementType| t.is_float() && !t.is_small_float();
    let (lhs, shape) = g.find_static(body, |a| a.rank() == 2 && fits(a.element_type))?;
    let (t, rows, inner) = (shape.element_type, shape.dims()[0], shape.dims()[1]);
    let (groups, columns) = (g.choices.between(1, 3), g.any_size(4));
    if !g.is_small_enough(&[groups, inner, columns]) || !g.is_small_enough(&[rows, columns]) {
        return None;
    }
    let rhs = g.value_of(body, &ArrayShape::new(t, [groups, inner, columns]));
    // Equal groups that do not go beyond the rows.
    let one = g.integer(body, S32, rows / groups);
    let sizes = g.add(body, Op::Broadcast { dimensions: DimVec::new() }, Shape::array(S32, [groups]), [one]);
    let dims = RaggedDot {
        dims: DotDimensionNumbers {
            lhs_contracting: [1].into_iter().collect(),
            rhs_contracting: [1].into_iter().collect(),
            ..Default::default()
        },
        lhs_ragged: [0].into_iter().collect(),
        rhs_group: [0].into_iter().collect(),
        precision: PrecisionConfig::default(),
    };
    g.add(body, Op::RaggedDot(Box::new(dims)), Shape::array(t, [rows, columns]), [lhs, rhs, sizes]);
    Some(())
}

/// A convolution with any window, dimension order and groups.
pub(super) fn convolution(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let t = g.type_where(F32, |t| t.is_float() && !t.is_small_float());
    let spatial = g.choices.between(0, 3) as usize;
    let (feature_groups, batch_groups) = match g.choices.below(4) {
        2 => (2, 1),
        3 => (1, 2),
        _ => (1, 1),
    };
    let batch = batch_groups * g.choices.between(1, 2);
    let input_features = feature_groups * g.choices.between(1, 2);
    let output_features = feature_groups * batch_groups * g.choices.between(1, 2);
    let input_sizes: Vec<i64> = (0..spatial).map(|_| g.any_size(4).max(1)).collect();
    let window = Window { dims: (0..spatial).map(|_| any_window_dim(g, 3, true)).collect() };
    let output_sizes = window_result(&input_sizes, &window)?;
    // Where each of batch, feature and spatial dimensions goes, for the three arrays.
    let mut place = |names: usize| {
        let mut order: Vec<usize> = (0..names).collect();
        g.choices.shuffle(&mut order);
        order
    };
    let (input, kernel, output) = (place(spatial + 2), place(spatial + 2), place(spatial + 2));
    let arrange = |order: &[usize], first: i64, second: i64, sizes: &[i64]| -> DimVec {
        order
            .iter()
            .map(|&k| match k {
                0 => first,
                1 => second,
                s => sizes[s - 2],
            })
            .collect()
    };
    let at = |order: &[usize], k: usize| order.iter().position(|&o| o == k).unwrap_or(0) as i64;
    let at_all = |order: &[usize]| -> DimVec { (0..spatial).map(|s| at(order, s + 2)).collect() };
    let window_sizes: Vec<i64> = window.dims.iter().map(|d| d.size).collect();
    let input_dims = arrange(&input, batch, input_features, &input_sizes);
    let kernel_dims = arrange(&kernel, input_features / feature_groups, output_features, &window_sizes);
    let output_dims = arrange(&output, batch / batch_groups, output_features, &output_sizes);
    if [&input_dims, &kernel_dims, &output_dims].into_iter().any(|d| !g.is_small_enough(d)) {
        return None;
    }
    let dims = ConvDimensionNumbers {
        input_batch: at(&input, 0),
        input_feature: at(&input, 1),
        input_spatial: at_all(&input),
        kernel_input_feature: at(&kernel, 0),
        kernel_output_feature: at(&kernel, 1),
        kernel_spatial: at_all(&kernel),
        output_batch: at(&output, 0),
        output_feature: at(&output, 1),
        output_spatial: at_all(&output),
    };
    let lhs = g.value_of(body, &ArrayShape::new(t, input_dims));
    let rhs = g.value_of(body, &ArrayShape::new(t, kernel_dims));
    let convolution = Convolution {
        window,
        dims,
        feature_group_count: feature_groups,
        batch_group_count: batch_groups,
        precision: any_precision(g),
        kind: ConvolutionKind::Unset,
        lhs_sparsity: None,
        rhs_sparsity: None,
    };
    g.add(body, Op::Convolution(Box::new(convolution)), Shape::array(t, output_dims), [lhs, rhs]);
    Some(())
}

/// A Fourier transform over the last dimensions.
pub(super) fn fft(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let complex = *g.choices.pick(&[C64, C128]);
    if !g.options.element_types.contains(&complex) || !g.options.element_types.contains(&complex.component()) {
        return None;
    }
    let kind = *g.choices.pick(FftType::ALL);
    let rank = g.choices.between(1, 3) as usize;
    let over = g.choices.between(1, rank as i64) as usize;
    let dims = g.any_dims(rank);
    let length: DimVec = dims[rank - over..].iter().map(|&d| d.max(1)).collect();
    let mut real: DimVec = dims[..rank - over].iter().copied().chain(length.iter().copied()).collect();
    let mut half = real.clone();
    half[rank - 1] = half[rank - 1] / 2 + 1;
    let (input, output) = match kind {
        FftType::Fft | FftType::Ifft => ((complex, real.clone()), (complex, std::mem::take(&mut real))),
        FftType::Rfft => ((complex.component(), real), (complex, half)),
        FftType::Irfft => ((complex, half), (complex.component(), real)),
    };
    let x = g.value_of(body, &ArrayShape::new(input.0, input.1));
    g.add(body, Op::Fft { kind, length }, Shape::array(output.0, output.1), [x]);
    Some(())
}

/// The solution of a triangular system.
pub(super) fn triangular_solve(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let t = *g.choices.pick(&[F32, F64]);
    if !g.options.element_types.contains(&t) {
        return None;
    }
    let left_side = g.choices.chance(50);
    let (n, m) = (g.choices.between(1, 4), g.choices.between(1, 4));
    let batch = g.any_dims(g.options.max_elements.min(1) as usize);
    let dims = |inner: [i64; 2]| batch.iter().copied().chain(inner).collect::<DimVec>();
    let b_dims = if left_side { dims([n, m]) } else { dims([m, n]) };
    if !g.is_small_enough(&dims([n, n])) || !g.is_small_enough(&b_dims) {
        return None;
    }
    let a = g.value_of(body, &ArrayShape::new(t, dims([n, n])));
    let b = g.value_of(body, &ArrayShape::new(t, b_dims.clone()));
    let op = Op::TriangularSolve {
        left_side,
        lower: g.choices.chance(50),
        unit_diagonal: g.choices.chance(50),
        transpose_a: *g.choices.pick(TransposeA::ALL),
    };
    g.add(body, op, Shape::array(t, b_dims), [a, b]);
    Some(())
}

/// A normalisation of one of three kinds.
pub(super) fn batch_norm(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| matches!(a.element_type, F32 | F64) && a.rank() > 0)?;
    let at = g.choices.below(shape.rank());
    let feature_index = at as i64;
    let epsilon = 0.001f32.into();
    let feature = ArrayShape::new(shape.element_type, [shape.dims()[at]]);
    let mut features =
        |g: &mut Generator<'_, '_>, n: usize| -> Vec<_> { (0..n).map(|_| g.value_of(body, &feature)).collect() };
    let whole: Shape = shape.clone().into();
    let parts = Shape::tuple([whole.clone(), feature.clone().into(), feature.clone().into()]);
    let (op, result, operands) = match g.choices.below(3) {
        0 => (Op::BatchNormTraining { epsilon, feature_index }, parts, features(g, 2)),
        1 => (Op::BatchNormInference { epsilon, feature_index }, whole, features(g, 4)),
        _ => {
            let mut operands = features(g, 3);
            operands.push(g.value_of(body, &shape));
            (Op::BatchNormGrad { epsilon, feature_index }, parts, operands)
        }
    };
    g.add(body, op, result, std::iter::once(x).chain(operands));
    Some(())
}
