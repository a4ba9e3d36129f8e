//! Changes planted at random in generated modules that are then renamed, renumbered and reordered.

mod plants;

use super::{Difference, ModuleDiff, diff, to_text};
use crate::diff::fingerprint::{Fingerprints, OperandOrder, operand_order};
use crate::diff::{Aspect, AspectKind, Change};
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::instruction::Operands;
use hloom_ir::metadata::Metadata;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use plants::PLANTS;
use std::collections::BTreeSet;

/// What a planted change must show as: the name of the instruction, in the second module unless it was taken out.
#[derive(Debug)]
struct Planted {
    kind: &'static str,
    name: String,
    change: Change,
    opcode: Opcode,
}

/// The computations that run when the module does.
fn reachable(module: &Module) -> Vec<ComputationId> {
    let mut seen: BTreeSet<ComputationId> = module.entry().into_iter().collect();
    let mut stack: Vec<ComputationId> = seen.iter().copied().collect();
    while let Some(c) = stack.pop() {
        for callee in module[c].instructions().iter().flat_map(|&i| module[i].op.called_computations()) {
            if seen.insert(callee) {
                stack.push(callee);
            }
        }
    }
    seen.into_iter().collect()
}

/// The same program to look at quite differently: other names, another order, operands commuted, other metadata.
fn disguise(module: &mut Module, choices: &mut Choices<'_>) {
    for c in module.computations().to_vec() {
        shuffle(module, c, choices);
        for i in module[c].instructions().to_vec() {
            if operand_order(&module[i].op) == OperandOrder::Free && choices.chance(50) {
                let swapped: Operands = module[i].operands().iter().rev().copied().collect();
                module.set_operands(i, swapped).expect("they are its own");
            }
            let metadata = Metadata { op_name: format!("scope{}", choices.below(9)).into(), ..Metadata::default() };
            module.instruction_mut(i).common.metadata = Some(Box::new(metadata));
            let name = format!("v.{}", choices.bits());
            module.rename(i, &name);
        }
    }
}

/// Another order in which every instruction comes after what it needs.
fn shuffle(module: &mut Module, c: ComputationId, choices: &mut Choices<'_>) {
    let list = module[c].instructions().to_vec();
    let mut left: Vec<InstructionId> = list.clone();
    let mut order: Vec<InstructionId> = Vec::new();
    let mut done: BTreeSet<InstructionId> = BTreeSet::new();
    while !left.is_empty() {
        let is_ready = |i: &InstructionId| {
            let needs = module[*i].operands().iter().chain(module[*i].common.control_predecessors());
            needs.into_iter().all(|n| done.contains(n))
        };
        let ready: Vec<usize> = (0..left.len()).filter(|&n| is_ready(&left[n])).collect();
        let next = left.remove(ready[choices.below(ready.len())]);
        done.insert(next);
        order.push(next);
    }
    // Collectives and feeds of all devices must keep their order; generated modules need no more than this.
    module.reorder(c, order).expect("the same instructions");
}

fn check(module: Module) -> Option<VerifiedModule> {
    verify(module, &VerifyOptions::default()).ok()
}

/// The module from its own text, where that holds all of it: in text, an async-start speaks for the operation it wraps.
fn round_trip(verified: VerifiedModule) -> VerifiedModule {
    let module = verified.module();
    let mut all = module.computations().iter().flat_map(|&c| module[c].instructions());
    match all.any(|&i| matches!(module[i].op, Op::AsyncStart(_))) {
        true => verified,
        false => super::read(&hlo_text::print(module, &PrintOptions::default())),
    }
}

/// Differences that are about an instruction itself, wherever they are told.
fn leaves<'d>(differences: &'d [Difference], into: &mut Vec<&'d Difference>) {
    for d in differences {
        // That something inside differs says nothing more of what is around it.
        let is_frame =
            |a: &Aspect| matches!(a.kind, AspectKind::Computation | AspectKind::Fusion) && a.detail.is_empty();
        if d.inside.is_empty() || !d.aspects.iter().all(is_frame) {
            into.push(d);
        }
        leaves(&d.inside, into);
    }
}

fn names(found: &ModuleDiff) -> Vec<(Change, String)> {
    let mut all = Vec::new();
    leaves(&found.differences, &mut all);
    let name = |d: &Difference| d.b.as_ref().or(d.a.as_ref()).map_or_else(String::new, |i| i.name.clone());
    let mut names: Vec<(Change, String)> = all.into_iter().map(|d| (d.change, name(d))).collect();
    names.sort_by(|a, b| a.1.cmp(&b.1));
    names.dedup();
    names
}

