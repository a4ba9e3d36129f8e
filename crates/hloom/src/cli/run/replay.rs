//! Runs again what ran elsewhere: inputs and results of snapshots, snapshots of one's own, results to compare with, and
//! the first instruction that goes wrong.

use super::super::{Result, output};
use super::{Run, RunArgs};
use hloom::arrays::{self, Inputs};
use hloom::eval::DeviceGrid;
use hloom::formats::npz::{Archive, NpyArray};
use hloom::formats::proto::{Snapshot, read_snapshot, write_snapshot};
use hloom::ir::diagnostic::codes::eval as codes;
use hloom::ir::diagnostic::{Blame, Diagnostic, Part};
use hloom::ir::entity::InstructionId;
use hloom::ir::module::Module;
use hloom::ir::op::Op;
use hloom::ir::shape::Shape;
use hloom::report::reduce::Case;
use hloom::report::values::{Disagreement, disagreement, first_disagreement};
use hloom::value::{Array, Value};
use hloom::{Format, Verified, load};
use rustc_hash::FxHashMap;

/// The most instructions whose values are looked at to find the first that goes wrong.
const WATCHED: usize = 2000;
/// The most bytes that their values may take.
const WATCHED_BYTES: i64 = 2 << 30;

/// What the file holds besides its module, if it is a snapshot.
pub(super) fn snapshot(verified: &Verified) -> std::result::Result<Option<Snapshot>, Vec<Diagnostic>> {
    match verified.source.format {
        Format::HloProto | Format::HloModuleProto => read_snapshot(&verified.source.bytes),
        _ => Ok(None),
    }
}

/// The devices of a snapshot that has the arguments of several, where the module does not name them.
pub(super) fn snapshot_grid(snapshot: &Snapshot, named: DeviceGrid) -> DeviceGrid {
    match snapshot.arguments.len() {
        devices if devices > 1 && named.devices() == 1 => DeviceGrid { replicas: 1, partitions: devices },
        _ => named,
    }
}

/// The arguments that a snapshot has; one set is for all devices.
pub(super) fn snapshot_inputs(run: &Run<'_>, snapshot: &Snapshot, grid: DeviceGrid) -> Result<Inputs> {
    if snapshot.arguments_left_out {
        let message = "the arguments in the snapshot are in a form that is not read: give them with --input or --seed";
        return Err(run.fail(vec![Diagnostic::error(&codes::BAD_INPUT, message).blame(Blame::Data)]));
    }
    let mut inputs = arrays::from_literals(run.module(), &snapshot.arguments).map_err(|errors| run.fail(errors))?;
    if let [only] = inputs.as_slice() {
        inputs = vec![only.clone(); grid.devices()];
    }
    if inputs.len() != grid.devices() {
        let message = format!("the snapshot has arguments for {} devices, not {}", inputs.len(), grid.devices());
        return Err(run.fail(vec![Diagnostic::error(&codes::BAD_INPUT, message).blame(Blame::Data)]));
    }
    Ok(inputs)
}

/// Says whether the results are those that a snapshot has.
pub(super) fn compare_with_snapshot(snapshot: &Snapshot, results: &[Value]) {
    let Some(expected) = snapshot.result.as_ref().and_then(|r| Value::from_literal(r).ok()) else { return };
    let platform = if snapshot.platform.is_empty() { "another platform" } else { &snapshot.platform };
    let first = results.first().map_or(&[][..], std::slice::from_ref);
    output::to_stderr(&match disagreement(first, &[expected], 0.0) {
        None => format!("the results agree with those of {platform} in the snapshot\n"),
        Some(found) => format!("the results disagree with those of {platform} in the snapshot: {found}\n"),
    });
}

