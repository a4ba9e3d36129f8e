//! What would lower a peak is tried: the module is changed as advised and planned again.

use hloom_formats::hlo_text;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::copies::insert_copies;
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::summary::{Advice, Change, advise, summarise};
use hloom_plan::{Plan, plan};
use hloom_target::Target;

/// The lines of an entry computation, each `name = …`, and what the header says besides.
#[derive(Clone, Debug)]
struct Program {
    header: String,
    before: String,
    lines: Vec<String>,
}

impl Program {
    fn new(lines: &str) -> Program {
        let lines = lines.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect();
        Program { header: String::new(), before: String::new(), lines }
    }

    fn text(&self) -> String {
        let Program { header, before, lines } = self;
        format!("HloModule m, is_scheduled=true{header}\n\n{before}\nENTRY e {{\n  {}\n}}\n", lines.join("\n  "))
    }

    fn parse(&self) -> VerifiedModule {
        let text = self.text();
        let result = hlo_text::read(text.as_bytes());
        let module = result.module.unwrap_or_else(|| panic!("{:?} in {text}", result.diagnostics.first()));
        verify(module, &VerifyOptions { devices: None })
            .unwrap_or_else(|e| panic!("{:?} in {text}", e.diagnostics.first()))
    }

    fn line_of(&self, name: &str) -> usize {
        let is = |l: &&String| l.trim_start_matches("ROOT ").split(" = ").next() == Some(name);
        self.lines.iter().position(|l| is(&l)).unwrap_or_else(|| panic!("no {name} in {}", self.text()))
    }

    /// The program with the change made.
    fn with(&self, plan: &Plan<'_>, change: Change) -> Program {
        let module = plan.dataflow.module();
        let name = |v| module[plan.dataflow.instruction(plan.dataflow.value(v).expect("it exists"))].name().to_owned();
        let mut changed = self.clone();
        match change {
            Change::Later { value, before } => {
                let line = changed.lines.remove(self.line_of(&name(value)));
                let at = changed.line_of(module[before].name());
                changed.lines.insert(at, line);
            }
            Change::Earlier { value, after, .. } => {
                let line = changed.lines.remove(self.line_of(&name(value)));
                let at = changed.line_of(module[after].name());
                changed.lines.insert(at + 1, line);
            }
            Change::Rematerialise { value, before } => {
                let old = name(value);
                let at = self.line_of(module[before].name());
                let again = self.lines[self.line_of(&old)].replacen(&old, &format!("{old}.again"), 1);
                for line in &mut changed.lines[at..] {
                    for (end, with) in [(",", ".again,"), (")", ".again)")] {
                        for start in ["(", " "] {
                            *line = line.replace(&format!("{start}{old}{end}"), &format!("{start}{old}{with}"));
                        }
                    }
                }
                changed.lines.insert(at, again);
            }
            Change::Donate { parameter, result } => {
                let number =
                    self.lines[self.line_of(&name(parameter))].split_once("parameter(").expect("a parameter").1;
                let number = number.split(')').next().expect("a number");
                let root = self.lines.iter().find(|l| l.starts_with("ROOT")).expect("a root");
                let index = match root.split_once(" tuple(") {
                    Some((_, results)) => {
                        let mut results = results.trim_end_matches(')').split(", ");
                        results.position(|r| r == name(result)).expect("a result").to_string()
                    }
                    None => String::new(),
                };
                changed.header = format!(", input_output_alias={{ {{{index}}}: ({number}, {{}}, may-alias) }}");
            }
        }
        changed
    }
}

/// The peak of each memory space, by memory space.
fn peaks(plan: &Plan<'_>, target: &Target) -> Vec<(i64, i128)> {
    summarise(plan, target).iter().map(|s| (s.memory_space, s.peak.as_ref().map_or(0, |p| p.bytes))).collect()
}

/// How what was advised turned out.
#[derive(Default, Debug)]
struct Tried {
    as_said: usize,
    more: usize,
    less: usize,
}

impl Tried {
    fn count(&mut self, brought: i128, said: i128) {
        match brought.cmp(&said) {
            std::cmp::Ordering::Equal => self.as_said += 1,
            std::cmp::Ordering::Greater => self.more += 1,
            std::cmp::Ordering::Less => self.less += 1,
        }
    }
}

