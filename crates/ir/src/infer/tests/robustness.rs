//! Whatever a file says, inference answers: no size, rank or number makes it overflow, panic or run long.

use super::{outcome, shape};
use crate::attributes::*;
use crate::builder::Builder;
use crate::infer::{MixedPrecision, check_shape, infer_shape};
use crate::module::Module;
use crate::op::*;
use crate::shape::{ArrayShape, Shape};
use proptest::prelude::*;

/// Numbers that break arithmetic, and ordinary ones.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0i64..5,
        1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, -2, -1, i64::MAX / 2, i64::MAX - 1, i64::MAX]),
    ]
}

fn dims() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(number(), 0..4)
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let types = ["f32", "bf16", "s32", "u8", "pred", "c64", "f64"];
    let array = (prop::sample::select(types.to_vec()), dims(), any::<bool>()).prop_map(|(t, dims, dynamic)| {
        let element_type = shape(&format!("{t}[]")).element_type().unwrap();
        let flags = vec![dynamic; dims.len()];
        Shape::from(ArrayShape::with_dynamic(element_type, dims, flags))
    });
    let leaf = prop_oneof![8 => array, 1 => Just(Shape::Token), 1 => Just(Shape::Opaque)];
    leaf.prop_recursive(2, 6, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(Shape::tuple))
}

