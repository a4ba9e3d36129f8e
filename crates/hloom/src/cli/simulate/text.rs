//! A simulation in words and tables.

use super::Simulated;
use crate::cli::table::{Align, Table};
use crate::cli::words::plural;
use hloom::report::words::size;
use hloom::simulate::{Lane, Simulation};

/// So many instructions, waits and segments of the critical path are told.
const MOST_ROWS: usize = 12;

pub(super) fn report(simulated: &Simulated) -> String {
    let s = &simulated.simulation;
    let module = simulated.module();
    let mut out = headline(simulated);
    out += &totals(s);
    let step = s.step_seconds.max(f64::MIN_POSITIVE);
    let mut longest: Vec<_> = s.instructions.iter().filter(|i| i.lane != Lane::Copy).collect();
    longest.sort_by(|a, b| ((b.end - b.start) * b.runs).total_cmp(&((a.end - a.start) * a.runs)));
    let mut table = Table::new(&[
        ("instruction", Align::Left),
        ("opcode", Align::Left),
        ("runs", Align::Right),
        ("each", Align::Right),
        ("of the step", Align::Right),
        ("bound by", Align::Left),
    ]);
    for i in longest.iter().take(MOST_ROWS) {
        let instruction = module.instruction(i.instruction);
        table.row([
            instruction.name().to_owned(),
            instruction.opcode().to_string(),
            format!("{}", i.runs),
            time(i.end - i.start),
            format!("{:.1} %", (i.end - i.start) * i.runs / step * 100.0),
            i.bound.name().to_owned(),
        ]);
    }
    if !longest.is_empty() {
        out +=
            &format!("\nwhat takes longest, of {}:\n{}", plural(s.instructions.len(), "instruction"), table.render());
    }
    if !s.waits.is_empty() {
        let mut table = Table::new(&[("waited for", Align::Left), ("opcode", Align::Left), ("time", Align::Right)]);
        for wait in s.waits.iter().take(MOST_ROWS) {
            let instruction = module.instruction(wait.instruction);
            table.row([instruction.name().to_owned(), instruction.opcode().to_string(), time(wait.seconds)]);
        }
        out += &format!("\n{}", table.render());
    }
    out += &critical(simulated);
    out += &memory(s);
    out
}

fn headline(simulated: &Simulated) -> String {
    let s = &simulated.simulation;
    let on = if s.devices == 1 { String::new() } else { format!(", {} devices as {}", s.devices, s.topology) };
    let cycles = s.cycles.map_or_else(String::new, |c| format!(", {} cycles", grouped(c)));
    let classes = match s.classes.len() {
        0 | 1 => String::new(),
        n => format!("{n} classes of like devices; this is the slowest\n"),
    };
    format!("{} on {}{on}: {} a step{cycles}\n{classes}", simulated.file, s.target, time(s.step_seconds))
}

fn totals(s: &Simulation) -> String {
    let t = &s.totals;
    let step = s.step_seconds.max(f64::MIN_POSITIVE);
    let mut table = Table::new(&[("", Align::Left), ("time", Align::Right), ("of the step", Align::Right)]);
    let mut row = |name: &str, seconds: f64| {
        if seconds > 0.0 {
            table.row([name.to_owned(), time(seconds), format!("{:.1} %", seconds / step * 100.0)]);
        }
    };
    row("kernels", t.kernel_seconds);
    row("  arithmetic alone", t.compute_seconds);
    row("  memory traffic alone", t.memory_seconds);
    row("  starting", t.latency_seconds);
    row("network", t.network_seconds);
    row("  waited for", t.exposed_network_seconds);
    row("    for other devices", t.device_wait_seconds);
    row("copies", t.copy_seconds);
    row("  waited for", t.exposed_copy_seconds);
    let mut out = table.render();
    out += &format!(
        "utilisation: {:.1} % of the peak of products ({} flops), {:.1} % of the memory's bandwidth ({})",
        s.mfu * 100.0,
        scaled(t.flops),
        s.memory_utilisation * 100.0,
        size(t.bytes as u64)
    );
    for (name, share) in s.link_utilisation.iter().filter(|(_, u)| *u > 0.0) {
        out += &format!(", {:.1} % of {name}", share * 100.0);
    }
    out + "\n"
}

