//! `hloom partition --auto`: the shardings of a program's parameters and activations, chosen by predicted time within memory.

use super::args::PartitionArgs;
use super::table::{Align, Table};
use super::{Outcome, Result, Stop, input, output, progress, usage_error};
use hloom::formats::hlo_text::{self, PrintOptions};
use hloom::ir::module::Module;
use hloom::spmd::report::{PartitionReport, report};
use hloom::spmd::search::{AxisUse, Found, Role, SearchOptions, Tried, search};
use std::time::Instant;

/// Instructions that may be partitioned in all: some seconds of work.
const BUDGET: usize = 1_000_000;

/// The machine whose times are predicted where none is named.
const ASSUMED: &str = "tpu-v4";

/// The sizes of a mesh that is written `2x4`.
fn mesh(text: &str) -> Result<Vec<i64>> {
    let sizes: Option<Vec<i64>> =
        text.split('x').map(|part| part.parse::<i64>().ok().filter(|n| (1..=65536).contains(n))).collect();
    let sizes = sizes.filter(|s| s.len() <= 4 && s.iter().try_fold(1i64, |n, &d| n.checked_mul(d)).is_some());
    sizes.ok_or_else(|| usage_error(&format!("`{text}` is no mesh: it is written as up to four sizes, as `2x4`")))
}

pub(crate) fn run(args: &PartitionArgs) -> Result {
    let Some(text) = &args.mesh else { return Err(usage_error("--auto needs --mesh, as in --mesh 2x4")) };
    let sizes = mesh(text)?;
    if args.target.is_none() {
        output::inform(&format!("times are those of {ASSUMED}; --target names another machine\n"));
    }
    let target = input::target(args.target.as_deref().unwrap_or(ASSUMED))?;
    let verified = input::load_verified(&args.file)?;
    let (source, module) = (verified.source, verified.module);
    // A device has what the target's main memory holds, unless told otherwise.
    let memory_limit = args.memory_limit.or_else(|| u64::try_from(target.space(0)?.bytes?).ok());
    let options = SearchOptions { mesh: sizes, memory_limit, target: &target, budget: BUDGET };
    let begun = Instant::now();
    let found = {
        let _progress = progress::start(format!("searching for shardings of {}", source.name));
        search(module.module(), &options).map_err(|found| {
            output::show(&source, Some(module.module()), &found);
            Stop(Outcome::of(&found))
        })?
    };
    let seconds = begun.elapsed().as_secs_f64();
    let figures = report(&found.source, &found.partitioned, &found.program);
    if let Some(path) = &args.output {
        let text = hlo_text::print(found.program.module(), &PrintOptions { elide_constants: false });
        output::to_path(path, text.as_bytes())?;
    }
    let text = match args.json {
        true => format!("{}\n", as_json(&found, &options, &figures, seconds)),
        false => describe(&found, &options, &figures, seconds),
    };
    output::to_stdout(text.as_bytes())?;
    Ok(Outcome::Well)
}

fn axis_name(axis: usize) -> char {
    char::from(b'a' + (axis % 26) as u8)
}

/// `data(2) × tensor(4)`.
fn scheme(tried: &Tried, mesh: &[i64]) -> String {
    let axes: Vec<String> = tried.schemes.iter().zip(mesh).map(|(s, n)| format!("{}({n})", s.name())).collect();
    axes.join(" × ")
}

fn lists(dims: &[AxisUse]) -> String {
    let dim = |list: &AxisUse| {
        let axes: Vec<String> = list.iter().map(|&a| format!("\"{}\"", axis_name(a))).collect();
        format!("{{{}}}", axes.join(", "))
    };
    format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(", "))
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Batch => "batch",
        Role::Width => "width",
        Role::Inner => "inner",
    }
}

fn shape_of(module: &Module, parameter: usize) -> String {
    let parameters = module.entry().map_or_else(Vec::new, |e| module.parameters(e));
    parameters.get(parameter).map_or_else(String::new, |&p| module[p].shape.without_layout().to_string())
}

/// The activations of which something is said: what they are, how many are alike, and what is said; `?` is left open.
fn activations(found: &Found) -> Vec<(String, usize, String)> {
    let all = found.activations.iter().zip(&found.best.choice.activations);
    let stated = all.filter_map(|(class, lists_of)| {
        let dims: Vec<String> = class.dims.iter().map(i64::to_string).collect();
        let sharding = lists(lists_of.as_ref()?).replace("{}", "{?}");
        Some((format!("{} [{}]", class.opcode, dims.join(",")), class.members.len(), sharding))
    });
    stated.collect()
}

