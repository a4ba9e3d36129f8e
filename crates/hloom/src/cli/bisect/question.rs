//! What is asked of a candidate: the predicates of a search.

use super::child::{Ended, Ran, Runner};
use hloom::Engine;
use hloom::report::reduce::{Case, Oracle};
use hloom::report::values::{Disagreement, disagreement};
use hloom::value::Value;

/// What two ways of running a program have different.
#[derive(Clone, Debug)]
pub(super) enum Difference {
    /// Their results.
    Values(Disagreement),
    /// The first gives no results; the second does.
    Failure(Ended),
}

impl Difference {
    /// What differs between two runs; `None` if nothing does, or the second gives nothing to hold the first against.
    pub(super) fn of(first: &Ran, second: &Ran, least: f64) -> Option<Difference> {
        match (first, second) {
            (Ran::Results(a), Ran::Results(b)) => disagreement(a, b, least).map(Difference::Values),
            (Ran::Nothing(Ended::NotRun), _) => None,
            (Ran::Nothing(ended), Ran::Results(_)) => Some(Difference::Failure(ended.clone())),
            _ => None,
        }
    }

    /// The least error that a candidate must have to show the same: not a rounding that the fault was made of.
    fn least(&self) -> f64 {
        match self {
            Difference::Values(found) => (found.error * 0.01).min(0.05),
            Difference::Failure(_) => 0.0,
        }
    }

    /// Whether a candidate shows the same.
    fn is_shown(&self, first: &Ran, second: &Ran) -> bool {
        match (self, Difference::of(first, second, self.least())) {
            (Difference::Values(_), Some(Difference::Values(_))) => true,
            (Difference::Failure(a), Some(Difference::Failure(b))) => a.is_like(&b),
            _ => false,
        }
    }
}

/// How a program is run a second way.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// By an engine.
    Engine(Engine),
    /// By the evaluator, after a pass.
    Pass(String),
}

/// Two ways that disagree.
pub(super) struct TwoWays<'r> {
    pub(super) runner: &'r Runner<'r>,
    pub(super) first: Way,
    pub(super) against: Engine,
    pub(super) difference: Difference,
}

/// Runs a case one way.
pub(super) fn run(runner: &Runner<'_>, case: &Case, way: &Way) -> Ran {
    let Some(files) = runner.files(case) else { return Ran::Nothing(Ended::NotRun) };
    match way {
        Way::Engine(engine) => runner.engine(case, &files, *engine),
        Way::Pass(pass) => {
            let text = |name: &str| files.path(name).display().to_string();
            let ended = runner.hloom(&["opt", &text("case.hlo"), "--passes", pass, "-o", &text("after.hlo")]);
            let Ended::With(0, _) = ended else { return Ran::Nothing(ended) };
            let Ok(after) = hloom::load(&text("after.hlo"), None).and_then(|l| l.verify(None)) else {
                return Ran::Nothing(Ended::NotRun);
            };
            runner.engine_on(&after.module, case.inputs.len(), &files, "after.hlo", Engine::Eval)
        }
    }
}

impl Oracle for TwoWays<'_> {
    fn is_interesting(&self, case: &Case) -> bool {
        let against = run(self.runner, case, &Way::Engine(self.against));
        // Without something to hold it against, nothing is shown: no need to run the first.
        matches!(against, Ran::Results(_)) && self.difference.is_shown(&run(self.runner, case, &self.first), &against)
    }

    fn reference(&self, case: &Case) -> Option<Vec<Value>> {
        match run(self.runner, case, &Way::Engine(self.against)) {
            Ran::Results(results) => Some(results),
            Ran::Nothing(_) => None,
        }
    }
}

/// A command of the user's that ends with 0 for a case that is of interest.
pub(super) struct UserCommand<'r> {
    pub(super) runner: &'r Runner<'r>,
    pub(super) line: String,
}

impl UserCommand<'_> {
    /// How the command ended for a case.
    pub(super) fn ask(&self, case: &Case) -> Ended {
        let Some(files) = self.runner.files(case) else { return Ended::NotRun };
        let (program, input) = (quoted(&files.path("case.hlo")), quoted(&files.path("input.npz")));
        let line = match self.line.contains("{}") {
            true => self.line.replace("{}", &program),
            false => format!("{} {program}", self.line),
        };
        self.runner.shell(&line.replace("{input}", &input))
    }
}

/// A path as one word of a shell's.
fn quoted(path: &std::path::Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

impl Oracle for UserCommand<'_> {
    fn is_interesting(&self, case: &Case) -> bool {
        matches!(self.ask(case), Ended::With(0, _))
    }

    fn reference(&self, case: &Case) -> Option<Vec<Value>> {
        match run(self.runner, case, &Way::Engine(Engine::Eval)) {
            Ran::Results(results) => Some(results),
            Ran::Nothing(_) => None,
        }
    }
}
