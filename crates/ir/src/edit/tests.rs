//! Edits keep a module consistent: single ones by example, sequences of them at random.

use super::EditError;
use crate::builder::Builder;
use crate::element_type::ElementType;
use crate::entity::{ComputationId, EntityId, InstructionId};
use crate::instruction::Operands;
use crate::module::Module;
use crate::op::Op;
use crate::shape::Shape;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Recomputes all that is kept twice and compares. Every invariant that [`crate::module`] names is here.
fn check_consistency(module: &Module) -> Result<(), String> {
    let mut users: BTreeMap<InstructionId, BTreeSet<InstructionId>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    let mut computation_names = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for &c in module.computations() {
        if !computation_names.insert(module[c].name()) {
            return Err(format!("two computations are called {}", module[c].name()));
        }
        for &i in module[c].instructions() {
            let instruction = &module[i];
            if !listed.insert(i) {
                return Err(format!("{i:?} is listed twice"));
            }
            if instruction.parent() != c {
                return Err(format!("{i:?} is listed in {c:?}, but belongs to {:?}", instruction.parent()));
            }
            if !names.insert(instruction.name()) {
                return Err(format!("two instructions are called {}", instruction.name()));
            }
            for &operand in instruction.operands() {
                users.entry(operand).or_default().insert(i);
            }
        }
        let parameters: Vec<InstructionId> = module[c]
            .instructions()
            .iter()
            .copied()
            .filter(|&i| matches!(module[i].op, Op::Parameter { .. }))
            .collect();
        if parameters.iter().collect::<BTreeSet<_>>() != module[c].parameters.iter().collect() {
            return Err(format!("{c:?} has the parameters {parameters:?}, but lists {:?}", module[c].parameters));
        }
        if let Some(root) = module.root(c)
            && !module[c].instructions().contains(&root)
        {
            return Err(format!("the root {root:?} of {c:?} is gone"));
        }
    }
    for &i in &listed {
        let kept = module[i].users();
        let recomputed = users.remove(&i).unwrap_or_default();
        if kept.len() != recomputed.len() || !kept.iter().all(|u| recomputed.contains(u)) {
            return Err(format!("{i:?} is used by {recomputed:?}, but lists {kept:?}"));
        }
        let foreign = module[i].operands().iter().find(|o| module[**o].parent() != module[i].parent());
        if let Some(operand) = foreign.or(module[i].operands().iter().find(|o| !listed.contains(o))) {
            return Err(format!("{i:?} reads {operand:?}, which is not there"));
        }
    }
    match users.keys().next() {
        Some(gone) => Err(format!("{gone:?} is used, but not listed")),
        None => Ok(()),
    }
}

/// `x`, `y`, `sum = x + y`, `square = sum * sum`, `unused = -x`; the root is `square`.
fn example() -> (Module, ComputationId, [InstructionId; 5]) {
    let mut module = Module::new("m");
    let mut b = Builder::new(&mut module, "main");
    let scalar = Shape::scalar(ElementType::F32);
    let x = b.parameter(0, scalar.clone(), "x").unwrap();
    let y = b.parameter(1, scalar, "y").unwrap();
    let sum = b.add(x, y).unwrap();
    let square = b.multiply(sum, sum).unwrap();
    let unused = b.negate(x).unwrap();
    let main = b.finish_entry(square);
    (module, main, [x, y, sum, square, unused])
}

#[test]
fn parameters_come_in_the_order_of_their_numbers() {
    let mut module = Module::new("m");
    let mut b = Builder::new(&mut module, "main");
    let [two, zero, one] = [2, 0, 1].map(|n| b.parameter(n, Shape::scalar(ElementType::F32), "p").unwrap());
    let main = b.finish_entry(one);
    assert_eq!(module.parameters(main), [zero, one, two]);
    assert_eq!(module.program_shape(main).unwrap().to_string(), "(f32[], f32[], f32[])->f32[]");
}