fn cases() -> u64 {
    std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

fn generated(seed: u64) -> (Module, Choices<'static>) {
    let mut choices = Choices::from_seed(seed);
    let options = Options { max_instructions: 20 + choices.below(80), dynamic: false, ..Options::default() };
    let module = generate(&mut choices, &options);
    (module, choices)
}

#[test]
fn a_disguise_shows_nothing() {
    for seed in 0..cases() {
        let (module, mut choices) = generated(seed);
        let Some(a) = check(module.clone()) else { continue };
        let mut other = module;
        disguise(&mut other, &mut choices);
        let Some(b) = check(other) else { continue };
        let found = diff(&a, &round_trip(b));
        assert!(found.is_equal(), "seed {seed}\n{}", to_text(&found));
    }
}

/// Plants `count` changes, the first of the kind `first` if it can be, and says what they must show as.
fn plant(a: &Module, count: usize, first: usize, choices: &mut Choices<'_>) -> Option<(Module, Vec<Planted>)> {
    let mut module = a.clone();
    let mut planted = Vec::new();
    let mut touched: BTreeSet<InstructionId> = BTreeSet::new();
    let homes = reachable(&module);
    let mut tries = 0;
    while planted.len() < count && tries < 400 {
        tries += 1;
        let home = homes[choices.below(homes.len())];
        let list = module[home].instructions();
        let i = list[choices.below(list.len())];
        let way = if planted.is_empty() && tries < 300 { first } else { choices.below(PLANTS.len()) };
        let (kind, plant) = PLANTS[way % PLANTS.len()];
        // Each change stands alone: none of its neighbours is changed too.
        let near = |i: InstructionId| module[i].operands().iter().chain(module[i].users()).copied().chain([i]);
        if near(i).any(|n| touched.contains(&n)) {
            continue;
        }
        let mut changed = module.clone();
        let Some((at, change)) = plant(&mut changed, i, choices) else { continue };
        if check(changed.clone()).is_none() {
            continue;
        }
        touched.extend(near(i));
        touched.insert(at);
        module = changed;
        planted.push((kind, at, change));
    }
    if planted.is_empty() {
        return None;
    }
    disguise(&mut module, choices);
    let name = |(kind, i, change): (&'static str, InstructionId, Change)| {
        let home = if change == Change::Removed { a } else { &module };
        Planted { kind, name: home[i].name().to_owned(), change, opcode: home[i].opcode() }
    };
    let planted = planted.into_iter().map(name).collect();
    Some((module, planted))
}

/// Whether a generated instruction could be taken for another: then it may be the other that is told.
fn interchangeable(module: &Module) -> bool {
    let prints = Fingerprints::new(module);
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let mut seen = BTreeSet::new();
    !all.clone().all(|&i| seen.insert((module[i].parent(), prints.value[i.index()], prints.uses[i.index()])))
}

#[test]
fn every_planted_change_is_found_and_nothing_else() {
    // What is done to which operation.
    let mut kinds = BTreeSet::new();
    for seed in 0..cases() {
        let (module, mut choices) = generated(seed);
        let Some(a) = check(module) else { continue };
        if interchangeable(a.module()) {
            continue;
        }
        let Some((changed, planted)) = plant(a.module(), 1, seed as usize, &mut choices) else { continue };
        let Some(b) = check(changed) else { continue };
        let found = diff(&a, &round_trip(b));
        let expected: Vec<_> = planted.iter().map(|p| (p.change, p.name.clone())).collect();
        assert_eq!(names(&found), expected, "seed {seed}, {planted:?}\n{}", to_text(&found));
        kinds.insert((planted[0].kind, planted[0].opcode));
    }
    let met: BTreeSet<&str> = kinds.iter().map(|k| k.0).collect();
    // A few hundred modules need not have all: `HLOOM_CASES=3000` has a hundred kinds and more.
    let (all, many) = if cases() >= 3000 { (PLANTS.len(), 100) } else { (PLANTS.len() - 4, 50) };
    assert!(cases() < 300 || met.len() >= all, "kinds that no module had: {met:?}");
    assert!(cases() < 300 || kinds.len() >= many, "{} kinds: {kinds:?}", kinds.len());
}

#[test]
fn several_planted_changes_are_each_found() {
    for seed in 0..cases() {
        let (module, mut choices) = generated(1_000_000 + seed);
        let Some(a) = check(module) else { continue };
        if interchangeable(a.module()) {
            continue;
        }
        let count = 2 + choices.below(4);
        let Some((changed, planted)) = plant(a.module(), count, seed as usize, &mut choices) else { continue };
        let Some(b) = check(changed) else { continue };
        let found = diff(&a, &round_trip(b));
        let mut expected: Vec<_> = planted.iter().map(|p| (p.change, p.name.clone())).collect();
        expected.sort_by(|a, b| a.1.cmp(&b.1));
        assert_eq!(names(&found), expected, "seed {seed}, {planted:?}\n{}", to_text(&found));
    }
}
