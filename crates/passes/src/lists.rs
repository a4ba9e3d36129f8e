//! Which passes run for which target: lists, as data.

use crate::pass::Pass;
use crate::registry;
use hloom_ir::diagnostic::codes::passes::NO_LIST;
use hloom_ir::diagnostic::{Blame, Diagnostic};

/// What is done to a module, in order.
#[derive(Clone, Debug)]
pub struct PassList {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One or more passes.
#[derive(Clone, Debug)]
pub enum Step {
    /// One pass, once.
    Once(&'static Pass),
    /// Passes that give each other work: all of them again, until none changes anything or the bound is reached.
    Fixpoint {
        /// How often at most.
        bound: usize,
        /// The passes.
        passes: Vec<&'static Pass>,
    },
}

/// A step of a target's list, by names.
enum Named {
    Once(&'static str),
    Fixpoint(usize, &'static [&'static str]),
}
use Named::{Fixpoint, Once};

/// The lists, by the names of targets.
static LISTS: &[(&str, &[Named])] = &[(
    "cpu",
    &[
        Once("normalize-layouts"),
        Once("defuse"),
        Once("expand"),
        // What is called from many places is made small before it is copied to each.
        Fixpoint(1, &["simplify", "cse", "dce"]),
        Once("inline-calls"),
        Once("dce"),
        Once("flatten-call-graph"),
        Once("bf16-normalization"),
        // Transposes of products go into them before they sink below what comes after.
        Once("canonicalize-dots"),
        // Before what it puts in can meet transposes to cancel with.
        Once("layout-assignment"),
        Fixpoint(
            4,
            &[
                "simplify",
                "simplify-conditionals",
                "simplify-loops",
                "sink-shapes",
                "fold-constants",
                "canonicalize-dots",
                "cse",
                "dce",
            ],
        ),
        Once("hoist-invariants"),
        Once("unroll-exchanges"),
        Fixpoint(2, &["simplify", "cse", "dce"]),
        // Not made asynchronous here (`start-collectives`): the engine comes to a collective where it stands in the list and
        // waits for it before the first step that needs it, so that a start and a done would say nothing new.
        Once("combine-collectives"),
        Once("remove-barriers"),
        Once("split-reductions"),
        Once("fusion"),
        Once("bitcast-reshapes"),
    ],
)];

impl PassList {
    /// The passes for a target.
    pub fn for_target(name: &str) -> Result<PassList, Diagnostic> {
        let (_, named) = LISTS.iter().find(|(target, _)| *target == name).ok_or_else(|| {
            let known: Vec<&str> = LISTS.iter().map(|(target, _)| *target).collect();
            Diagnostic::error(&NO_LIST, format!("there is no list of passes for the target `{name}`"))
                .blame(Blame::Data)
                .note(format!("there is one for {}", known.join(", ")))
                .help("name the passes with --passes")
        })?;
        let step = |named: &Named| match named {
            Once(name) => registry::find(name).map(Step::Once),
            Fixpoint(bound, names) => {
                let passes = names.iter().map(|n| registry::find(n)).collect::<Result<_, _>>()?;
                Ok(Step::Fixpoint { bound: *bound, passes })
            }
        };
        Ok(PassList { steps: named.iter().map(step).collect::<Result<_, _>>()? })
    }

    /// These passes, each once, in this order.
    pub fn of_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<PassList, Diagnostic> {
        let steps = names.into_iter().map(|n| registry::find(n).map(Step::Once));
        Ok(PassList { steps: steps.collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_names_passes_that_exist_and_ends() {
        for (target, named) in LISTS {
            assert!(hloom_target::Target::named(target).is_ok(), "{target}");
            assert_eq!(PassList::for_target(target).unwrap().steps.len(), named.len());
            assert!(named.iter().all(|n| !matches!(n, Fixpoint(bound, names) if *bound == 0 || names.is_empty())));
        }
        assert_eq!(PassList::for_target("abacus").unwrap_err().code, &NO_LIST);
    }
}