/// Writes the program with its inputs and results.
pub(super) fn write(run: &Run<'_>, path: &str, inputs: &Inputs, results: &[Value]) -> Result<()> {
    let literals = |arguments: &Vec<Value>| arguments.iter().map(Value::to_literal).collect::<Option<Vec<_>>>();
    let Some(arguments) = inputs.iter().map(literals).collect::<Option<Vec<_>>>() else {
        return Err(super::super::usage_error("a program with opaque parameters has no snapshot"));
    };
    let snapshot = Snapshot {
        arguments,
        result: results.first().and_then(Value::to_literal),
        platform: format!("hloom {}", run.args.engine.name()),
        arguments_left_out: false,
    };
    let bytes = write_snapshot(run.module(), &snapshot).map_err(|errors| run.fail(errors))?;
    output::to_path(path, &bytes)
}

/// Results and values of instructions to compare with.
#[derive(Default)]
pub(crate) struct Expected {
    /// By name: `d0.o0`, …
    results: Vec<(String, NpyArray<'static>)>,
    /// Values of instructions, each on one device or on all.
    instructions: FxHashMap<InstructionId, Vec<(Option<usize>, Array)>>,
}

impl Expected {
    /// What `--compare-with` names.
    pub(crate) fn read(module: &Module, args: &RunArgs) -> std::result::Result<Expected, String> {
        let Some(path) = &args.compare_with else { return Ok(Expected::default()) };
        let bytes = std::fs::read(hloom::paths::to_path(path));
        let bytes = bytes.map_err(|e| format!("cannot read `{path}`: {}", load::plain_reason(&e)))?;
        let unreadable = |e| format!("`{path}` cannot be read: {e}");
        let archive = Archive::open(&bytes[..]).map_err(unreadable)?;
        let names: FxHashMap<&str, InstructionId> = module
            .computations()
            .iter()
            .flat_map(|&c| module[c].instructions())
            .map(|&i| (module[i].name(), i))
            .collect();
        let mut expected = Expected::default();
        for (n, name) in archive.names().enumerate() {
            let given = archive.array(n).map_err(unreadable)?;
            let bytes = std::borrow::Cow::Owned(given.bytes.into_owned());
            let array = NpyArray { descr: given.descr, dims: given.dims, bytes };
            let (device, rest) = device_of(name);
            let is_result = device.is_some() && rest.strip_prefix('o').is_some_and(|k| k.parse::<usize>().is_ok());
            if is_result {
                expected.results.push((name.to_owned(), array));
            } else if let Some(&i) = names.get(rest).or_else(|| names.get(name)) {
                let Some(value) = module[i].shape.as_array().and_then(|s| arrays::array_of(s, array).ok()) else {
                    return Err(format!("the array {name} in `{path}` does not fit the instruction {rest}"));
                };
                expected.instructions.entry(i).or_default().push((device, value));
            } else {
                return Err(format!("the array {name} in `{path}` is neither a result nor an instruction's value"));
            }
        }
        Ok(expected)
    }

    /// Whether there are values of instructions.
    pub(crate) fn watches(&self) -> bool {
        !self.instructions.is_empty()
    }

