//! Leaves and operations on each element.

use super::{check_table, with_operands};
use crate::attributes::{ComparisonDirection, ComparisonType, RngAlgorithm, RngDistribution};
use crate::infer::{MixedPrecision, check_shape};
use crate::literal::Literal;
use crate::op::{BinaryOp, ConstantValue, Op, UnaryOp};

fn unary(op: UnaryOp) -> Op {
    Op::unary(op)
}

fn binary(op: BinaryOp) -> Op {
    Op::Binary(op)
}

fn compare(kind: Option<ComparisonType>) -> Op {
    Op::Compare { direction: ComparisonDirection::Lt, kind }
}

#[test]
fn leaves() {
    check_table([
        (Op::parameter(0), "", "(f32[2], token[])", "(f32[2], token[])"),
        (Op::parameter(0), "", "", "H0312 shape"),
        (Op::parameter(-1), "", "f32[]", "H0324 whole"),
        (Op::constant(Literal::array([2], &[1f32, 2.0]).unwrap()), "", "", "f32[2]"),
        (Op::constant(Literal::array([2], &[1f32, 2.0]).unwrap()), "", "f32[3]", "H0326 shape"),
        (Op::constant(Literal::Tuple(vec![Literal::scalar(1i32), Literal::Token])), "", "", "(s32[], token[])"),
        (Op::Constant(ConstantValue::Elided), "", "f32[1000]", "f32[1000]"),
        (Op::Constant(ConstantValue::Elided), "", "", "H0312 shape"),
        (Op::Iota { dimension: 1 }, "", "s32[2,3]", "s32[2,3]"),
        (Op::Iota { dimension: 2 }, "", "s32[2,3]", "H0307 iota_dimension"),
        (Op::Iota { dimension: 0 }, "", "s32[]", "H0307 iota_dimension"),
        (Op::Iota { dimension: 0 }, "", "pred[2]", "H0303 shape"),
        (Op::Iota { dimension: 0 }, "", "(f32[2])", "H0313 shape"),
        (Op::ReplicaId, "", "", "u32[]"),
        (Op::PartitionId, "", "", "u32[]"),
        (Op::ReplicaId, "f32[]", "", "H0301 whole"),
        (Op::RngGetAndUpdateState { delta: 1 }, "", "", "u64[2]"),
        (Op::Rng { distribution: RngDistribution::Uniform }, "f32[] | f32[]", "f32[5]", "f32[5]"),
        (Op::Rng { distribution: RngDistribution::Uniform }, "f32[] | f32[]", "f64[5]", "H0313 shape"),
        (Op::Rng { distribution: RngDistribution::Uniform }, "f32[] | f32[1]", "f32[5]", "H0323 operand 1"),
        (Op::Rng { distribution: RngDistribution::Uniform }, "f32[] | s32[]", "f32[5]", "H0304 operand 1"),
        (Op::Rng { distribution: RngDistribution::Normal }, "s32[] | s32[]", "s32[5]", "H0303 operand 0"),
        (Op::RngBitGenerator { algorithm: RngAlgorithm::Philox }, "u64[3]", "(u64[3], u32[4])", "(u64[3], u32[4])"),
        (Op::RngBitGenerator { algorithm: RngAlgorithm::Philox }, "u64[3]", "u32[4]", "u32[4]"),
        (Op::RngBitGenerator { algorithm: RngAlgorithm::Philox }, "u64[3]", "(u64[2], u32[4])", "H0313 shape"),
        (Op::RngBitGenerator { algorithm: RngAlgorithm::Philox }, "u64[3]", "(u64[3], c64[4])", "H0303 algorithm"),
    ]);
}

