//! `hloom bench --calibrate`: a description of the machine at hand, from programs that each measure one number.
//!
//! What cannot be measured this way (alignments, how dumps are written) is that of the description it begins with.

use super::bench::fastest_seconds;
use super::{Result, Stop, output, progress};
use hloom::load::parse;
use hloom::runtime::Client;
use hloom::target::Description;

/// Operations in a chain that measures a rate: enough that memory does not matter.
const CHAIN: usize = 48;
/// Elements of its arrays: a megabyte or two, in cache.
const ELEMENTS: usize = 1 << 18;

/// Measures the machine and gives its description as text.
pub(super) fn calibrated(client: &dyn Client, threads: usize, repeat: u32) -> Result<String> {
    let mut description = Description::named("cpu").map_err(|fault| wrong(&fault.message))?;
    let mut set =
        |key: &str, value: f64| description.set(key, &format!("{value:e}")).map_err(|fault| wrong(&fault.message));
    let time = |what: &str, text: &str| -> Result<f64> {
        let _progress = progress::start(format!("measuring {what}"));
        let program = parse(text).map_err(|rejected| wrong(&format!("measuring {what}: {rejected}")))?;
        fastest_seconds(client, &program, repeat).map_err(|faults| {
            let said: Vec<&str> = faults.iter().map(|f| f.message.as_str()).collect();
            wrong(&format!("measuring {what}: {}", said.join("; ")))
        })
    };
    let dispatch = time("a call", &unary("f32", 16, 1, "negate"))?;
    set("dispatch_us", dispatch * 1e6)?;
    // Bytes a second: an array that no cache holds, read and written; and smaller ones.
    let stream = |elements: usize| -> Result<f64> {
        let seconds = time("memory", &unary("f32", elements, 1, "negate"))?;
        Ok(8.0 * elements as f64 / (seconds - dispatch).max(seconds / 4.0))
    };
    set("memory.0.bandwidth", stream(1 << 26)?)?;
    set("memory.0.efficiency", 1.0)?;
    set("cache.3.bandwidth", stream(1 << 20)?)?;
    set("cache.2.bandwidth", stream(1 << 17)?)?;
    for (element_type, size) in [("f32", 1024), ("f64", 768), ("bf16", 1024)] {
        let seconds = time("products", &dot(element_type, size))?;
        set(&format!("rate.{element_type}.matmul"), 2.0 * (size as f64).powi(3) / seconds)?;
        set(&format!("rate.{element_type}.matmul_efficiency"), 1.0)?;
    }
    for element_type in ["f32", "f64", "bf16", "s32", "s64"] {
        let rate = |opcode: &str, length: usize| -> Result<f64> {
            let seconds = time("element-wise code", &unary(element_type, ELEMENTS, length, opcode))?;
            Ok((ELEMENTS * length) as f64 / (seconds - dispatch).max(seconds / 4.0))
        };
        set(&format!("rate.{element_type}.vector"), rate("multiply", CHAIN)?)?;
        if element_type.contains('f') {
            set(&format!("rate.{element_type}.transcendental"), rate("tanh", CHAIN / 8)?)?;
        }
    }
    description.set("cores", &threads.to_string()).map_err(|fault| wrong(&fault.message))?;
    let head = "# Measured by `hloom bench --calibrate`.\n";
    Ok(head.to_owned() + &description.to_text())
}

/// A chain of `length` operations on an array; binary ones take it twice.
fn unary(element_type: &str, elements: usize, length: usize, opcode: &str) -> String {
    let shape = format!("{element_type}[{elements}]");
    let mut body = format!("  v0 = {shape} parameter(0)\n");
    for n in 1..=length {
        let last = n - 1;
        let operands = if opcode == "multiply" { format!("v{last}, v0") } else { format!("v{last}") };
        let root = if n == length { "ROOT " } else { "" };
        body += &format!("  {root}v{n} = {shape} {opcode}({operands})\n");
    }
    format!("HloModule calibrate\nENTRY e {{\n{body}}}\n")
}

fn dot(element_type: &str, n: usize) -> String {
    let shape = format!("{element_type}[{n},{n}]");
    format!(
        "HloModule calibrate\nENTRY e {{\n  x = {shape} parameter(0)\n  y = {shape} parameter(1)
  ROOT z = {shape} dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
    )
}

fn wrong(message: &str) -> Stop {
    output::to_stderr(&format!("error: {message}\n"));
    Stop(super::Outcome::MachineAtFault)
}
