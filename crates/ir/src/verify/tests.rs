//! Modules that no text can say: built, or broken, by hand. Those that can be written are file tests.

use super::*;
use crate::attributes::{ComparisonDirection, ComparisonType, FusionKind, ResultAccuracy};
use crate::diagnostic::Code;
use crate::diagnostic::codes::infer::SHARD_COUNT;
use crate::diagnostic::codes::verify as codes;
use crate::element_type::ElementType::{F32, Pred, S32};
use crate::entity::EntityId;
use crate::instruction::{Common, Operands, OriginTree, OriginalValue};
use crate::layout::Layout;
use crate::metadata::{Metadata, StackFrame};
use crate::module::NewInstruction;
use crate::op::{AllGather, AsyncStart, Collective, Fusion, Op, UnaryOp};
use crate::shape::{ArrayShape, Shape};

/// A module whose entry takes an `f32[4]`.
fn module() -> (Module, ComputationId, InstructionId) {
    let mut m = Module::new("m");
    let entry = m.add_computation("main");
    m.set_entry(entry);
    let p = add(&mut m, entry, "p", Op::parameter(0), vector(), &[]);
    (m, entry, p)
}

fn vector() -> Shape {
    Shape::array(F32, [4])
}

fn add(
    m: &mut Module,
    c: ComputationId,
    name: &str,
    op: Op,
    shape: Shape,
    operands: &[InstructionId],
) -> InstructionId {
    let operands = Operands::from_slice(operands);
    m.add_instruction(c, NewInstruction { name: name.into(), op, shape, operands, common: Common::default() })
}

fn negate(m: &mut Module, c: ComputationId, name: &str, operand: InstructionId) -> InstructionId {
    add(m, c, name, Op::unary(UnaryOp::Negate), vector(), &[operand])
}

/// The one finding, which has that code and place.
#[track_caller]
fn expect(m: &Module, code: &'static Code, place: Place) -> Diagnostic {
    let mut findings = check(m, &VerifyOptions::default());
    assert_eq!(findings.len(), 1, "one finding is expected: {findings:#?}");
    let finding = findings.remove(0);
    assert_eq!((finding.code.number, &finding.place), (code.number, &place), "{finding:#?}");
    finding
}

#[test]
fn a_sound_module_passes() {
    let (mut m, entry, p) = module();
    negate(&mut m, entry, "n", p);
    assert!(verify(m, &VerifyOptions::default()).is_ok_and(|v| v.warnings().is_empty()));
}

#[test]
fn the_entry_is_needed() {
    let m = Module::new("m");
    expect(&m, &codes::NO_ENTRY, Place::Header);
}

#[test]
fn computations_are_not_empty() {
    let (mut m, ..) = module();
    let c = m.add_computation("nothing");
    expect(&m, &codes::EMPTY_COMPUTATION, Place::Computation(c));
}

#[test]
fn operands_are_of_the_same_computation() {
    let (mut m, _, p) = module();
    let other = m.add_computation("other");
    let n = negate(&mut m, other, "n", p);
    let finding = expect(&m, &codes::OPERAND_ELSEWHERE, Place::Instruction(n, Part::Operand(0)));
    assert_eq!(finding.message, "operand 0 of `n`, `p`, is not an instruction of computation `other`");
}

#[test]
fn control_predecessors_are_of_the_same_computation() {
    let (mut m, entry, p) = module();
    let other = m.add_computation("other");
    let q = add(&mut m, other, "q", Op::parameter(0), vector(), &[]);
    let n = negate(&mut m, entry, "n", p);
    let place = Place::Instruction(n, Part::Attribute("control-predecessors"));
    for elsewhere in [q, InstructionId::from_index(1_000_000)] {
        m.instruction_mut(n).common.rare_mut().control_predecessors = vec![elsewhere];
        expect(&m, &codes::CONTROL_ELSEWHERE, place.clone());
    }
}

