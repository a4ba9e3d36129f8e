//! How much memory there is left to use, as far as the system says.

use std::fs::read_to_string;

/// The line of `/proc/meminfo` that counts what can be taken.
const AVAILABLE: &str = "MemAvailable:";

/// Bytes that can still be taken without the system having to end somebody: what the machine has available, or what the
/// process's control group has left, whichever is less. `None` where the system does not say.
pub fn available() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text, AVAILABLE));
    let group = group_available();
    match (machine, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Bytes that the machine has, or that the process's control group may take, whichever is less.
pub fn total() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text, "MemTotal:"));
    let group = read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    match (machine, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// `MemAvailable:   12345 kB`.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// What the control group has left (version 2); files that are absent or say `max` set no limit.
fn group_available() -> Option<u64> {
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max")?;
    Some(limit.saturating_sub(number("/sys/fs/cgroup/memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_available_memory_is_found() {
        let text = "MemTotal:       24576 kB\nMemFree:         1000 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n";
        assert_eq!(meminfo(text, AVAILABLE), Some(2 << 20));
        assert_eq!(meminfo(text, "MemTotal:"), Some(24 << 20));
        assert_eq!(meminfo("MemTotal: 1 kB\n", AVAILABLE), None);
    }
}
