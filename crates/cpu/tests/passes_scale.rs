//! The list of the CPU on large programs of odd forms: what is quadratic anywhere does not end in time.

use hloom_compiler::{Backend, registry};
use hloom_cpu::CpuBackend;
use hloom_ir::attributes::{ComparisonDirection, SliceDim};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::infer::ShapeError;
use hloom_ir::module::Module;
use hloom_ir::op::{AllReduce, BinaryOp, Collective, Op};
use hloom_ir::shape::Shape;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_passes::{Context, PassList, optimize};
use std::time::{Duration, Instant};

const LARGE: usize = 100_000;
/// Far more than it takes, also without optimisation and on a busy machine, and far less than a quadratic step would.
const LIMIT: Duration = Duration::from_secs(60);

fn f32s(dims: &[i64]) -> Shape {
    Shape::array(ElementType::F32, dims.iter().copied())
}

/// Builds an entry computation and runs passes over it; returns the number of instructions that are left.
fn left_after(list: &PassList, build: impl FnOnce(&mut Builder<'_>) -> Result<InstructionId, ShapeError>) -> usize {
    let mut module = Module::new("large");
    let mut b = Builder::new(&mut module, "main");
    let root = build(&mut b).expect("the program is well formed");
    b.finish_entry(root);
    let module = verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}", e.diagnostics));
    let backend = CpuBackend::new(1).expect("a backend");
    let begin = Instant::now();
    let result = optimize(module, list, &Context { info: backend.info() }, None);
    let result = result.unwrap_or_else(|f| panic!("{}: {:?}", f.pass, f.diagnostics));
    assert!(begin.elapsed() < LIMIT, "{:?}: {:#?}", begin.elapsed(), result.report);
    result.module.module().instruction_count()
}

