//! As much of the zip format as npz files need: stored and deflated entries, large files (zip64), checksums.

use super::{Bytes, NpzError};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use std::borrow::Cow;

/// An entry of an archive.
pub(super) struct Entry {
    /// Its name.
    pub(super) name: String,
    method: u16,
    crc: u32,
    compressed: u64,
    size: u64,
    offset: u64,
}

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;

fn short() -> NpzError {
    NpzError::new("the archive ends in the middle, or is damaged")
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N], NpzError> {
    let end = at.checked_add(N).ok_or_else(short)?;
    file.get(at..end).and_then(|b| b.try_into().ok()).ok_or_else(short)
}

fn u16_at(file: &[u8], at: usize) -> Result<u16, NpzError> {
    bytes(file, at).map(u16::from_le_bytes)
}

fn u32_at(file: &[u8], at: usize) -> Result<u32, NpzError> {
    bytes(file, at).map(u32::from_le_bytes)
}

fn u64_at(file: &[u8], at: usize) -> Result<u64, NpzError> {
    bytes(file, at).map(u64::from_le_bytes)
}

/// The entries that the archive's directory lists.
pub(super) fn entries<F: Bytes + ?Sized>(archive: &F) -> Result<Vec<Entry>, NpzError> {
    // The end record is the last 22 bytes, or earlier if a comment of up to 64 KiB follows; a locator of 20 bytes may come
    // before it.
    const TAIL: u64 = 22 + 0xFFFF + 20;
    let tail_at = archive.size().saturating_sub(TAIL);
    let tail = archive.part(tail_at, (archive.size() - tail_at) as usize)?;
    let last = tail.len().checked_sub(22).ok_or_else(|| NpzError::new("this is not a zip archive"))?;
    let end = (0..=last).rev().find(|&at| u32_at(&tail, at) == Ok(END));
    let end = end.ok_or_else(|| NpzError::new("this is not a zip archive"))?;
    let mut count = u64::from(u16_at(&tail, end + 10)?);
    let mut start = u64::from(u32_at(&tail, end + 16)?);
    if (count == 0xFFFF || start == 0xFFFF_FFFF) && end >= 20 {
        // The locator points at the large form.
        let end64 = archive.part(u64_at(&tail, end - 12)?, 56)?;
        if u32_at(&end64, 0)? == END64 {
            count = u64_at(&end64, 32)?;
            start = u64_at(&end64, 48)?;
        }
    }
    // The directory lies between the entries and the end record.
    let length = (tail_at + end as u64).checked_sub(start).and_then(|n| usize::try_from(n).ok()).ok_or_else(short)?;
    let directory = archive.part(start, length)?;
    let file = &*directory;
    let mut at = 0;
    let mut entries = Vec::new();
    for _ in 0..count {
        if u32_at(file, at)? != CENTRAL {
            return Err(short());
        }
        let (name, extra, comment) = (u16_at(file, at + 28)?, u16_at(file, at + 30)?, u16_at(file, at + 32)?);
        let name_end = at + 46 + usize::from(name);
        let name = file.get(at + 46..name_end).ok_or_else(short)?;
        let mut entry = Entry {
            name: String::from_utf8_lossy(name).into_owned(),
            method: u16_at(file, at + 10)?,
            crc: u32_at(file, at + 16)?,
            compressed: u32_at(file, at + 20)?.into(),
            size: u32_at(file, at + 24)?.into(),
            offset: u32_at(file, at + 42)?.into(),
        };
        let extra_end = name_end + usize::from(extra);
        entry.read_large_sizes(file.get(name_end..extra_end).ok_or_else(short)?)?;
        entries.push(entry);
        at = extra_end + usize::from(comment);
    }
    Ok(entries)
}

impl Entry {
    /// Numbers that do not fit in 32 bits stand in an extra field, in a fixed order.
    fn read_large_sizes(&mut self, mut extra: &[u8]) -> Result<(), NpzError> {
        while extra.len() >= 4 {
            let (tag, length) = (u16_at(extra, 0)?, usize::from(u16_at(extra, 2)?));
            let field = extra.get(4..4 + length).ok_or_else(short)?;
            if tag == 1 {
                let mut at = 0;
                for number in [&mut self.size, &mut self.compressed, &mut self.offset] {
                    if *number == 0xFFFF_FFFF {
                        *number = u64_at(field, at)?;
                        at += 8;
                    }
                }
            }
            extra = &extra[4 + length..];
        }
        Ok(())
    }