#[test]
fn every_unary_operation_takes_its_types() {
    // f: floating-point, c: complex, s: signed, u: unsigned, p: pred.
    let kinds = [('f', "bf16"), ('c', "c64"), ('s', "s8"), ('u', "u4"), ('p', "pred")];
    for &op in UnaryOp::ALL {
        use UnaryOp::*;
        let accepted = match op {
            Floor | Cbrt | Ceil | Erf | RoundNearestAfz | RoundNearestEven | IsFinite => "f",
            Abs | Sign => "fcs",
            Negate => "fcsu",
            CountLeadingZeros | PopulationCount => "su",
            Not => "sup",
            _ => "fc",
        };
        for (kind, element_type) in kinds {
            let (module, ids) = with_operands(&format!("{element_type}[2,<=3]"));
            let found = super::outcome(&module, &unary(op), &ids, "");
            let made = match op {
                IsFinite => "pred",
                Abs | Real | Imag if kind == 'c' => "f32",
                _ => element_type,
            };
            let expected = if accepted.contains(kind) { format!("{made}[2,<=3]") } else { "H0303 operand 0".into() };
            assert_eq!(found, expected, "{} of {element_type}", op.opcode());
        }
    }
}

#[test]
fn unary_and_binary() {
    use BinaryOp::*;
    check_table([
        (unary(UnaryOp::Tanh), "(f32[2])", "", "H0302 operand 0"),
        (unary(UnaryOp::Tanh), "", "", "H0301 whole"),
        (unary(UnaryOp::Tanh), "f32[2] | f32[2]", "", "H0301 whole"),
        (unary(UnaryOp::Abs), "c128[?]", "", "f64[?]"),
        (binary(Add), "f32[2,3] | f32[2,3]", "", "f32[2,3]"),
        (binary(Add), "pred[2] | pred[2]", "", "pred[2]"),
        (binary(Add), "f32[2,3] | f32[2]", "", "H0305 operand 1"),
        (binary(Add), "f32[2,3] | f32[1,3]", "", "H0305 operand 1"),
        (binary(Add), "f32[2,3] | f32[]", "", "H0305 operand 1"),
        (binary(Add), "f32[2] | s32[2]", "", "H0304 operand 1"),
        (binary(Add), "f32[2] | token[]", "", "H0302 operand 1"),
        (binary(Add), "f32[2] | bf16[2]", "", "f32[2], but H0325"),
        (binary(Add), "f8e4m3fn[2] | f8e5m2[2]", "", "f8e5m2[2], but H0325"),
        (binary(Add), "f32[<=2,3] | f32[2,<=3]", "", "f32[<=2,<=3]"),
        (binary(Add), "f32[?,3] | f32[2,?]", "", "f32[2,3]"),
        (binary(Add), "f32[?] | f32[<=4]", "", "f32[<=4]"),
        (binary(Add), "f32[?] | f32[?]", "", "f32[?]"),
        (binary(Subtract), "pred[2] | pred[2]", "", "H0303 operand 0"),
        (binary(ShiftLeft), "u8[2] | u8[2]", "", "u8[2]"),
        (binary(ShiftLeft), "f32[2] | f32[2]", "", "H0303 operand 0"),
        (binary(Mulhi), "s32[2] | s32[2]", "", "s32[2]"),
        (binary(And), "pred[] | pred[]", "", "pred[]"),
        (binary(And), "f32[] | f32[]", "", "H0303 operand 0"),
        (binary(Atan2), "c64[] | c64[]", "", "c64[]"),
        (binary(Atan2), "s32[] | s32[]", "", "H0303 operand 0"),
        (binary(Complex), "f32[2] | f32[2]", "", "c64[2]"),
        (binary(Complex), "f64[<=2] | f64[2]", "", "c128[<=2]"),
        (binary(Complex), "f16[2] | f16[2]", "", "H0303 operand 0"),
        (binary(Complex), "f32[2] | f64[2]", "", "H0303 operand 0"),
        (compare(None), "f32[2] | f32[2]", "", "pred[2]"),
        (compare(None), "c64[2] | c64[2]", "", "pred[2]"),
        (compare(None), "f32[<=2] | f32[2]", "", "pred[<=2]"),
        (compare(None), "s32[2] | u32[2]", "", "H0304 operand 1"),
        (compare(Some(ComparisonType::TotalOrder)), "f32[] | f32[]", "", "pred[]"),
        (compare(Some(ComparisonType::Unsigned)), "s32[] | s32[]", "", "pred[]"),
        (compare(Some(ComparisonType::Unsigned)), "pred[] | pred[]", "", "pred[]"),
    ]);
}

