//! A description as it is written: read, changed by key, and written again.
//!
//! Keys name a table and an entry of it: `clock_hz` is of the head, `windows.loop_start` of the only table of that name,
//! `memory.0.bandwidth`, `rate.bf16.matmul`, `cache.2.bytes` and `link.ici.bandwidth` of one in a list, told by its
//! memory space, type, level or name. A value is written as in the file, or as a factor of what is there (`2x`, `0.5x`).

use crate::description::{BUILTIN, Target};
use crate::text::{Entry, Table, Value, read, read_value, write};
use hloom_ir::diagnostic::codes::plan::{BAD_TARGET, UNKNOWN_TARGET};
use hloom_ir::diagnostic::{Blame, Diagnostic, did_you_mean};

/// A description of a machine, as it is written.
#[derive(Clone, Debug)]
pub struct Description {
    file: String,
    tables: Vec<Table>,
}

/// Short names of keys that are asked for often.
const SHORT: [(&str, &str); 5] = [
    ("hbm_bandwidth", "memory.0.bandwidth"),
    ("memory_bandwidth", "memory.0.bandwidth"),
    ("hbm_bytes", "memory.0.bytes"),
    ("memory_bytes", "memory.0.bytes"),
    ("clock", "clock_hz"),
];

/// The entry by which the tables of a list are told apart.
fn selector(table: &str) -> &'static str {
    match table {
        "memory" => "space",
        "rate" => "type",
        "cache" => "level",
        _ => "name",
    }
}

impl Description {
    /// The description of that name among those that come with hloom.
    pub fn named(name: &str) -> Result<Description, Diagnostic> {
        match BUILTIN.iter().find(|(n, _)| *n == name) {
            Some((name, text)) => Description::from_text(text, name),
            None => {
                let all: Vec<&str> = Target::names().collect();
                let unknown = Diagnostic::error(&UNKNOWN_TARGET, format!("there is no target `{name}`"))
                    .blame(Blame::Data)
                    .note(format!("the targets are {}; a path to a description is taken too", all.join(", ")));
                Err(match did_you_mean(name, Target::names()) {
                    Some(near) => unknown.help(format!("did you mean `{near}`?")),
                    None => unknown,
                })
            }
        }
    }

    /// The description written in `text`; `file` is what errors call it.
    pub fn from_text(text: &str, file: &str) -> Result<Description, Diagnostic> {
        let tables = read(text).map_err(|e| wrong(file, e.line, &e.message))?;
        Ok(Description { file: file.to_owned(), tables })
    }

    /// The machine that it describes.
    pub fn target(&self) -> Result<Target, Diagnostic> {
        Target::from_tables(&self.tables).map_err(|(line, message)| wrong(&self.file, line, &message))
    }

    /// The description as text. Comments are gone.
    pub fn to_text(&self) -> String {
        write(&self.tables)
    }

