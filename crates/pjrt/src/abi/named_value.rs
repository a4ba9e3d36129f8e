//! Named values: options that come in, attributes that go out.

use super::{c_structs, slice};
use crate::abi::ExtensionBase;

c_structs! {
    NamedValue[56] {
        name: *const u8 = 16, name_size: usize = 24, type_: i32 = 32, value: NamedValueOf = 40, value_size: usize = 48,
    }
}

/// The value: which arm is said beside it.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "the arms have the names of the C API")]
pub union NamedValueOf {
    pub string_value: *const u8,
    pub int64_value: i64,
    pub int64_array_value: *const i64,
    pub float_value: f32,
    pub bool_value: u8,
}

/// What arm of a named value is set.
#[allow(missing_docs, reason = "the names of the C API")]
pub struct NamedValueKind;

#[allow(missing_docs, reason = "the names of the C API")]
impl NamedValueKind {
    pub const STRING: i32 = 0;
    pub const INT64: i32 = 1;
    pub const INT64_LIST: i32 = 2;
    pub const FLOAT: i32 = 3;
    pub const BOOL: i32 = 4;
}

/// A value that a caller gives by name.
#[derive(Clone, PartialEq, Debug)]
pub enum OptionValue {
    /// Text.
    String(String),
    /// A number.
    Int(i64),
    /// Numbers.
    IntList(Vec<i64>),
    /// A number.
    Float(f32),
    /// Yes or no.
    Bool(bool),
}

impl OptionValue {
    /// The value as a whole number; text may hold one too.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            OptionValue::Int(n) => Some(*n),
            OptionValue::String(s) => s.trim().parse().ok(),
            _ => None,
        }
    }

    /// The value as text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            OptionValue::String(s) => Some(s),
            _ => None,
        }
    }
}

/// Reads the options of a caller; what is of an unknown kind is left out.
///
/// # Safety
/// There are `count` values at `values`, unless that is null.
pub unsafe fn read_options(values: *const NamedValue, count: usize) -> Vec<(String, OptionValue)> {
    // SAFETY: as the caller promises; a named value says itself what it points to, and how far.
    unsafe {
        let text = |start, size| String::from_utf8_lossy(slice(start, size)).into_owned();
        let read = |v: &NamedValue| {
            let value = match v.type_ {
                NamedValueKind::STRING => OptionValue::String(text(v.value.string_value, v.value_size)),
                NamedValueKind::INT64 => OptionValue::Int(v.value.int64_value),
                NamedValueKind::INT64_LIST => {
                    OptionValue::IntList(slice(v.value.int64_array_value, v.value_size).to_vec())
                }
                NamedValueKind::FLOAT => OptionValue::Float(v.value.float_value),
                NamedValueKind::BOOL => OptionValue::Bool(v.value.bool_value != 0),
                _ => return None,
            };
            Some((text(v.name, v.name_size), value))
        };
        slice(values, count).iter().filter_map(read).collect()
    }
}

/// Named values to show to a caller, with what they point to.
#[derive(Default)]
pub struct NamedValues {
    values: Vec<NamedValue>,
    /// What the values point to; never changed, so the addresses stay.
    _kept: Vec<(String, OptionValue)>,
}

// SAFETY: the pointers are into what is kept beside them, which nobody changes.
unsafe impl Send for NamedValues {}
// SAFETY: likewise.
unsafe impl Sync for NamedValues {}

impl NamedValues {
    /// These values.
    pub fn new(kept: Vec<(String, OptionValue)>) -> NamedValues {
        let values = kept.iter().map(|(name, value)| {
            let (type_, of, size) = match value {
                OptionValue::String(s) => (NamedValueKind::STRING, NamedValueOf { string_value: s.as_ptr() }, s.len()),
                OptionValue::Int(n) => (NamedValueKind::INT64, NamedValueOf { int64_value: *n }, 1),
                OptionValue::IntList(l) => {
                    (NamedValueKind::INT64_LIST, NamedValueOf { int64_array_value: l.as_ptr() }, l.len())
                }
                OptionValue::Float(x) => (NamedValueKind::FLOAT, NamedValueOf { float_value: *x }, 1),
                OptionValue::Bool(b) => (NamedValueKind::BOOL, NamedValueOf { bool_value: u8::from(*b) }, 1),
            };
            NamedValue {
                struct_size: 56,
                extension_start: std::ptr::null_mut::<ExtensionBase>(),
                name: name.as_ptr(),
                name_size: name.len(),
                type_,
                value: of,
                value_size: size,
            }
        });
        NamedValues { values: values.collect(), _kept: kept }
    }

    /// Where they are.
    pub fn as_ptr(&self) -> *mut NamedValue {
        self.values.as_ptr().cast_mut()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}
