//! Faults planted at random into assignments that are right: each is found, or it is proved that it does no harm.
//!
//! The proof takes nothing from the checker. It has the planner's opinion of which values must share memory and when each
//! is needed, and compares all pairs of values: an assignment in which every value lies where it may, those that must share
//! memory do, and no two others that are needed at once overlap, is right.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod common;

use common::parse;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::Op;
use hloom_ir::shape::ShapeIndex;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assigned, Assignment, Piece, Ranged, check};
use hloom_plan::copies::insert_copies;
use hloom_plan::dump_checker::read_dump;
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::{Plan, plan};
use hloom_target::Target;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const MODULES: &[(&str, &str)] = &[
    ("cpu", "HloModule chain, is_scheduled=true
ENTRY e {
  x = f32[64]{0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
  k = f32[64]{0} constant({...})
  a = f32[64]{0} dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  b = f32[64]{0} dot(a, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  c = f32[64]{0} add(b, k)
  d = f32[64]{0} add(a, c)
  f = f32[32]{0} slice(d), slice={[0:32]}
  g = f32[32]{0} reverse(f), dimensions={0}
  h = f32[64]{0} concatenate(f, g), dimensions={0}
  ROOT e = (f32[64]{0}, f32[32]{0}) tuple(h, g)
}"),
    ("cpu", "HloModule loop, is_scheduled=true
body {
  p = (s32[], f32[64]{0}, f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[64]{0} get-tuple-element(p), index=1
  k = f32[64]{0} get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  t = f32[64]{0} reverse(v), dimensions={0}
  s = f32[1]{0} slice(t), slice={[3:4]}
  sum = f32[64]{0} add(t, k)
  u = f32[64]{0} dynamic-update-slice(sum, s, next)
  ROOT out = (s32[], f32[64]{0}, f32[64]{0}) tuple(next, u, k)
}
condition {
  q = (s32[], f32[64]{0}, f32[64]{0}) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  ten = s32[] constant(10)
  ROOT less = pred[] compare(j, ten), direction=LT
}
plus { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64]{0} parameter(0)
  zero = s32[] constant(0)
  start = s32[] copy(zero)
  y = f32[64]{0} copy(x)
  z = f32[64]{0} reverse(x), dimensions={0}
  init = (s32[], f32[64]{0}, f32[64]{0}) tuple(start, y, z)
  w = (s32[], f32[64]{0}, f32[64]{0}) while(init), condition=condition, body=body
  r = f32[64]{0} get-tuple-element(w), index=1
  nothing = f32[] constant(0)
  total = f32[] reduce(r, nothing), dimensions={0}, to_apply=plus
  ROOT both = (f32[], f32[64]{0}) tuple(total, r)
}"),
    ("cpu", "HloModule branches, is_scheduled=true
left {
  a = f32[64]{0} parameter(0)
  l = f32[64]{0} reverse(a), dimensions={0}
  ROOT m = f32[64]{0} negate(l)
}
right { b = f32[64]{0} parameter(0) ROOT n = f32[64]{0} reverse(b), dimensions={0} }
inner { c = f32[64]{0} parameter(0) o = f32[64]{0} reverse(c), dimensions={0} ROOT q = f32[64]{0} add(c, o) }
ENTRY e {
  which = pred[] parameter(0)
  x = f32[64]{0} parameter(1)
  y = f32[64]{0} reverse(x), dimensions={0}
  z = f32[64]{0} negate(y)
  c = f32[64]{0} conditional(which, y, y), true_computation=left, false_computation=right
  s = f32[64]{0} add(c, y)
  called = f32[64]{0} call(s), to_apply=inner
  ROOT r = f32[64]{0} add(called, z)
}"),
    ("cpu", "HloModule donated, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  x = f32[64]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  i = s32[] parameter(2)
  n = f32[64]{0} reverse(x), dimensions={0}
  m = f32[64]{0} reverse(n), dimensions={0}
  u = f32[64]{0} dynamic-update-slice(x, y, i)
  v = f32[64]{0} add(m, n)
  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(u, v)
}"),
    ("tpu-v6e", "HloModule spaces, is_scheduled=true
asynchronous { p = f32[8,128]{1,0:T(8,128)} parameter(0) ROOT c = f32[8,128]{1,0:T(8,128)} custom-call(p), custom_call_target=\"f\" }
ENTRY e {
  x = f32[8,128]{1,0:T(8,128)} parameter(0)
  start = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(x)
  a = f32[8,128]{1,0:T(8,128)} reverse(x), dimensions={0}
  begin = ((f32[8,128]{1,0:T(8,128)}), f32[8,128]{1,0:T(8,128)}, s32[]{:S(2)}) async-start(a), calls=asynchronous
  fast = f32[8,128]{1,0:T(8,128)S(1)} copy-done(start)
  b = f32[8,128]{1,0:T(8,128)S(1)} reverse(fast), dimensions={0}
  c = f32[8,128]{1,0:T(8,128)S(1)} reverse(b), dimensions={1}
  d = f32[8,128]{1,0:T(8,128)} add(b, c)
  end = f32[8,128]{1,0:T(8,128)} async-done(begin)
  g = f32[8,128]{1,0:T(8,128)} reverse(end), dimensions={0}
  ROOT t = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) tuple(d, g, a)
}"),
];

type Key = (InstructionId, ShapeIndex);

/// What the planner knows of each value, by where it is made.
struct Opinion {
    /// The buffer that the value is in.
    buffer: HashMap<Key, u32>,
    /// When the value is needed; nothing for what is local to a thread.
    needed: HashMap<Key, Vec<(u32, u32)>>,
    live_out: Vec<bool>,
}

impl Opinion {
    fn of(plan: &Plan<'_>) -> Opinion {
        let positions = &plan.dataflow.positions;
        let (mut buffer, mut needed) = (HashMap::new(), HashMap::new());
        for (id, value) in plan.dataflow.values() {
            let key = (positions.instruction(value.position), positions.index(value.position));
            buffer.insert(key.clone(), plan.buffers.of(id));
            needed.insert(key, if plan.live.of(id).is_some() { stretches(plan, id) } else { Vec::new() });
        }
        let live_out = (0..plan.buffers.len() as u32).map(|b| plan.buffers.is_live_out(b)).collect();
        Opinion { buffer, needed, live_out }
    }
}

/// When a value is needed, computation by computation: the planner keeps some for longer, as XLA does.
fn stretches(plan: &Plan<'_>, id: u32) -> Vec<(u32, u32)> {
    let module = plan.dataflow.module();
    let span = |c| plan.schedule.span(c).unwrap_or((0, u32::MAX));
    let time = |i| plan.schedule.time(i).unwrap_or(0);
    let all = || module.computations().iter().flat_map(|&c| module[c].instructions());
    let mut found: BTreeMap<ComputationId, (u32, u32)> = BTreeMap::new();
    let mut add = |home: ComputationId, from: u32, to: u32| {
        let stretch = found.entry(home).or_insert((from, to));
        *stretch = (stretch.0.min(from), stretch.1.max(to));
    };
    let (mut carried, mut returned, mut last) = (None, Vec::new(), 0);
    for &position in plan.dataflow.positions_of(id) {
        let at = plan.dataflow.positions.instruction(position);
        let home = module[at].parent();
        let from = match module[at].op {
            Op::Parameter { .. } => span(home).0,
            _ => time(at),
        };
        match module[at].op {
            _ if found_first(plan, id, position) => add(home, from, from),
            // What merely hands on needs nothing itself.
            ref op if hands_on(op) => {}
            Op::Call { .. } => returned.push((home, from)),
            _ => add(home, from, from),
        }
        // What a call returns is read by whoever reads the call; what others return is read by them.
        let is_called = || all().any(|&i| matches!(module[i].op, Op::Call { to_apply, .. } if to_apply == home));
        if module.root(home) == Some(at) && !is_called() {
            add(home, from, span(home).1);
            last = last.max(span(home).1);
        }
        // A loop's condition must leave for the body what it found.
        if let Op::Parameter { .. } = module[at].op {
            let around = all().find_map(|&i| match module[i].op {
                Op::While { condition, body } if body == home => Some(condition),
                _ => None,
            });
            carried = carried.or(around.map(|condition| (span(condition).0, span(home).0)));
        }
    }
    for usage in plan.dataflow.uses_of(id) {
        let at = match &module[usage.user].op {
            // Tuples hand on, and what is called has positions of its own.
            op if hands_on(op) && !matches!(op, Op::GetTupleElement { .. }) => continue,
            Op::Call { to_apply, .. } => span(*to_apply).0,
            Op::While { condition, .. } => span(*condition).0,
            Op::Conditional { branches } => branches.first().map_or(0, |&b| span(b).0),
            _ => time(usage.user),
        };
        add(module[usage.user].parent(), at, at);
        if !matches!(module[usage.user].op, Op::Call { .. }) {
            last = last.max(at);
        }
    }
    // What a call returns is needed from then on if anyone reads it.
    for (home, from) in returned {
        if let Some(stretch) = found.get_mut(&home) {
            stretch.0 = stretch.0.min(from);
        }
    }
    // What is handed into a call and out again, and read no more, is not needed for it.
    let cut = |(from, to): (u32, u32)| (from, to.min(last.max(from)));
    let later = found.into_values().chain(carried).filter(|s| s.0 <= last);
    let made = plan.live.of(id).map(|r| (r.start, r.start));
    later.map(cut).chain(made).collect()
}

fn hands_on(op: &Op) -> bool {
    matches!(
        op,
        Op::GetTupleElement { .. } | Op::Tuple | Op::Bitcast | Op::AddDependency | Op::OptBarrier | Op::Domain(_)
    )
}

/// Whether the value is made at that position.
fn found_first(plan: &Plan<'_>, id: u32, position: u32) -> bool {
    plan.dataflow.value(id).is_some_and(|v| v.position == position)
}

fn key(piece: &Piece) -> Key {
    (piece.instruction, piece.index.clone())
}

/// Whether the assignment is right by comparing every pair of values; `original` is the right one it was made from.
fn is_proved_harmless(
    module: &VerifiedModule,
    target: &Target,
    opinion: &Opinion,
    original: &Assignment,
    planted: &Assignment,
) -> bool {
    let module = module.module();
    let shape = |p: &Piece| module[p.instruction].shape.at(&p.index).cloned().expect("it has that part");
    let mut spots: BTreeMap<u32, (usize, i64)> = BTreeMap::new();
    let count = |a: &Assignment| a.allocations.iter().map(|a| a.pieces.len()).sum::<usize>();
    if count(original) != count(planted) {
        return false;
    }
    let overlaps = |a: &Piece, b: &Piece| a.offset < b.offset + b.size && b.offset < a.offset + a.size;
    let was: HashMap<Key, (usize, i64)> = (original.allocations.iter().enumerate())
        .flat_map(|(n, a)| a.pieces.iter().map(move |p| (key(p), (n, p.offset))))
        .collect();
    for (n, allocation) in planted.allocations.iter().enumerate() {
        for (at, piece) in allocation.pieces.iter().enumerate() {
            let shape = shape(piece);
            let (buffer, needed) = (opinion.buffer[&key(piece)], &opinion.needed[&key(piece)]);
            let fits = piece.offset >= 0
                && piece.offset + piece.size <= allocation.size
                && target.byte_size(&shape).is_some_and(|s| piece.size >= s)
                && piece.offset % target.alignment(allocation.memory_space) == 0
                && Target::memory_space(&shape) == allocation.memory_space;
            // What must share memory lies at one place, and results where they outlive the run.
            let spot = *spots.entry(buffer).or_insert((n, piece.offset));
            let outlives = !opinion.live_out[buffer as usize] || allocation.is_live_out;
            if !fits || spot != (n, piece.offset) || !outlives {
                return false;
            }
            // A value that was not moved keeps its kind of memory; another may go wherever temporaries do.
            let is_moved = was[&key(piece)] != (n, piece.offset);
            let is_at_home = match module[piece.instruction].op {
                Op::Constant(_) => allocation.is_constant && piece.offset == 0,
                Op::Parameter { .. } => false,
                _ => !allocation.is_constant && allocation.parameter.is_none(),
            };
            let is_local = allocation.is_thread_local;
            if is_moved && !is_at_home && !is_local && piece.size > 0 || is_local != needed.is_empty() {
                return false;
            }
            for other in allocation.pieces[..at].iter().filter(|o| overlaps(o, piece)) {
                if opinion.buffer[&key(other)] == buffer {
                    continue;
                }
                let others = &opinion.needed[&key(other)];
                let pairs = || needed.iter().flat_map(|a| others.iter().map(move |b| (a, b)));
                let apart = !is_local && pairs().all(|(a, b)| a.1 < b.0 || b.1 < a.0);
                // Where one ends as the other begins they shared before, or it is not known that they may.
                let touch = pairs().all(|(a, b)| a.1 <= b.0 || b.1 <= a.0);
                let shared = was[&key(piece)] == was[&key(other)] && piece.offset == other.offset;
                let meet = !is_local && touch && (shared || is_elementwise_pair(module, piece, other));
                if !apart && !meet {
                    return false;
                }
            }
        }
    }
    planted.ranges.iter().zip(&original.ranges).all(|(a, b)| {
        let needed = opinion.needed[&(a.instruction, a.index.clone())].iter().map(|n| n.1).max();
        let covers = a.start == b.start && needed.is_none_or(|n| a.end >= n.min(b.end));
        a == b || covers || is_needless(module, a.instruction)
    })
}

/// Whether the later of two values is made from the earlier one element by element, in the same place.
fn is_elementwise_pair(module: &hloom_ir::Module, a: &Piece, b: &Piece) -> bool {
    let makes = |of: &Piece, from: &Piece| {
        let elementwise = match &module[of.instruction].op {
            Op::Fusion(f) => module[f.calls].instructions().iter().all(|&i| is_pointwise(module, i)),
            op => is_elementwise(op),
        };
        elementwise && module[of.instruction].operands().contains(&from.instruction)
    };
    (a.offset, a.size) == (b.offset, b.size) && (makes(a, b) || makes(b, a))
}

/// Whether an instruction of a fusion leaves every element where it is.
fn is_pointwise(module: &hloom_ir::Module, id: InstructionId) -> bool {
    match module[id].op {
        Op::Parameter { .. } | Op::Constant(_) | Op::Bitcast => true,
        Op::Broadcast { .. } => module[id].operands().iter().all(|&o| matches!(module[o].op, Op::Constant(_))),
        ref op => is_elementwise(op),
    }
}

fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary { .. }
            | Op::Binary(_)
            | Op::Select
            | Op::Clamp
            | Op::Convert
            | Op::Compare { .. }
            | Op::ReducePrecision { .. }
            | Op::BitcastConvert
    )
}

/// Whether it does not matter how long a value is kept: it takes no bytes, nobody reads it, or it belongs to the caller.
fn is_needless(module: &hloom_ir::Module, id: InstructionId) -> bool {
    let is_token = matches!(module[id].shape, hloom_ir::Shape::Token);
    matches!(module[id].op, Op::Parameter { .. } | Op::Constant(_)) || module[id].users().is_empty() || is_token
}

const KINDS: [&str; 9] =
    ["shift", "move", "swap", "shrink", "misalign", "remove", "space", "shorten", "small allocation"];

/// Plants a fault of that kind; `None` if there is nothing to plant it into.
fn plant(kind: &str, right: &Assignment, target: &Target, choices: &mut Choices<'_>) -> Option<Assignment> {
    let mut planted = right.clone();
    let full: Vec<usize> = (0..right.allocations.len()).filter(|&n| !right.allocations[n].pieces.is_empty()).collect();
    let pick = |choices: &mut Choices<'_>| {
        let n = *choices.pick(&full);
        (n, choices.below(right.allocations[n].pieces.len()))
    };
    let (n, at) = pick(choices);
    let (m, other) = pick(choices);
    let alignment = target.alignment(right.allocations[n].memory_space);
    match kind {
        "shift" => {
            let by = alignment * choices.between(-3, 3);
            let piece = &mut planted.allocations[n].pieces[at];
            piece.offset += by;
            if choices.chance(50) {
                let end = piece.offset + piece.size;
                let allocation = &mut planted.allocations[n];
                allocation.size = allocation.size.max(end);
            }
        }
        "move" => {
            let mut piece = planted.allocations[n].pieces.remove(at);
            piece.offset = planted.allocations[m].pieces.get(other).map_or(0, |p| p.offset);
            planted.allocations[m].pieces.push(piece);
        }
        "swap" => {
            let (a, b) = (right.allocations[n].pieces[at].clone(), right.allocations[m].pieces[other].clone());
            planted.allocations[n].pieces[at] = Piece { offset: a.offset, size: b.size.max(a.size), ..b.clone() };
            planted.allocations[m].pieces[other] = Piece { offset: b.offset, size: a.size.max(b.size), ..a };
        }
        "shrink" => {
            let piece = &mut planted.allocations[n].pieces[at];
            piece.size = choices.below(usize::try_from(piece.size.max(1)).ok()?) as i64;
        }
        "misalign" => {
            let by = choices.between(1, (alignment - 1).max(1));
            planted.allocations[n].pieces[at].offset += by;
            planted.allocations[n].size += by;
        }
        "remove" => {
            planted.allocations[n].pieces.remove(at);
        }
        "space" => planted.allocations[n].memory_space += choices.between(1, 3),
        "shorten" => {
            let range = planted.ranges.get_mut(choices.below(right.ranges.len()))?;
            match choices.chance(50) {
                true => range.end = range.start + choices.below((range.end - range.start) as usize) as u32,
                false => range.start += choices.between(1, 3) as u32,
            }
        }
        _ => {
            let allocation: &mut Assigned = &mut planted.allocations[n];
            allocation.size = choices.below(usize::try_from(allocation.size.max(1)).ok()?) as i64;
        }
    }
    Some(planted)
}

/// How many faults of each kind were found, and how many do no harm.
type Tally = BTreeMap<&'static str, (usize, usize)>;

/// A right assignment to plant faults into.
struct Case<'a> {
    name: String,
    module: &'a VerifiedModule,
    target: &'a Target,
    opinion: Opinion,
    right: Assignment,
}

/// Plants `count` faults: each is found or proved harmless.
fn plant_many(case: &Case<'_>, count: u64, tally: &mut Tally) {
    let Case { name, module, target, opinion, right } = case;
    assert_eq!(check(module, target, right), [], "{name}");
    for seed in 0..count {
        let mut choices = Choices::from_seed(seed ^ (name.len() as u64) << 32);
        let kind = *choices.pick(&KINDS);
        let Some(planted) = plant(kind, right, target, &mut choices) else { continue };
        let faults = check(module, target, &planted);
        let counts = tally.entry(kind).or_default();
        if !faults.is_empty() {
            counts.0 += 1;
            continue;
        }
        counts.1 += 1;
        let is_same = format!("{planted:?}") == format!("{right:?}");
        let proved = is_same || is_proved_harmless(module, target, opinion, right, &planted);
        let changed = difference(module, right, &planted);
        assert!(proved, "{name}, seed {seed}: a fault of kind `{kind}` was not found:\n{changed}");
    }
}

/// What was changed, by name.
fn difference(module: &VerifiedModule, right: &Assignment, planted: &Assignment) -> String {
    let name = |id: InstructionId| module.module()[id].name();
    let lines = |assignment: &Assignment| {
        let mut lines = Vec::new();
        for (n, a) in assignment.allocations.iter().enumerate() {
            lines.push(format!(
                "allocation {n}: {} bytes, memory space {}, live out {}",
                a.size, a.memory_space, a.is_live_out
            ));
            for p in &a.pieces {
                let phi = if p.is_phi { " (phi)" } else { "" };
                lines.push(format!(
                    "{}{:?}{phi} in {n} at {} of {}",
                    name(p.instruction),
                    &p.index[..],
                    p.offset,
                    p.size
                ));
            }
        }
        let range = |r: &Ranged| format!("{}{:?} {}-{}", name(r.instruction), &r.index[..], r.start, r.end);
        lines.extend(assignment.ranges.iter().map(range));
        lines
    };
    let (before, after) = (lines(right), lines(planted));
    let gone = before.iter().filter(|l| !after.contains(l)).map(|l| format!("- {l}\n"));
    let new = after.iter().filter(|l| !before.contains(l)).map(|l| format!("+ {l}\n"));
    gone.chain(new).collect()
}

fn report(tally: &Tally) -> (usize, usize) {
    tally.iter().for_each(|(kind, (found, harmless))| eprintln!("{kind}: {found} found, {harmless} do no harm"));
    tally.values().fold((0, 0), |sum, n| (sum.0 + n.0, sum.1 + n.1))
}

#[test]
fn faults_in_small_programs_are_found() {
    let mut tally = Tally::new();
    for (target, text) in MODULES {
        let (module, target) = (parse(text), Target::named(target).unwrap());
        let planned = plan(&module, &target).unwrap_or_else(|d| panic!("{d:?}"));
        let (right, opinion, name) =
            (Assignment::from(&planned), Opinion::of(&planned), module.module().name.to_string());
        plant_many(&Case { name, module: &module, target: &target, opinion, right }, 1500, &mut tally);
    }
    let (found, harmless) = report(&tally);
    assert!(found > 4000 && harmless < found, "{found} found, {harmless} do no harm");
}

#[test]
fn faults_in_generated_programs_are_found() {
    let mut tally = Tally::new();
    let target = Target::named("cpu").unwrap();
    for seed in 0..120 {
        let mut module = generate(&mut Choices::from_seed(seed), &Options::runnable());
        flatten_call_graph(&mut module).unwrap();
        insert_copies(&mut module, &target).unwrap();
        module.is_scheduled = true;
        let module = verify(module, &VerifyOptions { devices: None }).unwrap();
        let Ok(planned) = plan(&module, &target) else { continue };
        let (right, opinion, name) = (Assignment::from(&planned), Opinion::of(&planned), format!("generated {seed}"));
        plant_many(&Case { name, module: &module, target: &target, opinion, right }, 100, &mut tally);
    }
    let (found, harmless) = report(&tally);
    assert!(found > 5000, "{found} found, {harmless} do no harm");
}

#[test]
fn faults_in_dumps_of_xla_are_found() {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared"));
    let Some(shared) = named.into_iter().chain(ancestors).find(|s| s.join("seeds").is_dir()) else {
        eprintln!("skipped: no folder `shared` beside the checkout, nor HLOOM_SHARED");
        return;
    };
    let list = |folder: &str| {
        let entries = std::fs::read_dir(shared.join(folder)).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|f| f.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let seeds = list("seeds");
    let seed = |n: usize| seeds[n].clone();
    let mut cases = vec![(seed(0), seed(4), "tpu-v6e"), (seed(1), seed(3), "tpu-v6e")];
    for folder in list("corpus/cpu_ba").iter().filter(|f| f.is_dir()) {
        cases.push((folder.join("module.hlo"), folder.join("assignment.txt"), "cpu"));
    }
    let mut tally = Tally::new();
    for (module, dump, target) in cases {
        // The faults that are planted depend on the name, so it is the same wherever the folder is.
        let name = dump.strip_prefix(&shared).unwrap_or(&dump).display().to_string();
        let (module, target) = (parse(&std::fs::read_to_string(module).unwrap()), Target::named(target).unwrap());
        let dump = read_dump(module.module(), &std::fs::read_to_string(dump).unwrap()).unwrap();
        let planned = plan(&module, &target).unwrap();
        let right =
            Assignment { ranges: Assignment::from(&planned).ranges, stated_total: None, ..dump.assignment.unwrap() };
        let opinion = Opinion::of(&planned);
        plant_many(&Case { name, module: &module, target: &target, opinion, right }, 120, &mut tally);
    }
    let (found, harmless) = report(&tally);
    assert!(found > 1000, "{found} found, {harmless} do no harm");
}
