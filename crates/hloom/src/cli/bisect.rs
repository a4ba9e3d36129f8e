//! `hloom bisect`: where two ways of running a program part, and the smallest program on which they do.
//!
//! The exit status is the answer: 0 when a fault was found and a reproducer written, 1 when there is none to find. What
//! keeps the command from answering is 2.

mod child;
mod passes;
mod question;
mod work;

use super::args::{BisectArgs, RunArgs};
use super::interrupt::interrupted;
use super::run::loaded_inputs;
use super::{Outcome, Result, Stop, input, output, progress};
use child::{Ended, Ran, Runner};
use hloom::Engine;
use hloom::arrays;
use hloom::execute::choose_devices;
use hloom::ir::module::Module;
use hloom::report::reduce::{Case, Oracle, Progress, Settings, reduce};
use hloom::report::source::source_position;
use hloom::report::values::disagreement;
use question::{Difference, TwoWays, UserCommand, Way};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;
use work::WorkFolder;

pub(crate) fn run(args: &BisectArgs) -> Result {
    answer(args).map_err(|stop| match stop.0 {
        Outcome::InputAtFault => Stop(Outcome::UsageAtFault),
        other => Stop(other),
    })
}

/// What a search found: the case, and one sentence on what differs where.
struct Found {
    case: Case,
    sentence: String,
}

fn answer(args: &BisectArgs) -> Result {
    let case = case(args)?;
    let out = args.output.clone().unwrap_or_else(|| "reproducer.hlo".to_owned());
    let folder = args.resume.clone().unwrap_or_else(|| format!("{out}.bisect"));
    let mut work = WorkFolder::new(&folder, &words(args), &case)?;
    let time_limit = Duration::from_secs(args.time_limit.unwrap_or(60));
    let runner = Runner::new(&work.path, time_limit, args.memory_limit.unwrap_or(8 << 30), interrupted());
    let found = match (&args.command, args.passes, &args.expect) {
        (Some(line), ..) => by_command(args, &runner, &mut work, case, line)?,
        (None, true, _) => passes::find(args, &runner, &mut work, case)?,
        (None, false, Some(path)) => against_file(args, &runner, &mut work, case, path)?,
        (None, false, None) => {
            let first = Way::Engine(args.engine);
            two_ways(args, &runner, &mut work, case, first, args.against, "the engines agree")?
        }
    };
    let Some(found) = found else {
        remove_if_ours(args, &folder);
        return Ok(Outcome::InputAtFault);
    };
    let npz = format!("{}.npz", out.strip_suffix(".hlo").unwrap_or(&out));
    let text = format!("// {}\n{}", found.sentence.replace('\n', " "), found.case.text());
    output::to_path(&out, text.as_bytes())?;
    output::to_path(&npz, &arrays::inputs_to_npz(&found.case.inputs))?;
    let count = found.case.module.instruction_count();
    output::to_stdout(format!("{}\n{out}, {npz}: {count} instructions\n", found.sentence).as_bytes())?;
    match interrupted().load(Ordering::Relaxed) {
        true => output::to_stderr(&format!("stopped before the end; go on with --resume {folder}\n")),
        false => remove_if_ours(args, &folder),
    }
    Ok(Outcome::Well)
}