/// Makes every advised change, plans anew, and compares what it brings with what was said.
fn try_all(program: &Program, target: &Target, tried: &mut Tried) -> Vec<Advice> {
    let module = program.parse();
    let planned = plan(&module, target).expect("it can be planned");
    let advice = advise(&planned, target, &summarise(&planned, target), usize::MAX);
    for a in &advice {
        let changed = program.with(&planned, a.change);
        let module = changed.parse();
        let again = plan(&module, target).expect("it can be planned");
        assert_eq!(check(&module, target, &Assignment::from(&again)), [], "{a:?} in {}", program.text());
        for ((memory_space, old), (_, new)) in peaks(&planned, target).into_iter().zip(peaks(&again, target)) {
            let said = if memory_space == a.memory_space { a.bytes } else { 0 };
            tried.count(old - new, said);
        }
    }
    advice
}

/// What is advised, in words.
fn words(program: &Program) -> Vec<String> {
    let target = Target::named("cpu").expect("there is one");
    let module = program.parse();
    let planned = plan(&module, &target).expect("it can be planned");
    let name = |v| module.module()[planned.dataflow.instruction(planned.dataflow.value(v).expect("it exists"))].name();
    let mut tried = Tried::default();
    let advice = try_all(program, &target, &mut tried);
    assert_eq!(tried.as_said, advice.len(), "{tried:?} {advice:?}");
    let words = advice.into_iter().map(|a| {
        let what = match a.change {
            Change::Donate { parameter, result } => format!("give {} to {}", name(parameter), name(result)),
            Change::Later { value, before } => format!("{} before {}", name(value), module.module()[before].name()),
            Change::Earlier { value, after, frees } => {
                format!("{} after {}, frees {}", name(value), module.module()[after].name(), name(frees))
            }
            Change::Rematerialise { value, before } => {
                format!("{} again before {}", name(value), module.module()[before].name())
            }
        };
        format!("{} less: {what}", a.bytes)
    });
    words.collect()
}

const WIDE: &str = "
  wide = f32[1000]{0} concatenate(p, p, p, p, p, p, p, p, p, p), dimensions={0}
  narrow = f32[100]{0} slice(wide), slice={[0:100]}";

#[test]
fn a_value_that_waits_is_made_later() {
    let program = Program::new(&format!(
        "p = f32[100]{{0}} parameter(0)\nearly = f32[200]{{0}} concatenate(p, p), dimensions={{0}}\n{WIDE}
         ROOT r = f32[300]{{0}} concatenate(early, narrow), dimensions={{0}}"
    ));
    assert_eq!(words(&program), ["800 less: early before r"]);
}

#[test]
fn a_value_that_is_needed_before_and_after_is_made_again() {
    let program = Program::new(&format!(
        "p = f32[100]{{0}} parameter(0)\ntwice = f32[200]{{0}} concatenate(p, p), dimensions={{0}}
         one = f32[100]{{0}} slice(twice), slice={{[100:200]}}\n{WIDE}
         ROOT r = f32[400]{{0}} concatenate(one, twice, narrow), dimensions={{0}}"
    ));
    assert_eq!(words(&program), ["800 less: twice again before r", "400 less: one before r"]);
}

#[test]
fn what_others_wait_for_is_made_earlier() {
    let program = Program::new(&format!(
        "p = f32[100]{{0}} parameter(0)\nlong = f32[500]{{0}} concatenate(p, p, p, p, p), dimensions={{0}}\n{WIDE}
         part = f32[100]{{0}} slice(long), slice={{[0:100]}}
         ROOT r = f32[200]{{0}} concatenate(part, narrow), dimensions={{0}}"
    ));
    // Made later it is out of the way altogether; made earlier, its slice is what stays.
    assert_eq!(words(&program), ["2000 less: long before part", "1600 less: part after long, frees long"]);
}

