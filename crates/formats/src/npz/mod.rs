//! Arrays in files: numpy's `.npz`, a zip archive of `.npy` arrays.
//!
//! Types that numpy lacks travel as raw bytes (`|V2`, `|V1`); what they are is for the reader's caller to say. Arrays come
//! out in row-major order, little-endian, whatever the file has. A damaged or hostile file is an error, and never makes
//! more memory be asked for than the file can fill.

mod npy;
mod zip;

pub use npy::{Descr, NpyArray};

use std::borrow::Cow;
use std::fmt;

/// Why a file is not an npz that can be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NpzError(String);

impl NpzError {
    /// With what is wrong, in words.
    pub fn new(message: impl Into<String>) -> NpzError {
        NpzError(message.into())
    }
}

impl fmt::Display for NpzError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NpzError {}

/// Where the bytes of a file are.
pub trait Bytes {
    /// How many there are.
    fn size(&self) -> u64;
    /// `length` bytes from `at` on, which are there.
    fn part(&self, at: u64, length: usize) -> Result<Cow<'_, [u8]>, NpzError>;
}

impl Bytes for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }
    fn part(&self, at: u64, length: usize) -> Result<Cow<'_, [u8]>, NpzError> {
        let part = usize::try_from(at).ok().and_then(|at| self.get(at..at.checked_add(length)?));
        part.map(Cow::Borrowed).ok_or_else(|| NpzError::new("the file ends in the middle"))
    }
}

/// An npz file whose arrays are read one at a time.
pub struct Archive<'f, F: Bytes + ?Sized> {
    file: &'f F,
    entries: Vec<(String, zip::Entry)>,
}

impl<'f, F: Bytes + ?Sized> Archive<'f, F> {
    /// The archive in a file. Names that begin with `__` are notes of whoever wrote the file, and are left out.
    pub fn open(file: &'f F) -> Result<Archive<'f, F>, NpzError> {
        let named = |e: zip::Entry| (e.name.strip_suffix(".npy").unwrap_or(&e.name).to_owned(), e);
        let entries = zip::entries(file)?.into_iter().map(named).filter(|(name, _)| !name.starts_with("__")).collect();
        Ok(Archive { file, entries })
    }
    /// The names of the arrays (without `.npy`), in the file's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }
    /// Array number `n`.
    pub fn array(&self, n: usize) -> Result<NpyArray<'f>, NpzError> {
        let (name, entry) = self.entries.get(n).ok_or_else(|| NpzError::new("there is no such array"))?;
        let bytes = entry.read(self.file)?;
        npy::read(bytes).map_err(|e| NpzError::new(format!("array {name}: {e}")))
    }
}

/// All arrays of an npz file, with their names.
pub fn read(file: &[u8]) -> Result<Vec<(String, NpyArray<'_>)>, NpzError> {
    let archive = Archive::open(file)?;
    archive.names().enumerate().map(|(n, name)| Ok((name.to_owned(), archive.array(n)?))).collect()
}

/// An npz file with those arrays.
pub fn write<'a>(arrays: impl IntoIterator<Item = (String, Descr, &'a [i64], &'a [u8])>) -> Vec<u8> {
    let mut writer = zip::Writer::default();
    for (name, descr, dims, bytes) in arrays {
        let header = npy::header(descr, dims);
        writer.add(&format!("{name}.npy"), &[&header, bytes]);
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let numbers: Vec<u8> = [1.5f32, -2.0, 0.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let f4 = Descr { kind: b'f', size: 4 };
        let raw = Descr { kind: b'V', size: 2 };
        let dims: (&[i64], &[i64], &[i64]) = (&[2, 3], &[], &[0, 5]);
        write([
            ("p0".to_owned(), f4, dims.0, &numbers[..]),
            ("d1.p1".to_owned(), raw, dims.1, &[1, 2][..]),
            ("empty".to_owned(), f4, dims.2, &[][..]),
        ])
    }

    #[test]
    fn what_is_written_is_read_back() {
        let file = sample();
        let arrays = read(&file).unwrap();
        let names: Vec<_> = arrays.iter().map(|(n, a)| (n.as_str(), &a.dims[..], a.bytes.len())).collect();
        assert_eq!(names, [("p0", &[2, 3][..], 24), ("d1.p1", &[][..], 2), ("empty", &[0, 5][..], 0)]);
        assert_eq!(arrays[0].1.bytes[..4], 1.5f32.to_le_bytes());
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let good = sample();
        for n in 0..good.len() {
            let _ = read(&good[..n]);
            let mut bad = good.clone();
            bad[n] ^= 0x41;
            let _ = read(&bad);
        }
        assert!(read(b"not a zip").is_err());
        assert!(read(&good[..good.len() - 1]).is_err());
    }

    #[test]
    fn fortran_order_is_turned() {
        let mut text = b"\x93NUMPY\x01\x00".to_vec();
        let header = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n";
        text.extend((header.len() as u16).to_le_bytes());
        text.extend(header.as_bytes());
        text.extend([1i16, 4, 2, 5, 3, 6].iter().flat_map(|x| x.to_le_bytes()));
        let array = npy::read(text.into()).unwrap();
        let expected: Vec<u8> = [1i16, 2, 3, 4, 5, 6].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(*array.bytes, *expected);
    }
}
