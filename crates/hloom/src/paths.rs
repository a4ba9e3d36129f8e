//! Paths as the command carries them: text, whatever bytes the file system has for a name.
//!
//! Names need not be UTF-8. A byte that is no part of a character stands in the text as a character of a private area, and
//! is that byte again where the path is opened; all other text is itself. What was given is found, and nothing else is.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

/// The character for the byte 0; the others follow.
const FIRST: u32 = 0x10_ff00;

fn is_escape(c: char) -> bool {
    (FIRST..FIRST + 256).contains(&(c as u32))
}

/// The text for a word of the command line.
pub fn to_text(word: OsString) -> String {
    let bytes = match word.into_string() {
        Ok(text) if !text.chars().any(is_escape) => return text,
        Ok(text) => text.into_bytes(),
        Err(word) => word.into_encoded_bytes(),
    };
    let escape = |byte: &u8| char::from_u32(FIRST + u32::from(*byte)).unwrap_or(char::REPLACEMENT_CHARACTER);
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_escape(c) {
                // A name may have a character of that area; its bytes say so.
                true => text.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().map(escape)),
                false => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(escape));
    }
    text
}

/// The path that the text stands for.
pub fn to_path(text: &str) -> Cow<'_, Path> {
    if !text.chars().any(is_escape) {
        return Cow::Borrowed(Path::new(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match is_escape(c) {
            true => bytes.push((c as u32 - FIRST) as u8),
            false => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(from_bytes(bytes).into())
}

#[cfg(unix)]
fn from_bytes(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(not(unix))]
fn from_bytes(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back() {
        let names: [&[u8]; 6] = [
            b"plain.hlo",
            "größe".as_bytes(),
            b"a\xff.hlo",
            b"\xc3",
            b"\xf0\x9f\x98/x\x80y",
            "\u{10ff41}\u{10ffff}".as_bytes(),
        ];
        for name in names {
            let word = from_bytes(name.to_vec());
            assert_eq!(to_path(&to_text(word.clone())).as_os_str(), word, "{name:?}");
        }
        assert_eq!(to_text("plain.hlo".into()), "plain.hlo");
    }
}