#[test]
fn users_are_listed_once_each() {
    let (module, _, [x, y, sum, square, unused]) = example();
    assert_eq!(module[x].users(), [sum, unused]);
    assert_eq!(module[y].users(), [sum]);
    assert_eq!(module[sum].users(), [square]);
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn an_operand_is_replaced() {
    let (mut module, _, [x, y, sum, square, _]) = example();
    module.replace_operand(square, 0, x).unwrap();
    assert_eq!(module[square].operands(), [x, sum]);
    assert_eq!(module[sum].users(), [square], "it is still the other operand");
    module.replace_operand(square, 1, x).unwrap();
    assert_eq!(module[sum].users(), []);
    assert_eq!(module.replace_operand(square, 2, y), Err(EditError::NoSuchOperand));
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn all_uses_are_replaced_and_the_root_moves() {
    let (mut module, main, [x, y, sum, square, unused]) = example();
    module.replace_all_uses(sum, y).unwrap();
    assert_eq!(module[square].operands(), [y, y]);
    assert_eq!(module[y].users(), [sum, square]);
    module.replace_all_uses(square, unused).unwrap();
    assert_eq!(module.root(main), Some(unused));
    module.replace_all_uses(x, x).unwrap();
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn a_value_is_replaced_by_a_function_of_it() {
    let (mut module, _, [x, y, sum, _, unused]) = example();
    module.replace_all_uses(x, unused).unwrap();
    assert_eq!(module[sum].operands(), [unused, y]);
    assert_eq!(module[unused].operands(), [x]);
    assert_eq!(module[x].users(), [unused]);
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn only_what_is_unused_is_removed() {
    let (mut module, main, [x, y, sum, square, unused]) = example();
    assert_eq!(module.remove_instructions(&[x]), Err(EditError::StillUsed(x)));
    assert_eq!(module.remove_instructions(&[square]), Err(EditError::StillUsed(square)));
    module.remove_instructions(&[unused]).unwrap();
    assert_eq!(module[main].instructions(), [x, y, sum, square]);
    module.set_root(y);
    module.remove_instructions(&[square, sum, x]).unwrap();
    assert_eq!(module[main].instructions(), [y]);
    assert_eq!(module.parameters(main), [y]);
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn a_root_by_default_stays_the_root() {
    let (mut module, main, [x, y, ..]) = example();
    // Without an explicit root the last instruction is the root; taking away others must not change which.
    module.computations[main].root = None;
    let last = module.root(main).unwrap();
    module.reorder(main, module[main].instructions().iter().rev().copied().collect()).unwrap();
    assert_eq!(module.root(main), Some(last));
    assert_eq!(module.reorder(main, vec![x, y]), Err(EditError::NotAPermutation));
    assert_eq!(module.reorder(main, vec![x; 5]), Err(EditError::NotAPermutation));
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn control_dependencies_hold_instructions() {
    let (mut module, _, [x, _, _, square, unused]) = example();
    module.add_control_dependency(unused, square).unwrap();
    module.add_control_dependency(unused, square).unwrap();
    assert_eq!(module[square].common.control_predecessors(), [unused]);
    assert_eq!(module.remove_instructions(&[unused]), Err(EditError::StillUsed(unused)));
    module.add_control_dependency(x, unused).unwrap();
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn computations_do_not_mix() {
    let (mut module, main, [x, _, sum, ..]) = example();
    let copy = module.clone_computation(main, "main");
    let other = module.root(copy).unwrap();
    assert_eq!(module.replace_operand(sum, 0, other), Err(EditError::OtherComputation));
    assert_eq!(module.replace_all_uses(x, other), Err(EditError::OtherComputation));
    assert_eq!(module.set_operands(sum, Operands::from_slice(&[x, other])), Err(EditError::OtherComputation));
    assert_eq!(module.add_control_dependency(x, other), Err(EditError::OtherComputation));
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn a_copy_is_like_the_original_under_new_names() {
    let (mut module, main, [x, _, _, square, unused]) = example();
    module.add_control_dependency(unused, square).unwrap();
    // Users before what they use: a copy must not lose operands to the order.
    module.reorder(main, module[main].instructions().iter().rev().copied().collect()).unwrap();
    let copy = module.clone_computation(main, "main");
    assert_eq!(check_consistency(&module), Ok(()));
    assert_eq!((module[copy].name(), module[x].name()), ("main.1", "x"));
    let position = |c: ComputationId, i: InstructionId| module[c].instructions().iter().position(|&j| i == j).unwrap();
    assert_eq!(position(main, module.root(main).unwrap()), position(copy, module.root(copy).unwrap()));
    for (&a, &b) in module[main].instructions().iter().zip(module[copy].instructions()) {
        assert_ne!(module[a].name(), module[b].name());
        assert_eq!(module[a].op, module[b].op);
        let places =
            |c: ComputationId, list: &[InstructionId]| -> Vec<usize> { list.iter().map(|&i| position(c, i)).collect() };
        assert_eq!(places(main, module[a].operands()), places(copy, module[b].operands()));
        let (before, after) = (module[a].common.control_predecessors(), module[b].common.control_predecessors());
        assert_eq!(places(main, before), places(copy, after));
    }
}

#[test]
fn names_stay_unique() {
    let (mut module, _, [x, y, sum, ..]) = example();
    module.rename(y, "x");
    assert_eq!(module[y].name(), "x.1");
    module.rename(x, "x");
    assert_eq!(module[x].name(), "x", "its own name is not taken");
    module.rename(sum, "total");
    assert_eq!(module[sum].name(), "total");
    assert_eq!(check_consistency(&module), Ok(()));
}

#[test]
fn many_dead_users_of_one_value_are_removed_in_linear_time() {
    // With a walk over the users for each of them this would take minutes.
    let mut module = Module::new("m");
    let mut b = Builder::new(&mut module, "main");
    let x = b.parameter(0, Shape::scalar(ElementType::F32), "x").unwrap();
    let dead: Vec<InstructionId> = (0..200_000).map(|_| b.negate(x).unwrap()).collect();
    b.finish_entry(x);
    module.remove_instructions(&dead).unwrap();
    assert_eq!(module[x].users(), []);
    assert_eq!(module.instruction_count(), 1);
}

/// A random edit; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Edit {
    Add(usize, usize),
    ReplaceOperand(usize, usize, usize),
    ReplaceAllUses(usize, usize),
    SetOperands(usize, Vec<usize>),
    Remove(Vec<usize>),
    Reorder(Vec<usize>),
    Control(usize, usize),
    Rename(usize, &'static str),
    SetRoot(usize),
    Clone,
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let n = || any::<usize>();
    let list = |most| prop::collection::vec(any::<usize>(), 0..most);
    prop_oneof![
        3 => (n(), n()).prop_map(|(a, b)| Edit::Add(a, b)),
        2 => (n(), n(), n()).prop_map(|(a, b, c)| Edit::ReplaceOperand(a, b, c)),
        1 => (n(), n()).prop_map(|(a, b)| Edit::ReplaceAllUses(a, b)),
        1 => (n(), list(4)).prop_map(|(a, b)| Edit::SetOperands(a, b)),
        2 => list(5).prop_map(Edit::Remove),
        1 => list(20).prop_map(Edit::Reorder),
        1 => (n(), n()).prop_map(|(a, b)| Edit::Control(a, b)),
        1 => (n(), prop::sample::select(vec!["x", "x.1", "add", "n.0"])).prop_map(|(a, b)| Edit::Rename(a, b)),
        1 => n().prop_map(Edit::SetRoot),
        1 => Just(Edit::Clone),
    ]
}

/// Carries out an edit; whether it is refused does not matter here.
fn apply(module: &mut Module, edit: Edit) {
    let all: Vec<InstructionId> =
        module.computations().iter().flat_map(|&c| module[c].instructions().iter().copied()).collect();
    let pick = |n: usize| all[n % all.len()];
    let _ = match edit {
        Edit::Add(a, b) => {
            let (a, b) = (pick(a), pick(b));
            let parent = module[a].parent();
            let operands = [a, if module[b].parent() == parent { b } else { a }];
            // Scalars all: any two can be added.
            Builder::resume(module, parent).add(operands[0], operands[1]).unwrap();
            Ok(())
        }
        Edit::ReplaceOperand(a, b, c) => module.replace_operand(pick(a), b % 3, pick(c)),
        Edit::ReplaceAllUses(a, b) => module.replace_all_uses(pick(a), pick(b)),
        Edit::SetOperands(a, list) => module.set_operands(pick(a), list.into_iter().map(pick).collect()),
        Edit::Remove(list) => module.remove_instructions(&list.into_iter().map(pick).collect::<Vec<_>>()),
        Edit::Reorder(keys) => {
            let c = module.computations()[keys.len() % module.computations().len()];
            let mut order = module[c].instructions().to_vec();
            order.sort_by_key(|i| keys.get(i.index() % keys.len().max(1)).copied());
            module.reorder(c, order)
        }
        Edit::Control(a, b) => module.add_control_dependency(pick(a), pick(b)),
        Edit::Rename(a, name) => {
            module.rename(pick(a), name);
            Ok(())
        }
        Edit::SetRoot(a) => {
            module.set_root(pick(a));
            Ok(())
        }
        Edit::Clone => {
            // Copies of copies would grow without bound.
            if module.computations().len() < 4 {
                let c = module.computations()[0];
                module.clone_computation(c, "copy");
            }
            Ok(())
        }
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_edits_keep_a_module_consistent(edits in prop::collection::vec(any_edit(), 1..30)) {
        let (mut module, ..) = example();
        for edit in edits {
            let shown = format!("{edit:?}");
            apply(&mut module, edit);
            if let Err(broken) = check_consistency(&module) {
                prop_assert!(false, "after {shown}: {broken}");
            }
        }
    }
}

/// Two negations of the sum of two parameters, and a computation to call.
fn sums() -> (Module, [InstructionId; 5], ComputationId) {
    let mut module = Module::new("m");
    let mut b = Builder::new(&mut module, "main");
    let f32s = Shape::array(ElementType::F32, [2]);
    let x = b.parameter(0, f32s.clone(), "x").unwrap();
    let y = b.parameter(1, f32s.clone(), "y").unwrap();
    let sum = b.add(x, y).unwrap();
    let minus = b.negate(sum).unwrap();
    let plus = b.negate(minus).unwrap();
    let callee = b
        .define("double", |b| {
            let p = b.parameter(0, f32s.clone(), "p")?;
            b.add(p, p)
        })
        .unwrap();
    b.finish_entry(plus);
    (module, [x, y, sum, minus, plus], callee)
}

#[test]
fn inlining_copies_a_body_in_place_of_a_call() {
    let (mut module, [.., sum, _, plus], callee) = sums();
    let main = module.entry().unwrap();
    let value = module.inline_computation(main, callee, &[sum]).unwrap();
    assert_eq!(module[value].operands(), [sum, sum]);
    assert_eq!(module.root(main), Some(plus), "the root is what it was");
    assert_eq!(module[callee].instructions().len(), 2, "the callee is as it was");
    assert_eq!(module.inline_computation(main, callee, &[]), None, "an argument is missing");
    let foreign = module[callee].instructions()[0];
    assert_eq!(module.inline_computation(main, callee, &[foreign]), None, "it is not of this computation");
    check_consistency(&module).unwrap();
}

#[test]
fn outlining_makes_a_computation_of_members() {
    let (mut module, [x, y, sum, minus, plus], _) = sums();
    let main = module.entry().unwrap();
    let call = |to_apply| Op::Call { to_apply, is_composite: false };
    let caller = module.outline(&[sum, minus, plus], &[plus], "all", call).unwrap();
    assert_eq!(module[caller].operands(), [x, y]);
    assert_eq!(module.root(main), Some(caller));
    module.remove_instructions(&[sum, minus, plus]).unwrap();
    assert_eq!(module[x].users(), [caller]);
    check_consistency(&module).unwrap();
}

#[test]
fn outlining_with_several_results_gives_a_tuple() {
    let (mut module, [_, _, sum, minus, plus], _) = sums();
    let call = |to_apply| Op::Call { to_apply, is_composite: false };
    let caller = module.outline(&[sum, minus], &[sum, minus], "both", call).unwrap();
    assert_eq!(module[caller].shape.to_string(), "(f32[2]{0}, f32[2]{0})");
    let element = module[plus].operands()[0];
    assert_eq!((module[element].operands(), &module[element].op), (&[caller][..], &Op::GetTupleElement { index: 1 }));
    assert_eq!(module.outline(&[], &[], "nothing", call), Err(EditError::NoSuchOperand));
    check_consistency(&module).unwrap();
}

#[test]
fn what_is_dead_gives_its_operands_free() {
    let (mut module, [x, _, sum, ..], _) = sums();
    let main = module[x].parent();
    let dead = Builder::resume(&mut module, main).add(x, sum).unwrap();
    assert_eq!(module.release_operands(dead).as_slice(), [x, sum]);
    assert_eq!(module[x].users(), [sum]);
    module.remove_instructions(&[dead]).unwrap();
    check_consistency(&module).unwrap();
}