    /// The entry's contents.
    pub(super) fn read<'f, F: Bytes + ?Sized>(&self, archive: &'f F) -> Result<Cow<'f, [u8]>, NpzError> {
        let head = archive.part(self.offset, 30)?;
        if u32_at(&head, 0)? != LOCAL {
            return Err(short());
        }
        let names = u64::from(u16_at(&head, 26)?) + u64::from(u16_at(&head, 28)?);
        let start = self.offset.checked_add(30 + names).ok_or_else(short)?;
        if start.checked_add(self.compressed).is_none_or(|end| end > archive.size()) {
            return Err(short());
        }
        let data = archive.part(start, usize::try_from(self.compressed).map_err(|_| short())?)?;
        let contents = match self.method {
            0 => data,
            8 => Cow::Owned(inflate(&data, self.size)?),
            other => return Err(NpzError::new(format!("{}: compression method {other} is not supported", self.name))),
        };
        let mut crc = Crc::new();
        crc.update(&contents);
        if contents.len() as u64 != self.size || crc.sum() != self.crc {
            return Err(NpzError::new(format!("{} is damaged: its checksum does not fit", self.name)));
        }
        Ok(contents)
    }
}

fn inflate(data: &[u8], size: u64) -> Result<Vec<u8>, NpzError> {
    let size = usize::try_from(size).map_err(|_| short())?;
    let mut out = Vec::new();
    let mut state = Decompress::new(false);
    loop {
        // The room grows with what is there, so that a lie about the size costs nothing.
        if out.len() == out.capacity() {
            let more = (size + 1).saturating_sub(out.len()).min(out.len().max(1 << 16));
            if more == 0 {
                return Err(short());
            }
            out.try_reserve(more).map_err(|_| NpzError::new("an array does not fit in memory"))?;
        }
        let (before_in, before_out) = (state.total_in(), state.total_out());
        let rest = data.get(before_in as usize..).unwrap_or_default();
        let status = state.decompress_vec(rest, &mut out, FlushDecompress::Finish).map_err(|_| short())?;
        if status == Status::StreamEnd {
            return Ok(out);
        }
        let stalled = state.total_in() == before_in && state.total_out() == before_out;
        if out.len() > size || (stalled && out.len() < out.capacity()) {
            return Err(short());
        }
    }
}

/// Writes an archive of stored entries.
#[derive(Default)]
pub(super) struct Writer {
    file: Vec<u8>,
    directory: Vec<u8>,
    count: u64,
}

impl Writer {
    /// Adds an entry whose contents are `parts` one after another.
    pub(super) fn add(&mut self, name: &str, parts: &[&[u8]]) {
        let mut crc = Crc::new();
        parts.iter().for_each(|p| crc.update(p));
        let size: u64 = parts.iter().map(|p| p.len() as u64).sum();
        let offset = self.file.len() as u64;
        // Always the large form, as numpy writes it: one way for all sizes.
        let common = |out: &mut Vec<u8>, extra: u16| {
            // Version 4.5, no flags, stored, the earliest date there is.
            for number in [45u16, 0, 0, 0, 0x21] {
                out.extend(number.to_le_bytes());
            }
            out.extend(crc.sum().to_le_bytes());
            out.extend(u32::MAX.to_le_bytes());
            out.extend(u32::MAX.to_le_bytes());
            out.extend((name.len() as u16).to_le_bytes());
            out.extend(extra.to_le_bytes());
        };
        self.file.extend(LOCAL.to_le_bytes());
        common(&mut self.file, 20);
        self.file.extend(name.as_bytes());
        extend_large(&mut self.file, &[size, size]);
        parts.iter().for_each(|p| self.file.extend_from_slice(p));

        self.directory.extend(CENTRAL.to_le_bytes());
        self.directory.extend(45u16.to_le_bytes());
        common(&mut self.directory, 28);
        // No comment, first disk, no attributes.
        self.directory.extend([0; 10]);
        self.directory.extend(u32::MAX.to_le_bytes());
        self.directory.extend(name.as_bytes());
        extend_large(&mut self.directory, &[size, size, offset]);
        self.count += 1;
    }

    /// The archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let (start, length) = (self.file.len() as u64, self.directory.len() as u64);
        self.file.append(&mut self.directory);
        let end64 = self.file.len() as u64;
        self.file.extend(END64.to_le_bytes());
        self.file.extend(44u64.to_le_bytes());
        self.file.extend([45, 0, 45, 0]);
        self.file.extend([0; 8]);
        for number in [self.count, self.count, length, start] {
            self.file.extend(number.to_le_bytes());
        }
        self.file.extend(0x0706_4b50u32.to_le_bytes());
        self.file.extend([0; 4]);
        self.file.extend(end64.to_le_bytes());
        self.file.extend(1u32.to_le_bytes());
        self.file.extend(END.to_le_bytes());
        self.file.extend([0; 4]);
        self.file.extend([0xFF; 12]);
        self.file.extend([0; 2]);
        self.file
    }
}

/// An extra field with numbers that are too large for the ordinary ones.
fn extend_large(out: &mut Vec<u8>, numbers: &[u64]) {
    out.extend(1u16.to_le_bytes());
    out.extend((8 * numbers.len() as u16).to_le_bytes());
    numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
}
