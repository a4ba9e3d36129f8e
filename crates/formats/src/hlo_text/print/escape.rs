//! Strings in HLO text: C escapes, and the raw `{…}` form that needs none.

use hloom_ir::display::write_uint;

/// Appends `text` with C escapes, so that it can stand between double quotes. All that is not printable ASCII becomes
/// three octal digits, so any bytes can be written.
pub(super) fn write_escaped(out: &mut String, text: &[u8]) {
    let mut rest = text;
    while !rest.is_empty() {
        let plain = rest.iter().position(|&b| NEEDS_ESCAPE[b as usize]).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(plain);
        // The run holds printable ASCII only.
        out.push_str(std::str::from_utf8(run).unwrap_or_default());
        let Some((&byte, tail)) = tail.split_first() else { return };
        out.push('\\');
        match byte {
            b'\n' => out.push('n'),
            b'\r' => out.push('r'),
            b'\t' => out.push('t'),
            b'"' | b'\'' | b'\\' => out.push(byte as char),
            _ => {
                for shift in [6, 3, 0] {
                    write_uint(out, u64::from(byte >> shift & 7));
                }
            }
        }
        rest = tail;
    }
}

/// For each byte whether it needs an escape: names of operations are long and have to be looked through.
const NEEDS_ESCAPE: [bool; 256] = {
    let mut table = [true; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        table[byte] = matches!(byte as u8, b'"' | b'\'' | b'\\');
        byte += 1;
    }
    table
};

/// The text if it can be written raw: it opens with a brace and closes with the one that matches it, strings set aside.
pub(super) fn as_raw_braces(text: &[u8]) -> Option<&str> {
    if text.first() != Some(&b'{') {
        return None;
    }
    let mut depth = 0usize;
    let mut in_string = false;
    let mut bytes = text.iter().enumerate();
    while let Some((i, &byte)) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\'
                if in_string
                // An escaped line break ends the string for XLA's reader.
                && bytes.next()?.1 == &b'\n' =>
            {
                return None;
            }
            _ if in_string => {}
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return if i + 1 == text.len() { std::str::from_utf8(text).ok() } else { None };
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_escaped_as_in_c() {
        let mut out = String::new();
        write_escaped(&mut out, b"a\n\t\r\"'\\\x00\x7f\xc3\xa4 z");
        assert_eq!(out, r#"a\n\t\r\"\'\\\000\177\303\244 z"#);
    }

    #[test]
    fn only_balanced_braces_are_raw() {
        for raw in ["{}", "{abc: 123}", "{{a}, {{b}}}", r#"{"}"}"#, r#"{"\"}"}"#] {
            assert_eq!(as_raw_braces(raw.as_bytes()), Some(raw));
        }
        for quoted in ["", "{", "}", "{}}", "{}{}", "{{}", r#"{"}"#, "a{}", "{} ", r#"{"\"}"#] {
            assert_eq!(as_raw_braces(quoted.as_bytes()), None, "{quoted}");
        }
        assert_eq!(as_raw_braces(b"{\xff}"), None);
    }
}
