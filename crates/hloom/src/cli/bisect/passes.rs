//! The pass after which a program computes something else.

use super::super::args::BisectArgs;
use super::super::{Result, output};
use super::child::{Ended, Ran, Runner};
use super::question::{self, Way};
use super::work::WorkFolder;
use super::{Found, nothing, two_ways};
use hloom::Engine;
use hloom::report::bisect::first_wrong;
use hloom::report::diff;
use hloom::report::reduce::Case;
use hloom::report::values::disagreement;
use std::path::PathBuf;

/// The most changes of a pass that are named.
const CHANGES_NAMED: usize = 8;

/// The module after one run of a pass.
struct After {
    pass: String,
    path: PathBuf,
}

pub(super) fn find(args: &BisectArgs, runner: &Runner<'_>, work: &mut WorkFolder, case: Case) -> Result<Option<Found>> {
    let Some(files) = runner.files(&case) else { return nothing("no files can be written for the passes to read") };
    let folder = files.path("after");
    let text = |p: &std::path::Path| p.display().to_string();
    let (program, dumps) = (text(&files.path("case.hlo")), text(&folder));
    let ended = runner.hloom(&["opt", &program, "--dump-after-each", &dumps, "-o", &text(&files.path("end.hlo"))]);
    let dumped = dumped(&folder);
    let right = match question::run(runner, &case, &Way::Engine(Engine::Eval)) {
        Ran::Results(results) => results,
        Ran::Nothing(ended) => {
            return nothing(&format!("there is nothing to hold passes against: the evaluator {}", ended.words()));
        }
    };
    let is_wrong = |n: usize| {
        let Some(module) = load(&dumped[n].path) else { return true };
        let name = format!("after/{}", dumped[n].path.file_name().unwrap_or_default().to_string_lossy());
        match runner.engine_on(&module, case.inputs.len(), &files, &name, Engine::Eval) {
            Ran::Results(results) => disagreement(&results, &right, 0.0).is_some(),
            Ran::Nothing(_) => true,
        }
    };
    let last_is_wrong = dumped.len().checked_sub(1).is_some_and(is_wrong);
    let (pass, before) = if last_is_wrong {
        let Some(first) = first_wrong(dumped.len(), is_wrong) else { return nothing("there are no passes") };
        (dumped[first].pass.clone(), first)
    } else if matches!(ended, Ended::With(0, _)) {
        return nothing(
            "the program computes the same after every pass; it may be the engine: --engine cpu --against eval",
        );
    } else {
        // The pass that did not come to its end is the one after the last that did.
        let module =
            |n: usize| n.checked_sub(1).map_or_else(|| Some(case.clone()), |n| as_case(&dumped[n].path, &case));
        let Some(start) = module(dumped.len()) else {
            return nothing("the module before the failing pass cannot be read");
        };
        let fails = |pass: &str| matches!(question::run(runner, &start, &Way::Pass(pass.to_owned())), Ran::Nothing(e) if e != Ended::NotRun);
        let names = hloom::engine::registry().all().iter().map(|p| p.name);
        let Some(pass) = names.into_iter().find(|p| fails(p)) else {
            return nothing(&format!("the passes end early: hloom opt {}, but no pass by itself does", ended.words()));
        };
        (pass.to_owned(), dumped.len())
    };
    output::to_stderr(&format!("the first pass at fault is {pass}, the {}th to run\n", before + 1));
    let start = match before.checked_sub(1) {
        Some(n) => as_case(&dumped[n].path, &case),
        None => Some(case.clone()),
    };
    let Some(start) = start else { return nothing("the module before the pass cannot be read") };
    let found = two_ways(
        args,
        runner,
        work,
        start,
        Way::Pass(pass.clone()),
        Engine::Eval,
        "the pass by itself changes nothing",
    )?;
    Ok(found.map(|found| with_rewrites(runner, found, &pass)))
}

/// Says what the pass does to the reduced program: in one that can do without nothing, these are the rewrites at fault.
fn with_rewrites(runner: &Runner<'_>, found: Found, pass: &str) -> Found {
    let changes = || {
        let files = runner.files(&found.case)?;
        let text = |name: &str| files.path(name).display().to_string();
        let Ended::With(0, _) = runner.hloom(&["opt", &text("case.hlo"), "--passes", pass, "-o", &text("after.hlo")])
        else {
            return None;
        };
        let after = load(&files.path("after.hlo"))?;
        Some(diff::diff(&found.case.verified()?, &after))
    };
    let Some(changes) = changes() else { return found };
    let named: Vec<String> = changes.differences.iter().take(CHANGES_NAMED).map(diff::headline).collect();
    let sentence = format!("{}; what the pass does to it: {}", found.sentence, named.join("; "));
    Found { sentence, ..found }
}

fn load(path: &std::path::Path) -> Option<hloom::ir::verify::VerifiedModule> {
    Some(hloom::load(&path.display().to_string(), None).ok()?.verify(None).ok()?.module)
}

fn as_case(path: &std::path::Path, case: &Case) -> Option<Case> {
    Some(Case { module: load(path)?.into_module(), inputs: case.inputs.clone() })
}

/// The modules after each pass, in the order in which they ran.
fn dumped(folder: &std::path::Path) -> Vec<After> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<After> = entries
        .filter_map(|e| {
            let path = e.ok()?.path();
            let name = path.file_name()?.to_str()?.to_owned();
            // 012.simplify.hlo
            let pass = name.strip_suffix(".hlo")?.split_once('.')?.1.to_owned();
            Some(After { pass, path })
        })
        .collect();
    found.sort_by_key(|a| {
        let name = a.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('.').next().and_then(|n| n.parse::<u64>().ok())
    });
    found
}
