//! One program on several machines and topologies: a row for each, in a table, as JSON, or as a plot.

use super::text::time;
use super::{machine, page, prepared, topology};
use crate::cli::args::SimulateArgs;
use crate::cli::json::to_line;
use crate::cli::table::{Align, Table};
use crate::cli::{Outcome, Result, input, output, progress};
use hloom::global::is_global;
use hloom::ir::diagnostic::codes::simulate::MEMORY_EXCEEDED;
use hloom::report::words::size;
use hloom::simulate::{Options, Simulation, simulate};
use hloom::target::Topology;
use serde::Serialize;

/// A machine and a topology, and what came of them.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) target: String,
    pub(super) topology: String,
    pub(super) devices: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step_ms: Option<f64>,
    /// Milliseconds a step times devices: what it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device_ms: Option<f64>,
    pub(super) compute_ms: f64,
    pub(super) memory_ms: f64,
    pub(super) exposed_network_ms: f64,
    pub(super) mfu: f64,
    pub(super) bound: &'static str,
    pub(super) main_memory_bytes: i128,
    pub(super) fits: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) error: String,
}

pub(super) fn run(args: &SimulateArgs, options: &Options) -> Result {
    let mut rows = Vec::new();
    for name in args.sweep.iter().flatten() {
        let topologies: Vec<Option<Topology>> = match &args.topologies {
            Some(all) => all.iter().map(|t| topology(t).map(Some)).collect::<Result<_>>()?,
            None => vec![options.topology.clone()],
        };
        for topology in topologies {
            rows.push(row(args, name, topology, options)?);
        }
    }
    if let Some(path) = &args.html {
        output::to_path(path, page::sweep(&args.file, &rows).as_bytes())?;
    }
    let text = match args.json {
        true => to_line(&rows),
        false => table(&rows),
    };
    output::to_stdout(text.as_bytes())?;
    // Some machines may be too small; that none is large enough is the program's fault.
    Ok(if rows.iter().any(|r| r.fits) { Outcome::Well } else { Outcome::InputAtFault })
}

fn row(args: &SimulateArgs, name: &str, topology: Option<Topology>, options: &Options) -> Result<Row> {
    let target = machine(args, name)?;
    let asked = topology.as_ref().map_or_else(String::new, Topology::to_string);
    let options = Options { topology, ..options.clone() };
    let refused = |error: String| Row {
        target: target.name.clone(),
        topology: asked.clone(),
        devices: options.topology.as_ref().map_or(0, Topology::devices),
        step_ms: None,
        device_ms: None,
        compute_ms: 0.0,
        memory_ms: 0.0,
        exposed_network_ms: 0.0,
        mfu: 0.0,
        bound: "",
        main_memory_bytes: 0,
        fits: false,
        error,
    };
    let verified = input::load_verified(&args.file)?;
    let module = verified.module.module();
    let (own, devices) = (module.config.num_partitions, options.topology.as_ref().map_or(0, Topology::devices));
    // Other machines and topologies may fit.
    if is_global(module) && own > 1 && devices > 0 && usize::try_from(own) != Ok(devices) {
        return Ok(refused(format!("the topology has {devices} devices, but the program is for {own} partitions")));
    }
    let verified = prepared(verified, &target, &options)?;
    let done = {
        let _progress = progress::start(format!("simulating on {name}"));
        simulate(&verified.module, &target, &options)
    };
    Ok(match done {
        Ok(simulation) => of(&simulation),
        Err(faults) => refused(faults.first().map_or_else(String::new, |f| f.message.clone())),
    })
}

fn of(s: &Simulation) -> Row {
    let t = &s.totals;
    let parts = [
        (t.exposed_network_seconds, "network"),
        (t.compute_seconds, "compute"),
        (t.memory_seconds, "memory"),
        (t.latency_seconds, "latency"),
    ];
    let bound = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or("", |p| p.1);
    let over = s.warnings.iter().find(|w| w.code == &MEMORY_EXCEEDED);
    Row {
        target: s.target.clone(),
        topology: s.topology.clone(),
        devices: s.devices,
        step_ms: Some(s.step_seconds * 1e3),
        device_ms: Some(s.step_seconds * 1e3 * s.devices as f64),
        compute_ms: t.compute_seconds * 1e3,
        memory_ms: t.memory_seconds * 1e3,
        exposed_network_ms: t.exposed_network_seconds * 1e3,
        mfu: s.mfu,
        bound,
        main_memory_bytes: s.memory.iter().find(|m| m.memory_space == 0).map_or(0, |m| m.planned_bytes),
        fits: over.is_none(),
        error: over.map_or_else(String::new, |w| w.message.clone()),
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("target", Align::Left),
        ("topology", Align::Left),
        ("step", Align::Right),
        ("device time", Align::Right),
        ("of the peak", Align::Right),
        ("network waited for", Align::Right),
        ("memory", Align::Right),
        ("bound by", Align::Left),
        ("", Align::Left),
    ]);
    for r in rows {
        let known = |text: String| if r.step_ms.is_some() { text } else { String::new() };
        table.row([
            r.target.clone(),
            r.topology.clone(),
            known(time(r.step_ms.unwrap_or(0.0) / 1e3)),
            known(time(r.device_ms.unwrap_or(0.0) / 1e3)),
            known(format!("{:.1} %", r.mfu * 100.0)),
            known(time(r.exposed_network_ms / 1e3)),
            known(size(u64::try_from(r.main_memory_bytes).unwrap_or(u64::MAX))),
            r.bound.to_owned(),
            r.error.clone(),
        ]);
    }
    table.render()
}
