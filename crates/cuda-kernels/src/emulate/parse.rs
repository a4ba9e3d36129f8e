//! The text of a kernel as data: one instruction a line, operands resolved to registers, constants and addresses.

use std::collections::HashMap;

use super::EmulationError;

/// An operand.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Operand {
    /// A register, by its number among all.
    Reg(usize),
    /// A constant, as bits; integers are sign-extended.
    Constant(u64),
    /// `[base+offset]`.
    Address(Box<Operand>, i64),
    /// `{…}`.
    Tuple(Vec<Operand>),
    /// `%tid.x` and the like.
    Special(Special),
    /// The number of an instruction.
    Target(usize),
    /// A parameter, by number.
    Parameter(usize),
    /// `_`.
    Sink,
    /// `r|p`: a result and a predicate.
    Pair(usize, usize),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Special {
    Thread(usize),
    Block(usize),
    Threads(usize),
    Blocks(usize),
    Lane,
    LanesBelow,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    /// The predicate register and the value it must have.
    pub guard: Option<(usize, bool)>,
    /// The opcode and its modifiers.
    pub parts: Vec<String>,
    pub operands: Vec<Operand>,
    /// For messages.
    pub text: String,
}

/// A kernel.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub instructions: Vec<Instruction>,
    pub registers: usize,
    pub threads_limit: usize,
}

pub(super) const SHARED_BASE: u64 = 1024;

pub(super) fn program(text: &str) -> Result<Program, EmulationError> {
    let mut registers = HashMap::new();
    let mut count = 0usize;
    let mut labels = HashMap::new();
    let mut lines = Vec::new();
    let mut inside = false;
    let mut threads_limit = 0;
    for line in text.lines() {
        let line = line.trim();
        if line == "{" {
            inside = true;
            continue;
        }
        if let Some(rest) = line.strip_prefix(".maxntid ") {
            threads_limit = rest.split(',').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0);
        }
        if !inside || line.is_empty() || line == "}" || line.starts_with(".pragma ") {
            continue;
        }
        if let Some(rest) = line.strip_prefix(".reg ") {
            let (_, name) =
                rest.split_once(' ').ok_or_else(|| EmulationError::new("a register without a name", line))?;
            let (prefix, size) = name
                .trim_end_matches(['>', ';'])
                .split_once('<')
                .ok_or_else(|| EmulationError::new("registers without a count", line))?;
            let size: usize = size.parse().map_err(|_| EmulationError::new("a count that is no number", line))?;
            registers.insert(prefix.to_string(), count);
            count += size;
        } else if let Some(label) = line.strip_suffix(':') {
            labels.insert(label.to_string(), lines.len());
        } else {
            lines.push(line.trim_end_matches(';').to_string());
        }
    }
    let names = Names { registers, labels };
    let instructions = lines.iter().map(|line| names.instruction(line)).collect::<Result<Vec<_>, _>>()?;
    Ok(Program { instructions, registers: count, threads_limit })
}

struct Names {
    registers: HashMap<String, usize>,
    labels: HashMap<String, usize>,
}

impl Names {
    fn instruction(&self, line: &str) -> Result<Instruction, EmulationError> {
        let mut rest = line;
        let mut guard = None;
        if let Some(after) = rest.strip_prefix('@') {
            let (name, tail) = after.split_once(' ').ok_or_else(|| EmulationError::new("a guard of nothing", line))?;
            let (name, when) = match name.strip_prefix('!') {
                Some(name) => (name, false),
                None => (name, true),
            };
            guard = Some((self.register(name).ok_or_else(|| EmulationError::new("an unknown guard", line))?, when));
            rest = tail;
        }
        let (opcode, operands) = rest.split_once(' ').unwrap_or((rest, ""));
        let operands = split_operands(operands)
            .iter()
            .map(|operand| {
                self.operand(operand).ok_or_else(|| EmulationError::new("an operand that is not known", line))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let parts = opcode.split('.').map(str::to_string).collect();
        Ok(Instruction { guard, parts, operands, text: line.to_string() })
    }

    fn register(&self, name: &str) -> Option<usize> {
        let digits = name.find(|c: char| c.is_ascii_digit())?;
        let base = self.registers.get(&name[..digits])?;
        Some(base + name[digits..].parse::<usize>().ok()?)
    }

    fn operand(&self, text: &str) -> Option<Operand> {
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let (base, offset) = match inner.split_once('+') {
                Some((base, offset)) => (base, offset.parse().ok()?),
                None => (inner, 0),
            };
            if let Some(number) = base.strip_prefix('p').and_then(|n| n.parse().ok()) {
                return Some(Operand::Parameter(number));
            }
            return Some(Operand::Address(Box::new(self.operand(base)?), offset));
        }
        if let Some(inner) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
            return split_operands(inner)
                .iter()
                .map(|t| self.operand(t))
                .collect::<Option<Vec<_>>>()
                .map(Operand::Tuple);
        }
        if let Some((value, predicate)) = text.split_once('|') {
            return Some(Operand::Pair(self.register(value)?, self.register(predicate)?));
        }
        let axis = |name: &str| ["x", "y", "z"].iter().position(|a| name.ends_with(a));
        match text {
            "_" => return Some(Operand::Sink),
            "smem" => return Some(Operand::Constant(SHARED_BASE)),
            "%laneid" => return Some(Operand::Special(Special::Lane)),
            "%lanemask_lt" => return Some(Operand::Special(Special::LanesBelow)),
            _ if text.starts_with("%tid.") => return Some(Operand::Special(Special::Thread(axis(text)?))),
            _ if text.starts_with("%ctaid.") => return Some(Operand::Special(Special::Block(axis(text)?))),
            _ if text.starts_with("%ntid.") => return Some(Operand::Special(Special::Threads(axis(text)?))),
            _ if text.starts_with("%nctaid.") => return Some(Operand::Special(Special::Blocks(axis(text)?))),
            _ if text.starts_with('%') => return self.register(text).map(Operand::Reg),
            _ => {}
        }
        if let Some(&target) = self.labels.get(text) {
            return Some(Operand::Target(target));
        }
        if let Some(bits) = text.strip_prefix("0f") {
            return u32::from_str_radix(bits, 16).ok().map(|b| Operand::Constant(b.into()));
        }
        if let Some(bits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0x")) {
            return u64::from_str_radix(bits, 16).ok().map(Operand::Constant);
        }
        text.parse::<i128>().ok().map(|n| Operand::Constant(n as u64))
    }
}

/// Splits at commas outside of braces.
fn split_operands(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut current = String::new();
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut current).trim().to_string());
                continue;
            }
            _ => {}
        }
        current.push(c);
    }
    if !current.trim().is_empty() {
        parts.push(current.trim().to_string());
    }
    parts
}
