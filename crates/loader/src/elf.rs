//! Object code made ready to run: sections laid out in memory, references resolved, pages made executable.
//!
//! Kernels are always made as ELF, whatever the operating system, and refer to few things outside: see [`crate::external`].
//! All of an object lies in one mapping, so that relative references reach. The mapping is written first and is never
//! writable again once it can be executed.

use crate::error::LoadError;
use crate::external::external;
use std::ffi::c_void;
use std::ptr::NonNull;

/// Executable memory.
#[derive(Debug)]
pub(crate) struct Code {
    start: NonNull<u8>,
    length: usize,
    /// Names and addresses of the functions.
    symbols: Vec<(String, usize)>,
}

// SAFETY: the memory is only read and executed after it was made.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this start and length, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast::<c_void>(), self.length) };
    }
}

impl Code {
    /// The address of a function.
    pub(crate) fn address(&self, name: &str) -> Option<usize> {
        self.symbols.iter().find(|s| s.0 == name).map(|s| s.1)
    }
}

struct Section {
    kind: u32,
    flags: u64,
    offset: usize,
    size: usize,
    link: usize,
    info: usize,
    align: usize,
    /// Where it lies in the mapping.
    place: usize,
}

struct Symbol {
    name: String,
    section: usize,
    value: usize,
    is_function: bool,
}

fn bytes<const N: usize>(object: &[u8], at: usize) -> Result<[u8; N], LoadError> {
    let found = object.get(at..at.saturating_add(N)).and_then(|b| b.try_into().ok());
    found.ok_or(LoadError::Malformed("the object code is cut short"))
}
fn u16_at(object: &[u8], at: usize) -> Result<usize, LoadError> {
    Ok(u16::from_le_bytes(bytes(object, at)?).into())
}
fn u32_at(object: &[u8], at: usize) -> Result<u32, LoadError> {
    Ok(u32::from_le_bytes(bytes(object, at)?))
}
fn u64_at(object: &[u8], at: usize) -> Result<u64, LoadError> {
    Ok(u64::from_le_bytes(bytes(object, at)?))
}

fn sections(object: &[u8]) -> Result<Vec<Section>, LoadError> {
    if !object.starts_with(b"\x7fELF\x02\x01") {
        return Err(LoadError::Malformed("the object code is not ELF of 64 bits"));
    }
    let (table, size, count) = (u64_at(object, 0x28)? as usize, u16_at(object, 0x3a)?, u16_at(object, 0x3c)?);
    let section = |n: usize| {
        let at = table + n * size;
        Ok(Section {
            kind: u32_at(object, at + 4)?,
            flags: u64_at(object, at + 8)?,
            offset: u64_at(object, at + 0x18)? as usize,
            size: u64_at(object, at + 0x20)? as usize,
            link: u32_at(object, at + 0x28)? as usize,
            info: u32_at(object, at + 0x2c)? as usize,
            align: (u64_at(object, at + 0x30)? as usize).max(1),
            place: 0,
        })
    };
    (0..count).map(section).collect()
}

fn symbols(object: &[u8], sections: &[Section]) -> Result<Vec<Symbol>, LoadError> {
    let Some(table) = sections.iter().find(|s| s.kind == 2) else { return Ok(Vec::new()) };
    let names = sections.get(table.link).ok_or(LoadError::Malformed("the symbols have no names"))?;
    let symbol = |n: usize| {
        let at = table.offset + n * 24;
        let name = object.get(names.offset + u32_at(object, at)? as usize..).unwrap_or_default();
        let end = name.iter().position(|&b| b == 0).unwrap_or(0);
        Ok(Symbol {
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            section: u16_at(object, at + 6)?,
            value: u64_at(object, at + 8)? as usize,
            is_function: bytes::<1>(object, at + 4)?[0] & 0xf == 2,
        })
    };
    (0..table.size / 24).map(symbol).collect()
}

const STUB: usize = 24;

