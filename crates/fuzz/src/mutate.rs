//! Damage, as inputs suffer it in the world and at the hands of a fuzzer.
//!
//! A mutation is applied to bytes and does not know the format; it knows what readers trip over: cut-off ends, flipped
//! bits, pieces of another file, repeated or missing words, numbers at the limits, and deep nesting.

use crate::choices::Choices;

/// Numbers at which arithmetic breaks.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999",
    "1e999",
    "-0",
    "0x1p3",
];

/// Words of the language, to stand where they should not.
const WORDS: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    "=",
    "->",
    "<=",
    "%",
    ":",
    "\"",
    "'",
    "/*",
    "*/",
    "//",
    "...",
    "?",
    "*",
    "#",
    "ROOT",
    "ENTRY",
    "HloModule",
    "f32[]",
    "s4[2]{0:E(4)}",
    "token[]",
    "()",
    "inf",
    "-nan(0x1)",
    "parameter(0)",
    "{...}",
    "sharding={devices=[2]<=[2]}",
    "replica_groups=[1,2]<=[2]",
    "metadata={}",
    "backend_config={",
    "to_apply={",
    "is_scheduled=true",
    "f32[<=4]",
    "f32[?]",
    "calls=%c",
    "index=0",
    "\\",
    "\0",
    "\u{feff}",
    "ü",
];

/// `input` with a few mutations; `other` is where pieces are taken from.
pub fn mutate(choices: &mut Choices<'_>, input: &[u8], other: &[u8], limit: usize) -> Vec<u8> {
    let mut bytes = input.to_vec();
    // Mostly one: an input with many faults is refused for the first.
    for _ in 0..*choices.pick(&[1, 1, 1, 1, 2, 4]) {
        match choices.below(24) {
            0..=3 => flip(choices, &mut bytes),
            4..=5 => set_byte(choices, &mut bytes),
            6 => truncate(choices, &mut bytes),
            7 => remove(choices, &mut bytes),
            8 => duplicate(choices, &mut bytes),
            9 => splice(choices, &mut bytes, other),
            10..=15 => change_number(choices, &mut bytes),
            16..=17 => insert_word(choices, &mut bytes),
            18..=21 => swap_words(choices, &mut bytes),
            22 => duplicate_line(choices, &mut bytes),
            _ => nest(choices, &mut bytes),
        }
        bytes.truncate(limit);
    }
    bytes
}

/// A position in `bytes`; 0 if there is none.
fn position(choices: &mut Choices<'_>, bytes: &[u8]) -> usize {
    choices.below(bytes.len())
}

/// A piece of `bytes` of at most `longest`.
fn piece(choices: &mut Choices<'_>, bytes: &[u8], longest: usize) -> std::ops::Range<usize> {
    let start = position(choices, bytes);
    let length = choices.below(longest.min(bytes.len() - start) + 1);
    start..start + length
}

fn flip(choices: &mut Choices<'_>, bytes: &mut [u8]) {
    let at = position(choices, bytes);
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << choices.below(8);
    }
}

fn set_byte(choices: &mut Choices<'_>, bytes: &mut [u8]) {
    let at = position(choices, bytes);
    if let Some(byte) = bytes.get_mut(at) {
        *byte = *choices.pick(&[0, 0x7f, 0x80, 0xff, b'{', b'}', b'(', b')', b'"', b'0', b'9', b' ', b'\n']);
    }
}

fn truncate(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let at = position(choices, bytes);
    bytes.truncate(at);
}

fn remove(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let piece = piece(choices, bytes, 64);
    bytes.drain(piece);
}

fn duplicate(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let piece = piece(choices, bytes, 256);
    let copy = bytes[piece.clone()].to_vec();
    bytes.splice(piece.end..piece.end, copy);
}

fn splice(choices: &mut Choices<'_>, bytes: &mut Vec<u8>, other: &[u8]) {
    let from = piece(choices, other, 512);
    let to = piece(choices, bytes, 64);
    bytes.splice(to, other[from].iter().copied());
}

/// Replaces a number of the text near a random place.
fn change_number(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let from = position(choices, bytes);
    let Some(start) = bytes[from..].iter().position(u8::is_ascii_digit).map(|i| from + i) else { return };
    let end = bytes[start..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |i| start + i);
    if choices.chance(50) {
        // Another digit leaves many inputs readable, and wrong in a deeper way.
        bytes[start] = b'0' + choices.below(10) as u8;
    } else {
        let number = *choices.pick(NUMBERS);
        bytes.splice(start..end, number.bytes());
    }
}

fn insert_word(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let at = position(choices, bytes);
    let word = *choices.pick(WORDS);
    bytes.splice(at..at, word.bytes());
}

/// The words of the line at a random place, as ranges.
fn words_near(choices: &mut Choices<'_>, bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let at = position(choices, bytes);
    let start = bytes[..at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let end = bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |i| at + i);
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'%');
    let mut words = Vec::new();
    let mut i = start;
    while i < end {
        let length = bytes[i..end].iter().take_while(|b| is_word(b)).count();
        if length > 0 {
            words.push(i..i + length);
        }
        i += length.max(1);
    }
    words
}

/// Puts one word of a line in the place of another.
fn swap_words(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let words = words_near(choices, bytes);
    if words.is_empty() {
        return;
    }
    let copy = bytes[choices.pick(&words).clone()].to_vec();
    let to = choices.pick(&words).clone();
    bytes.splice(to, copy);
}

fn duplicate_line(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let at = position(choices, bytes);
    let start = bytes[..at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let end = bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |i| at + i + 1);
    let copy = bytes[start..end].to_vec();
    let to = position(choices, bytes);
    let to = bytes[..to].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    bytes.splice(to..to, copy);
}

/// Many opening brackets, sometimes with their closing ones; or many levels of a length-delimited field.
fn nest(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let depth = *choices.pick(&[2, 10, 130, 2000, 100_000]);
    let (open, close) = *choices.pick(&[("(", ")"), ("{", "}"), ("[", "]"), ("{{0,", "}"), ("a(", ")"), ("/*", "*/")]);
    let at = position(choices, bytes);
    let mut nested = open.repeat(depth);
    if choices.chance(50) {
        nested.push_str(&close.repeat(depth));
    }
    bytes.splice(at..at, nested.into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_change_and_stay_within_the_limit() {
        let input = b"HloModule m\n\nENTRY e {\n  ROOT c = f32[2] constant({1, 2})\n}\n";
        let mut changed = 0;
        for seed in 0..500 {
            let mutated = mutate(&mut Choices::from_seed(seed), input, b"other {text}", 1000);
            assert!(mutated.len() <= 1000);
            changed += usize::from(mutated != input);
        }
        assert!(changed > 400, "only {changed} of 500 changed anything");
    }

    #[test]
    fn nothing_can_be_mutated_too() {
        for seed in 0..500 {
            mutate(&mut Choices::from_seed(seed), b"", b"", 100);
        }
    }
}
