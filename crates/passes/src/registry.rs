//! All passes, by name.

use crate::pass::Pass;
use hloom_ir::diagnostic::codes::passes::UNKNOWN_PASS;
use hloom_ir::diagnostic::{Blame, Diagnostic, did_you_mean};

/// Every pass, in alphabetical order.
pub static ALL: &[&Pass] = &[
    &crate::rules::bf16::PASS,
    &crate::bitcasts::PASS,
    &crate::rules::dot::PASS,
    &crate::collectives::combine::PASS,
    &crate::copy_insertion::PASS,
    &crate::cse::PASS,
    &crate::dce::PASS,
    &crate::defuse::PASS,
    &crate::rules::expand::PASS,
    &crate::flatten_call_graph::PASS,
    &crate::fold::PASS,
    &crate::fusion::PASS,
    &crate::loops::hoist::PASS,
    &crate::inline::PASS,
    &crate::layout_assignment::PASS,
    &crate::normalize_layouts::PASS,
    &crate::barriers::PASS,
    &crate::schedule::PASS,
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
    &crate::rules::motion::PASS,
    &crate::split_reductions::PASS,
    &crate::collectives::start::PASS,
    &crate::loops::exchange::PASS,
];

/// The pass of that name.
pub fn find(name: &str) -> Result<&'static Pass, Diagnostic> {
    if let Some(pass) = ALL.iter().find(|p| p.name == name) {
        return Ok(pass);
    }
    let unknown = Diagnostic::error(&UNKNOWN_PASS, format!("there is no pass `{name}`")).blame(Blame::Data);
    Err(match did_you_mean(name, ALL.iter().map(|p| p.name)) {
        Some(near) => unknown.help(format!("did you mean `{near}`?")),
        None => unknown.help("`hloom opt --list` names them all"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        assert!(ALL.is_sorted_by(|a, b| a.name < b.name), "{ALL:?}");
        for pass in ALL {
            assert_eq!(find(pass.name).map(|p| p.name), Ok(pass.name));
            assert!(pass.statement.len() > 10 && pass.statement.ends_with(|c: char| c != '.'), "{}", pass.statement);
        }
    }

    #[test]
    fn a_name_nearly_right_is_helped() {
        let error = find("dces").unwrap_err();
        assert_eq!(error.code, &UNKNOWN_PASS);
        assert!(error.notes.iter().any(|n| n.message.contains("`dce`")), "{error:?}");
    }
}
