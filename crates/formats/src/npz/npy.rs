//! One `.npy` array: a short header in Python's syntax, then the elements.

use super::NpzError;
use std::borrow::Cow;
use std::fmt;

/// What an array begins with.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// The type of an array's elements: numpy's kind letter and the size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descr {
    /// `b` bool, `i` signed, `u` unsigned, `f` float, `c` complex, `V` raw bytes.
    pub kind: u8,
    /// Bytes of one element.
    pub size: usize,
}

impl fmt::Display for Descr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.size == 1 || self.kind == b'V' { '|' } else { '<' };
        write!(f, "{order}{}{}", self.kind as char, self.size)
    }
}

/// An array of a file, in row-major order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NpyArray<'f> {
    /// The type of the elements.
    pub descr: Descr,
    /// The sizes.
    pub dims: Vec<i64>,
    /// The elements, little-endian.
    pub bytes: Cow<'f, [u8]>,
}

/// The header of an array, padded as numpy does so that the elements are aligned.
pub(super) fn header(descr: Descr, dims: &[i64]) -> Vec<u8> {
    let mut shape = String::from("(");
    for d in dims {
        shape.push_str(&format!("{d}, "));
    }
    let shape = match dims.len() {
        0 => "()".to_owned(),
        1 => format!("({},)", dims[0]),
        _ => format!("{})", shape.trim_end_matches(", ")),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    const PREFIX: usize = 10;
    let padding = 63 - (PREFIX + text.len()) % 64;
    text.push_str(&" ".repeat(padding));
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    // A shape has few dimensions, so the text is far below 64 KiB.
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// Reads an array.
pub(super) fn read(contents: Cow<'_, [u8]>) -> Result<NpyArray<'_>, NpzError> {
    let file = &*contents;
    let short = || NpzError::new("the file ends in the middle");
    let magic = file.get(..8).ok_or_else(short)?;
    if &magic[..6] != MAGIC {
        return Err(NpzError::new("this is not an .npy array"));
    }
    let (length, start) = match magic[6] {
        1 => (usize::from(u16::from_le_bytes([byte(file, 8)?, byte(file, 9)?])), 10),
        _ => {
            let length = [byte(file, 8)?, byte(file, 9)?, byte(file, 10)?, byte(file, 11)?];
            (u32::from_le_bytes(length) as usize, 12)
        }
    };
    let text = file.get(start..start + length).ok_or_else(short)?;
    let text = std::str::from_utf8(text).map_err(|_| NpzError::new("the header is not text"))?;
    let (descr, swapped) = parse_descr(value(text, "descr")?)?;
    let fortran = value(text, "fortran_order")?.starts_with("True");
    let dims = parse_shape(value(text, "shape")?)?;
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    let needed = count.and_then(|n| n.checked_mul(descr.size));
    let data = &file[start + length..];
    if needed != Some(data.len()) {
        return Err(NpzError::new(format!(
            "{} bytes of elements are there, the shape {dims:?} of {descr} needs others",
            data.len()
        )));
    }
    let mut bytes = match contents {
        Cow::Borrowed(file) => Cow::Borrowed(&file[start + length..]),
        Cow::Owned(mut file) => {
            file.drain(..start + length);
            Cow::Owned(file)
        }
    };
    if swapped {
        let part = if descr.kind == b'c' { descr.size / 2 } else { descr.size };
        bytes.to_mut().chunks_exact_mut(part.max(1)).for_each(<[u8]>::reverse);
    }
    if fortran && dims.len() > 1 {
        bytes = Cow::Owned(row_major(&bytes, &dims, descr.size));
    }
    Ok(NpyArray { descr, dims, bytes })
}

fn byte(file: &[u8], at: usize) -> Result<u8, NpzError> {
    file.get(at).copied().ok_or_else(|| NpzError::new("the file ends in the middle"))
}

/// What follows `'key':` in the header.
fn value<'a>(header: &'a str, key: &str) -> Result<&'a str, NpzError> {
    let quoted = format!("'{key}':");
    let at = header.find(&quoted).ok_or_else(|| NpzError::new(format!("the header has no {key}")))?;
    Ok(header[at + quoted.len()..].trim_start())
}

/// `'<f4'`: the type, and whether the bytes of an element are in the other order.
fn parse_descr(text: &str) -> Result<(Descr, bool), NpzError> {
    let wrong =
        || NpzError::new(format!("elements of type {} are not supported", text.split(',').next().unwrap_or(text)));
    let inner = text.strip_prefix('\'').and_then(|t| t.split('\'').next()).ok_or_else(wrong)?;
    let mut chars = inner.chars();
    let order = chars.next().ok_or_else(wrong)?;
    let kind = chars.next().filter(|k| "biufcV".contains(*k)).ok_or_else(wrong)?;
    let size: usize = chars.as_str().parse().map_err(|_| wrong())?;
    if !"<>|=".contains(order) || !(1..=16).contains(&size) {
        return Err(wrong());
    }
    Ok((Descr { kind: kind as u8, size }, order == '>' && kind != 'V'))
}

/// `(2, 3)`.
fn parse_shape(text: &str) -> Result<Vec<i64>, NpzError> {
    let wrong = || NpzError::new("the header's shape cannot be read");
    let inner = text.strip_prefix('(').and_then(|t| t.split(')').next()).ok_or_else(wrong)?;
    let numbers = inner.split(',').map(str::trim).filter(|n| !n.is_empty());
    numbers.map(|n| n.parse().ok().filter(|&n: &i64| n >= 0).ok_or_else(wrong)).collect()
}

/// Column-major elements in row-major order.
fn row_major(bytes: &[u8], dims: &[i64], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0usize; dims.len()];
    for _ in 0..bytes.len() / size {
        let mut at = 0;
        let mut stride = 1;
        for (&i, &d) in index.iter().zip(dims) {
            at += i * stride;
            stride *= d as usize;
        }
        out.extend_from_slice(&bytes[at * size..(at + 1) * size]);
        for d in (0..dims.len()).rev() {
            index[d] += 1;
            if index[d] < dims[d] as usize {
                break;
            }
            index[d] = 0;
        }
    }
    out
}
