//! What there is to say of an assignment, for people as tables.

use crate::cli::lines::clip;
use crate::cli::table::{Align, Table};
use crate::cli::words::plural;
use hloom::plan::Plan;
use hloom::plan::summary::{InUse, SpaceSummary};
use hloom::report::memory::describe::{label, shape, source};
use hloom::report::memory::{MemoryReport, kind};
use hloom::report::words::size;
use std::fmt::Write;

/// At the peak so many values are shown to people.
const SHOWN: usize = 20;
/// Of the other lists so many lines.
const LINES: usize = 10;
/// Of a shape so many characters.
const SHAPE: usize = 48;

fn bytes(n: i128) -> String {
    size(u64::try_from(n).unwrap_or(u64::MAX))
}

/// What a memory space is called.
fn memory(space: &SpaceSummary) -> String {
    if space.name.is_empty() { format!("memory {}", space.memory_space) } else { space.name.clone() }
}

/// Tables of what each memory takes, of what is in use at its peak, and of what could be better.
pub(super) fn to_text(report: &MemoryReport<'_, '_>) -> String {
    let MemoryReport { plan, target, .. } = report;
    let mut out = format!(
        "{} on {}: {} in {}\n\n",
        plan.dataflow.module().name,
        target.name,
        bytes(plan.total_bytes()),
        plural(plan.allocations.len(), "allocation")
    );
    out.push_str(&totals(report));
    out.push_str(&packing(report));
    report.spaces.iter().for_each(|space| out.push_str(&peak(plan, space)));
    out.push_str(&padding(report));
    out.push_str(&sharing(report));
    out.push_str(&advice(report));
    out
}

fn totals(report: &MemoryReport<'_, '_>) -> String {
    use Align::{Left, Right};
    let columns = [
        ("memory", Left),
        ("total", Right),
        ("of", Right),
        ("parameters", Right),
        ("results", Right),
        ("constants", Right),
        ("temporaries", Right),
        ("in use at most", Right),
        ("padding then", Right),
    ];
    let mut table = Table::new(&columns);
    for space in &report.spaces {
        let peak = space.peak.as_ref();
        table.row([
            format!("{} {}", space.memory_space, space.name),
            bytes(space.total),
            space.capacity.map_or(String::new(), |c| bytes(i128::from(c))),
            bytes(space.parameters),
            bytes(space.results),
            bytes(space.constants),
            bytes(space.temporaries + space.thread_local),
            peak.map_or(String::new(), |p| bytes(p.bytes)),
            peak.map_or(String::new(), |p| bytes(p.padding)),
        ]);
    }
    table.render()
}

/// How near each heap is to the least that it could take.
fn packing(report: &MemoryReport<'_, '_>) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[("memory", Left), ("heap", Right), ("at least", Right), ("above that", Right)]);
    let heaps: Vec<&SpaceSummary> = report.spaces.iter().filter(|s| s.heap > 0).collect();
    for space in &heaps {
        let above = space.heap - space.heap_lower_bound;
        let share = 100.0 * above as f64 / space.heap_lower_bound.max(1) as f64;
        table.row([
            memory(space),
            bytes(i128::from(space.heap)),
            bytes(i128::from(space.heap_lower_bound)),
            format!("{} ({share:.1} %)", bytes(i128::from(above))),
        ]);
    }
    section("what temporaries are packed into, and the bytes of them that are live at once", &heaps, &table)
}

fn peak(plan: &Plan<'_>, space: &SpaceSummary) -> String {
    let Some(peak) = &space.peak else { return String::new() };
    let module = plan.dataflow.module();
    let at = plan.schedule.sequence.get(peak.time as usize).map_or("the end", |&i| module[i].name());
    let mut out =
        format!("\nmost of {} is in use at {at}, step {} of {}:\n\n", memory(space), peak.time, plan.schedule.end());
    out.push_str(&values(plan, peak.values.iter().take(SHOWN)));
    if let Some(more) = peak.values.get(SHOWN..).filter(|m| !m.is_empty()) {
        let rest: i128 = more.iter().map(|v| i128::from(v.bytes)).sum();
        let _ = writeln!(out, "… and {} of {} together", plural(more.len(), "more value"), bytes(rest));
    }
    out
}

fn values<'a>(plan: &Plan<'_>, values: impl Iterator<Item = &'a InUse> + Clone) -> String {
    use Align::{Left, Right};
    let mut columns = vec![("bytes", Right), ("padding", Right), ("value", Left), ("shape", Left), ("steps", Left)];
    let known = values.clone().any(|v| !source(plan, v.value).is_empty());
    columns.extend(known.then_some(("from", Left)));
    let mut table = Table::new(&columns);
    for value in values {
        let steps = plan.live.of(value.value).map_or(String::new(), |r| format!("{} to {}", r.start, r.end));
        let mut row = vec![
            bytes(i128::from(value.bytes)),
            bytes(i128::from(value.padding())),
            label(plan, value.value),
            clip(&shape(plan, value.value), SHAPE),
            steps,
        ];
        row.extend(known.then(|| source(plan, value.value)));
        table.row(row);
    }
    table.render()
}

fn padding(report: &MemoryReport<'_, '_>) -> String {
    let mut padded: Vec<&InUse> = report.spaces.iter().flat_map(|s| &s.padded).collect();
    if padded.is_empty() {
        return String::new();
    }
    padded.sort_by_key(|v| (std::cmp::Reverse(v.padding()), v.value));
    let table = values(report.plan, padded.into_iter().take(LINES));
    format!("\nwhere tiles and tables pad most:\n\n{table}")
}

fn sharing(report: &MemoryReport<'_, '_>) -> String {
    use Align::{Left, Right};
    let columns =
        [("allocation", Right), ("for", Left), ("bytes", Right), ("values", Right), ("apart", Right), ("saved", Right)];
    let mut table = Table::new(&columns);
    for sharing in report.sharings.iter().take(LINES) {
        let allocation = &report.plan.allocations[sharing.allocation];
        table.row([
            sharing.allocation.to_string(),
            kind(allocation).to_owned(),
            bytes(i128::from(allocation.size)),
            sharing.values.to_string(),
            bytes(sharing.apart),
            bytes(sharing.apart - i128::from(allocation.size)),
        ]);
    }
    section("allocations that values share, and what those would take apart", &report.sharings, &table)
}

fn advice(report: &MemoryReport<'_, '_>) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[("bytes less", Right), ("memory", Left), ("change", Left)]);
    for advice in report.advice.iter().take(LINES) {
        let space = report.spaces.iter().find(|s| s.memory_space == advice.memory_space);
        table.row([bytes(advice.bytes), space.map_or(String::new(), memory), advice.text.clone()]);
    }
    let title = "what would lower a peak; each alone, with the peak computed anew, and they do not add up";
    let mut out = section(title, &report.advice, &table);
    if let Some(more) = report.advice.len().checked_sub(LINES).filter(|&m| m > 0) {
        let _ = writeln!(out, "… and {} (--json has them)", plural(more, "more change"));
    }
    out
}

/// A table below its title, if there is something in it.
fn section<T>(title: &str, content: &[T], table: &Table) -> String {
    if content.is_empty() { String::new() } else { format!("\n{title}:\n\n{}", table.render()) }
}
