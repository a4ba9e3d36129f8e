//! `hloom stats`: a module in numbers, as tables or as one JSON object.

use super::args::StatsArgs;
use super::table::{Align, Table};
use super::words::plural;
use super::{Outcome, Result, input, json, output, progress};
use hloom::analysis::cost::Cost;
use hloom::analysis::summary::{Summary, summarise};
use hloom::ir::module::Module;
use hloom::ir::shape::Shape;
use hloom::report::words::{count, size};
use hloom::target::Target;
use serde::Serialize;
use std::fmt::Write;

pub(crate) fn run(args: &StatsArgs) -> Result {
    let verified = input::load_verified(&args.file)?;
    let target = input::target_of(args.target.as_deref(), &verified)?;
    let summary = {
        let _progress = progress::start(format!("measuring {}", verified.source.name));
        summarise(&verified.module)
    };
    let module = verified.module.module();
    let text = match args.json {
        true => json::to_line(&Stats::new(module, &summary, &target)),
        false => tables(module, &summary, &target),
    };
    output::to_stdout(text.as_bytes())?;
    Ok(Outcome::Well)
}

/// The bytes that the arrays in `shape` take on the machine, padding included; `None` where a dimension has no bound.
fn bytes_on(target: &Target, shape: &Shape) -> Option<u64> {
    shape.leaves().into_iter().try_fold(0u64, |sum, (_, leaf)| {
        let is_unbounded = leaf.as_array().is_some_and(|a| a.is_unbounded());
        let bytes = target.byte_size(leaf).filter(|_| !is_unbounded)?;
        sum.checked_add(u64::try_from(bytes).ok()?)
    })
}

fn parameter_bytes(module: &Module, summary: &Summary, target: &Target) -> Option<u64> {
    summary.parameters.iter().try_fold(0u64, |sum, &id| sum.checked_add(bytes_on(target, &module[id].shape)?))
}

fn result_bytes(module: &Module, target: &Target) -> Option<u64> {
    let root = module.entry().and_then(|entry| module.root(entry));
    root.map_or(Some(0), |root| bytes_on(target, &module[root].shape))
}

fn size_if_known(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "an unknown size".to_owned(), size)
}

/// What `--json` prints. Costs are those of one run on one device; all sizes are in bytes, null where nobody knows.
#[derive(Serialize)]
struct Stats<'a> {
    module: &'a str,
    target: &'a str,
    instructions: usize,
    computations: usize,
    is_scheduled: bool,
    replica_count: i64,
    num_partitions: i64,
    flops: u64,
    transcendentals: u64,
    bytes_accessed: u64,
    parameter_bytes: Option<u64>,
    result_bytes: Option<u64>,
    loops_of_unknown_trip_count: Vec<&'a str>,
    opcodes: Vec<OpcodeStats>,
    collectives: Vec<CollectiveStats<'a>>,
    parameters: Vec<ParameterStats<'a>>,
}

#[derive(Serialize)]
struct OpcodeStats {
    opcode: &'static str,
    count: u64,
    flops: u64,
    transcendentals: u64,
    bytes_accessed: u64,
}

#[derive(Serialize)]
struct CollectiveStats<'a> {
    opcode: &'static str,
    groups: &'a str,
    count: u64,
    executions: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct ParameterStats<'a> {
    number: usize,
    name: &'a str,
    shape: String,
    bytes: Option<u64>,
}

