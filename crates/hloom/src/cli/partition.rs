//! `hloom partition`: the program of one device of a global program, and what it sends.

use super::args::PartitionArgs;
use super::table::{Align, Table};
use super::{Outcome, Result, Stop, input, output, progress, usage_error};
use hloom::annotation_advice::{Advised, advise};
use hloom::formats::hlo_text::{self, PrintOptions, print_sharding};
use hloom::global::{Global, sharded_devices};
use hloom::ir::entity::InstructionId;
use hloom::ir::module::Module;
use hloom::ir::sharding::{Sharding, ShardingKind};
use hloom::spmd::StepSource;
use hloom::spmd::partition::placement::Placement;
use hloom::spmd::report::{PartitionReport, report};

pub(crate) fn run(args: &PartitionArgs) -> Result {
    if args.auto {
        return super::partition_auto::run(args);
    }
    let verified = input::load_verified(&args.file)?;
    let (source, module) = (verified.source, verified.module);
    let devices = devices(module.module(), args.devices.map(i64::from))?;
    let kept = module.module().clone();
    let made = {
        let _progress = progress::start(format!("partitioning {}", source.name));
        Global::partition(module, devices).map_err(|found| {
            output::show(&source, Some(&kept), &found);
            Stop(Outcome::of(&found))
        })?
    };
    if let Some(name) = &args.explain {
        return explain(&made, name);
    }
    let figures = report(&made.source, &made.partitioned, &made.program);
    if let Some(path) = &args.output {
        output::to_path(path, text(&made).as_bytes())?;
    }
    if args.json {
        output::to_stdout(format!("{}\n", as_json(&made, &figures)).as_bytes())?;
    } else if args.report {
        let _progress = progress::start(format!("trying annotations of {}", source.name));
        let advice = advise(&kept, &made, &figures);
        output::to_stdout(describe(&made, &figures, &advice).as_bytes())?;
    } else if args.output.is_none() {
        output::to_stdout(text(&made).as_bytes())?;
    }
    Ok(Outcome::Well)
}

fn text(made: &Global) -> String {
    hlo_text::print(made.program.module(), &PrintOptions { elide_constants: false })
}

/// How many devices: the header's count, or what is asked for, or what the shardings are for.
pub(crate) fn devices(module: &Module, asked: Option<i64>) -> Result<i64> {
    let named = module.config.num_partitions;
    match (named, asked) {
        (n, Some(asked)) if n > 1 && n != asked => Err(usage_error(&format!(
            "the program is for {n} partitions, not for the {asked} devices that were asked for"
        ))),
        (n, _) if n > 1 => Ok(n),
        (_, Some(asked)) => Ok(asked),
        _ => {
            let implied = sharded_devices(module).unwrap_or(1);
            if implied > 1 {
                output::inform(&format!("{implied} devices, as the program's shardings imply\n"));
            }
            Ok(implied)
        }
    }
}

fn sharding_text(made: &Global, placement: &Placement) -> String {
    print_sharding(&Sharding::leaf(placement.to_sharding(&made.partitioned.axes)))
}

fn temp_bytes(made: &Global) -> Option<u64> {
    use hloom::compiler::CompileOptions;
    let devices = made.partitioned.axes.devices() as usize;
    let grid = hloom::eval::DeviceGrid { replicas: 1, partitions: devices };
    let client = hloom::Engine::Cpu.client(None).ok()?;
    let options = CompileOptions { fill_constants: true, ..CompileOptions::new(grid) };
    let loaded = client.compile(&made.program, &options).ok()?;
    u64::try_from(loaded.compiled().report.temp_bytes).ok()
}

fn as_json(made: &Global, figures: &PartitionReport) -> serde_json::Value {
    let collectives: Vec<_> = figures
        .collectives
        .iter()
        .map(|c| {
            serde_json::json!({
                "name": c.name, "kind": c.kind, "times": c.times, "bytes_in": c.bytes_in, "wire": c.wire,
                "group": c.group, "axes": c.axes, "source": c.source, "reason": c.reason,
            })
        })
        .collect();
    let inputs: Vec<String> = made.partitioned.parameters.iter().flatten().map(|s| sharding_text(made, s)).collect();
    let outputs: Vec<String> = made.partitioned.results.iter().map(|s| sharding_text(made, s)).collect();
    serde_json::json!({
        "devices": made.partitioned.axes.devices(),
        "propagate_ms": made.propagate.as_secs_f64() * 1e3,
        "partition_ms": made.partition.as_secs_f64() * 1e3,
        "inputs": inputs,
        "outputs": outputs,
        "collectives": collectives,
        "wire_bytes": figures.wire_bytes,
        "flops": figures.flops,
        "temp_bytes": temp_bytes(made),
        "gathered": figures.gathered,
        "conflicts": conflicts(made).into_iter().map(|(at, given)| serde_json::json!({ "at": at, "given": given }))
            .collect::<Vec<_>>(),
    })
}