    /// Changes what `key` says to `value`, which may be a factor (`2x`) where a number is there already.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Diagnostic> {
        let refused = |message: String| Diagnostic::error(&BAD_TARGET, message).blame(Blame::Data);
        let full = SHORT.iter().find(|(short, _)| *short == key).map_or(key, |(_, full)| full);
        let (table, name) =
            self.find_table(full).ok_or_else(|| refused(format!("the description has nothing called `{key}`")))?;
        let entries = &mut self.tables[table].entries;
        let at = entries.iter().position(|e| e.key == name);
        let factor = value.strip_suffix('x').and_then(|f| f.trim().parse::<f64>().ok());
        let value = match (factor.filter(|f| f.is_finite() && *f > 0.0), at) {
            (Some(factor), Some(at)) => scaled(&entries[at].value, factor)
                .ok_or_else(|| refused(format!("`{key}` is no number that could be multiplied")))?,
            (Some(_), None) => return Err(refused(format!("`{key}` is not given, so it cannot be multiplied"))),
            (None, _) => {
                let plain = read_value(value.trim());
                // On a command line nobody writes quotes.
                let word = || value.chars().all(|c| c.is_ascii_alphanumeric() || "_- ".contains(c));
                let text = || (word() && !value.is_empty()).then(|| Value::Text(value.to_owned()));
                plain.or_else(text).ok_or_else(|| refused(format!("`{value}` is no value for `{key}`")))?
            }
        };
        match at {
            Some(at) => entries[at] = Entry { value, line: 0, ..entries[at].clone() },
            None => entries.push(Entry { key: name.to_owned(), value, line: 0 }),
        }
        // What the change means is known only when all of it is read; a wrong one is not kept.
        self.target().map(|_| ()).map_err(|fault| refused(format!("`{key}`: {}", fault.message)))
    }

    /// The table that a key is of, and the rest of the key.
    fn find_table<'k>(&mut self, key: &'k str) -> Option<(usize, &'k str)> {
        let parts: Vec<&str> = key.split('.').collect();
        match parts[..] {
            [name] => Some((0, name)),
            [table, name] => {
                let at = self.tables.iter().position(|t| t.name == table && !t.is_listed)?;
                Some((at, name))
            }
            [table, which, name] => {
                let by = selector(table);
                let is_meant = |e: &Entry| e.key == by && shown(&e.value) == which;
                let at = self.tables.iter().position(|t| {
                    let named = |e: &Entry| e.key == "name" && shown(&e.value) == which;
                    t.name == table && t.is_listed && t.entries.iter().any(|e| is_meant(e) || named(e))
                });
                if at.is_none() && table == "rate" {
                    // A type may get a rate that it had not.
                    let entry = Entry { key: by.to_owned(), value: Value::Text(which.to_owned()), line: 0 };
                    let new = Table { name: table.to_owned(), is_listed: true, line: 0, entries: vec![entry] };
                    self.tables.push(new);
                    return Some((self.tables.len() - 1, name));
                }
                Some((at?, name))
            }
            _ => None,
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Integer(n) => n.to_string(),
        Value::Number(n) => n.to_string(),
        Value::Text(text) => text.clone(),
        Value::Flag(flag) => flag.to_string(),
    }
}

fn scaled(value: &Value, factor: f64) -> Option<Value> {
    match value {
        // Sizes stay whole numbers.
        Value::Integer(n) => Some(Value::Integer((*n as f64 * factor).round() as i64)),
        Value::Number(n) => Some(Value::Number(n * factor)).filter(|_| (n * factor).is_finite()),
        _ => None,
    }
}

fn wrong(file: &str, line: usize, message: &str) -> Diagnostic {
    // What was changed by key stands on no line.
    let place = if line == 0 { file.to_owned() } else { format!("{file}:{line}") };
    Diagnostic::error(&BAD_TARGET, format!("{place}: {message}")).blame(Blame::Data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_by_key_changes_the_machine() {
        let mut v6e = Description::named("tpu-v6e").unwrap();
        let before = v6e.target().unwrap();
        for (key, value) in [
            ("hbm_bandwidth", "2x"),
            ("rate.bf16.matmul", "1e15"),
            ("link.ici.bandwidth", "0.5x"),
            ("clock_hz", "2e9"),
            ("rate.f64.vector", "1e9"),
        ] {
            v6e.set(key, value).unwrap_or_else(|d| panic!("{key}: {d}"));
        }
        let after = v6e.target().unwrap();
        assert_eq!(after.bandwidth(0).unwrap(), 2.0 * before.bandwidth(0).unwrap());
        assert_eq!(after.matmul_rate(hloom_ir::ElementType::Bf16, false).unwrap(), 1e15);
        assert_eq!(after.links[0].bandwidth, before.links[0].bandwidth / 2.0);
        assert_eq!((after.clock().unwrap(), after.vector_rate(hloom_ir::ElementType::F64).unwrap()), (2e9, 1e9));
        let read_again = Description::from_text(&v6e.to_text(), "again").unwrap().target().unwrap();
        assert_eq!(read_again, after);
    }

    #[test]
    fn what_cannot_be_changed_is_said() {
        let set = |key: &str, value: &str| Description::named("cpu").unwrap().set(key, value).unwrap_err().message;
        assert_eq!(set("memory.7.bandwidth", "2x"), "the description has nothing called `memory.7.bandwidth`");
        assert_eq!(set("name", "2x"), "`name` is no number that could be multiplied");
        assert_eq!(set("speed", "3"), "`speed`: cpu: nothing is known of `speed` here");
        assert_eq!(
            set("memory.0.bandwidth", "-1"),
            "`memory.0.bandwidth`: cpu: `bandwidth` is a number greater than 0"
        );
        assert_eq!(set("memory.0.bandwidth", "a;b"), "`a;b` is no value for `memory.0.bandwidth`");
        assert_eq!(set("memory.0.latency_us", "2x"), "`memory.0.latency_us` is not given, so it cannot be multiplied");
    }
}
