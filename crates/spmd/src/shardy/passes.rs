//! The passes by their names.

use super::{State, constraints, export, functions, groups, import, propagate, splitter};
use crate::factors::Strategy;
use crate::factors::engine::{Order, Rounds};
use hloom_ir::diagnostic::codes::passes::UNKNOWN_PASS;
use hloom_ir::diagnostic::codes::spmd as codes;
use hloom_ir::diagnostic::{Blame, Diagnostic, did_you_mean};
use hloom_stablehlo::mlir::Module;

/// A pass, with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassName {
    name: &'static str,
    options: Vec<(String, String)>,
}

/// Every pass, with what it does and the options that it takes.
const ALL: &[(&str, &str, &[&str])] = &[
    ("sdy-basic-propagate", "axes go to all arrays of an operation or to none", PROPAGATION),
    ("sdy-aggressive-propagate", "axes go to each array of an operation that can take them", PROPAGATION),
    ("sdy-op-priority-propagate", "element-wise operations first, then others", PROPAGATION),
    ("sdy-user-priority-propagate", "by the priorities that the program gives", PROPAGATION),
    (
        "sdy-propagation-pipeline",
        "everything from annotations to a sharding for every value",
        &["dedup-functions-fully"],
    ),
    ("sdy-import-pipeline", "what comes before propagation", &["dedup-functions-fully"]),
    ("sdy-add-data-flow-edges", "shardings go through loops, conditionals and manual computations", &[]),
    ("sdy-sink-data-flow-edges", "loops and the like hold the shardings of their values", &[]),
    ("sdy-apply-sharding-constraints", "a closed constraint is the sharding of what it constrains", &[]),
    ("sdy-constant-or-scalar-splitter", "a copy of constants and of broadcast scalars for each use", &[]),
    ("sdy-constant-or-scalar-merger", "equal copies of constants become one again", &[]),
    ("sdy-sharding-group-import", "groups with a value in common are one", &[]),
    ("sdy-remove-size-one-axes", "axes of one device are left out of shardings", &[]),
    ("sdy-manual-axes-cleanup", "manual axes that cut nothing are replicated", &[]),
    ("sdy-update-non-divisible-input-output-shardings", "inputs and outputs are cut into equal parts", &[]),
    ("sdy-remove-sub-axes-in-input-output-shardings", "open inputs and outputs are cut along whole axes", &[]),
    ("sdy-sharding-constraint-to-reshard", "constraints become reshards", &[]),
    ("sdy-close-shardings", "no dimension is left open", &[]),
    ("sdy-remove-sharding-groups", "sharding groups are taken away", &[]),
    ("sdy-populate-op-sharding-rules", "each operation carries its rule", &[]),
    ("sdy-drop-sharding-rules", "rules are taken away", &[]),
];

const PROPAGATION: &[&str] = &["keep-sharding-rules", "propagation-strategy", "run-op-priority-propagation"];

impl PassName {
    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
    fn flag(&self, name: &str) -> bool {
        self.option(name) == Some("true")
    }
}

/// Whether a list of passes is of those over StableHLO.
pub fn is_shardy(name: &str) -> bool {
    name.starts_with("sdy-")
}

/// Every pass with what it does.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|(name, statement, _)| (*name, *statement))
}

/// Passes as they are written: `sdy-basic-propagate='keep-sharding-rules=true'`, or with double quotes or none.
pub fn parse_passes<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Vec<PassName>, Diagnostic> {
    texts.into_iter().map(parse_pass).collect()
}

fn parse_pass(text: &str) -> Result<PassName, Diagnostic> {
    let (name, options) = text.trim().split_once('=').unwrap_or((text.trim(), ""));
    let Some((name, _, known)) = ALL.iter().find(|(n, _, _)| *n == name) else {
        let unknown = Diagnostic::error(&UNKNOWN_PASS, format!("there is no pass `{name}`")).blame(Blame::Data);
        return Err(match did_you_mean(name, ALL.iter().map(|p| p.0)) {
            Some(near) => unknown.help(format!("did you mean `{near}`?")),
            None => unknown,
        });
    };
    let options = options.trim_matches(['\'', '"', '{', '}']);
    let mut parsed = Vec::new();
    for option in options.split_whitespace() {
        let (key, value) = option.split_once('=').unwrap_or((option, "true"));
        if !known.contains(&key) {
            let message = format!("`{name}` has no option `{key}`");
            let error = Diagnostic::error(&codes::BAD_PASS_OPTION, message).blame(Blame::Data);
            return Err(match known {
                [] => error.help("it has none"),
                _ => error.help(format!("it has {}", known.join(", "))),
            });
        }
        parsed.push((key.to_owned(), value.to_owned()));
    }
    Ok(PassName { name, options: parsed })
}