/// Loads an object; `data` finds what it refers to besides the functions that every kernel may call.
pub(crate) fn load(object: &[u8], architecture: &str, data: &dyn Fn(&str) -> Option<usize>) -> Result<Code, LoadError> {
    let mut sections = sections(object)?;
    let symbols = symbols(object, &sections)?;
    let mut length = 0usize;
    for section in sections.iter_mut().filter(|s| s.flags & 2 != 0) {
        length = length.next_multiple_of(section.align.max(16));
        section.place = length;
        length += section.size;
    }
    // A jump to each outside function: it may be farther away than a relative call reaches.
    length = length.next_multiple_of(16);
    let stubs = length;
    length += symbols.iter().filter(|s| s.section == 0).count() * STUB;
    let length = length.max(1).next_multiple_of(4096);
    let mut image = vec![0u8; length];
    for section in sections.iter().filter(|s| s.flags & 2 != 0 && s.kind != 8) {
        let from = object
            .get(section.offset..section.offset.saturating_add(section.size))
            .ok_or(LoadError::Malformed("a section is cut short"))?;
        image[section.place..section.place + section.size].copy_from_slice(from);
    }
    // SAFETY: a new private mapping of our own.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let start = match NonNull::new(start.cast::<u8>()) {
        Some(start) if start.as_ptr().cast::<c_void>() != libc::MAP_FAILED => start,
        _ => return Err(LoadError::Memory("there is no memory for the code")),
    };
    let mut code = Code { start, length, symbols: Vec::new() };
    let base = start.as_ptr() as usize;
    let mut places = Vec::with_capacity(symbols.len());
    let mut next_stub = stubs;
    for symbol in &symbols {
        let place = match symbol.section {
            0 if symbol.name.is_empty() => 0,
            0 => {
                let target = data(&symbol.name)
                    .or_else(|| external(&symbol.name))
                    .ok_or_else(|| LoadError::UnknownFunction(symbol.name.clone()))?;
                write_stub(&mut image[next_stub..next_stub + STUB], target, architecture);
                next_stub += STUB;
                next_stub - STUB
            }
            n => sections.get(n).map_or(0, |s| s.place) + symbol.value,
        };
        places.push(place);
        if symbol.is_function && symbol.section != 0 {
            code.symbols.push((symbol.name.clone(), base + place));
        }
    }
    for table in sections.iter().filter(|s| s.kind == 4) {
        let Some(target) = sections.get(table.info).filter(|t| t.flags & 2 != 0) else { continue };
        for n in 0..table.size / 24 {
            let at = table.offset + n * 24;
            let (offset, info) = (u64_at(object, at)? as usize, u64_at(object, at + 8)?);
            let addend = i64::from_le_bytes(bytes(object, at + 16)?);
            let symbol = *places.get((info >> 32) as usize).ok_or(LoadError::Malformed("a reference leads nowhere"))?;
            relocate(&mut image, base, target.place + offset, symbol, addend, info as u32, architecture)?;
        }
    }
    // SAFETY: the mapping is `length` bytes long, as is the image, and nobody else knows of it yet.
    let protected = unsafe {
        std::ptr::copy_nonoverlapping(image.as_ptr(), start.as_ptr(), length);
        libc::mprotect(start.as_ptr().cast::<c_void>(), length, libc::PROT_READ | libc::PROT_EXEC)
    };
    if protected != 0 {
        return Err(LoadError::Memory("the code may not be made executable"));
    }
    Ok(code)
}

/// A jump to `target`; its address stands in the last eight bytes.
fn write_stub(stub: &mut [u8], target: usize, architecture: &str) {
    let jump: [u8; 16] = match architecture {
        // ldr x16, #16; br x16
        "aarch64" => [0x90, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0],
        // jmp *10(%rip)
        _ => [0xff, 0x25, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    };
    stub[..16].copy_from_slice(&jump);
    stub[16..24].copy_from_slice(&(target as u64).to_le_bytes());
}

fn relocate(
    image: &mut [u8],
    base: usize,
    place: usize,
    symbol: usize,
    addend: i64,
    kind: u32,
    architecture: &str,
) -> Result<(), LoadError> {
    let absolute = (base as i64).wrapping_add(symbol as i64).wrapping_add(addend);
    let relative = (symbol as i64).wrapping_add(addend).wrapping_sub(place as i64);
    let mut put = |value: &[u8]| match image.get_mut(place..place + value.len()) {
        Some(field) => {
            field.copy_from_slice(value);
            Ok(())
        }
        None => Err(LoadError::Malformed("a reference lies outside of its section")),
    };
    let near = |value: i64| i32::try_from(value).map_err(|_| LoadError::Malformed("a reference reaches too far"));
    if architecture == "aarch64" {
        return relocate_aarch64(image, base, place, absolute, relative, kind);
    }
    match kind {
        1 => put(&absolute.to_le_bytes()),
        2 | 4 => put(&near(relative)?.to_le_bytes()),
        24 => put(&relative.to_le_bytes()),
        // The address of an outside function, which its stub holds.
        9 | 41 | 42 => put(&near(relative + 16)?.to_le_bytes()),
        _ => Err(LoadError::UnknownReference { kind }),
    }
}

fn relocate_aarch64(
    image: &mut [u8],
    base: usize,
    place: usize,
    absolute: i64,
    relative: i64,
    kind: u32,
) -> Result<(), LoadError> {
    let word = u32::from_le_bytes(bytes(image, place)?);
    let low = (absolute & 0xfff) as u32;
    let new = match kind {
        257 => {
            image[place..place + 8].copy_from_slice(&absolute.to_le_bytes());
            return Ok(());
        }
        // ADRP: pages from here.
        275 => {
            let pages = ((absolute & !0xfff) - ((base + place) as i64 & !0xfff)) >> 12;
            word | ((pages as u32 & 3) << 29) | (((pages >> 2) as u32 & 0x7_ffff) << 5)
        }
        277 | 278 => word | (low << 10),
        284 => word | ((low >> 1) << 10),
        285 => word | ((low >> 2) << 10),
        286 => word | ((low >> 3) << 10),
        299 => word | ((low >> 4) << 10),
        282 | 283 => word | ((relative >> 2) as u32 & 0x3ff_ffff),
        _ => return Err(LoadError::UnknownReference { kind }),
    };
    image[place..place + 4].copy_from_slice(&new.to_le_bytes());
    Ok(())
}
