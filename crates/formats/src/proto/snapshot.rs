//! Snapshots: a module together with the arguments of a run, and perhaps its result.
//!
//! An `HloSnapshot` holds what was executed on one device, with arguments and result; an `HloUnoptimizedSnapshot` holds
//! the program as it was given to the compiler, with the arguments of each partition. Neither says which it is: what tells
//! them apart is where the module is. Unoptimised snapshots are mostly written with the message's length first and the
//! arguments behind the message, each of the size that the message says.

use super::container::{is_module, message};
use super::messages::LiteralProto;
use super::read::{decode_literal, decode_raw_literal, literal_error};
use super::wire::{Fields, read_varint, write_bytes, write_message};
use super::write::{self, Container, write_literal};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;

/// What a snapshot holds besides its module.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By device, the arguments of the entry.
    pub arguments: Vec<Vec<Literal>>,
    /// The result that the run had, where it is known.
    pub result: Option<Literal>,
    /// The platform that it ran on; empty if unknown.
    pub platform: String,
    /// Whether the arguments are in a form that is not read.
    pub arguments_left_out: bool,
}

/// What the snapshot in `bytes` holds besides its module; `None` if this is a module alone, or no proto at all.
pub fn read_snapshot(bytes: &[u8]) -> Result<Option<Snapshot>, Vec<Diagnostic>> {
    let whole = bytes;
    let bytes = message(whole);
    // What is behind the message; a message in its own bytes has nothing behind it.
    let mut behind = match bytes.len() < whole.len() {
        true => &whole[whole.len() - tail_length(whole, bytes)..],
        false => &[],
    };
    let first = |bytes, number| {
        Fields::new(bytes).map_while(Result::ok).find(|f| f.number == number).and_then(|f| f.value.bytes())
    };
    let Some(inner) = first(bytes, 1) else { return Ok(None) };
    let mut snapshot = Snapshot::default();
    let fields = || Fields::new(bytes).map_while(Result::ok).filter_map(|f| Some((f.number, f.value.bytes()?)));
    if is_module(inner) {
        // A bare HloProto has nothing in field 2.
        for (_, partition) in fields().filter(|f| f.0 == 2) {
            let mut arguments = Vec::new();
            for field in Fields::new(partition).map_while(Result::ok) {
                match (field.number, field.value.bytes()) {
                    (1, Some(literal)) => arguments.push(literal_of(literal)?),
                    (2, Some(descriptor)) => {
                        let Some((own, rest)) = described(descriptor).and_then(|n| behind.split_at_checked(n)) else {
                            return Err(vec![literal_error("the snapshot ends before its arguments do")]);
                        };
                        behind = rest;
                        match decode_raw_literal(own).map_err(|d| vec![d])? {
                            Some(literal) => arguments.push(literal),
                            None => snapshot.arguments_left_out = true,
                        }
                    }
                    _ => {}
                }
            }
            snapshot.arguments.push(arguments);
        }
        return Ok((!snapshot.arguments.is_empty()).then_some(snapshot));
    }
    if !first(inner, 1).is_some_and(is_module) {
        return Ok(None);
    }
    let mut arguments = Vec::new();
    for (number, value) in fields() {
        match number {
            2 => arguments.push(literal_of(value)?),
            3 => snapshot.result = Some(literal_of(value)?),
            4 => snapshot.platform = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
    }
    snapshot.arguments.push(arguments);
    Ok(Some(snapshot))
}

/// How many bytes of `whole` come after `inner`, which is a part of it behind its length.
fn tail_length(whole: &[u8], inner: &[u8]) -> usize {
    let mut rest = whole;
    let _length = read_varint(&mut rest);
    rest.len().saturating_sub(inner.len())
}

/// The size that a descriptor of an argument names.
fn described(descriptor: &[u8]) -> Option<usize> {
    let field = Fields::new(descriptor).map_while(Result::ok).find(|f| f.number == 2)?;
    usize::try_from(field.value.varint()?).ok()
}

fn literal_of(bytes: &[u8]) -> Result<Literal, Vec<Diagnostic>> {
    let literal = decode_literal(bytes).map_err(|d| vec![d])?;
    literal.ok_or_else(|| vec![literal_error("an argument of the snapshot has no elements")])
}

/// Writes a snapshot: an `HloSnapshot` for one device, an `HloUnoptimizedSnapshot` for several, which has no place for a
/// result.
pub fn write_snapshot(module: &Module, snapshot: &Snapshot) -> Result<Vec<u8>, Vec<Diagnostic>> {
    let literal = |l: &Literal| -> LiteralProto { write_literal(l) };
    let mut out = Vec::new();
    match snapshot.arguments.as_slice() {
        [arguments] => {
            write_bytes(&mut out, 1, &write::write(module, Container::Proto)?);
            arguments.iter().for_each(|a| write_message(&mut out, 2, &literal(a)));
            snapshot.result.iter().for_each(|r| write_message(&mut out, 3, &literal(r)));
            if !snapshot.platform.is_empty() {
                write_bytes(&mut out, 4, snapshot.platform.as_bytes());
            }
        }
        devices => {
            write_bytes(&mut out, 1, &write::write(module, Container::Module)?);
            for arguments in devices {
                let mut inputs = Vec::new();
                arguments.iter().for_each(|a| write_message(&mut inputs, 1, &literal(a)));
                write_bytes(&mut out, 2, &inputs);
            }
        }
    }
    Ok(out)
}