#[test]
fn cycles_are_found_through_operands_and_control_edges() {
    let (mut m, entry, p) = module();
    let a = negate(&mut m, entry, "a", p);
    let b = negate(&mut m, entry, "b", a);
    let c = negate(&mut m, entry, "c", b);
    m.replace_operand(a, 0, c).unwrap();
    let finding = expect(&m, &codes::CYCLE, at(a));
    assert_eq!(finding.notes[0].message, "each needs the next: `a`, `c`, `b`, `a`");

    let (mut m, entry, p) = module();
    let a = negate(&mut m, entry, "a", p);
    let b = negate(&mut m, entry, "b", a);
    m.add_control_dependency(b, a).unwrap();
    expect(&m, &codes::CYCLE, at(a));
}

#[test]
fn order_matters_in_a_schedule_only() {
    let (mut m, entry, p) = module();
    let a = negate(&mut m, entry, "a", p);
    let b = negate(&mut m, entry, "b", a);
    m.reorder(entry, vec![p, b, a]).unwrap();
    assert_eq!(check(&m, &VerifyOptions::default()), []);
    m.is_scheduled = true;
    let finding = expect(&m, &codes::SCHEDULE_ORDER, Place::Instruction(b, Part::Operand(0)));
    assert_eq!(finding.message, "`b` is scheduled before `a`, which it needs");
}

#[test]
fn control_predecessors_come_first_in_a_schedule() {
    let (mut m, entry, p) = module();
    let a = negate(&mut m, entry, "a", p);
    let b = negate(&mut m, entry, "b", p);
    m.add_control_dependency(b, a).unwrap();
    m.is_scheduled = true;
    expect(&m, &codes::SCHEDULE_ORDER, Place::Instruction(a, Part::Attribute("control-predecessors")));
}

#[test]
fn called_computations_exist() {
    let (mut m, entry, p) = module();
    let callee = m.add_computation("callee");
    let q = add(&mut m, callee, "q", Op::parameter(0), vector(), &[]);
    negate(&mut m, callee, "r", q);
    let call = add(&mut m, entry, "c", Op::Call { to_apply: callee, is_composite: false }, vector(), &[p]);
    assert_eq!(check(&m, &VerifyOptions::default()), []);
    m.remove_computations(&[callee]);
    expect(&m, &codes::UNKNOWN_COMPUTATION, at(call));
    let nowhere = ComputationId::from_index(1_000_000);
    m.instruction_mut(call).op = Op::Call { to_apply: nowhere, is_composite: false };
    expect(&m, &codes::UNKNOWN_COMPUTATION, at(call));
}

#[test]
fn recursion_is_found_through_several_computations() {
    let (mut m, ..) = module();
    let names = ["a", "b", "c"];
    let ids: Vec<_> = names.iter().map(|n| m.add_computation(n)).collect();
    let mut calls = Vec::new();
    for (i, &c) in ids.iter().enumerate() {
        let q = add(&mut m, c, "q", Op::parameter(0), vector(), &[]);
        let callee = Op::Call { to_apply: ids[(i + 1) % 3], is_composite: false };
        calls.push(add(&mut m, c, "call", callee, vector(), &[q]));
    }
    let finding = expect(&m, &codes::RECURSION, at(calls[2]));
    assert_eq!(finding.notes[0].message, "the calls are `a` → `b` → `c` → `a`");
}

#[test]
fn a_wrong_list_of_users_is_our_fault() {
    let (mut m, entry, p) = module();
    let n = negate(&mut m, entry, "n", p);
    let o = negate(&mut m, entry, "o", n);
    m.instructions[p].users = Operands::from_slice(&[o]);
    let finding = expect(&m, &codes::INCONSISTENT, at(p));
    assert_eq!(finding.blame, crate::diagnostic::Blame::Hloom);
}

#[test]
fn shapes_do_not_nest_without_end() {
    let mut deep = vector();
    for _ in 0..Shape::MAX_DEPTH + 1 {
        deep = Shape::tuple([deep]);
    }
    let (mut m, _, p) = module();
    m.instruction_mut(p).shape = deep;
    expect(&m, &codes::SHAPE_TOO_DEEP, Place::Instruction(p, Part::Shape));
}

