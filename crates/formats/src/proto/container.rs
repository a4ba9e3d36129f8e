//! Which message some bytes are: `HloModuleProto`, `HloProto` and `HloSnapshot` say so nowhere.
//!
//! They are told apart by what only a module has: a computation with an instruction with an opcode. In an `HloProto`
//! the module is field 1, where a module has its name; in an `HloSnapshot` field 1 is the `HloProto`.

use super::wire::{Fields, Value, read_varint};

/// The bytes of the module, if there is one: of the whole, of its field 1, or of field 1 of that.
pub(super) fn module_bytes(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = message(bytes);
    let mut candidate = bytes;
    for _ in 0..3 {
        if is_module(candidate) {
            return Some(candidate);
        }
        let inner = Fields::new(candidate).flatten().find(|f| f.number == 1).and_then(|f| f.value.bytes());
        match inner {
            Some(inner) => candidate = inner,
            None => break,
        }
    }
    // A damaged module is read nevertheless, for the reader to say what is wrong with it.
    resembles_module(bytes).then_some(bytes)
}

/// The bytes of the message: all of them, or those whose length is written before them, as for large snapshots.
pub(super) fn message(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    let length = read_varint(&mut rest).ok().and_then(|n| usize::try_from(n).ok());
    match length.and_then(|n| rest.get(..n)) {
        // A message begins with field 1, as bytes: its own beginning is not a length that fits by chance.
        Some(inner) if inner.first() == Some(&0x0a) && first_module(inner) && !first_module(bytes) => inner,
        _ => bytes,
    }
}

/// Whether field 1 is a module.
fn first_module(bytes: &[u8]) -> bool {
    let first = Fields::new(bytes).map_while(Result::ok).find(|f| f.number == 1);
    first.and_then(|f| f.value.bytes()).is_some_and(is_module)
}

/// Whether the bytes look like a proto rather than like text.
pub fn detect(bytes: &[u8]) -> bool {
    if module_bytes(bytes).is_some() {
        return true;
    }
    // MLIR bytecode is neither; other than that, control characters are in no text.
    let head = &bytes[..bytes.len().min(1024)];
    let control = |&b: &u8| b < 0x20 && !matches!(b, b'\n' | b'\r' | b'\t' | 0x0b | 0x0c);
    !bytes.starts_with(b"ML\xefR") && head.iter().any(control)
}

/// Where the fields stop making sense, if they do.
pub(super) fn first_fault(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    for field in Fields::new(bytes) {
        match field {
            Ok(field) => at += field.raw.len(),
            Err(_) => return Some(at),
        }
    }
    None
}

/// Whether the first computation with an instruction has one that names its opcode. Nothing after it is looked at.
pub(super) fn is_module(bytes: &[u8]) -> bool {
    let messages = |bytes, number| {
        Fields::new(bytes).map_while(Result::ok).filter(move |f| f.number == number).filter_map(|f| f.value.bytes())
    };
    let opcode = |text: &[u8]| {
        !text.is_empty() && text.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    let name = |text: &[u8]| !text.is_empty() && !text.iter().any(|b| *b < 0x20);
    messages(bytes, 3)
        .flat_map(|computation| messages(computation, 2))
        .next()
        .is_some_and(|instruction| messages(instruction, 1).any(name) && messages(instruction, 2).any(opcode))
}

/// Whether the bytes begin as a module does, with a name, and have fields of a module's types.
fn resembles_module(bytes: &[u8]) -> bool {
    let mut fields = Fields::new(bytes).map_while(Result::ok);
    let named = fields.next().is_some_and(|f| {
        let name = f.value.bytes().filter(|n| n.iter().all(u8::is_ascii_graphic));
        f.number == 1 && name.is_some()
    });
    let typed = |number: u32, value: Value<'_>| match number {
        2 | 3 | 4 | 7 | 8 => matches!(value, Value::Bytes(_)),
        5 | 6 | 11 => matches!(value, Value::Varint(_)),
        _ => true,
    };
    let mut rest = fields.peekable();
    named && rest.peek().is_some() && rest.all(|f| typed(f.number, f.value))
}