fn critical(simulated: &Simulated) -> String {
    let (s, module) = (&simulated.simulation, simulated.module());
    let mut by_lane = [0.0; 4];
    for &n in &s.critical_path {
        let e = &s.events[n];
        by_lane[e.lane as usize] += e.end - e.start;
    }
    let step = s.step_seconds.max(f64::MIN_POSITIVE);
    let lanes = [Lane::Compute, Lane::Copy, Lane::Network, Lane::Repeat];
    let parts: Vec<String> = lanes
        .iter()
        .filter(|l| by_lane[**l as usize] > 0.0)
        .map(|l| format!("{} {:.1} %", l.name(), by_lane[*l as usize] / step * 100.0))
        .collect();
    if parts.is_empty() {
        return String::new();
    }
    let mut out = format!("\ncritical path of {}: {}\n", plural(s.critical_path.len(), "event"), parts.join(", "));
    let mut longest = s.critical_path.clone();
    longest.sort_by(|&a, &b| {
        let length = |n: usize| s.events[n].end - s.events[n].start;
        length(b).total_cmp(&length(a))
    });
    longest.truncate(MOST_ROWS / 2);
    longest.sort_unstable();
    for n in longest {
        let e = &s.events[n];
        let more = if e.lane == Lane::Repeat { format!(" ({} more rounds)", e.rounds) } else { String::new() };
        let name = module.instruction(e.instruction).name();
        out += &format!("  {} + {}: {name}{more}, {}\n", time(e.start), time(e.end - e.start), e.lane.name());
    }
    out
}

fn memory(s: &Simulation) -> String {
    if s.memory.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("memory", Align::Left),
        ("planned", Align::Right),
        ("most in use", Align::Right),
        ("there is", Align::Right),
    ]);
    let bytes = |n: i128| size(u64::try_from(n).unwrap_or(u64::MAX));
    for m in &s.memory {
        let most = m.samples.iter().map(|s| s.1).max().unwrap_or(0);
        let there = m.capacity.map_or_else(String::new, |c| bytes(i128::from(c)));
        table.row([format!("{} {}", m.memory_space, m.name), bytes(m.planned_bytes), bytes(most), there]);
    }
    format!("\n{}", table.render())
}

/// Two simulations beside each other.
pub(super) fn comparison(first: &Simulated, second: &Simulated) -> String {
    let (a, b) = (&first.simulation, &second.simulation);
    let mut table = Table::new(&[("", Align::Left), ("A", Align::Right), ("B", Align::Right), ("B / A", Align::Right)]);
    let mut row = |name: &str, a: f64, b: f64, shown: &dyn Fn(f64) -> String| {
        let ratio = if a > 0.0 { format!("{:.3}", b / a) } else { String::new() };
        table.row([name.to_owned(), shown(a), shown(b), ratio]);
    };
    let times: [(&str, f64, f64); 8] = [
        ("step", a.step_seconds, b.step_seconds),
        ("kernels", a.totals.kernel_seconds, b.totals.kernel_seconds),
        ("arithmetic alone", a.totals.compute_seconds, b.totals.compute_seconds),
        ("memory traffic alone", a.totals.memory_seconds, b.totals.memory_seconds),
        ("network", a.totals.network_seconds, b.totals.network_seconds),
        ("network waited for", a.totals.exposed_network_seconds, b.totals.exposed_network_seconds),
        ("copies", a.totals.copy_seconds, b.totals.copy_seconds),
        ("copies waited for", a.totals.exposed_copy_seconds, b.totals.exposed_copy_seconds),
    ];
    for (name, a, b) in times {
        row(name, a, b, &time);
    }
    row("flops", a.totals.flops, b.totals.flops, &scaled);
    row("bytes", a.totals.bytes, b.totals.bytes, &scaled);
    row("bytes sent", a.totals.wire_bytes, b.totals.wire_bytes, &scaled);
    let main = |s: &Simulation| s.memory.iter().find(|m| m.memory_space == 0).map_or(0.0, |m| m.planned_bytes as f64);
    row("main memory", main(a), main(b), &scaled);
    row("of the peak", a.mfu, b.mfu, &|share| format!("{:.1} %", share * 100.0));
    format!("A: {}B: {}{}", headline(first), headline(second), table.render())
}

/// A time with three digits and its unit.
pub(super) fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    };
    match value {
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

fn scaled(n: f64) -> String {
    let units = ["", " k", " M", " G", " T", " P", " E"];
    let (mut value, mut unit) = (n, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0}") } else { format!("{value:.2}{}", units[unit]) }
}

/// A whole number with commas.
fn grouped(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([time(1.5), time(0.0123), time(4e-6), time(0.0)], ["1.50 s", "12.3 ms", "4.00 µs", "0.00 ns"]);
        assert_eq!([scaled(12.0), scaled(1.5e12)], ["12", "1.50 T"]);
        assert_eq!([grouped(1234567.0), grouped(12.0)], ["1,234,567", "12"]);
    }
}
