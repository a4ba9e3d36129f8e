//! Bytes of the bytecode and the place where the reader stands: numbers, lists and blobs.
//!
//! Nothing is read beyond the end, and no list is made longer than the bytes that are left.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::mlir as codes;

/// What reading a part gives.
pub(super) type Read<T> = Result<T, Box<Diagnostic>>;

/// A place in a part of the bytecode.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) pos: usize,
    /// What the part is called in messages.
    pub(super) part: &'static str,
}

/// Something is wrong with `part`.
#[cold]
pub(super) fn damaged(part: &str, what: impl std::fmt::Display) -> Box<Diagnostic> {
    let message = format!("the bytecode is damaged: {what} in {part}");
    Box::new(Diagnostic::error(&codes::DAMAGED_BYTECODE, message))
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], part: &'static str) -> Cursor<'a> {
        Cursor { bytes, pos: 0, part }
    }

    #[cold]
    pub(super) fn damaged(&self, what: impl std::fmt::Display) -> Box<Diagnostic> {
        damaged(self.part, format_args!("{what} at byte {}", self.pos))
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.pos >= self.bytes.len()
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.pos)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Read<u8> {
        let Some(&b) = self.bytes.get(self.pos) else { return Err(self.damaged("the data end too early")) };
        self.pos += 1;
        Ok(b)
    }

    pub(super) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let Some(slice) = self.pos.checked_add(count).and_then(|end| self.bytes.get(self.pos..end)) else {
            return Err(self.damaged(format_args!("{count} bytes are claimed where {} are left", self.left())));
        };
        self.pos += count;
        Ok(slice)
    }

    /// A number whose first byte tells by its trailing zeros how many bytes follow.
    #[inline]
    pub(super) fn varint(&mut self) -> Read<u64> {
        let first = self.byte()?;
        if first & 1 == 1 {
            return Ok(u64::from(first >> 1));
        }
        let more = first.trailing_zeros() as usize;
        let rest = self.take(more)?;
        let mut wide = [0u8; 8];
        if more == 8 {
            wide.copy_from_slice(rest);
            return Ok(u64::from_le_bytes(wide));
        }
        wide[0] = first;
        wide[1..=more].copy_from_slice(rest);
        Ok(u64::from_le_bytes(wide) >> (more + 1))
    }

    /// A number that may be negative.
    pub(super) fn svarint(&mut self) -> Read<i64> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// A number and a flag.
    pub(super) fn flagged(&mut self) -> Read<(u64, bool)> {
        let v = self.varint()?;
        Ok((v >> 1, v & 1 == 1))
    }

    /// A count of things that take at least one byte each.
    pub(super) fn count(&mut self) -> Read<usize> {
        let n = self.varint()?;
        if n > self.left() as u64 {
            return Err(self.damaged(format_args!("{n} entries are claimed where {} bytes are left", self.left())));
        }
        Ok(n as usize)
    }

    /// A number below 2^32.
    pub(super) fn index(&mut self) -> Read<u32> {
        let n = self.varint()?;
        u32::try_from(n).map_err(|_| self.damaged(format_args!("the index {n} is out of range")))
    }

    pub(super) fn indices(&mut self) -> Read<Vec<u32>> {
        let n = self.count()?;
        (0..n).map(|_| self.index()).collect()
    }

    pub(super) fn svarints<C: FromIterator<i64>>(&mut self) -> Read<C> {
        let n = self.count()?;
        (0..n).map(|_| self.svarint()).collect()
    }

    pub(super) fn blob(&mut self) -> Read<&'a [u8]> {
        let n = self.varint()?;
        let n = usize::try_from(n).map_err(|_| self.damaged("a blob is too long"))?;
        self.take(n)
    }

    /// A whole number of `width` bits, sign-extended; `None` beyond 64 bits.
    pub(super) fn apint(&mut self, width: u32) -> Read<Option<i64>> {
        if width <= 8 {
            let b = self.byte()?;
            return Ok(Some(i64::from(b as i8)));
        }
        if width <= 64 {
            return self.svarint().map(Some);
        }
        let n = self.count()?;
        for _ in 0..n {
            self.svarint()?;
        }
        Ok(None)
    }
}
