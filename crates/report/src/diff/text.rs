//! A difference in words: one line that sums it up, then each difference with both texts.

use super::{Aspect, Change, Difference, InstructionFigures, ModuleDiff};
use hloom_analysis::cost::Cost;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One line on what differs.
pub fn summary(diff: &ModuleDiff) -> String {
    let (a, b) = (&diff.a, &diff.b);
    let sizes = match a.instructions == b.instructions {
        true => format!("{} instructions each", a.instructions),
        false => format!("{} → {} instructions", a.instructions, b.instructions),
    };
    let unknown = match diff.unknown_constants {
        0 => String::new(),
        n => format!("; {n} constants are left out of a dump and were not compared"),
    };
    if diff.is_equal() {
        return format!("no difference: {sizes}{unknown}");
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    diff.differences.iter().for_each(|d| *kinds.entry(d.kind()).or_default() += 1);
    if !diff.header.is_empty() {
        kinds.insert("header", diff.header.len());
    }
    let mut kinds: Vec<(&str, usize)> = kinds.into_iter().collect();
    kinds.sort_by_key(|&(kind, n)| (std::cmp::Reverse(n), kind));
    let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let count = diff.count();
    let plural = if count == 1 { "" } else { "s" };
    let cost = change_of_cost(a.cost, b.cost);
    format!("{count} difference{plural} ({}); {sizes}; {cost}{unknown}", kinds.join(", "))
}

/// Everything that differs, for people.
pub fn to_text(diff: &ModuleDiff) -> String {
    let mut out = summary(diff);
    out.push('\n');
    for words in &diff.header {
        let _ = writeln!(out, "\nheader: {words}");
    }
    for difference in &diff.differences {
        out.push('\n');
        write(&mut out, difference, 0);
    }
    out
}

fn write(out: &mut String, difference: &Difference, depth: usize) {
    let indent = "  ".repeat(depth);
    let _ = writeln!(out, "{indent}{}", headline(difference));
    let lines = [("-", &difference.a), ("+", &difference.b)];
    for (sign, side) in lines {
        if let Some(side) = side {
            let _ = writeln!(out, "{indent}  {sign} {}", side.text);
        }
    }
    for (what, side) in [("was", &difference.a), ("is", &difference.b)] {
        if let Some(place) = side.as_ref().and_then(place) {
            let _ = writeln!(out, "{indent}    {what} from {place}");
        }
    }
    let (a, b) = difference.costs();
    if (a, b) != (Cost::default(), Cost::default()) {
        let _ = writeln!(out, "{indent}    {}", change_of_cost(a, b));
    }
    difference.inside.iter().for_each(|inner| write(out, inner, depth + 1));
}

/// One difference in a line: `changed layout of %x in main: f32[2,3]{1,0} → f32[2,3]{0,1}`.
pub fn headline(difference: &Difference) -> String {
    let Some(side) = difference.b.as_ref().or(difference.a.as_ref()) else { return String::new() };
    let what = match difference.change {
        Change::Added => "added".to_owned(),
        Change::Removed => "removed".to_owned(),
        Change::Changed => {
            let kinds: Vec<&str> = difference.aspects.iter().map(|a| a.kind.name()).collect();
            format!("changed {} of", kinds.join(", "))
        }
    };
    let renamed = match (&difference.a, &difference.b) {
        (Some(a), Some(b)) if a.name != b.name => format!("%{} (now %{})", a.name, b.name),
        _ => format!("%{}", side.name),
    };
    let details: Vec<&str> = difference.aspects.iter().map(|a: &Aspect| &*a.detail).filter(|d| !d.is_empty()).collect();
    let details = if details.is_empty() { String::new() } else { format!(": {}", details.join("; ")) };
    let times = if difference.times > 1 { format!(" ({} times)", difference.times) } else { String::new() };
    format!("{what} {renamed} in {}{details}{times}", side.computation)
}

/// The source line and scope of an instruction.
pub(super) fn place(side: &InstructionFigures) -> Option<String> {
    match (side.source.is_empty(), side.op_name.is_empty()) {
        (true, true) => None,
        (false, true) => Some(side.source.clone()),
        (true, false) => Some(format!("\"{}\"", side.op_name)),
        (false, false) => Some(format!("{} \"{}\"", side.source, side.op_name)),
    }
}

/// `bytes 4096 → 8192 (+4096), flops 10 → 10`.
pub(super) fn change_of_cost(a: Cost, b: Cost) -> String {
    let one = |what: &str, x: u64, y: u64| match i128::from(y) - i128::from(x) {
        0 => format!("{what} {x}"),
        by => format!("{what} {x} → {y} ({by:+})"),
    };
    let flops = |c: Cost| c.flops.saturating_add(c.transcendentals);
    format!("{}, {}", one("bytes", a.bytes, b.bytes), one("flops", flops(a), flops(b)))
}
