//! The part of TOML that descriptions are written in: comments, `key = value` with integers, strings and booleans, and
//! tables in a list (`[[memory]]`).
//!
//! Everything read remembers its line, so that whoever finds a value wrong can say where it is.

/// A value and the line it stands on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// The line, from 1.
    pub line: usize,
}

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// `12`, `16_384`.
    Integer(i64),
    /// `"text"`, without escapes.
    Text(String),
    /// `true` or `false`.
    Flag(bool),
}

/// The entries under one heading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// What stands between the double brackets; empty for the entries before the first heading.
    pub name: String,
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
    let mut tables = vec![Table { name: String::new(), line: 1, entries: Vec::new() }];
    for (n, raw) in text.lines().enumerate() {
        let line = n + 1;
        let error = |message: String| TextError { line, message };
        let content = without_comment(raw).trim();
        if content.is_empty() {
            continue;
        }
        if content.starts_with('[') {
            let name = content.strip_prefix("[[").and_then(|c| c.strip_suffix("]]"));
            let name = name.ok_or_else(|| error("a heading is written `[[name]]`".into()))?;
            tables.push(Table { name: name.trim().to_owned(), line, entries: Vec::new() });
            continue;
        }
        let (key, value) = content.split_once('=').ok_or_else(|| error("expected `key = value`".into()))?;
        let key = key.trim().to_owned();
        let value = read_value(value.trim())
            .ok_or_else(|| error(format!("the value of `{key}` is neither an integer, nor a \"text\", nor a flag")))?;
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

fn read_value(text: &str) -> Option<Value> {
    if let Some(inner) = text.strip_prefix('"') {
        let inner = inner.strip_suffix('"')?;
        return (!inner.contains(['"', '\\'])).then(|| Value::Text(inner.to_owned()));
    }
    match text {
        "true" => return Some(Value::Flag(true)),
        "false" => return Some(Value::Flag(false)),
        _ => {}
    }
    text.replace('_', "").parse().ok().map(Value::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_entries_under_headings() {
        let tables = read("name = \"a # b\" # why\n\n[[memory]]\ncolour = 1\nbytes = 16_384\npreset = true\n").unwrap();
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].entries[0].value, Value::Text("a # b".into()));
        assert_eq!((tables[1].name.as_str(), tables[1].line), ("memory", 3));
        let values: Vec<&Value> = tables[1].entries.iter().map(|e| &e.value).collect();
        assert_eq!(values, [&Value::Integer(1), &Value::Integer(16384), &Value::Flag(true)]);
    }

    #[test]
    fn says_which_line_is_wrong() {
        for (text, line) in [("a = 1\nb", 2), ("a = x", 1), ("a = 1\na = 2", 2), ("\n[x]", 2), ("a = \"x", 1)] {
            assert_eq!(read(text).unwrap_err().line, line, "{text:?}");
        }
    }
}