fn describe(made: &Global, figures: &PartitionReport, advice: &Advised) -> String {
    let mut text = format!(
        "{} devices; a device sends {:.0} bytes, does {} flops, holds {} bytes of parameters and {} of results\n\n",
        made.partitioned.axes.devices(),
        figures.wire_bytes,
        figures.flops,
        figures.parameter_bytes,
        figures.result_bytes
    );
    let columns = [
        ("collective", Align::Left),
        ("times", Align::Right),
        ("bytes in", Align::Right),
        ("sent", Align::Right),
        ("group", Align::Right),
        ("axes", Align::Left),
        ("line", Align::Left),
        ("why", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for c in &figures.collectives {
        table.row([
            c.name.clone(),
            c.times.to_string(),
            c.bytes_in.to_string(),
            format!("{:.0}", c.wire),
            c.group.to_string(),
            c.axes.clone(),
            c.source.clone(),
            c.reason.clone(),
        ]);
    }
    text.push_str(&table.render());
    let mut sums = Table::new(&[("axes", Align::Left), ("sent", Align::Right)]);
    for (axes, wire) in &figures.by_axes {
        sums.row([axes.clone(), format!("{wire:.0}")]);
    }
    text.push('\n');
    text.push_str(&sums.render());
    if !figures.gathered.is_empty() {
        text.push_str("\ncomputed whole on every device, for want of a rule:\n");
        for name in &figures.gathered {
            text.push_str(&format!("  {name}\n"));
        }
    }
    if !made.propagation.conflicts.is_empty() {
        text.push_str("\nshardings that the program gives and that do not fit together; one of each is moved:\n");
        for (at, given) in conflicts(made) {
            text.push_str(&format!("  {at}: {}\n", given.join(", ")));
        }
    }
    if !advice.best.is_empty() {
        text.push_str("\none annotation more would save:\n");
        for a in &advice.best {
            let saved = figures.wire_bytes - a.wire_bytes;
            let line = if a.source.is_empty() { String::new() } else { format!(" ({})", a.source) };
            let sharding = print_sharding(&a.sharding);
            text.push_str(&format!("  {saved:.0} bytes: {}{line} as {sharding}\n", a.instruction));
        }
    }
    if advice.untried > 0 {
        text.push_str(&format!("\n{} annotations more were not tried: the program is large\n", advice.untried));
    }
    text
}

/// Where given shardings conflict: the operation, and both values with what the program says of them.
fn conflicts(made: &Global) -> Vec<(String, [String; 2])> {
    let named = |i: InstructionId| {
        let instruction = &made.source[i];
        let line = instruction.common.metadata.as_deref().filter(|m| !m.source_file.is_empty());
        let line = line.map_or_else(String::new, |m| format!(" ({}:{})", m.source_file, m.source_line));
        format!("{} {}{line}", instruction.op.opcode().name(), instruction.name())
    };
    let given = |(i, kind): &(InstructionId, ShardingKind)| {
        format!("{} is given as {}", named(*i), print_sharding(&Sharding::leaf(kind.clone())))
    };
    made.propagation.conflicts.iter().map(|c| (named(c.instruction), c.given.each_ref().map(given))).collect()
}

/// From which annotation an instruction has its sharding, step by step.
fn explain(made: &Global, name: &str) -> Result {
    let Some(at) = made.source.instruction_by_name(name) else {
        return Err(usage_error(&format!("the program has no instruction named {name}")));
    };
    let mut text = String::new();
    for leaf in 0..made.source[at].shape.leaf_count() {
        for step in made.propagation.explain(at, leaf) {
            let instruction = &made.source[step.instruction];
            let sharding = print_sharding(&Sharding::leaf(step.sharding.clone()));
            let how = match &step.source {
                StepSource::Annotation => "as the program says".to_owned(),
                StepSource::Through { instruction, .. } => {
                    let through = &made.source[*instruction];
                    format!("through {} {}", through.op.opcode().name(), through.name())
                }
                StepSource::Group { .. } => "as another of its group".to_owned(),
            };
            text.push_str(&format!("{} {}: {sharding}, {how}\n", instruction.op.opcode().name(), instruction.name()));
        }
    }
    output::to_stdout(text.as_bytes())?;
    Ok(Outcome::Well)
}