#[test]
fn select_and_clamp() {
    check_table([
        (Op::Select, "pred[2] | f32[2] | f32[2]", "", "f32[2]"),
        (Op::Select, "pred[] | f32[2] | f32[2]", "", "f32[2]"),
        (Op::Select, "pred[<=2] | f32[2] | f32[2]", "", "f32[<=2]"),
        (Op::Select, "pred[] | f32[2] | f32[<=2]", "", "f32[<=2]"),
        (Op::Select, "s32[2] | f32[2] | f32[2]", "", "H0303 operand 0"),
        (Op::Select, "pred[3] | f32[2] | f32[2]", "", "H0305 operand 1"),
        (Op::Select, "pred[2] | f32[2] | f32[3]", "", "H0305 operand 2"),
        (Op::Select, "pred[2] | f32[2] | s32[2]", "", "H0304 operand 2"),
        (Op::Select, "pred[] | (f32[]) | (f32[])", "", "H0302 operand 1"),
        (Op::Clamp, "f32[] | f32[2] | f32[2]", "", "f32[2]"),
        (Op::Clamp, "f32[2] | f32[2] | f32[]", "", "f32[2]"),
        (Op::Clamp, "f32[3] | f32[2] | f32[]", "", "H0305 operand 0"),
        (Op::Clamp, "s32[] | f32[2] | f32[]", "", "H0304 operand 0"),
    ]);
}

#[test]
fn conversions() {
    let reduce = |exponent_bits, mantissa_bits| Op::ReducePrecision { exponent_bits, mantissa_bits };
    check_table([
        (Op::Convert, "f32[2,<=3]", "s8[2,3]", "s8[2,<=3]"),
        (Op::Convert, "f32[2]", "", "H0312 shape"),
        (Op::Convert, "f32[2]", "s8[3]", "H0313 shape"),
        (Op::Convert, "f32[2]", "(s8[2])", "H0313 shape"),
        (Op::BitcastConvert, "f32[2]", "u32[2]", "u32[2]"),
        (Op::BitcastConvert, "f32[2]", "u32[3]", "H0313 shape"),
        (Op::BitcastConvert, "f32[2]", "u8[2,4]", "u8[2,4]"),
        (Op::BitcastConvert, "f32[2]", "u8[2,2]", "H0313 shape"),
        (Op::BitcastConvert, "u8[2,4]", "f32[2]", "f32[2]"),
        (Op::BitcastConvert, "u8[2,3]", "f32[2]", "H0305 operand 0"),
        (Op::BitcastConvert, "u8[]", "f32[]", "H0305 operand 0"),
        (Op::BitcastConvert, "c64[2]", "f64[2]", "H0303 shape"),
        (Op::BitcastConvert, "f6e3m2fn[2]", "u8[2]", "H0303 shape"),
        (Op::StochasticConvert, "f32[2] | u32[2]", "bf16[2]", "bf16[2]"),
        (Op::StochasticConvert, "f32[2] | u16[2]", "bf16[2]", "H0303 operand 1"),
        (Op::StochasticConvert, "s32[2] | u32[2]", "bf16[2]", "H0303 operand 0"),
        (Op::StochasticConvert, "f32[2] | u32[3]", "bf16[2]", "H0305 operand 1"),
        (reduce(8, 7), "f32[2]", "", "f32[2]"),
        (reduce(0, 7), "f32[2]", "", "H0324 exponent_bits"),
        (reduce(8, -1), "f32[2]", "", "H0324 mantissa_bits"),
        (reduce(8, 7), "s32[2]", "", "H0303 operand 0"),
    ]);
}

#[test]
fn the_declared_shape_is_compared() {
    let (module, ids) = with_operands("f32[2,3] | f32[2,3]");
    let add = binary(BinaryOp::Add);
    let check = |declared: &str| check_shape(&module, &add, &ids, &super::shape(declared), MixedPrecision::Refused);
    assert_eq!(check("f32[2,3]"), Ok(()));
    assert_eq!(check("f32[<=2,3]"), Ok(()), "whether a dimension is dynamic is set aside");
    for other in ["f32[3,2]", "f32[2]", "bf16[2,3]", "(f32[2,3])", "token[]"] {
        let error = check(other).unwrap_err();
        assert_eq!(error.code.number, 313);
        assert_eq!(error.message, format!("add makes f32[2,3] of its operands, not {other}"));
    }
}
