//! Numbers and places in words, as reports, tables and pages all write them.

use crate::source::source_position;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;

/// The file and line that an instruction comes from; empty where the module does not say.
pub fn source_line(module: &Module, id: InstructionId) -> String {
    match module[id].common.metadata.as_deref().map(|m| source_position(module, m)) {
        Some((file, line)) if !file.is_empty() => format!("{file}:{line}"),
        _ => String::new(),
    }
}

/// What the framework called the operation; empty where the module does not say.
pub fn op_name(module: &Module, id: InstructionId) -> &str {
    module[id].common.metadata.as_deref().map_or("", |m| &m.op_name)
}

/// `12`, `3.4 k`, `5.67 G`.
pub fn count(n: u64) -> String {
    scaled(n, 1000, &["", " k", " M", " G", " T", " P", " E"])
}

/// `12 B`, `3.4 KiB`, `5.67 GiB`.
pub fn size(n: u64) -> String {
    scaled(n, 1024, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// `12.0 ns`, `3.40 µs`, `56.7 ms`, of microseconds.
pub fn duration(us: f64) -> String {
    let (value, unit) = match us {
        t if t < 1.0 => (t * 1e3, "ns"),
        t if t < 1e3 => (t, "µs"),
        t if t < 1e6 => (t / 1e3, "ms"),
        t => (t / 1e6, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn scaled(n: u64, base: u64, units: &[&str]) -> String {
    let mut value = n as f64;
    let mut unit = 0;
    // Half a digit below the next unit is written in it: 999,999 is 1.00 M and not 1000 k.
    while value >= base as f64 - 0.5 && unit + 1 < units.len() {
        value /= base as f64;
        unit += 1;
    }
    match unit {
        0 => format!("{n}{}", units[0]),
        _ => format!("{}{}", three_digits(value), units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown: Vec<String> = [0, 999, 1000, 1234, 12_345, 999_949, 999_999, u64::MAX].map(count).into();
        assert_eq!(shown, ["0", "999", "1.00 k", "1.23 k", "12.3 k", "1.00 M", "1.00 M", "18.4 E"]);
        assert_eq!([0, 1023, 1024, 1536 << 20].map(size), ["0 B", "1023 B", "1.00 KiB", "1.50 GiB"]);
        assert_eq!([0.25, 3.4, 56_700.0, 2e8].map(duration), ["250 ns", "3.40 µs", "56.7 ms", "200 s"]);
    }
}