#[test]
fn layouts_of_physical_shapes_are_checked() {
    let wrong = ArrayShape::new(F32, [2, 2]).with_layout(Layout::new([0, 0]));
    let mut layout = Layout::descending(1);
    layout.rare_mut().physical_shape = Some(wrong.into());
    let (mut m, _, p) = module();
    m.instruction_mut(p).shape = ArrayShape::new(F32, [4]).with_layout(layout).into();
    expect(&m, &codes::LAYOUT_ORDER, Place::Instruction(p, Part::Shape));
}

#[test]
fn findings_are_limited() {
    let (mut m, entry, p) = module();
    for _ in 0..2 * MAX_DIAGNOSTICS {
        add(&mut m, entry, "n", Op::unary(UnaryOp::Negate), Shape::array(F32, [-3]), &[p]);
    }
    assert_eq!(check(&m, &VerifyOptions::default()).len(), MAX_DIAGNOSTICS);
}

#[test]
fn deep_chains_and_long_call_chains_need_no_stack() {
    let (mut m, entry, mut last) = module();
    let first = negate(&mut m, entry, "first", last);
    last = first;
    for _ in 0..200_000 {
        last = negate(&mut m, entry, "n", last);
    }
    m.replace_operand(first, 0, last).unwrap();
    expect(&m, &codes::CYCLE, at(first));

    let (mut m, entry, p) = module();
    let mut callee = m.add_computation("last");
    add(&mut m, callee, "q", Op::parameter(0), vector(), &[]);
    for _ in 0..50_000 {
        let caller = m.add_computation("f");
        let q = add(&mut m, caller, "q", Op::parameter(0), vector(), &[]);
        add(&mut m, caller, "c", Op::Call { to_apply: callee, is_composite: false }, vector(), &[q]);
        callee = caller;
    }
    add(&mut m, entry, "c", Op::Call { to_apply: callee, is_composite: false }, vector(), &[p]);
    assert_eq!(check(&m, &VerifyOptions::default()), []);
}

#[test]
fn attributes_that_text_cannot_say_wrong() {
    let (mut m, _, p) = module();
    m.instruction_mut(p).op = Op::Parameter { number: 0, replication: Some([true, false].into()) };
    expect(&m, &codes::PARAMETER_REPLICATION, Place::Instruction(p, Part::Attribute("parameter_replication")));

    let (mut m, entry, p) = module();
    let n = negate(&mut m, entry, "n", p);
    let place = Place::Instruction(n, Part::Attribute("result_accuracy"));
    m.instruction_mut(n).op = Op::Unary { op: UnaryOp::Negate, accuracy: ResultAccuracy::Highest };
    expect(&m, &codes::RESULT_ACCURACY, place.clone());
    let below_zero = ResultAccuracy::Tolerance { atol: (-1.0f64).to_bits(), rtol: 0, ulps: 0 };
    m.instruction_mut(n).op = Op::Unary { op: UnaryOp::Tanh, accuracy: below_zero };
    expect(&m, &codes::RESULT_ACCURACY, place);
}

#[test]
fn the_number_of_devices_may_be_given() {
    let (mut m, entry, p) = module();
    let gather = AllGather { collective: Collective::default(), dimension: 0 };
    add(&mut m, entry, "g", Op::AllGather(Box::new(gather)), Shape::array(F32, [8]), &[p]);
    let codes_on = |m: &Module, devices| -> Vec<u16> {
        let options = VerifyOptions { devices: Some(devices) };
        check(m, &options).iter().map(|d| d.code.number).collect()
    };
    assert_eq!(codes_on(&m, 2), []);
    assert_eq!(codes_on(&m, 4), [SHARD_COUNT.number]);
    m.config.replica_count = 2;
    assert_eq!(codes_on(&m, 2), []);
    assert_eq!(codes_on(&m, 4), [codes::DEVICE_COUNTS.number]);
}

/// The one warning about a module that is valid.
#[track_caller]
fn expect_warning(m: Module, code: &'static Code, place: Place) {
    let verified = verify(m, &VerifyOptions::default()).unwrap();
    let found: Vec<_> = verified.warnings().iter().map(|w| (w.code.number, w.place.clone())).collect();
    assert_eq!(found, [(code.number, place)]);
}

