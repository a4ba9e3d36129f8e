//! `hloom opt` with passes over shardings: Shardy's over StableHLO, and the propagation of shardings over HLO.

use super::args::OptArgs;
use super::{Outcome, Result, Stop, input, output, progress};
use hloom::formats::hlo_text::{self, PrintOptions};
use hloom::ir::diagnostic::codes::passes::UNKNOWN_PASS;
use hloom::ir::diagnostic::codes::spmd::BAD_PASS_OPTION;
use hloom::ir::diagnostic::{Blame, Diagnostic};
use hloom::load::{display_name, read_bytes};
use hloom::spmd::propagate::has_named_shardings;
use hloom::spmd::{PropagationOptions, gspmd, propagate, shardy};
use hloom::stablehlo::mlir::module_text::module_text;
use hloom::stablehlo::{bytecode, read_bytecode, read_text};
use hloom::{Format, Rejected, Source};
use std::sync::Arc;

/// The pass over HLO.
const PROPAGATION: &str = "sharding-propagation";

/// Names of passes whose options were cut apart at commas, put together again.
fn whole_names(parts: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let is_open = |name: &String| {
        let count = |c: char| name.matches(c).count();
        count('\'') % 2 == 1 || count('"') % 2 == 1 || count('[') > count(']') || count('{') > count('}')
    };
    for part in parts {
        match names.last_mut().filter(|n| is_open(n)) {
            Some(last) => {
                last.push(',');
                last.push_str(part);
            }
            None => names.push(part.trim().to_owned()),
        }
    }
    names
}

/// Whether these are passes over shardings.
pub(crate) fn are_meant(parts: &[String]) -> bool {
    parts.first().is_some_and(|n| shardy::is_shardy(n.trim()) || n.trim().starts_with(PROPAGATION))
}

/// The passes and what they do.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    shardy::all_passes().chain([(PROPAGATION, "a sharding for every instruction, from those that the program gives")])
}

fn usage(diagnostic: &Diagnostic) -> Stop {
    output::to_stderr(&format!("{diagnostic}\n"));
    diagnostic.notes.iter().for_each(|n| output::to_stderr(&format!("  {}\n", n.message)));
    Stop(Outcome::UsageAtFault)
}

pub(crate) fn run(args: &OptArgs, file: &str, parts: &[String]) -> Result {
    let names = whole_names(parts);
    let text = match &names[..] {
        [one] if one.starts_with(PROPAGATION) => over_hlo(file, &options(one).map_err(|d| usage(&d))?)?,
        _ => {
            let passes = shardy::parse_passes(names.iter().map(String::as_str)).map_err(|d| usage(&d))?;
            over_stablehlo(file, &passes)?
        }
    };
    output::to_path(args.output.as_deref().unwrap_or("-"), text.as_bytes())?;
    Ok(Outcome::Well)
}

/// `sharding-propagation='is_spmd=true allow_propagation_to_output=true,false'`.
fn options(name: &str) -> std::result::Result<PropagationOptions, Diagnostic> {
    let mut options = PropagationOptions::default();
    let rest = name.strip_prefix(PROPAGATION).unwrap_or("");
    let Some(rest) = rest.strip_prefix('=').or(rest.is_empty().then_some("")) else {
        let message = format!("there is no pass `{name}`");
        return Err(Diagnostic::error(&UNKNOWN_PASS, message).blame(Blame::Data));
    };
    let bad = |what: &str| {
        Diagnostic::error(&BAD_PASS_OPTION, format!("`{PROPAGATION}` has no option `{what}`")).blame(Blame::Data).help(
            "it has is_spmd, allow_propagation_to_output, allow_propagation_to_parameters and cse_prevention_only",
        )
    };
    for option in rest.trim_matches(['\'', '"', '{', '}']).split_whitespace() {
        let (key, value) = option.split_once('=').ok_or_else(|| bad(option))?;
        let flag = |v: &str| match v.trim() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(bad(option)),
        };
        let flags =
            || value.trim_matches(['[', ']', '{', '}']).split(',').map(flag).collect::<std::result::Result<_, _>>();
        match key {
            "is_spmd" => options.is_spmd = flag(value)?,
            "cse_prevention_only" => options.cse_prevention_only = flag(value)?,
            "allow_propagation_to_output" => options.allow_propagation_to_output = flags()?,
            "allow_propagation_to_parameters" => options.allow_propagation_to_parameters = flags()?,
            _ => return Err(bad(option)),
        }
    }
    Ok(options)
}

fn over_hlo(file: &str, options: &PropagationOptions) -> Result<String> {
    let verified = input::load_verified(file)?;
    let source = verified.source;
    let mut module = verified.module.into_module();
    let _progress = progress::start(format!("propagating shardings of {}", source.name));
    let done = match has_named_shardings(&module) {
        true => propagate(&mut module, options),
        // What nothing is known of stays without a sharding.
        false => gspmd::propagate_known(&mut module, options),
    };
    if !options.cse_prevention_only {
        gspmd::annotations_to_copies(&mut module);
    }
    if let Err(diagnostics) = done {
        output::show(&source, Some(&module), &diagnostics);
        return Err(Stop(Outcome::InputAtFault));
    }
    Ok(hlo_text::print(&module, &PrintOptions { elide_constants: false }))
}

fn over_stablehlo(file: &str, passes: &[shardy::PassName]) -> Result<String> {
    let bytes = Arc::new(read_bytes(file).map_err(|r| input::show_rejected(&r))?);
    let is_bytecode = bytes.starts_with(bytecode::MAGIC);
    let format = if is_bytecode { Format::StableHloBytecode } else { Format::StableHlo };
    let rejected = |diagnostics: Vec<Diagnostic>| {
        let name = display_name(file).to_owned();
        let source = Source { name, bytes: bytes.clone(), format, positions: Default::default() };
        input::show_rejected(&Rejected { source, module: None, diagnostics })
    };
    let _progress = progress::start(format!("propagating shardings of {}", display_name(file)));
    let read = if is_bytecode { read_bytecode(&bytes) } else { read_text(&bytes) };
    let mut module = read.map_err(|d| rejected(vec![*d]))?;
    shardy::run(&mut module, passes).map_err(rejected)?;
    Ok(module_text(&module, is_bytecode || has_module(&bytes)))
}

/// Whether a text writes the module around its functions out.
fn has_module(text: &[u8]) -> bool {
    let starts = |line: &[u8]| {
        let line = line.trim_ascii_start();
        line.starts_with(b"module") || line.starts_with(b"builtin.module") || line.starts_with(b"\"builtin.module\"")
    };
    text.split(|&b| b == b'\n').any(starts)
}
