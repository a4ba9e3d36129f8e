//! Values as bytes, for messages between devices: what they are, then their elements.

use crate::array::{Array, Value};
use crate::error::ExecutionError;
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::DimVec;
use hloom_ir::shape::Shape;

const ARRAY: u8 = 0;
const TUPLE: u8 = 1;
const TOKEN: u8 = 2;
const OPAQUE: u8 = 3;

impl Value {
    /// The value as bytes.
    pub fn to_message(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.byte_size() + 64);
        write(self, &mut message);
        message
    }

    /// The value that the bytes are; an error if they are none.
    pub fn from_message(message: &[u8]) -> Result<Value, ExecutionError> {
        let mut rest = message;
        match read(&mut rest, 0)? {
            value if rest.is_empty() => Ok(value),
            _ => Err(broken()),
        }
    }
}

fn write(value: &Value, message: &mut Vec<u8>) {
    match value {
        Value::Array(array) => {
            let name = array.element_type().name().as_bytes();
            message.extend([ARRAY, name.len() as u8]);
            message.extend(name);
            message.extend((array.rank() as u32).to_le_bytes());
            array.dims().iter().for_each(|d| message.extend(d.to_le_bytes()));
            message.extend(array.bytes());
        }
        Value::Tuple(elements) => {
            message.push(TUPLE);
            message.extend((elements.len() as u32).to_le_bytes());
            elements.iter().for_each(|e| write(e, message));
        }
        Value::Token => message.push(TOKEN),
        Value::Opaque => message.push(OPAQUE),
    }
}

fn read(rest: &mut &[u8], depth: usize) -> Result<Value, ExecutionError> {
    if depth > Shape::MAX_DEPTH {
        return Err(broken());
    }
    match bytes(rest, 1)?[0] {
        ARRAY => {
            let length = bytes(rest, 1)?[0] as usize;
            let element_type = ElementType::from_name(bytes(rest, length)?).ok_or_else(broken)?;
            let rank = number(rest)?;
            let mut dims = DimVec::new();
            for _ in 0..rank {
                dims.push(i64::from_le_bytes(bytes(rest, 8)?.try_into().map_err(|_| broken())?));
            }
            let size = dims.iter().try_fold(element_type.bytes() as i64, |n, &d| n.checked_mul(d));
            let size = size.and_then(|n| usize::try_from(n).ok()).ok_or_else(broken)?;
            Array::from_bytes(element_type, &dims, bytes(rest, size)?).map(Value::Array)
        }
        TUPLE => {
            let count = number(rest)?;
            let mut elements = Vec::new();
            for _ in 0..count {
                elements.push(read(rest, depth + 1)?);
            }
            Ok(Value::Tuple(elements))
        }
        TOKEN => Ok(Value::Token),
        OPAQUE => Ok(Value::Opaque),
        _ => Err(broken()),
    }
}

fn bytes<'m>(rest: &mut &'m [u8], count: usize) -> Result<&'m [u8], ExecutionError> {
    let (taken, left) = rest.split_at_checked(count).ok_or_else(broken)?;
    *rest = left;
    Ok(taken)
}

fn number(rest: &mut &[u8]) -> Result<u32, ExecutionError> {
    Ok(u32::from_le_bytes(bytes(rest, 4)?.try_into().map_err(|_| broken())?))
}

fn broken() -> ExecutionError {
    ExecutionError::bug("a message from another device is no value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_from_its_message() {
        let array = Array::new(&[2, 3], &[1.5f32, 2.0, -0.0, f32::INFINITY, 5.0, 6.0]).unwrap();
        let nothing = Array::zeroed(ElementType::S4, &[0, 7]).unwrap();
        let value = Value::Tuple(vec![Value::Array(array), Value::Token, Value::Tuple(vec![Value::Array(nothing)])]);
        let back = Value::from_message(&value.to_message()).unwrap();
        assert_eq!(format!("{back:?}"), format!("{value:?}"));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let whole = Value::Array(Array::new(&[2], &[1u16, 2]).unwrap()).to_message();
        for end in 0..whole.len() {
            assert!(Value::from_message(&whole[..end]).is_err(), "cut at {end}");
        }
        assert!(Value::from_message(&[&whole[..], &[0]].concat()).is_err());
        assert!(Value::from_message(&[9]).is_err());
        assert!(Value::from_message(&[TUPLE; 100_000]).is_err());
    }
}
