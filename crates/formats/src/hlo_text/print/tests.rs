//! Printing of modules that are built by hand: orders, literals, and what no text can hold.

use super::{PrintOptions, print, print_instruction};
use expect_test::{Expect, expect};
use hloom_ir::attributes::FusionKind;
use hloom_ir::element_type::ElementType::{self, *};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::Common;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::metadata::Metadata;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{AsyncStart, BinaryOp, Fusion, Op, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};

const FULL: PrintOptions = PrintOptions { elide_constants: false };
const ELIDED: PrintOptions = PrintOptions { elide_constants: true };

fn array(element_type: ElementType, dims: &[i64]) -> ArrayShape {
    ArrayShape::new(element_type, dims.iter().copied()).with_default_layout()
}

fn add(m: &mut Module, c: ComputationId, name: &str, op: Op, operands: &[InstructionId]) -> InstructionId {
    let new = NewInstruction {
        name: name.into(),
        op,
        shape: array(F32, &[4]).into(),
        operands: operands.iter().copied().collect(),
        common: Common::default(),
    };
    m.add_instruction(c, new)
}

fn negate(m: &mut Module, c: ComputationId, name: &str, operand: InstructionId) -> InstructionId {
    add(m, c, name, Op::unary(UnaryOp::Negate), &[operand])
}

/// The text of a constant of that type and shape whose elements are the bytes given.
fn constant(element_type: ElementType, dims: &[i64], bytes: &[u8], options: &PrintOptions) -> String {
    let shape = array(element_type, dims);
    let literal = ArrayLiteral::new(shape.clone(), bytes).expect("the bytes fit the shape");
    let mut m = Module::new("m");
    let c = m.add_computation("main");
    let id = add(&mut m, c, "c", Op::constant(Literal::Array(literal)), &[]);
    m.instruction_mut(id).shape = shape.into();
    print_instruction(&m, id, options)
}

fn check(actual: String, expected: Expect) {
    expected.assert_eq(&actual);
}

