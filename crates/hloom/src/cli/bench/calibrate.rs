//! `hloom bench --calibrate`: a description of the machine at hand, from programs that each measure one number.
//!
//! What cannot be measured this way (alignments, sizes of caches, how dumps are written) is that of the description it
//! begins with: that of the machine's kind.

use super::super::Result;
use super::probe::{Operations, Probe, wrong};
use hloom::cost::CoreCost;
use hloom::runtime::Client;
use hloom::target::Description;

/// Operations that a product of small matrices waits for: a multiplication, and the sum of a row.
const WAITED: f64 = 7.0;

/// Measures the machine and gives its description as text; `threads` compute, where the engine has threads.
pub(super) fn calibrated(client: &dyn Client, threads: Option<usize>, repeat: u32) -> Result<String> {
    let target = client.backend().target();
    let mut description = Description::named(&target.name).map_err(|fault| wrong(&fault.message))?;
    let mut set =
        |key: &str, value: f64| description.set(key, &format!("{value:e}")).map_err(|fault| wrong(&fault.message));
    let probe = Probe::new(client, repeat)?;
    if threads.is_some() {
        let (dispatch, launch) = probe.starts()?;
        set("dispatch_us", dispatch * 1e6)?;
        let operation = probe.operation()?;
        // The kernels that were measured wait for what they compute, which others seldom do.
        set("launch_us", (launch - WAITED * operation).max(launch / 4.0) * 1e6)?;
        set("loop_launch_us", probe.launch()? * 1e6)?;
        set("operation_us", operation * 1e6)?;
    } else {
        set("dispatch_us", probe.dispatch * 1e6)?;
        set("launch_us", probe.launch()? * 1e6)?;
    }
    // Four times what the caches hold, where these are of a size that says something: what more than that is read of new
    // pages is the operating system's time.
    let largest = target.compute.caches.iter().map(|c| c.bytes).max();
    let bandwidth = match largest.and_then(|bytes| usize::try_from(bytes).ok()) {
        Some(bytes) if threads.is_some() => probe.stream(bytes)?.0,
        _ => probe.memory_bandwidth()?,
    };
    set("memory.0.bandwidth", bandwidth)?;
    set("memory.0.efficiency", 1.0)?;
    let core = CoreCost::of(target).map_err(|fault| wrong(&fault.message))?;
    let cores = threads.map_or(1.0, |n| n as f64);
    for cache in target.compute.caches.iter().filter(|c| c.level > 1 && c.bandwidth.is_some()) {
        // An eighth of it read, an eighth written: what else is in it does not matter.
        let elements = usize::try_from(cache.bytes / 32).unwrap_or(0).next_power_of_two();
        let (bandwidth, seconds) = probe.stream(elements)?;
        // What is too little for several threads is done by one, at its part of the speed.
        let is_alone = seconds * 1e9 * cores < 2.0 * core.worth_sharing();
        // So fast that what was measured is the call.
        if seconds > 2.0 * probe.dispatch {
            let all = if is_alone { cores } else { 1.0 };
            set(&format!("cache.{}.bandwidth", cache.level), bandwidth * all)?;
        }
    }
    for rate in &target.compute.rates {
        let name = rate.element_type.name();
        let is_float = rate.element_type.is_float();
        // Types of eight bits are multiplied into wider ones, in forms that differ from machine to machine.
        if rate.matmul.is_some() && is_float && rate.element_type.bits() >= 16 {
            set(&format!("rate.{name}.matmul"), probe.product(name)?)?;
            set(&format!("rate.{name}.matmul_efficiency"), 1.0)?;
        }
        if rate.vector.is_some() {
            set(&format!("rate.{name}.vector"), probe.rate(name, Operations::Vector)?)?;
        }
        if rate.transcendental.is_some() {
            set(&format!("rate.{name}.transcendental"), probe.rate(name, Operations::Transcendental)?)?;
        }
    }
    if let Some(threads) = threads {
        description.set("cores", &threads.to_string()).map_err(|fault| wrong(&fault.message))?;
    }
    let head = "# Measured by `hloom bench --calibrate`.\n";
    Ok(head.to_owned() + &description.to_text())
}
