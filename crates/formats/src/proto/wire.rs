//! The wire format itself: fields of an encoded message one after another, without knowing the message.
//!
//! Used where the reader needs more than `prost` gives: the encoded bytes of a field (to keep fields that nobody
//! models, to share shapes that are encoded alike) and one instruction at a time instead of a whole tree of messages.
//! Nothing here allocates, and no length is believed before it is compared with what is there.

/// Why bytes are not an encoded message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WireError {
    /// A field goes on beyond the end.
    Truncated,
    /// A number of more than 64 bits, a field number of 0, or a wire type that does not exist.
    Malformed,
    /// Groups inside groups beyond [`MAX_GROUP_DEPTH`].
    TooDeep,
}

/// Groups are long deprecated and no HLO message has one; this is for what may be among unknown fields.
const MAX_GROUP_DEPTH: usize = 100;

/// One field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) value: Value<'a>,
    /// The field as encoded, with its tag.
    pub(super) raw: &'a [u8],
}

/// The value of a field, by wire type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed-width numbers and groups, which the reader only ever keeps or leaves to `prost`.
    Other,
}

impl<'a> Value<'a> {
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(b) => Some(b),
            _ => None,
        }
    }
    pub(super) fn varint(self) -> Option<u64> {
        match self {
            Value::Varint(n) => Some(n),
            _ => None,
        }
    }
}

/// The fields of an encoded message. Ends after the first error.
#[derive(Clone)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = read_field(&mut self.rest);
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

fn read_field<'a>(rest: &mut &'a [u8]) -> Result<Field<'a>, WireError> {
    let start = *rest;
    let (number, wire_type) = read_tag(rest)?;
    let value = match wire_type {
        0 => Value::Varint(read_varint(rest)?),
        2 => Value::Bytes(read_bytes(rest)?),
        3 => {
            skip_group(rest, number)?;
            Value::Other
        }
        _ => {
            skip_fixed(rest, wire_type)?;
            Value::Other
        }
    };
    Ok(Field { number, value, raw: &start[..start.len() - rest.len()] })
}

fn read_tag(rest: &mut &[u8]) -> Result<(u32, u8), WireError> {
    let tag = read_varint(rest)?;
    let number = u32::try_from(tag >> 3).ok().filter(|&n| n != 0 && n < 1 << 29).ok_or(WireError::Malformed)?;
    Ok((number, (tag & 7) as u8))
}

/// A number of up to 64 bits, seven to a byte.
pub(super) fn read_varint(rest: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0u64;
    for (i, &byte) in rest.iter().enumerate().take(10) {
        // The tenth byte has room for one bit.
        if i == 9 && byte > 1 {
            return Err(WireError::Malformed);
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *rest = &rest[i + 1..];
            return Ok(value);
        }
    }
    Err(if rest.len() < 10 { WireError::Truncated } else { WireError::Malformed })
}

fn read_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    let len = usize::try_from(read_varint(rest)?).map_err(|_| WireError::Truncated)?;
    let (bytes, after) = rest.split_at_checked(len).ok_or(WireError::Truncated)?;
    *rest = after;
    Ok(bytes)
}

fn skip_fixed(rest: &mut &[u8], wire_type: u8) -> Result<(), WireError> {
    let len = match wire_type {
        1 => 8,
        5 => 4,
        _ => return Err(WireError::Malformed),
    };
    *rest = rest.get(len..).ok_or(WireError::Truncated)?;
    Ok(())
}

fn skip_group(rest: &mut &[u8], number: u32) -> Result<(), WireError> {
    let mut open = vec![number];
    while let Some(&innermost) = open.last() {
        let (number, wire_type) = read_tag(rest)?;
        match wire_type {
            0 => drop(read_varint(rest)?),
            2 => drop(read_bytes(rest)?),
            3 if open.len() >= MAX_GROUP_DEPTH => return Err(WireError::TooDeep),
            3 => open.push(number),
            4 if number == innermost => drop(open.pop()),
            4 => return Err(WireError::Malformed),
            _ => skip_fixed(rest, wire_type)?,
        }
    }
    Ok(())
}

/// Appends the numbers of a repeated integer field: one number, or several packed.
pub(super) fn read_integers(value: Value<'_>, out: &mut Vec<i64>) -> Result<(), WireError> {
    match value {
        Value::Varint(n) => out.push(n as i64),
        Value::Bytes(mut packed) => {
            while !packed.is_empty() {
                out.push(read_varint(&mut packed)? as i64);
            }
        }
        Value::Other => return Err(WireError::Malformed),
    }
    Ok(())
}

/// Appends a number.
pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends an integer field, unless it is 0, which is what an absent one means.
pub(super) fn write_integer(out: &mut Vec<u8>, number: u32, value: i64) {
    if value != 0 {
        write_varint(out, u64::from(number) << 3);
        write_varint(out, value as u64);
    }
}

/// Appends a field of bytes, even if there are none.
pub(super) fn write_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    write_varint(out, u64::from(number) << 3 | 2);
    write_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a string field, unless it is empty.
pub(super) fn write_str(out: &mut Vec<u8>, number: u32, value: &str) {
    if !value.is_empty() {
        write_bytes(out, number, value.as_bytes());
    }
}

/// Appends a repeated integer field, packed, unless it is empty.
pub(super) fn write_integers(out: &mut Vec<u8>, number: u32, values: impl IntoIterator<Item = i64>) {
    let mut packed = Vec::new();
    for value in values {
        write_varint(&mut packed, value as u64);
    }
    if !packed.is_empty() {
        write_bytes(out, number, &packed);
    }
}

/// Appends a message field.
pub(super) fn write_message(out: &mut Vec<u8>, number: u32, message: &impl prost::Message) {
    write_varint(out, u64::from(number) << 3 | 2);
    write_varint(out, message.encoded_len() as u64);
    message.encode_raw(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for n in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            write_varint(&mut bytes, n);
            assert_eq!(read_varint(&mut &bytes[..]), Ok(n));
            assert_eq!(read_varint(&mut &bytes[..bytes.len() - 1]), Err(WireError::Truncated));
        }
        assert_eq!(read_varint(&mut &[0xff; 11][..]), Err(WireError::Malformed));
        assert_eq!(read_varint(&mut &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2][..]), Err(WireError::Malformed));
    }

    #[test]
    fn groups_are_one_field() {
        // Group 1 holding field 2 = 5 and an empty group 3; then field 4 = 7.
        let bytes = [0x0b, 0x10, 5, 0x1b, 0x1c, 0x0c, 0x20, 7];
        let fields: Vec<_> = Fields::new(&bytes).map(|f| f.map(|f| (f.number, f.raw.len()))).collect();
        assert_eq!(fields, [Ok((1, 6)), Ok((4, 2))]);
        let open = [0x0b; 200];
        assert_eq!(Fields::new(&open).next().map(|f| f.err()), Some(Some(WireError::TooDeep)));
        assert_eq!(Fields::new(&[0x0b, 0x14]).next().map(|f| f.err()), Some(Some(WireError::Malformed)));
    }

    #[test]
    fn lengths_are_not_believed() {
        let mut bytes = vec![0x0a];
        write_varint(&mut bytes, u64::MAX);
        assert_eq!(Fields::new(&bytes).next().map(|f| f.err()), Some(Some(WireError::Truncated)));
    }
}