#[test]
fn a_parameter_whose_memory_fits_a_result_is_given_away() {
    let program = Program::new(
        "p = f32[100]{0} parameter(0)
         q = f32[100]{0} parameter(1)
         a = f32[100]{0} reverse(p), dimensions={0}
         b = f32[200]{0} concatenate(a, q), dimensions={0}
         ROOT r = f32[100]{0} slice(b), slice={[0:100]}",
    );
    assert_eq!(words(&program), ["400 less: give p to r"]);
    // An update in place: the last that reads the parameter is what makes the result.
    let program = Program::new(
        "p = f32[100]{0} parameter(0)
         g = f32[100]{0} parameter(1)
         ROOT r = f32[100]{0} subtract(p, g)",
    );
    assert_eq!(words(&program), ["400 less: give p to r", "400 less: give g to r"]);
}

#[test]
fn what_is_called_in_between_counts() {
    let mut program = Program::new(
        "p = f32[100]{0} parameter(0)
         early = f32[200]{0} concatenate(p, p), dimensions={0}
         c = f32[100]{0} call(p), to_apply=inner
         ROOT r = f32[300]{0} concatenate(early, c), dimensions={0}",
    );
    program.before = "inner {
  x = f32[100]{0} parameter(0)
  wide = f32[900]{0} concatenate(x, x, x, x, x, x, x, x, x), dimensions={0}
  ROOT y = f32[100]{0} slice(wide), slice={[0:100]}
}
"
    .into();
    // The peak is inside what is called; `early` waits for that to end.
    assert_eq!(words(&program), ["800 less: early before r"]);
    // What is called reads it: it has to be there.
    program.lines[2] = "c = f32[100]{0} call(early), to_apply=inner".into();
    program.before = program.before.replace("x = f32[100]", "x = f32[200]").replace("f32[900]", "f32[1800]");
    assert_eq!(words(&program), [""; 0]);
}

#[test]
fn what_talks_to_others_stays_where_it_is() {
    let program = Program::new(&format!(
        "p = f32[100]{{0}} parameter(0)\nearly = f32[200]{{0}} all-gather(p), dimensions={{0}}, replica_groups={{{{0,1}}}}\n{WIDE}
         ROOT r = f32[300]{{0}} concatenate(early, narrow), dimensions={{0}}"
    ));
    assert_eq!(words(&program), [""; 0]);
}

#[test]
fn control_dependencies_are_kept() {
    let program = Program::new(&format!(
        "p = f32[100]{{0}} parameter(0)\nearly = f32[200]{{0}} concatenate(p, p), dimensions={{0}}\n{}, control-predecessors={{early}}
         ROOT r = f32[300]{{0}} concatenate(early, narrow), dimensions={{0}}",
        WIDE.trim()
    ));
    assert_eq!(words(&program), [""; 0]);
}

/// A program of many sizes at random, some of it element by element.
fn random(seed: u64, elementwise: bool) -> Program {
    let mut state = seed;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let mut lines = Vec::new();
    let mut made: Vec<(String, usize)> = Vec::new();
    for i in 0..3 {
        let size = 64 * (1 + next(4));
        lines.push(format!("p{i} = f32[{size}]{{0}} parameter({i})"));
        made.push((format!("p{i}"), size));
    }
    for i in 0..25 {
        let (name, size) = made[next(made.len())].clone();
        let new = format!("v{i}");
        let (line, size) = match next(if elementwise { 6 } else { 4 }) {
            0 | 1 => (format!("reverse({name}), dimensions={{0}}"), size),
            2 => (format!("slice({name}), slice={{[0:{}]}}", size / 2), size / 2),
            3 => {
                let (other, more) = made[next(made.len())].clone();
                (format!("concatenate({name}, {other}), dimensions={{0}}"), size + more)
            }
            4 => (format!("negate({name})"), size),
            _ => (format!("multiply({name}, {name})"), size),
        };
        if size == 0 || size > 4096 {
            continue;
        }
        lines.push(format!("{new} = f32[{size}]{{0}} {line}"));
        made.push((new, size));
    }
    let results: Vec<(String, usize)> = (0..3).map(|i| made[made.len() - 1 - i].clone()).collect();
    let shapes: Vec<String> = results.iter().map(|r| format!("f32[{}]{{0}}", r.1)).collect();
    let names: Vec<&str> = results.iter().map(|r| r.0.as_str()).collect();
    lines.push(format!("ROOT r = ({}) tuple({})", shapes.join(", "), names.join(", ")));
    Program { header: String::new(), before: String::new(), lines }
}

