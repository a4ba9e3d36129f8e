//! Values of a description's entries, checked: what is wrong is said in words that name the key.

use crate::text::{Entry, Table, Value};

/// What is wrong, and on which line.
pub(crate) type Wrong = (usize, String);

pub(crate) fn text(entry: &Entry) -> Result<String, String> {
    match &entry.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(format!("`{}` is a \"text\"", entry.key)),
    }
}

pub(crate) fn flag(entry: &Entry) -> Result<bool, String> {
    match entry.value {
        Value::Flag(flag) => Ok(flag),
        _ => Err(format!("`{}` is true or false", entry.key)),
    }
}

pub(crate) fn at_least(entry: &Entry, least: i64) -> Result<i64, String> {
    match entry.value {
        Value::Integer(n) if n >= least => Ok(n),
        _ => Err(format!("`{}` is an integer of at least {least}", entry.key)),
    }
}

/// A number that is not negative.
pub(crate) fn number(entry: &Entry) -> Result<f64, String> {
    match entry.value {
        Value::Integer(n) if n >= 0 => Ok(n as f64),
        Value::Number(n) if n >= 0.0 => Ok(n),
        _ => Err(format!("`{}` is a number of at least 0", entry.key)),
    }
}

/// A number greater than zero: a rate.
pub(crate) fn rate(entry: &Entry) -> Result<f64, String> {
    number(entry).ok().filter(|&n| n > 0.0).ok_or_else(|| format!("`{}` is a number greater than 0", entry.key))
}

/// A share of something: greater than zero and at most two (a stream may do better than the average it is measured by).
pub(crate) fn share(entry: &Entry) -> Result<f64, String> {
    let share = rate(entry).ok().filter(|&n| n <= 2.0);
    share.ok_or_else(|| format!("`{}` is a share: a number greater than 0 and at most 2", entry.key))
}

/// Gives every entry of a table to `set`; what that refuses is said with the entry's line.
pub(crate) fn each(table: &Table, mut set: impl FnMut(&Entry) -> Result<(), String>) -> Result<(), Wrong> {
    table.entries.iter().try_for_each(|entry| set(entry).map_err(|message| (entry.line, message)))
}

/// What is said of a key that no table of that name has.
pub(crate) fn unknown(entry: &Entry, of: &str) -> String {
    format!("nothing is known of `{}` {of}", entry.key)
}