#[test]
fn a_module_prints_in_post_order() {
    let mut m = Module::new("m");
    let c = m.add_computation("main");
    let a = add(&mut m, c, "a", Op::parameter(1), &[]);
    let b = add(&mut m, c, "b", Op::parameter(0), &[]);
    negate(&mut m, c, "unused", b);
    let first = negate(&mut m, c, "first", a);
    let second = negate(&mut m, c, "second", a);
    let sum = add(&mut m, c, "sum", Op::Binary(BinaryOp::Add), &[b, a]);
    m.instruction_mut(sum).common.rare_mut().control_predecessors = vec![first, second];
    m.set_root(sum);
    m.set_entry(c);
    check(
        print(&m, &FULL),
        expect![[r#"
            HloModule m, entry_computation_layout={(f32[4]{0}, f32[4]{0})->f32[4]{0}}

            ENTRY %main (b: f32[4], a: f32[4]) -> f32[4] {
              %b = f32[4]{0} parameter(0)
              %unused = f32[4]{0} negate(%b)
              %a = f32[4]{0} parameter(1)
              %first = f32[4]{0} negate(%a)
              %second = f32[4]{0} negate(%a)
              ROOT %sum = f32[4]{0} add(%b, %a), control-predecessors={%first, %second}
            }
        "#]],
    );
}

#[test]
fn a_schedule_is_kept_but_not_in_fusions() {
    let mut m = Module::new("m");
    m.is_scheduled = true;
    let fused = m.add_computation("fused");
    let p = add(&mut m, fused, "p", Op::parameter(0), &[]);
    let late = add(&mut m, fused, "late", Op::parameter(1), &[]);
    let n = negate(&mut m, fused, "n", p);
    add(&mut m, fused, "f", Op::Binary(BinaryOp::Add), &[n, late]);
    let main = m.add_computation("main");
    let x = add(&mut m, main, "x", Op::parameter(0), &[]);
    let y = add(&mut m, main, "y", Op::parameter(1), &[]);
    let n = negate(&mut m, main, "n2", x);
    let call = Op::Fusion(Box::new(Fusion { kind: FusionKind::Loop, calls: fused, output_operand_aliasing: vec![] }));
    add(&mut m, main, "r", call, &[n, y]);
    m.set_entry(main);
    check(
        print(&m, &FULL),
        expect![[r#"
            HloModule m, is_scheduled=true, entry_computation_layout={(f32[4]{0}, f32[4]{0})->f32[4]{0}}

            %fused (p: f32[4], late: f32[4]) -> f32[4] {
              %p = f32[4]{0} parameter(0)
              %n = f32[4]{0} negate(%p)
              %late = f32[4]{0} parameter(1)
              ROOT %f = f32[4]{0} add(%n, %late)
            }

            ENTRY %main (x: f32[4], y: f32[4]) -> f32[4] {
              %x = f32[4]{0} parameter(0)
              %y = f32[4]{0} parameter(1)
              %n2 = f32[4]{0} negate(%x)
              ROOT %r = f32[4]{0} fusion(%n2, %y), kind=kLoop, calls=%fused
            }
        "#]],
    );
}

#[test]
fn computations_print_before_their_callers_and_unused_ones_too() {
    let mut m = Module::new("m");
    let ids = ["main", "dead", "outer", "inner"].map(|name| m.add_computation(name));
    let [main, _, outer, inner] = ids;
    for id in ids {
        let p = add(&mut m, id, "p", Op::parameter(0), &[]);
        let call = |to_apply| Op::Call { to_apply, is_composite: false };
        match id {
            // The second call of main is of a computation that the first one calls too.
            _ if id == main => {
                let o = add(&mut m, id, "o", call(outer), &[p]);
                add(&mut m, id, "i", call(inner), &[o]);
            }
            _ if id == outer => {
                add(&mut m, id, "c", call(inner), &[p]);
            }
            _ => {}
        }
    }
    m.set_entry(main);
    let text = print(&m, &FULL);
    let headers: Vec<&str> = text.lines().filter(|l| l.ends_with('{')).collect();
    assert_eq!(
        headers,
        [
            "%inner (p.3: f32[4]) -> f32[4] {",
            "%outer (p.2: f32[4]) -> f32[4] {",
            "ENTRY %main (p: f32[4]) -> f32[4] {",
            "%dead (p.1: f32[4]) -> f32[4] {",
        ]
    );
}

#[test]
fn a_chain_of_many_instructions_is_no_problem() {
    let mut m = Module::new("m");
    let c = m.add_computation("main");
    let mut at = add(&mut m, c, "p", Op::parameter(0), &[]);
    for _ in 0..200_000 {
        at = negate(&mut m, c, "n", at);
    }
    m.set_entry(c);
    assert_eq!(print(&m, &FULL).lines().count(), 200_000 + 5);
}

#[test]
fn literals_have_braces_by_rank() {
    let f = |dims: &[i64]| {
        let n = dims.iter().product::<i64>();
        let bytes: Vec<u8> = (0..n).map(|i| i as u8).collect();
        constant(U8, dims, &bytes, &FULL)
    };
    let all: Vec<String> = [
        &[][..0],
        &[2],
        &[0],
        &[1, 1],
        &[2, 3],
        &[2, 0],
        &[0, 2],
        &[2, 1, 2],
        &[2, 0, 3],
        &[2, 1, 2, 2],
        &[1, 0, 2, 2],
        &[2, 1, 1, 1, 2],
    ]
    .into_iter()
    .map(|dims| if dims.is_empty() { constant(U8, &[], &[7], &FULL) } else { f(dims) })
    .collect();
    check(
        all.join("\n"),
        expect![[r#"
            %c = u8[] constant(7)
            %c = u8[2]{0} constant({0, 1})
            %c = u8[0]{0} constant({})
            %c = u8[1,1]{1,0} constant({ {0} })
            %c = u8[2,3]{1,0} constant({ { 0, 1, 2 }, { 3, 4, 5 } })
            %c = u8[2,0]{1,0} constant({ {}, {} })
            %c = u8[0,2]{1,0} constant({  })
            %c = u8[2,1,2]{2,1,0} constant({ { { 0, 1 } }, { { 2, 3 } } })
            %c = u8[2,0,3]{2,1,0} constant({ {  }, {  } })
            %c = u8[2,1,2,2]{3,2,1,0} constant({ { /*i0=0*/ { /*i1=0*/ { 0, 1 }, { 2, 3 } } }, { /*i0=1*/ { /*i1=0*/ { 4, 5 }, { 6, 7 } } } })
            %c = u8[1,0,2,2]{3,2,1,0} constant({ { /*i0=0*/ } })
            %c = u8[2,1,1,1,2]{4,3,2,1,0} constant({ { /*i0=0*/ { /*i1=0*/ { /*i2=0*/ { 0, 1 } } } }, { /*i0=1*/ { /*i1=0*/ { /*i2=0*/ { 2, 3 } } } } })"#]],
    );
}

#[test]
fn every_element_type_has_its_form() {
    let all: Vec<String> = ElementType::ALL
        .into_iter()
        .map(|t| constant(t, &[2], &[&vec![0x01; t.bytes()][..], &vec![0; t.bytes()]].concat(), &FULL))
        .chain([constant(Pred, &[], &[1], &FULL), constant(S4, &[1], &[0xf8], &FULL)])
        .collect();
    check(
        all.join("\n"),
        expect![[r#"
        %c = pred[2]{0} constant({1, 0})
        %c = s8[2]{0} constant({1, 0})
        %c = s16[2]{0} constant({257, 0})
        %c = s32[2]{0} constant({16843009, 0})
        %c = s64[2]{0} constant({72340172838076673, 0})
        %c = u8[2]{0} constant({1, 0})
        %c = u16[2]{0} constant({257, 0})
        %c = u32[2]{0} constant({16843009, 0})
        %c = u64[2]{0} constant({72340172838076673, 0})
        %c = f16[2]{0} constant({1.5318e-05, 0})
        %c = f32[2]{0} constant({2.36942783e-38, 0})
        %c = f64[2]{0} constant({7.7486041854893479e-304, 0})
        %c = c64[2]{0} constant({(2.36942783e-38, 2.36942783e-38), (0, 0)})
        %c = bf16[2]{0} constant({2.369e-38, 0})
        %c = c128[2]{0} constant({(7.7486041854893479e-304, 7.7486041854893479e-304), (0, 0)})
        %c = f8e5m2[2]{0} constant({1.5e-05, 0})
        %c = f8e4m3fn[2]{0} constant({0.00195, 0})
        %c = s4[2]{0} constant({1, 0})
        %c = u4[2]{0} constant({1, 0})
        %c = f8e4m3b11fnuz[2]{0} constant({0.000122, 0})
        %c = f8e5m2fnuz[2]{0} constant({7.6e-06, 0})
        %c = f8e4m3fnuz[2]{0} constant({0.000977, 0})
        %c = s2[2]{0} constant({1, 0})
        %c = u2[2]{0} constant({1, 0})
        %c = f8e4m3[2]{0} constant({0.00195, 0})
        %c = f8e3m4[2]{0} constant({0.0156, 0})
        %c = s1[2]{0} constant({1, 0})
        %c = u1[2]{0} constant({1, 0})
        %c = f4e2m1fn[2]{0} constant({0.5, 0})
        %c = f8e8m0fnu[2]{0} constant({1.2e-38, 5.9e-39})
        %c = f6e3m2fn[2]{0} constant({0.062, 0})
        %c = f6e2m3fn[2]{0} constant({0.125, 0})
        %c = pred[] constant(true)
        %c = s4[1]{0} constant({-8})"#]],
    );
}

#[test]
fn large_constants_and_tuples_are_elided_on_demand() {
    assert_eq!(constant(U8, &[2, 5], &[0; 10], &ELIDED), constant(U8, &[2, 5], &[0; 10], &FULL));
    assert_eq!(constant(U8, &[11], &[0; 11], &ELIDED), "%c = u8[11]{0} constant({...})");
    let mut m = Module::new("m");
    let c = m.add_computation("main");
    let one = ArrayLiteral::new(array(S32, &[]), vec![1, 0, 0, 0]).expect("one element");
    let tuple = Literal::Tuple(vec![Literal::Array(one), Literal::Tuple(vec![])]);
    let shape = tuple.shape();
    let id = add(&mut m, c, "c", Op::constant(tuple), &[]);
    m.instruction_mut(id).shape = shape;
    assert_eq!(print_instruction(&m, id, &FULL), "%c = (s32[], ()) constant(( 1, (  ) ))");
    assert_eq!(print_instruction(&m, id, &ELIDED), "%c = (s32[], ()) constant({...})");
}

#[test]
fn an_empty_array_of_endless_rows_is_elided() {
    assert_eq!(constant(U8, &[1 << 40, 0], &[], &FULL), "%c = u8[1099511627776,0]{1,0} constant({...})");
}

#[test]
fn async_operations_lose_their_wrapper_only_if_it_says_nothing_more() {
    let build = |metadata: Option<Metadata>, swap: bool| {
        let mut m = Module::new("m");
        let wrapped = m.add_computation("wrapped");
        let p = add(&mut m, wrapped, "p", Op::parameter(0), &[]);
        let q = add(&mut m, wrapped, "q", Op::parameter(1), &[]);
        let operands = if swap { [q, p] } else { [p, q] };
        let sum = add(&mut m, wrapped, "sum", Op::Binary(BinaryOp::Add), &operands);
        m.instruction_mut(sum).common.metadata = metadata.map(Box::new);
        let main = m.add_computation("main");
        let x = add(&mut m, main, "x", Op::parameter(0), &[]);
        let start = AsyncStart { calls: wrapped, execution_thread: None, output_operand_aliasing: vec![] };
        let start = add(&mut m, main, "start", Op::AsyncStart(Box::new(start)), &[x, x]);
        let update = add(&mut m, main, "update", Op::AsyncUpdate { output_operand_aliasing: vec![] }, &[start]);
        let done = add(&mut m, main, "done", Op::AsyncDone, &[update]);
        m.set_entry(main);
        m.instruction_mut(start).shape = Shape::tuple([]);
        m.instruction_mut(update).shape = Shape::tuple([]);
        m.set_root(done);
        m
    };
    let opcodes = |text: String| -> Vec<String> {
        let lines = text.lines().filter(|l| l.contains("%start") || l.contains("%update"));
        lines.map(|l| l.rsplit(") ").next().unwrap_or(l).trim().to_string()).collect()
    };
    let named = Metadata { op_name: "jit(f)".into(), ..Metadata::default() };
    let sugared = opcodes(print(&build(None, false), &FULL));
    assert_eq!(sugared, ["add-start(%x, %x)", "add-update(%start)", "ROOT %done = f32[4]{0} add-done(%update)"]);
    assert!(!print(&build(None, false), &FULL).contains("wrapped"));
    let plain =
        ["async-start(%x, %x), calls=%wrapped", "async-update(%start)", "ROOT %done = f32[4]{0} async-done(%update)"];
    assert_eq!(opcodes(print(&build(Some(named.clone()), false), &FULL)), plain);
    assert_eq!(opcodes(print(&build(Some(named), false), &ELIDED)), sugared);
    assert_eq!(opcodes(print(&build(None, true), &FULL)), plain);
}
