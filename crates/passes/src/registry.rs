//! All passes, by name.

use crate::lists::{PassList, PassStep, PipelineStep};
use crate::pass::Pass;
use hloom_ir::diagnostic::codes::passes::UNKNOWN_PASS;
use hloom_ir::diagnostic::{Blame, Diagnostic, did_you_mean};

/// Every pass of this crate, in alphabetical order.
pub static ALL: &[&Pass] = &[
    &crate::rules::bf16::PASS,
    &crate::bitcasts::PASS,
    &crate::rules::dot::PASS,
    &crate::collectives::combine::PASS,
    &crate::cse::PASS,
    &crate::dce::PASS,
    &crate::defuse::PASS,
    &crate::entry_layouts::PASS,
    &crate::rules::expand::PASS,
    &crate::fold::PASS,
    &crate::loops::hoist::PASS,
    &crate::inline::PASS,
    &crate::layout_assignment::PASS,
    &crate::mixed_precision::PASS,
    &crate::legalize_products::PASS,
    &crate::normalize_layouts::PASS,
    &crate::collectives::order::PASS,
    &crate::rules::all_reduce::REASSOCIATE,
    &crate::barriers::PASS,
    &crate::placements::PASS,
    &crate::rules::all_reduce::SCATTER,
    &crate::rules::PASS,
    &crate::rules::arithmetic::PASS,
    &crate::rules::collectives::PASS,
    &crate::conditional::PASS,
    &crate::rules::convert::PASS,
    &crate::rules::counting::PASS,
    &crate::rules::gathers::PASS,
    &crate::rules::logic::PASS,
    &crate::loops::PASS,
    &crate::rules::reductions::PASS,
    &crate::rules::shape::PASS,
    &crate::rules::slices::PASS,
    &crate::rules::tuple::PASS,
    &crate::rules::windows::PASS,
    &crate::sink_converts::PASS,
    &crate::rules::motion::PASS,
    &crate::split_reductions::PASS,
    &crate::collectives::start::PASS,
    &crate::loops::double_buffer::PASS,
    &crate::excess_precision::ARITHMETIC,
    &crate::excess_precision::CONVERTED,
];

/// Passes by name: those of this crate, and those that backends and later stages add.
#[derive(Clone, Debug)]
pub struct Registry(Vec<&'static Pass>);

impl Registry {
    /// The passes of all these lists.
    pub fn new<'l>(lists: impl IntoIterator<Item = &'l [&'static Pass]>) -> Registry {
        let mut all: Vec<&'static Pass> = lists.into_iter().flatten().copied().collect();
        all.sort_by_key(|p| p.name);
        all.dedup_by_key(|p| p.name);
        Registry(all)
    }

    /// The passes of this crate alone.
    pub fn own() -> Registry {
        Registry::new([ALL])
    }

    /// These and others.
    pub fn with(&self, others: &[&'static Pass]) -> Registry {
        Registry::new([&self.0[..], others])
    }

    /// All of them, in alphabetical order.
    pub fn all(&self) -> &[&'static Pass] {
        &self.0
    }

    /// The pass of that name.
    pub fn find(&self, name: &str) -> Result<&'static Pass, Diagnostic> {
        if let Ok(n) = self.0.binary_search_by_key(&name, |p| p.name) {
            return Ok(self.0[n]);
        }
        let unknown = Diagnostic::error(&UNKNOWN_PASS, format!("there is no pass `{name}`")).blame(Blame::Data);
        Err(match did_you_mean(name, self.0.iter().map(|p| p.name)) {
            Some(near) => unknown.help(format!("did you mean `{near}`?")),
            None => unknown.help("`hloom opt --list` names them all"),
        })
    }

    /// These passes, each once, in this order.
    pub fn list<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<PassList, Diagnostic> {
        let steps = names.into_iter().map(|n| self.find(n).map(PassStep::Once));
        Ok(PassList { steps: steps.collect::<Result<_, _>>()? })
    }

    /// The passes of a pipeline.
    pub fn pipeline(&self, steps: &[PipelineStep]) -> Result<PassList, Diagnostic> {
        let step = |step: &PipelineStep| match step {
            PipelineStep::Once(name) => self.find(name).map(PassStep::Once),
            PipelineStep::Fixpoint(bound, names) => {
                let passes = names.iter().map(|n| self.find(n)).collect::<Result<_, _>>()?;
                Ok(PassStep::Fixpoint { bound: *bound, passes })
            }
        };
        Ok(PassList { steps: steps.iter().map(step).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        assert!(ALL.is_sorted_by(|a, b| a.name < b.name), "{ALL:?}");
        for pass in ALL {
            assert_eq!(Registry::own().find(pass.name).map(|p| p.name), Ok(pass.name));
            assert!(pass.statement.len() > 10 && pass.statement.ends_with(|c: char| c != '.'), "{}", pass.statement);
        }
    }

    #[test]
    fn a_name_nearly_right_is_helped() {
        let error = Registry::own().find("dces").unwrap_err();
        assert_eq!(error.code, &UNKNOWN_PASS);
        assert!(error.notes.iter().any(|n| n.message.contains("`dce`")), "{error:?}");
    }
}