/// Adds a computation that negates its parameter.
fn negation(m: &mut Module) -> ComputationId {
    let body = m.add_computation("body");
    let q = add(m, body, "q", Op::parameter(0), vector(), &[]);
    negate(m, body, "r", q);
    body
}

fn fusion(m: &mut Module, c: ComputationId, operand: InstructionId, calls: ComputationId) -> InstructionId {
    let fusion = Fusion { kind: FusionKind::Loop, calls, output_operand_aliasing: Vec::new() };
    add(m, c, "fusion", Op::Fusion(Box::new(fusion)), vector(), &[operand])
}

#[test]
fn fusions_should_not_share_a_body() {
    let (mut m, entry, p) = module();
    let body = negation(&mut m);
    let first = fusion(&mut m, entry, p, body);
    let second = fusion(&mut m, entry, first, body);
    expect_warning(m, &codes::SHARED_BODY, Place::Instruction(second, Part::Attribute("calls")));

    let (mut m, entry, p) = module();
    let body = negation(&mut m);
    let first = fusion(&mut m, entry, p, body);
    let call = add(&mut m, entry, "c", Op::Call { to_apply: body, is_composite: false }, vector(), &[first]);
    expect_warning(m, &codes::SHARED_BODY, at(call));
}

#[test]
fn the_entry_is_no_body() {
    let (mut m, entry, _) = module();
    let dead = m.add_computation("dead");
    let q = add(&mut m, dead, "q", Op::parameter(0), vector(), &[]);
    let f = fusion(&mut m, dead, q, entry);
    expect(&m, &codes::ENTRY_CALLED, Place::Instruction(f, Part::Attribute("calls")));
}

#[test]
fn asynchronous_operations_name_the_thread_of_their_computation() {
    let (mut m, entry, p) = module();
    let body = negation(&mut m);
    m.computation_mut(body).execution_thread = Some("side".into());
    let start = AsyncStart { calls: body, execution_thread: None, output_operand_aliasing: Vec::new() };
    let shape = Shape::tuple([Shape::tuple([vector()]), vector(), Shape::scalar(S32)]);
    let start = add(&mut m, entry, "start", Op::AsyncStart(Box::new(start)), shape, &[p]);
    add(&mut m, entry, "done", Op::AsyncDone, vector(), &[start]);
    let place = Place::Instruction(start, Part::Attribute("async_execution_thread"));
    expect(&m, &codes::EXECUTION_THREAD, place);
    m.computation_mut(body).execution_thread = None;
    assert_eq!(check(&m, &VerifyOptions::default()), []);
}

#[test]
fn comparison_types_should_fit_the_operands() {
    let (mut m, entry, p) = module();
    let compare = |kind| Op::Compare { direction: ComparisonDirection::Lt, kind: Some(kind) };
    let pred = Shape::array(Pred, [4]);
    add(&mut m, entry, "fits", compare(ComparisonType::TotalOrder), pred.clone(), &[p, p]);
    let unfit = add(&mut m, entry, "unfit", compare(ComparisonType::Signed), pred, &[p, p]);
    expect_warning(m, &codes::COMPARISON_TYPE, Place::Instruction(unfit, Part::Attribute("type")));
}

#[test]
fn where_instructions_came_from_is_only_worth_a_warning() {
    let (mut m, _, p) = module();
    let metadata = Metadata { stack_frame_id: 2, ..Metadata::default() };
    m.instruction_mut(p).common.metadata = Some(Box::new(metadata));
    assert_eq!(check(&m, &VerifyOptions::default()), [], "dumps may leave the table out");
    m.stack_frames.frames.push(StackFrame::default());
    expect_warning(m, &codes::STACK_FRAME, Place::Instruction(p, Part::Attribute("metadata")));

    let (mut m, _, p) = module();
    let origin = OriginalValue::Tree(OriginTree::Tuple(vec![OriginTree::Leaf(None)]));
    m.instruction_mut(p).common.rare_mut().origin = Some(origin);
    expect_warning(m, &codes::ORIGIN_FORM, Place::Instruction(p, Part::Attribute("origin")));
}