/// A folder that the user did not ask for is not left behind when the search has come to its end.
fn remove_if_ours(args: &BisectArgs, folder: &str) {
    if args.resume.is_none() {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// What is asked, in words: a search goes on only with the same question.
fn words(args: &BisectArgs) -> String {
    match (&args.command, args.passes, &args.expect) {
        (Some(line), ..) => format!("command {line}"),
        (None, true, _) => "passes".to_owned(),
        (None, false, Some(path)) => format!("expect {path}"),
        (None, false, None) => format!("{} against {}", args.engine.name(), args.against.name()),
    }
}

/// The program and its inputs.
fn case(args: &BisectArgs) -> Result<Case> {
    let verified = input::load_verified(&args.file)?;
    let module = verified.module.module();
    let failed = |d| {
        output::show(&verified.source, Some(module), &[d]);
        Stop(Outcome::InputAtFault)
    };
    let grid = choose_devices(module, args.devices.map(|n| n as usize), None).map_err(failed)?.grid;
    let (file, input) = (args.file.clone(), args.input.clone());
    let run = RunArgs { file, input, seed: args.seed, ..RunArgs::default() };
    let inputs = loaded_inputs(&run, &verified, grid)?;
    let mut module = verified.module.module().clone();
    // What the header leaves open is written down, so that every candidate says it.
    (module.config.replica_count, module.config.num_partitions) = (grid.replicas as i64, grid.partitions as i64);
    Ok(Case { module, inputs })
}

/// Reduces a case that shows the fault, keeping the best so far.
fn search(args: &BisectArgs, work: &mut WorkFolder, start: Case, oracle: &dyn Oracle) -> Result<Case> {
    let start = match work.resume().map_err(|message| super::usage_error(&message))? {
        Some(best) => best,
        None => start,
    };
    work.keep(&start, Progress::default())?;
    let at = Mutex::new((start.module.instruction_count(), Progress::default()));
    let failed = Mutex::new(None);
    let workers = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(2, |n| n.get()), |n| n as usize);
    let mut on_better = |case: &Case, progress: Progress| {
        *lock(&at) = (case.module.instruction_count(), progress);
        if let Err(stop) = work.keep(case, progress) {
            *lock(&failed) = Some(stop);
            interrupted().store(true, Ordering::Relaxed);
        }
    };
    let mut settings = Settings { workers, stop: interrupted(), on_better: &mut on_better };
    let shown = || {
        let (instructions, progress) = *lock(&at);
        progress::At::Name(format!("{instructions} instructions, {} candidates tried", progress.tried))
    };
    let (best, _) = progress::follow("reducing", shown, || reduce(start, oracle, &mut settings));
    match failed.into_inner().unwrap_or_default() {
        Some(stop) => Err(stop),
        None => Ok(best),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Says that there is nothing to find.
fn nothing(words: &str) -> Result<Option<Found>> {
    output::to_stdout(format!("{words}\n").as_bytes())?;
    Ok(None)
}

/// Two ways of running the program.
fn two_ways(
    args: &BisectArgs,
    runner: &Runner<'_>,
    work: &mut WorkFolder,
    case: Case,
    first: Way,
    against: Engine,
    agree: &str,
) -> Result<Option<Found>> {
    let right = question::run(runner, &case, &Way::Engine(against));
    let wrong = question::run(runner, &case, &first);
    if let Ran::Nothing(ended) = &right {
        let both = format!("there is nothing to hold it against: {} {}", against.name(), ended.words());
        return nothing(&both);
    }
    if let Ran::Nothing(Ended::NotRun) = &wrong {
        return Err(super::usage_error(
            "the program could not be run: no process could be started, or the search was stopped",
        ));
    }
    let Some(difference) = Difference::of(&wrong, &right, 0.0) else { return nothing(agree) };
    let oracle = TwoWays { runner, first: first.clone(), against, difference };
    let best = search(args, work, case, &oracle)?;
    let (right, wrong) = (question::run(runner, &best, &Way::Engine(against)), question::run(runner, &best, &first));
    let what = match Difference::of(&wrong, &right, 0.0).unwrap_or(oracle.difference) {
        Difference::Values(found) => format!("disagrees with {} at {found}", against.name()),
        Difference::Failure(ended) => format!("{}, and {} gives results", ended.words(), against.name()),
    };
    let who = match &first {
        Way::Engine(engine) => format!("engine {}", engine.name()),
        Way::Pass(pass) => format!("the program after pass {pass}"),
    };
    let sentence = format!("{who} {what}; {}", place(&best.module));
    Ok(Some(Found { case: best, sentence }))
}

/// The result of the program and where it came from: in a reduced one, that is where it goes wrong.
fn place(module: &Module) -> String {
    let Some(root) = module.entry().and_then(|e| module.root(e)) else { return "there is no result".into() };
    let instruction = &module[root];
    let (file, line) = instruction.common.metadata.as_deref().map_or(("", 0), |m| source_position(module, m));
    let source = if file.is_empty() { String::new() } else { format!(" (from {file}:{line})") };
    format!("the result is %{} = {}{source}", instruction.name(), instruction.opcode().name())
}

/// A command that says by its exit status whether a case is of interest.
fn by_command(
    args: &BisectArgs,
    runner: &Runner<'_>,
    work: &mut WorkFolder,
    case: Case,
    line: &str,
) -> Result<Option<Found>> {
    let oracle = UserCommand { runner, line: line.to_owned() };
    match oracle.ask(&case) {
        Ended::With(0, _) => {}
        ended => {
            return nothing(&format!("the command does not end with 0 for the program as it is: it {}", ended.words()));
        }
    }
    let best = search(args, work, case, &oracle)?;
    let sentence = format!("the command `{line}` ends with 0; {}", place(&best.module));
    Ok(Some(Found { case: best, sentence }))
}

/// Results that someone wrote down. Where the other engine gives these, the engines are what disagrees; otherwise nothing
/// smaller is known to be wrong.
fn against_file(
    args: &BisectArgs,
    runner: &Runner<'_>,
    work: &mut WorkFolder,
    case: Case,
    path: &str,
) -> Result<Option<Found>> {
    let bytes = hloom::load::read_bytes(path).map_err(|r| input::show_rejected(&r))?;
    let verified = case.verified();
    let expected = verified.and_then(|v| arrays::read_results(&v, case.inputs.len(), &bytes));
    let Some(expected) = expected else {
        return Err(super::usage_error(&format!("{path} does not hold the results of this program: d0.o0, d0.o1, …")));
    };
    let given = question::run(runner, &case, &Way::Engine(args.engine));
    let Some(difference) = Difference::of(&given, &Ran::Results(expected.clone()), 0.0) else {
        return nothing(&format!("engine {} gives what is expected", args.engine.name()));
    };
    let other = question::run(runner, &case, &Way::Engine(args.against));
    if let Ran::Results(other) = &other
        && disagreement(other, &expected, 0.0).is_none()
    {
        let first = Way::Engine(args.engine);
        return two_ways(args, runner, work, case, first, args.against, "the engines agree");
    }
    let what = match difference {
        Difference::Values(found) => {
            let at = leaf_place(&case.module, found.leaf);
            format!("engine {} gives other results than expected at {found}, which is {at}", args.engine.name())
        }
        Difference::Failure(ended) => format!("engine {} {}", args.engine.name(), ended.words()),
    };
    let sentence = format!(
        "{what}; {} does not give what is expected either, so nothing smaller is known to be wrong",
        args.against.name()
    );
    Ok(Some(Found { case, sentence }))
}

/// The instruction that makes leaf `n` of the result, where the result is a tuple of arrays.
fn leaf_place(module: &Module, n: usize) -> String {
    let root = module.entry().and_then(|e| module.root(e));
    let Some(root) = root else { return "no result".into() };
    let mut leaf = n;
    let mut at = root;
    while matches!(module[at].op, hloom::ir::op::Op::Tuple) {
        let mut next = None;
        for &operand in module[at].operands() {
            let count = module[operand].shape.leaf_count();
            if leaf < count {
                next = Some(operand);
                break;
            }
            leaf -= count;
        }
        match next {
            Some(operand) => at = operand,
            None => break,
        }
    }
    let (file, line) = module[at].common.metadata.as_deref().map_or(("", 0), |m| source_position(module, m));
    let source = if file.is_empty() { String::new() } else { format!(" (from {file}:{line})") };
    format!("%{} = {}{source}", module[at].name(), module[at].opcode().name())
}