#[test]
fn advice_keeps_its_word() {
    let target = Target::named("cpu").expect("there is one");
    for elementwise in [false, true] {
        let (mut tried, mut kinds) = (Tried::default(), [0usize; 4]);
        for seed in 0..400 {
            for a in try_all(&random(seed, elementwise), &target, &mut tried) {
                kinds[match a.change {
                    Change::Donate { .. } => 0,
                    Change::Later { .. } => 1,
                    Change::Earlier { .. } => 2,
                    Change::Rematerialise { .. } => 3,
                }] += 1;
            }
        }
        assert!(kinds.iter().all(|&k| k > 10), "{kinds:?}");
        // Where values may be written over operands, the new plan may choose otherwise; never without.
        let off = tried.more + tried.less;
        assert!(if elementwise { off * 20 < tried.as_said } else { off == 0 }, "{tried:?}");
    }
}

/// The module with its instructions in the order that is advised; nothing if what only passes the value on would have to
/// move too.
fn moved(module: &Module, plan: &Plan<'_>, change: Change) -> Option<Module> {
    let (at, behind) = match change {
        Change::Later { before, .. } => (before, false),
        Change::Earlier { after, .. } => (after, true),
        _ => return None,
    };
    let id = plan.dataflow.instruction(plan.dataflow.value(change.value())?);
    let home = module[id].parent();
    let mut order: Vec<InstructionId> = module[home].instructions().iter().copied().filter(|&i| i != id).collect();
    let place = order.iter().position(|&i| i == at).expect("it is in the same computation");
    order.insert(place + usize::from(behind), id);
    let before =
        |a: InstructionId, b: InstructionId| order.iter().position(|&i| i == a) < order.iter().position(|&i| i == b);
    if !module[id].users().iter().all(|&u| before(id, u)) || !module[id].operands().iter().all(|&o| before(o, id)) {
        return None;
    }
    let mut changed = module.clone();
    changed.reorder(home, order).expect("the same instructions");
    Some(changed)
}

#[test]
fn advice_on_programs_with_loops_and_branches_can_be_followed() {
    let verified = |module| verify(module, &VerifyOptions { devices: None }).expect("it is well formed");
    let (mut tried, mut tied) = (Tried::default(), 0);
    for seed in 0..1500 {
        let mut module = generate(&mut Choices::from_seed(seed), &Options::runnable());
        let target = Target::named(if seed % 2 == 0 { "cpu" } else { "tpu-v6e" }).expect("there is one");
        flatten_call_graph(&mut module).expect("it is small");
        insert_copies(&mut module, &target).expect("it can be planned");
        let module = verified(module);
        let planned = plan(&module, &target).expect("it can be planned");
        if !check(&module, &target, &Assignment::from(&planned)).is_empty() {
            // What is wrong before the change says nothing of the change.
            continue;
        }
        for a in advise(&planned, &target, &summarise(&planned, &target), usize::MAX) {
            assert!(a.bytes > 0, "seed {seed}: {a:?}");
            let Some(changed) = moved(module.module(), &planned, a.change) else {
                tied += usize::from(matches!(a.change, Change::Later { .. } | Change::Earlier { .. }));
                continue;
            };
            let changed = verified(changed);
            let again = plan(&changed, &target).expect("it can be planned");
            let text = || hlo_text::print(changed.module(), &hlo_text::PrintOptions::default());
            assert_eq!(check(&changed, &target, &Assignment::from(&again)), [], "seed {seed}: {a:?}\n{}", text());
            let peak = |p: &Plan<'_>| peaks(p, &target).into_iter().find(|s| s.0 == a.memory_space).map_or(0, |s| s.1);
            tried.count(peak(&planned) - peak(&again), a.bytes);
        }
    }
    assert!(tried.as_said > 1000 && (tried.more + tried.less) * 20 < tried.as_said, "{tried:?}, {tied} tied");
}
