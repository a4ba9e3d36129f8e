//! Element-wise operations, each run as a module of one instruction. What is expected is worked out here by other means:
//! in wider arithmetic, by searching all values of a small type, by identities, or from tables.

mod bits;
mod complex;
mod convert;
mod floats;
mod integers;
mod mixed;

use hloom_eval::run::{DeviceGrid, Options, run};
use hloom_ir::element_type::ElementType;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::shape::Shape;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_ir::{Builder, ElementType::*};
use hloom_value::{Array, Value};

/// Runs a module whose only instruction besides parameters is `op`.
fn evaluate(op: Op, operands: &[Array], result: ElementType, dims: &[i64]) -> Array {
    try_evaluate(op, operands, result, dims).unwrap_or_else(|message| panic!("{message}"))
}

/// The same, or what is wrong with it.
fn try_evaluate(op: Op, operands: &[Array], result: ElementType, dims: &[i64]) -> Result<Array, String> {
    let mut module = Module::new("test");
    let mut b = Builder::new(&mut module, "main");
    let mut parameters = Vec::new();
    for (n, a) in operands.iter().enumerate() {
        let shape = Shape::array(a.element_type(), a.dims().iter().copied());
        parameters.push(b.parameter(n as i64, shape, &format!("p{n}")).map_err(|e| format!("{e:?}"))?);
    }
    let shape = Shape::array(result, dims.iter().copied());
    let root = b.push_shaped(op, &parameters, shape).map_err(|e| format!("{e:?}"))?;
    b.finish_entry(root);
    let module = verify(module, &VerifyOptions::default()).map_err(|e| format!("{e:?}"))?;
    let inputs = operands.iter().cloned().map(Value::Array).collect();
    let grid = DeviceGrid { replicas: 1, partitions: 1 };
    let results = run(&module, grid, vec![inputs], &Options::default());
    let result = results.map_err(|fault| fault.diagnostic().message.clone())?.remove(0);
    let array = result.into_array().map_err(|fault| fault.diagnostic().message.clone())?;
    assert_eq!(array.dims(), dims, "sizes of the result");
    Ok(array)
}

/// A list of elements.
fn list<T: bytemuck::Pod>(t: ElementType, elements: &[T]) -> Array {
    Array::from_elements(t, &[elements.len() as i64], elements).expect("a list fits its type")
}

fn unary(op: UnaryOp, a: &Array, result: ElementType) -> Array {
    evaluate(Op::unary(op), std::slice::from_ref(a), result, a.dims())
}

fn binary(op: BinaryOp, a: &Array, b: &Array, result: ElementType) -> Array {
    evaluate(Op::Binary(op), &[a.clone(), b.clone()], result, a.dims())
}

/// Each pair of elements, as two lists.
fn pairs<T: Copy>(values: &[T]) -> (Vec<T>, Vec<T>) {
    values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y))).unzip()
}

/// Whether two floats are the same, NaN and the sign of zero considered.
fn same(x: f64, y: f64) -> bool {
    (x.is_nan() && y.is_nan()) || x.to_bits() == y.to_bits()
}

/// The functions of single elements are those of arrays.
#[test]
fn scalar_functions_equal_arrays() {
    use hloom_eval::ops::elementwise;
    use hloom_eval::scalar::Scalar;
    let operations = [BinaryOp::Add, BinaryOp::Multiply, BinaryOp::Maximum, BinaryOp::Divide];
    let bytes: Vec<u8> = (0..64).map(|i| (i * 37 + 11) as u8 & 0x3f).collect();
    for t in ElementType::ALL {
        // Bytes that are elements of every type: those of types narrower than a byte are brought into range first.
        let n = bytes.len() / t.bytes();
        let raw = Array::from_bytes(t, &[n as i64], &bytes).unwrap();
        let a = if t == Pred || t.is_sub_byte() {
            elementwise::convert(Array::from_bytes(U8, &[n as i64], &bytes).unwrap(), t).unwrap()
        } else {
            raw
        };
        let last_first: Vec<u8> = a.bytes().chunks(t.bytes()).rev().flatten().copied().collect();
        let b = Array::from_bytes(t, &[n as i64], &last_first).unwrap();
        for op in operations {
            let Some(f) = elementwise::binary_function(op, t) else { continue };
            let r = elementwise::binary(op, a.clone(), b.clone(), t).unwrap();
            for i in 0..n {
                assert_eq!(f(Scalar::load(&a, i), Scalar::load(&b, i)), Scalar::load(&r, i), "{op:?} {t}, element {i}");
            }
        }
        for to in ElementType::ALL {
            let f = elementwise::convert_function(t, to).unwrap();
            let r = elementwise::convert(a.clone(), to).unwrap();
            for i in 0..n {
                assert_eq!(f(Scalar::load(&a, i)), Scalar::load(&r, i), "{t} to {to}, element {i}");
            }
        }
    }
}

/// An array that somebody else still needs is not changed.
#[test]
fn shared_operands_stay() {
    let (a, b) = (list(S32, &[1, 2, 3]), list(S32, &[10, 20, 30]));
    let sum = binary(BinaryOp::Add, &a, &b, S32);
    assert_eq!(sum.elements::<i32>(), [11, 22, 33]);
    assert_eq!(a.elements::<i32>(), [1, 2, 3]);
    assert_eq!(b.elements::<i32>(), [10, 20, 30]);
    assert_eq!(binary(BinaryOp::Subtract, &a, &a, S32).elements::<i32>(), [0, 0, 0]);
}

/// The second operand's memory takes the result when only it is free; the order of operands stays.
#[test]
fn in_place_on_either_side() {
    use hloom_eval::ops::elementwise;
    let a = list(F32, &[1f32, 2.0]);
    let r = elementwise::binary(BinaryOp::Subtract, a.clone(), list(F32, &[10f32, 20.0]), F32).unwrap();
    assert_eq!(r.elements::<f32>(), [-9.0, -18.0]);
    let r = elementwise::binary(BinaryOp::Subtract, list(F32, &[10f32, 20.0]), a, F32).unwrap();
    assert_eq!(r.elements::<f32>(), [9.0, 18.0]);
}
