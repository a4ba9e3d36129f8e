//! select, and operands of different float types, which XLA's dumps have.

use super::*;
use hloom_eval::ops::elementwise;
use hloom_ir::attributes::ComparisonDirection;

#[test]
fn selects_by_element_and_by_scalar() {
    let which = list(Pred, &[1u8, 0, 1]);
    let (a, b) = (list(S32, &[1i32, 2, 3]), list(S32, &[10i32, 20, 30]));
    let r = evaluate(Op::Select, &[which, a.clone(), b.clone()], S32, &[3]);
    assert_eq!(r.elements::<i32>(), [1, 20, 3]);
    for (p, expected) in [(1u8, &a), (0, &b)] {
        let which = list(Pred, &[p]).reshaped(&[]).unwrap();
        let r = evaluate(Op::Select, &[which, a.clone(), b.clone()], S32, &[3]);
        assert_eq!(r.elements::<i32>(), expected.elements::<i32>());
    }
    for t in [S4, U8, F16, F64, C64, C128] {
        let bytes: Vec<u8> = (0..2 * t.bytes() as u8).map(|b| b % 7).collect();
        let (a, b) = (Array::from_bytes(t, &[2], &bytes).unwrap(), Array::zeroed(t, &[2]).unwrap());
        let r = evaluate(Op::Select, &[list(Pred, &[0u8, 1]), a.clone(), b], t, &[2]);
        assert!(r.bytes()[..t.bytes()].iter().all(|&x| x == 0), "{t}");
        assert_eq!(r.bytes()[t.bytes()..], bytes[t.bytes()..], "{t}");
    }
}

/// The widest type is what is computed in, and only the result is rounded.
#[test]
fn mixed_precision() {
    let third = list(F32, &[1f32 / 3.0]);
    let one = elementwise::convert(list(F32, &[1f32]), Bf16).unwrap();
    let r = elementwise::binary(BinaryOp::Add, third.clone(), one.clone(), F32).unwrap();
    assert_eq!(r.elements::<f32>(), [1f32 / 3.0 + 1.0]);
    let r = elementwise::binary(BinaryOp::Subtract, third.clone(), third.clone(), Bf16).unwrap();
    assert_eq!((r.element_type(), r.elements::<u16>()), (Bf16, &[0u16][..]));
    let r = elementwise::unary(UnaryOp::Exponential, one.clone(), F32).unwrap();
    assert_eq!(r.elements::<f32>(), [std::f32::consts::E]);
    let r = elementwise::compare(ComparisonDirection::Lt, None, third, one).unwrap();
    assert_eq!(r.bytes(), [1]);
}

#[test]
fn unequal_sizes_are_refused() {
    let r = elementwise::binary(BinaryOp::Add, list(S32, &[1i32, 2]), list(S32, &[1i32]), S32);
    let message = r.expect_err("sizes differ").diagnostic().message.clone();
    assert!(message.contains("[2]") && message.contains("[1]"), "{message}");
}

/// Arrays whose sizes are known only when the program runs: the least size counts, and size 1 is repeated.
#[test]
fn dynamic_sizes_meet() {
    let sum = |m: i32, n: i32| {
        let mut module = Module::new("test");
        let mut b = Builder::new(&mut module, "main");
        let mut dynamic = |number: i64, size: i32| {
            let x = b.parameter(number, Shape::array(S32, [4]), &format!("p{number}")).unwrap();
            let size = b.constant(size).unwrap();
            b.push(Op::SetDimensionSize { dimension: 0 }, &[x, size]).unwrap()
        };
        let (x, y) = (dynamic(0, m), dynamic(1, n));
        let root = b.push(Op::Binary(BinaryOp::Add), &[x, y]).unwrap();
        b.finish_entry(root);
        let module = verify(module, &VerifyOptions::default()).unwrap();
        let inputs = vec![Value::Array(list(S32, &[1i32, 2, 3, 4])), Value::Array(list(S32, &[10i32, 20, 30, 40]))];
        let grid = DeviceGrid { replicas: 1, partitions: 1 };
        let result = run(&module, grid, vec![inputs], &Options::default()).unwrap().remove(0);
        result.into_array().unwrap().elements::<i32>().to_vec()
    };
    assert_eq!(sum(3, 3), [11, 22, 33]);
    assert_eq!(sum(3, 2), [11, 22]);
    assert_eq!(sum(1, 3), [11, 21, 31]);
    assert_eq!(sum(4, 1), [11, 12, 13, 14]);
    assert_eq!(sum(0, 2), [0i32; 0]);
}