fn describe(found: &Found, options: &SearchOptions<'_>, figures: &PartitionReport, seconds: f64) -> String {
    let best = &found.best;
    let price = &best.price;
    let moved = match best.moves {
        0 => String::new(),
        1 => ", one class of arrays moved from there".into(),
        n => format!(", classes of arrays moved {n} times from there"),
    };
    let mut text = format!(
        "{}{moved}: {:.3} ms a step on {}, {:.3} ms of it communication; a device sends {:.0} bytes and holds {}\n",
        scheme(best, &options.mesh),
        price.seconds * 1e3,
        options.target.name,
        price.communication_seconds * 1e3,
        price.wire_bytes,
        price.memory_bytes,
    );
    if let Some(limit) = options.memory_limit.filter(|_| !best.fits(options)) {
        text.push_str(&format!("nothing that was tried fits into {limit} bytes; this takes least\n"));
    }
    let columns = [
        ("parameters", Align::Left),
        ("like it", Align::Right),
        ("dimensions", Align::Left),
        ("sharding", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for class in &found.classes {
        table.row([
            shape_of(&found.source, class.members[0]),
            class.members.len().to_string(),
            class.roles.iter().map(|&r| role(r)).collect::<Vec<_>>().join(", "),
            lists(&best.choice.layout[class.members[0]]),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render());
    let stated = activations(found);
    if !stated.is_empty() {
        let mut table =
            Table::new(&[("activations", Align::Left), ("like it", Align::Right), ("sharding", Align::Left)]);
        for (what, count, sharding) in stated {
            table.row([what, count.to_string(), sharding]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    let columns = [
        ("scheme", Align::Left),
        ("ms a step", Align::Right),
        ("communication", Align::Right),
        ("sent", Align::Right),
        ("memory", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for tried in &found.schemes {
        table.row([
            scheme(tried, &options.mesh),
            format!("{:.3}", tried.price.seconds * 1e3),
            format!("{:.3}", tried.price.communication_seconds * 1e3),
            format!("{:.0}", tried.price.wire_bytes),
            tried.price.memory_bytes.to_string(),
            if tried.fits(options) { String::new() } else { "does not fit".into() },
        ]);
    }
    text.push_str("\nby hand, the best first:\n");
    text.push_str(&table.render());
    let mut heaviest: Vec<_> = figures.collectives.iter().collect();
    heaviest.sort_by(|a, b| b.wire.total_cmp(&a.wire));
    if !heaviest.is_empty() {
        text.push_str("\nwhat is sent most:\n");
        for c in heaviest.iter().take(8) {
            text.push_str(&format!("  {:.0} bytes along {}: {} {}, {}\n", c.wire, c.axes, c.kind, c.name, c.reason));
        }
    }
    let layers = found.layers.map_or_else(String::new, |n| format!(", priced by a few of {n} repeated layers"));
    text.push_str(&format!("\n{} layouts tried in {seconds:.1} s{layers}\n", found.tries));
    text
}

fn as_json(found: &Found, options: &SearchOptions<'_>, figures: &PartitionReport, seconds: f64) -> serde_json::Value {
    let tried = |t: &Tried| {
        serde_json::json!({
            "scheme": scheme(t, &options.mesh), "moves": t.moves, "seconds": t.price.seconds,
            "communication_seconds": t.price.communication_seconds, "wire_bytes": t.price.wire_bytes,
            "memory_bytes": t.price.memory_bytes, "fits": t.fits(options),
        })
    };
    let schemes: Vec<_> = found.schemes.iter().map(tried).collect();
    let inputs: Vec<String> = found.best.choice.layout.iter().map(|dims| lists(dims)).collect();
    serde_json::json!({
        "best": tried(&found.best),
        "inputs": inputs,
        "activations": activations(found),
        "schemes": schemes,
        "tries": found.tries,
        "repeated_layers": found.layers,
        "memory_limit": options.memory_limit,
        "search_seconds": seconds,
        "wire_bytes": figures.wire_bytes,
        "flops": figures.flops,
    })
}
