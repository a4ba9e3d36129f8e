//! Arrays in files: numpy's `.npz`, a zip archive of `.npy` arrays, and `.npy`.
//!
//! Types that numpy lacks travel as raw bytes (`|V2`, `|V1`); what they are is for the reader's caller to say. Arrays come
//! out in row-major order, little-endian, whatever the file has. A damaged or hostile file is an error, and never makes
//! more memory be asked for than the file can fill.

mod npy;

pub use npy::{Descr, NpyArray};

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

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

/// An npz file whose arrays are read one at a time, or an `.npy` file, which is one of a single array `arr_0`.
pub struct Archive<'f, F: Bytes + ?Sized> {
    file: &'f F,
    /// `None` for an `.npy` file.
    zip: Option<ZipArchive<FileReader<'f, F>>>,
    /// The names of the arrays, and their numbers in the archive.
    entries: Vec<(String, usize)>,
}

impl<'f, F: Bytes + ?Sized> Archive<'f, F> {
    /// The archive in a file. Names that begin with `__` are notes of whoever wrote the file, and are left out.
    pub fn open(file: &'f F) -> Result<Archive<'f, F>, NpzError> {
        if file.size() >= 6 && &*file.part(0, 6)? == npy::MAGIC {
            return Ok(Archive { file, zip: None, entries: vec![("arr_0".to_owned(), 0)] });
        }
        let zip = ZipArchive::new(FileReader { file, at: 0 }).map_err(unreadable)?;
        let named = |name: &str| name.strip_suffix(".npy").unwrap_or(name).to_owned();
        let names = (0..zip.len()).filter_map(|n| Some((named(&zip.name_for_index(n)?.ok()?), n)));
        let entries = names.filter(|(name, _)| !name.starts_with("__")).collect();
        Ok(Archive { file, zip: Some(zip), entries })
    }
    /// The names of the arrays (without `.npy`), in the file's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }
    /// Array number `n`.
    pub fn array(&self, n: usize) -> Result<NpyArray<'f>, NpzError> {
        let (name, number) = self.entries.get(n).ok_or_else(|| NpzError::new("there is no such array"))?;
        let array = || {
            let Some(zip) = &self.zip else {
                let size = usize::try_from(self.file.size()).map_err(|_| does_not_fit())?;
                return npy::read(self.file.part(0, size)?);
            };
            let mut zip = zip.clone();
            let entry = zip.by_index(*number).map_err(unreadable)?;
            // The room grows with what is there, so that a lie about the size costs nothing.
            let mut contents = Vec::new();
            let honest = entry.compressed_size().min(self.file.size()).min(entry.size());
            contents.try_reserve(usize::try_from(honest).unwrap_or(0)).map_err(|_| does_not_fit())?;
            let size = entry.size();
            entry.take(size).read_to_end(&mut contents).map_err(|e| unreadable(e.into()))?;
            npy::read(contents.into())
        };
        array().map_err(|e| NpzError::new(format!("array {name}: {e}")))
    }
}

fn unreadable(error: ZipError) -> NpzError {
    match error {
        ZipError::Io(e) => NpzError::new(e.to_string()),
        other => NpzError::new(other.to_string()),
    }
}

fn does_not_fit() -> NpzError {
    NpzError::new("it does not fit in memory")
}

/// A file that is read from a place on.
struct FileReader<'f, F: Bytes + ?Sized> {
    file: &'f F,
    at: u64,
}

impl<F: Bytes + ?Sized> Clone for FileReader<'_, F> {
    fn clone(&self) -> Self {
        FileReader { file: self.file, at: self.at }
    }
}

impl<F: Bytes + ?Sized> Read for FileReader<'_, F> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = self.file.size().saturating_sub(self.at);
        let length = to.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        to[..length].copy_from_slice(&self.file.part(self.at, length).map_err(io::Error::other)?);
        self.at += length as u64;
        Ok(length)
    }
}

impl<F: Bytes + ?Sized> Seek for FileReader<'_, F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.file.size().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

/// All arrays of an npz file, with their names.
pub fn read(file: &[u8]) -> Result<Vec<(String, NpyArray<'_>)>, NpzError> {
    let archive = Archive::open(file)?;
    archive.names().enumerate().map(|(n, name)| Ok((name.to_owned(), archive.array(n)?))).collect()
}

/// An npz file with those arrays.
pub fn write<'a>(arrays: impl IntoIterator<Item = (String, Descr, &'a [i64], &'a [u8])>) -> Vec<u8> {
    let mut file = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut add = |(name, descr, dims, bytes): (String, Descr, &[i64], &[u8])| -> Result<(), ZipError> {
        file.start_file(format!("{name}.npy"), stored.large_file(bytes.len() >= 1 << 31))?;
        file.write_all(&npy::header(descr, dims))?;
        Ok(file.write_all(bytes)?)
    };
    for array in arrays {
        add(array).expect("memory takes what is written to it");
    }
    file.finish().expect("memory takes what is written to it").into_inner()
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
    fn an_npy_file_is_an_archive_of_one() {
        let descr = Descr { kind: b'i', size: 1 };
        let file = [npy::header(descr, &[3]), vec![1, 2, 3]].concat();
        let arrays = read(&file).unwrap();
        assert_eq!(arrays[0].0, "arr_0");
        assert_eq!((&arrays[0].1.dims[..], &arrays[0].1.bytes[..]), (&[3][..], &[1, 2, 3][..]));
    }

    #[test]
    fn deflated_arrays_are_read_and_no_arrays_are_an_archive() {
        let mut file = ZipWriter::new(Cursor::new(Vec::new()));
        file.start_file("p0.npy", SimpleFileOptions::default().compression_method(CompressionMethod::Deflated))
            .unwrap();
        file.write_all(&npy::header(Descr { kind: b'u', size: 1 }, &[1000])).unwrap();
        file.write_all(&[7; 1000]).unwrap();
        let file = file.finish().unwrap().into_inner();
        assert!(file.len() < 500);
        assert_eq!(*read(&file).unwrap()[0].1.bytes, [7; 1000]);
        let none = write([]);
        assert!(none.starts_with(b"PK\x05\x06"), "numpy knows no other beginning of an archive without entries");
        assert_eq!(read(&none).unwrap(), []);
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