impl<'a> Stats<'a> {
    fn new(module: &'a Module, summary: &'a Summary, target: &'a Target) -> Stats<'a> {
        let Cost { flops, transcendentals, bytes } = summary.cost.total;
        let opcodes = summary.opcodes.iter().map(|line| OpcodeStats {
            opcode: line.opcode.name(),
            count: line.count,
            flops: line.cost.flops,
            transcendentals: line.cost.transcendentals,
            bytes_accessed: line.cost.bytes,
        });
        let collectives = summary.collectives.iter().map(|line| CollectiveStats {
            opcode: line.opcode.name(),
            groups: &line.groups,
            count: line.count,
            executions: line.executions,
            bytes: line.bytes,
        });
        let loops = summary.cost.unknown_trip_counts.iter().map(|&id| module.instruction(id).name());
        Stats {
            module: &module.name,
            target: &target.name,
            instructions: module.instruction_count(),
            computations: module.computations().len(),
            is_scheduled: module.is_scheduled,
            replica_count: module.config.replica_count,
            num_partitions: module.config.num_partitions,
            flops,
            transcendentals,
            bytes_accessed: bytes,
            parameter_bytes: parameter_bytes(module, summary, target),
            result_bytes: result_bytes(module, target),
            loops_of_unknown_trip_count: loops.collect(),
            opcodes: opcodes.collect(),
            collectives: collectives.collect(),
            parameters: parameters(module, summary, target).collect(),
        }
    }
}

fn parameters<'a>(
    module: &'a Module,
    summary: &'a Summary,
    target: &'a Target,
) -> impl Iterator<Item = ParameterStats<'a>> {
    summary.parameters.iter().enumerate().map(move |(number, &id)| {
        let parameter = module.instruction(id);
        let (shape, bytes) = (parameter.shape.to_string(), bytes_on(target, &parameter.shape));
        ParameterStats { number, name: parameter.name(), shape, bytes }
    })
}

fn tables(module: &Module, summary: &Summary, target: &Target) -> String {
    use Align::{Left, Right};
    let Cost { flops, transcendentals, bytes } = summary.cost.total;
    let config = &module.config;
    let mut out = format!(
        "{}: {} in {}{}, {} × {}\n",
        module.name,
        plural(module.instruction_count(), "instruction"),
        plural(module.computations().len(), "computation"),
        if module.is_scheduled { ", scheduled" } else { "" },
        plural(config.replica_count, "replica"),
        plural(config.num_partitions, "partition"),
    );
    let _ = writeln!(
        out,
        "one run on one device: {} flops, {} transcendentals, {} accessed\n",
        count(flops),
        count(transcendentals),
        size(bytes)
    );

    let mut table = Table::new(&[
        ("opcode", Left),
        ("count", Right),
        ("flops", Right),
        ("transcendentals", Right),
        ("accessed", Right),
    ]);
    for line in &summary.opcodes {
        let Cost { flops, transcendentals, bytes } = line.cost;
        let cells =
            [line.opcode.name().into(), line.count.to_string(), count(flops), count(transcendentals), size(bytes)];
        table.row(cells);
    }
    out.push_str(&table.render());

    if !summary.collectives.is_empty() {
        let columns =
            [("collective", Left), ("groups", Left), ("count", Right), ("executions", Right), ("bytes put in", Right)];
        let mut table = Table::new(&columns);
        for line in &summary.collectives {
            let cells = [line.opcode.name().into(), line.groups.clone(), line.count.to_string()];
            table.row(cells.into_iter().chain([line.executions.to_string(), size(line.bytes)]));
        }
        out.push('\n');
        out.push_str(&table.render());
    }

    if !summary.parameters.is_empty() {
        let mut table = Table::new(&[("parameter", Right), ("name", Left), ("shape", Left), ("size", Right)]);
        for p in parameters(module, summary, target) {
            let bytes = p.bytes.map_or_else(|| "unknown".to_owned(), size);
            table.row([p.number.to_string(), p.name.to_owned(), super::lines::clip(&p.shape, 80), bytes]);
        }
        out.push('\n');
        out.push_str(&table.render());
    }
    let _ = writeln!(
        out,
        "\nparameters take {}, the result takes {}",
        size_if_known(parameter_bytes(module, summary, target)),
        size_if_known(result_bytes(module, target))
    );
    let unknown = summary.cost.unknown_trip_counts.len();
    if unknown > 0 {
        let loops = plural(unknown, "loop");
        let _ = writeln!(out, "{loops} with no known trip count: what is inside is counted as if it ran once");
    }
    out
}