/// The same for the list of the CPU.
fn optimized(build: impl FnOnce(&mut Builder<'_>) -> Result<InstructionId, ShapeError>) -> usize {
    left_after(&registry().pipeline(CpuBackend::new(1).expect("a backend").pipeline()).expect("there is one"), build)
}

#[test]
fn a_long_chain() {
    let left = optimized(|b| {
        let mut x = b.parameter(0, f32s(&[8]), "x")?;
        let two = b.constant(2f32)?;
        for n in 0..LARGE / 2 {
            let twos = b.broadcast(two, [8], [])?;
            x = if n % 2 == 0 { b.multiply(x, twos)? } else { b.add(x, twos)? };
        }
        Ok(x)
    });
    assert!(left > LARGE / 2, "the work is still there: {left}");
}

#[test]
fn a_polynomial_with_many_coefficients_is_one_fusion() {
    const TERMS: usize = 45;
    let list = registry().list(["fusion"]).expect("there is such a pass");
    let left = left_after(&list, |b| {
        let x = b.parameter(0, f32s(&[4096]), "x")?;
        let mut sum = x;
        for n in 0..TERMS {
            let coefficient = b.constant(1.0 / (n + 2) as f32)?;
            let everywhere = b.broadcast(coefficient, [4096], [])?;
            let product = b.multiply(sum, x)?;
            sum = b.add(product, everywhere)?;
        }
        Ok(sum)
    });
    // The four of each term and the parameter, which are all inside, and outside the parameter and the fusion.
    assert_eq!(left, 4 * TERMS + 3);
}

#[test]
fn a_value_with_very_many_users() {
    let left = optimized(|b| {
        let x = b.parameter(0, f32s(&[4, 2]), "x")?;
        let turned = b.transpose(x, [1, 0])?;
        let mut parts = Vec::new();
        for n in 0..LARGE / 3 {
            let c = b.constant(n as f32)?;
            let cs = b.broadcast(c, [2, 4], [])?;
            parts.push(b.add(turned, cs)?);
        }
        b.tuple(&parts)
    });
    assert!(left > LARGE / 3, "the work is still there: {left}");
}

#[test]
fn very_many_loops() {
    optimized(|b| {
        let s32 = Shape::scalar(ElementType::S32);
        let state = Shape::tuple([s32, f32s(&[4])]);
        let mut x = b.parameter(0, f32s(&[4]), "x")?;
        for _ in 0..LARGE / 30 {
            let condition = b.define("condition", |b| {
                let p = b.parameter(0, state.clone(), "p")?;
                let i = b.get_tuple_element(p, 0)?;
                let limit = b.constant(100i32)?;
                b.compare(ComparisonDirection::Lt, i, limit)
            })?;
            let body = b.define("body", |b| {
                let p = b.parameter(0, state.clone(), "p")?;
                let i = b.get_tuple_element(p, 0)?;
                let x = b.get_tuple_element(p, 1)?;
                let one = b.constant(1i32)?;
                let next = b.add(i, one)?;
                let y = b.tanh(x)?;
                let sum = b.add(x, y)?;
                b.tuple(&[next, sum])
            })?;
            let zero = b.constant(0i32)?;
            let init = b.tuple(&[zero, x])?;
            let done = b.while_loop(condition, body, init)?;
            x = b.get_tuple_element(done, 1)?;
        }
        Ok(x)
    });
}

#[test]
fn a_loop_that_carries_very_much() {
    optimized(|b| {
        let width = LARGE as i64 / 10;
        let s32 = Shape::scalar(ElementType::S32);
        let state = Shape::tuple(std::iter::once(s32).chain((0..width).map(|_| f32s(&[2]))));
        let condition = b.define("condition", |b| {
            let p = b.parameter(0, state.clone(), "p")?;
            let i = b.get_tuple_element(p, 0)?;
            let limit = b.constant(100i32)?;
            b.compare(ComparisonDirection::Lt, i, limit)
        })?;
        let body = b.define("body", |b| {
            let p = b.parameter(0, state.clone(), "p")?;
            let i = b.get_tuple_element(p, 0)?;
            let one = b.constant(1i32)?;
            let mut next = vec![b.add(i, one)?];
            for n in 1..=width {
                let x = b.get_tuple_element(p, n)?;
                next.push(if n % 2 == 0 { x } else { b.negate(x)? });
            }
            b.tuple(&next)
        })?;
        let mut init = vec![b.constant(0i32)?];
        for n in 0..width {
            init.push(b.parameter(n, f32s(&[2]), "x")?);
        }
        let init = b.tuple(&init)?;
        b.while_loop(condition, body, init)
    });
}

#[test]
fn calls_that_would_grow_without_end() {
    let inline = registry().list(["inline-calls", "dce"]).expect("they are there");
    let left = left_after(&inline, |b| {
        let scalar = f32s(&[]);
        let mut callee = b.define("f", |b| {
            let x = b.parameter(0, scalar.clone(), "x")?;
            b.tanh(x)
        })?;
        // Each calls the one before twice: inlined, the last has 2^40 instructions.
        for _ in 0..40 {
            let inner = callee;
            callee = b.define("f", |b| {
                let x = b.parameter(0, scalar.clone(), "x")?;
                let y = b.call(inner, &[x])?;
                b.call(inner, &[y])
            })?;
        }
        let x = b.parameter(0, scalar.clone(), "x")?;
        b.call(callee, &[x])
    });
    assert!(left > 1_000 && left < 1_000_000, "some calls are inlined, and some are left: {left}");
}

#[test]
fn very_many_parts_put_together_and_taken_apart() {
    let left = optimized(|b| {
        let mut parts = Vec::new();
        let count = (LARGE / 4) as i64;
        let x = b.parameter(0, f32s(&[count, 2]), "x")?;
        for n in 0..count {
            let part = b.slice(x, [slice_dim(n, n + 1), slice_dim(0, 2)])?;
            parts.push(b.negate(part)?);
        }
        let all = b.concatenate(&parts, 0)?;
        let mut again = Vec::new();
        for n in 0..count {
            let part = b.slice(all, [slice_dim(n, n + 1), slice_dim(0, 2)])?;
            again.push(b.abs(part)?);
        }
        b.concatenate(&again, 0)
    });
    assert!(left > 0);
}

fn slice_dim(start: i64, limit: i64) -> SliceDim {
    SliceDim { start, limit, stride: 1 }
}

#[test]
fn sums_that_become_one_sum() {
    let left = optimized(|b| {
        let mut x = b.parameter(0, Shape::array(ElementType::S32, [4]), "x")?;
        let one = b.constant(1i32)?;
        let ones = b.broadcast(one, [4], [])?;
        for _ in 0..LARGE {
            x = b.add(x, ones)?;
        }
        Ok(x)
    });
    assert!(left < 20, "{left} instructions are left");
}

#[test]
fn very_many_conditionals_and_all_reduces() {
    optimized(|b| {
        let state = Shape::tuple([f32s(&[200]), f32s(&[200])]);
        let p = b.parameter(0, Shape::scalar(ElementType::Pred), "p")?;
        let mut x = b.parameter(1, f32s(&[200]), "x")?;
        let add = b.reducer(BinaryOp::Add, ElementType::F32)?;
        for n in 0..LARGE / 40 {
            let branch = |b: &mut Builder<'_>| {
                b.define("branch", |b| {
                    let t = b.parameter(0, state.clone(), "t")?;
                    let (x, y) = (b.get_tuple_element(t, 0)?, b.get_tuple_element(t, 1)?);
                    let z = if n % 2 == 0 { b.tanh(x)? } else { b.negate(x)? };
                    b.tuple(&[z, y])
                })
            };
            let (on_true, on_false) = (branch(b)?, branch(b)?);
            let both = b.tuple(&[x, x])?;
            let chosen = b.conditional(p, [on_true, on_false], &[both, both])?;
            x = b.get_tuple_element(chosen, 0)?;
            let collective = Collective::default();
            let reduce = Op::AllReduce(Box::new(AllReduce { collective, to_apply: add }));
            x = b.push(reduce, &[x])?;
        }
        Ok(x)
    });
}