    /// How the value of an instruction disagrees with what is expected.
    pub(crate) fn disagrees(&self, device: usize, i: InstructionId, value: &Value) -> Option<Disagreement> {
        let expected = self.instructions.get(&i)?.iter().find(|(d, _)| d.is_none_or(|d| d == device))?;
        let found = hloom::report::values::arrays(value.as_array().ok()?, &expected.1, 0.0)?;
        Some(Disagreement { device, ..found })
    }
}

/// `d1.x` is x of device 1.
fn device_of(name: &str) -> (Option<usize>, &str) {
    let split = name.strip_prefix('d').and_then(|n| n.split_once('.'));
    match split.and_then(|(d, rest)| Some((d.parse().ok()?, rest))) {
        Some((device, rest)) => (Some(device), rest),
        None => (None, name),
    }
}

/// Compares the results with those expected; where they disagree, names the first instruction that goes wrong.
pub(super) fn compare(
    run: &Run<'_>,
    expected: &Expected,
    grid: DeviceGrid,
    inputs: &Inputs,
    results: &[Value],
) -> Result<()> {
    let mut worst: Option<(String, Disagreement)> = None;
    let named = arrays::outputs(results);
    for (name, array) in &expected.results {
        let Some((_, own)) = named.iter().find(|(n, _)| n == name) else {
            return Err(super::super::usage_error(&format!("the program has no result {name}")));
        };
        let shape = hloom::ir::shape::ArrayShape::new(own.element_type(), own.dims().iter().copied());
        let found = match arrays::array_of(&shape, array.clone()) {
            Ok(array) => hloom::report::values::arrays(own, &array, 0.0),
            Err(why) => return Err(super::super::usage_error(&format!("result {name} {why}"))),
        };
        if let Some(found) = found
            && worst.as_ref().is_none_or(|w| found.error > w.1.error)
        {
            worst = Some((name.clone(), found));
        }
    }
    let Some((name, found)) = worst else { return Ok(()) };
    let at = if found.index.is_empty() { String::new() } else { format!("{:?}", found.index) };
    let message = format!(
        "result {name}{at} is {}, not {} as expected ({} of {} elements differ)",
        found.left, found.right, found.count, found.elements
    );
    let leaf = device_of(&name).1.strip_prefix('o').and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut diagnostic = Diagnostic::error(&codes::DISAGREES, message).blame(Blame::Data);
    match first_wrong(run, grid, inputs) {
        FirstWrong::Instruction(i, found) => {
            let engine = run.args.engine.name();
            let words = format!(
                "{} is the first that goes wrong: engine {engine} gives {} where the evaluator gives {}",
                run.module()[i].name(),
                found.left,
                found.right
            );
            diagnostic = diagnostic.at_instruction(i, Part::Opcode).note(words);
        }
        FirstWrong::None(words) => {
            if let Some(i) = maker(run.module(), leaf) {
                diagnostic = diagnostic.at_instruction(i, Part::Opcode);
            }
            diagnostic = diagnostic.note(words);
        }
    }
    Err(run.fail(vec![diagnostic]))
}

enum FirstWrong {
    Instruction(InstructionId, Disagreement),
    None(String),
}

/// The first instruction of the entry whose value the engine makes differently than the evaluator.
fn first_wrong(run: &Run<'_>, grid: DeviceGrid, inputs: &Inputs) -> FirstWrong {
    let none = |words: &str| FirstWrong::None(words.to_owned());
    let case = Case { module: run.module().clone(), inputs: inputs.clone() };
    let module = &case.module;
    let is_watched = |i: &InstructionId| {
        let plain = !matches!(module[*i].op, Op::Parameter { .. } | Op::Constant(_));
        plain && matches!(module[*i].shape, Shape::Array(_))
    };
    let watched: Vec<InstructionId> = case.entry_order().into_iter().filter(is_watched).collect();
    let bytes = watched.iter().map(|&i| module[i].shape.byte_size().unwrap_or(i64::MAX)).fold(0, i64::saturating_add);
    if watched.len() > WATCHED || bytes > WATCHED_BYTES {
        return none("the program is too large to look at every value: `hloom bisect` finds where it goes wrong");
    }
    let Some(program) = case.with_results(&watched).and_then(|c| c.verified()) else {
        return none("values in the middle of the program cannot be had");
    };
    let both = super::by_engine(run, &program, grid, inputs)
        .zip(hloom::eval::run(&program, grid, inputs.clone(), &hloom::eval::Options::default()).ok());
    let Some((engine, evaluator)) = both else { return none("values in the middle of the program cannot be had") };
    match first_disagreement(&engine, &evaluator) {
        Some(found) => match watched.get(found.leaf) {
            Some(&i) => FirstWrong::Instruction(i, found),
            None => none("values in the middle of the program cannot be had"),
        },
        None => {
            none("every instruction gives what the evaluator gives: the program, its inputs or what is expected differ")
        }
    }
}

/// The instruction that makes leaf `n` of the result.
fn maker(module: &Module, n: usize) -> Option<InstructionId> {
    let root = module.root(module.entry()?)?;
    match module[root].op {
        Op::Tuple => module[root].operands().get(n).copied(),
        _ => Some(root),
    }
}