fn rounds(pass: &PassName, op_priority: bool, user_priority: bool) -> Rounds {
    let strategy = match pass.option("propagation-strategy") {
        Some("basic") => Strategy::Basic,
        _ => Strategy::Aggressive,
    };
    let op_priority = pass.option("run-op-priority-propagation").map_or(op_priority, |v| v == "true");
    Rounds { strategy, op_priority, user_priority, order: Order::Latest }
}

pub(super) fn run(m: &mut Module<'_>, pass: &PassName, state: &mut State) -> Result<(), Vec<Diagnostic>> {
    let keep = pass.flag("keep-sharding-rules");
    match pass.name {
        "sdy-basic-propagate" => {
            let basic =
                Rounds { strategy: Strategy::Basic, op_priority: false, user_priority: false, order: Order::Latest };
            propagate(m, *state, basic, keep)?;
        }
        "sdy-aggressive-propagate" => propagate(m, *state, rounds(pass, false, false), keep)?,
        "sdy-op-priority-propagate" => propagate(m, *state, rounds(pass, true, false), keep)?,
        "sdy-user-priority-propagate" => propagate(m, *state, rounds(pass, true, true), keep)?,
        "sdy-propagation-pipeline" => pipeline(m, pass, state)?,
        "sdy-import-pipeline" => import_pipeline(m, pass.flag("dedup-functions-fully"), state),
        "sdy-add-data-flow-edges" => state.edges = true,
        "sdy-sink-data-flow-edges" => {
            export::sink_edges(m);
            state.edges = false;
        }
        "sdy-apply-sharding-constraints" => constraints::apply(m, *state),
        "sdy-constant-or-scalar-splitter" => splitter::split(m),
        "sdy-constant-or-scalar-merger" => splitter::merge(m),
        "sdy-sharding-group-import" => groups::import(m),
        "sdy-remove-size-one-axes" => import::remove_size_one_axes(m),
        "sdy-manual-axes-cleanup" => import::clean_manual_axes(m),
        "sdy-update-non-divisible-input-output-shardings" => export::divide_inputs_and_outputs(m),
        "sdy-remove-sub-axes-in-input-output-shardings" => export::remove_sub_axes(m),
        "sdy-sharding-constraint-to-reshard" => export::constraints_to_reshards(m),
        "sdy-close-shardings" => export::close(m),
        "sdy-remove-sharding-groups" => export::remove_groups(m),
        "sdy-populate-op-sharding-rules" => {
            let built = super::build::Built::new(m, *state)?;
            super::write::rules(m, &built);
        }
        "sdy-drop-sharding-rules" => super::write::drop_rules(m),
        _ => {}
    }
    Ok(())
}

fn import_pipeline(m: &mut Module<'_>, dedup: bool, state: &mut State) {
    functions::remove_uncalled(m);
    import::remove_size_one_axes(m);
    functions::results_to_calls(m);
    splitter::split(m);
    import::clean_manual_axes(m);
    state.edges = true;
    if dedup {
        constraints::apply(m, *state);
        groups::import(m);
    }
}

fn pipeline(m: &mut Module<'_>, pass: &PassName, state: &mut State) -> Result<(), Vec<Diagnostic>> {
    let dedup = pass.flag("dedup-functions-fully");
    import_pipeline(m, dedup, state);
    if !dedup {
        functions::flatten(m);
        constraints::apply(m, *state);
        groups::import(m);
    }
    state.call_edges = true;
    propagate(m, *state, rounds(pass, true, true), false)?;
    functions::returned_shardings(m);
    if !dedup {
        functions::merge_copies(m);
    }
    functions::remove_uncalled(m);
    *state = State::default();
    splitter::merge(m);
    export::sink_edges(m);
    export::remove_groups(m);
    export::constraints_to_reshards(m);
    export::divide_inputs_and_outputs(m);
    export::remove_sub_axes(m);
    export::close(m);
    export::sums_before_reshards(m);
    Ok(())
}