/// Operations whose attributes are numbers, with any numbers.
fn any_op() -> impl Strategy<Value = Op> {
    let list = || dims().prop_map(|d| d.into_iter().collect::<crate::layout::DimVec>());
    let window =
        (number(), number(), number(), number(), number(), number()).prop_map(|(size, stride, l, h, w, b)| WindowDim {
            size,
            stride,
            padding_low: l,
            padding_high: h,
            window_dilation: w,
            base_dilation: b,
            window_reversal: false,
        });
    let slice = (number(), number(), number()).prop_map(|(start, limit, stride)| SliceDim { start, limit, stride });
    let pad = (number(), number(), number()).prop_map(|(low, high, interior)| PaddingDim { low, high, interior });
    let collective = || Box::new(Collective::default());
    prop_oneof![
        prop::sample::select(UnaryOp::ALL).prop_map(Op::unary),
        prop::sample::select(BinaryOp::ALL).prop_map(Op::Binary),
        Just(Op::Select),
        Just(Op::Clamp),
        Just(Op::Convert),
        Just(Op::BitcastConvert),
        Just(Op::Bitcast),
        Just(Op::DynamicReshape),
        Just(Op::DynamicUpdateSlice),
        number().prop_map(|n| Op::Reshape { inferred_dimension: Some(n) }),
        number().prop_map(|dimension| Op::Iota { dimension }),
        number().prop_map(|dimension| Op::Concatenate { dimension }),
        number().prop_map(|dimension| Op::GetDimensionSize { dimension }),
        number().prop_map(|dimension| Op::SetDimensionSize { dimension }),
        number().prop_map(|index| Op::GetTupleElement { index }),
        number().prop_map(|k| Op::TopK { k, largest: true, is_stable: true }),
        number().prop_map(|n| Op::BatchNormTraining { epsilon: F32Bits::from(0.1), feature_index: n }),
        list().prop_map(|dimensions| Op::Broadcast { dimensions }),
        list().prop_map(|dimensions| Op::Transpose { dimensions }),
        list().prop_map(|dimensions| Op::Reverse { dimensions }),
        list().prop_map(|sizes| Op::DynamicSlice { sizes }),
        prop::collection::vec(slice, 0..4).prop_map(|d| Op::Slice { dims: d.into() }),
        prop::collection::vec(pad, 0..4).prop_map(|p| Op::Pad { padding: p.into() }),
        (prop::sample::select(FftType::ALL), list()).prop_map(|(kind, length)| Op::Fft { kind, length }),
        (list(), list(), list(), list()).prop_map(|(lc, rc, lb, rb)| {
            let dims = DotDimensionNumbers { lhs_contracting: lc, rhs_contracting: rc, lhs_batch: lb, rhs_batch: rb };
            Op::Dot(Box::new(Dot { dims, ..Dot::default() }))
        }),
        (list(), list(), list(), number(), list()).prop_map(|(offset_dims, c, m, index_vector_dim, slice_sizes)| {
            let dims = GatherDimensionNumbers {
                offset_dims,
                collapsed_slice_dims: c,
                start_index_map: m,
                index_vector_dim,
                ..Default::default()
            };
            Op::Gather(Box::new(Gather { dims, slice_sizes, indices_are_sorted: false }))
        }),
        (window, number(), number(), prop::sample::select(ConvolutionKind::ALL)).prop_map(|(w, f, b, kind)| {
            let one = |d: i64| [d].into_iter().collect();
            Op::Convolution(Box::new(Convolution {
                window: Window { dims: [w].into_iter().collect() },
                dims: ConvDimensionNumbers {
                    input_batch: 0,
                    input_spatial: one(1),
                    input_feature: 2,
                    kernel_spatial: one(0),
                    kernel_input_feature: 1,
                    kernel_output_feature: 2,
                    output_batch: 0,
                    output_spatial: one(1),
                    output_feature: 2,
                },
                feature_group_count: f,
                batch_group_count: b,
                precision: PrecisionConfig::default(),
                kind,
                lhs_sparsity: None,
                rhs_sparsity: None,
            }))
        }),
        number().prop_map(move |dimension| {
            Op::AllGather(Box::new(AllGather { collective: Collective::default(), dimension }))
        }),
        number().prop_map(move |d| Op::AllToAll { collective: collective(), split_dimension: Some(d) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_attributes_on_any_shapes_give_an_answer(
        op in any_op(),
        operands in prop::collection::vec(any_shape(), 0..4),
        declared in prop::option::of(any_shape()),
    ) {
        let mut module = Module::new("m");
        let mut b = Builder::new(&mut module, "main");
        let ids: Vec<_> = operands.iter().enumerate().map(|(i, s)| b.parameter(i as i64, s.clone(), "p").unwrap()).collect();
        if let Ok(made) = infer_shape(&module, &op, &ids, declared.as_ref()) {
            prop_assert!(made.equal_ignoring_layout(&made.without_layout()) && made == made.without_layout());
            // What is made is what is wanted: the two questions have one answer.
            let again = check_shape(&module, &op, &ids, &made, MixedPrecision::Refused);
            let mixed = matches!(&again, Err(e) if e.code.number == 325);
            prop_assert!(again.is_ok() || mixed, "{:?} of {:?}: {:?}", op, operands, again);
        }
        if let Some(declared) = declared {
            let _ = check_shape(&module, &op, &ids, &declared, MixedPrecision::Refused);
        }
    }
}

#[test]
fn many_dimensions_take_linear_time() {
    // With a quadratic step in the number of dimensions this would take minutes.
    let rank = 200_000;
    let mut module = Module::new("m");
    let mut b = Builder::new(&mut module, "main");
    let wide = Shape::array(crate::ElementType::F32, std::iter::repeat_n(1, rank));
    let x = b.parameter(0, wide.clone(), "x").unwrap();
    let all: crate::layout::DimVec = (0..rank as i64).collect();
    let dims = DotDimensionNumbers { lhs_contracting: all.clone(), rhs_contracting: all.clone(), ..Default::default() };
    let dot = Op::Dot(Box::new(Dot { dims, ..Dot::default() }));
    assert_eq!(outcome(&module, &dot, &[x, x], ""), "f32[]");
    for op in [Op::Reverse { dimensions: all.clone() }, Op::Transpose { dimensions: all }] {
        assert_eq!(infer_shape(&module, &op, &[x], None).unwrap(), wide);
    }
}

#[test]
fn long_shapes_are_cut_in_messages() {
    let mut module = Module::new("m");
    let mut b = Builder::new(&mut module, "main");
    let x = b.parameter(0, Shape::tuple(std::iter::repeat_n(Shape::Token, 100_000)), "x").unwrap();
    let error = b.negate(x).unwrap_err();
    assert!(error.message.len() < 300, "{} bytes", error.message.len());
}
