//! The part of TOML that descriptions are written in: comments, `key = value` with numbers, strings and booleans,
//! tables (`[windows]`) and tables in a list (`[[memory]]`).
//!
//! Everything read remembers its line, so that whoever finds a value wrong can say where it is. What was read can be
//! written again ([`write()`]); comments are not kept.

/// A value and the line it stands on.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// The line, from 1.
    pub line: usize,
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `12`, `16_384`.
    Integer(i64),
    /// `1.5`, `1.638e12`; always finite.
    Number(f64),
    /// `"text"`, without escapes.
    Text(String),
    /// `true` or `false`.
    Flag(bool),
}

/// The entries under one heading.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// What stands between the brackets; empty for the entries before the first heading.
    pub name: String,
    /// Whether it is one of a list (`[[name]]`), not the only one of its name (`[name]`).
    pub is_listed: bool,
    /// The line of the heading, from 1.
    pub line: usize,
    /// The entries in order.
    pub entries: Vec<Entry>,
}

/// What is wrong with a description, and on which line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

/// Reads a description; the first table holds what comes before any heading.
pub fn read(text: &str) -> Result<Vec<Table>, TextError> {
    let mut tables: Vec<Table> = vec![Table { name: String::new(), is_listed: false, line: 1, entries: Vec::new() }];
    for (n, raw) in text.lines().enumerate() {
        let line = n + 1;
        let error = |message: String| TextError { line, message };
        let content = without_comment(raw).trim();
        if content.is_empty() {
            continue;
        }
        if content.starts_with('[') {
            let listed = content.strip_prefix("[[").and_then(|c| c.strip_suffix("]]"));
            let single = content.strip_prefix('[').and_then(|c| c.strip_suffix(']'));
            let name = listed.or(single).map(str::trim).filter(|n| is_name(n));
            let name = name.ok_or_else(|| error("a heading is written `[name]` or `[[name]]`".into()))?;
            let is_listed = listed.is_some();
            if tables.iter().any(|t| t.name == name && !(t.is_listed && is_listed)) {
                return Err(error(format!("`[{name}]` is given twice")));
            }
            tables.push(Table { name: name.to_owned(), is_listed, line, entries: Vec::new() });
            continue;
        }
        let (key, value) = content.split_once('=').ok_or_else(|| error("expected `key = value`".into()))?;
        let key = key.trim().to_owned();
        let value = read_value(value.trim())
            .ok_or_else(|| error(format!("the value of `{key}` is neither a number, nor a \"text\", nor a flag")))?;
        if let Some(table) = tables.last_mut() {
            if table.entries.iter().any(|e| e.key == key) {
                return Err(error(format!("`{key}` is given twice")));
            }
            table.entries.push(Entry { key, value, line });
        }
    }
    Ok(tables)
}

/// The line without its comment; a `#` within quotes starts none.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// The tables as text that [`read`] reads.
pub fn write(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        match (table.name.is_empty(), table.is_listed) {
            (true, _) => {}
            (false, true) => out.push_str(&format!("\n[[{}]]\n", table.name)),
            (false, false) => out.push_str(&format!("\n[{}]\n", table.name)),
        }
        for Entry { key, value, .. } in &table.entries {
            let value = match value {
                Value::Integer(n) => n.to_string(),
                Value::Number(n) => write_number(*n),
                Value::Text(text) => format!("\"{text}\""),
                Value::Flag(flag) => flag.to_string(),
            };
            out.push_str(&format!("{key} = {value}\n"));
        }
    }
    out
}

/// A number so that it is read as one, and the same one.
fn write_number(n: f64) -> String {
    match n.abs() {
        0.0 => "0.0".to_owned(),
        a if !(1e-3..1e6).contains(&a) => format!("{n:e}"),
        _ => format!("{n:?}"),
    }
}

/// The value that is written so, if it is one.
pub fn read_value(text: &str) -> Option<Value> {
    if let Some(inner) = text.strip_prefix('"') {
        let inner = inner.strip_suffix('"')?;
        return (!inner.contains(['"', '\\'])).then(|| Value::Text(inner.to_owned()));
    }
    match text {
        "true" => return Some(Value::Flag(true)),
        "false" => return Some(Value::Flag(false)),
        _ => {}
    }
    let digits = text.replace('_', "");
    if let Ok(integer) = digits.parse() {
        return Some(Value::Integer(integer));
    }
    // `inf`, `nan` and words are numbers to the parser, not to a description.
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && !digits.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E'));
    digits.parse().ok().filter(|n: &f64| is_number && n.is_finite()).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_entries_under_headings() {
        let tables = read("name = \"a # b\" # why\n\n[[memory]]\nspace = 1\nbytes = 16_384\npreset = true\n").unwrap();
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].entries[0].value, Value::Text("a # b".into()));
        assert_eq!((tables[1].name.as_str(), tables[1].line), ("memory", 3));
        let values: Vec<&Value> = tables[1].entries.iter().map(|e| &e.value).collect();
        assert_eq!(values, [&Value::Integer(1), &Value::Integer(16384), &Value::Flag(true)]);
    }

    #[test]
    fn says_which_line_is_wrong() {
        for (text, line) in [
            ("a = 1\nb", 2),
            ("a = x", 1),
            ("a = 1\na = 2", 2),
            ("\n[x", 2),
            ("[x]\n[x]", 2),
            ("a = \"x", 1),
            ("a = inf", 1),
            ("a = -nan", 1),
            ("a = 1e999", 1),
        ] {
            assert_eq!(read(text).unwrap_err().line, line, "{text:?}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let text = "name = \"x\"\n\n[windows]\na = 1.638e12\nb = 0.5\nc = 3.0\nd = 1.25e-7\n\n[[memory]]\nspace = 0\n";
        let tables = read(text).unwrap();
        assert_eq!(write(&tables), text);
        assert_eq!(tables[1].entries[2].value, Value::Number(3.0));
    }
}
