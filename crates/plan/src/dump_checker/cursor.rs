//! Reads text piece by piece; where a piece is not what it should be, says so with the place.

use super::Names;
use hloom_ir::diagnostic::codes::plan::{BAD_DUMP, DUMP_NAMES};
use hloom_ir::diagnostic::{Blame, Diagnostic, Span, did_you_mean};
use hloom_ir::entity::InstructionId;
use hloom_ir::shape::ShapeIndex;

/// Paths into shapes are no longer than shapes are deep.
const MAX_INDEX: usize = hloom_ir::Shape::MAX_DEPTH;

pub(super) type Read<T> = Result<T, Diagnostic>;

#[derive(Clone)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    pub(super) at: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Cursor<'t> {
        Cursor { text, at: 0 }
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    /// What is left of the line.
    pub(super) fn line(&self) -> &'t str {
        let rest = self.rest();
        &rest[..rest.find('\n').unwrap_or(rest.len())]
    }

    /// An error at the next character.
    pub(super) fn error(&self, message: impl Into<String>, label: impl Into<String>) -> Diagnostic {
        self.error_over(self.at, message, label)
    }

    /// An error from `start` to here, or at the next character if that is here.
    pub(super) fn error_over(&self, start: usize, message: impl Into<String>, label: impl Into<String>) -> Diagnostic {
        let next = self.rest().chars().next().map_or(0, char::len_utf8);
        let end = if start < self.at { self.at } else { start + next };
        let message =
            if self.is_at_end() && start == self.at { "the dump ends here".to_owned() } else { message.into() };
        Diagnostic::error(&BAD_DUMP, message).blame(Blame::Data).at(Span::new(start, end)).label(label)
    }

    pub(super) fn eat(&mut self, word: &str) -> bool {
        let is_there = self.rest().starts_with(word);
        if is_there {
            self.at += word.len();
        }
        is_there
    }

    pub(super) fn expect(&mut self, word: &str) -> Read<()> {
        if self.eat(word) {
            return Ok(());
        }
        // Point at the first character that is another.
        let same: usize =
            self.rest().chars().zip(word.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
        self.at += same;
        let shown = match word[same..].trim_matches('\n') {
            "" => "the end of the line".to_owned(),
            left => format!("`{left}`"),
        };
        Err(self.error("this is not as dumps are written", format!("expected {shown}")))
    }

    /// Expects the rest of the line to be `words`, and goes on to the next line.
    pub(super) fn expect_line(&mut self, words: &str, message: &str) -> Read<()> {
        let line = self.line();
        if line == words {
            self.at += line.len();
            return self.end_line();
        }
        let same: usize = line.chars().zip(words.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
        let end = self.at + line.len();
        self.at += same;
        let left: String = words[same..].chars().take(80).collect();
        let shown = if left.is_empty() { "the end of the line".to_owned() } else { format!("`{left}`") };
        let start = self.at;
        self.at = end;
        Err(self.error_over(start, message, format!("expected {shown}")))
    }

    /// The end of a line. The last line of a text may lack it.
    pub(super) fn end_line(&mut self) -> Read<()> {
        match self.is_at_end() {
            true => Ok(()),
            false => self.expect("\n"),
        }
    }

    /// A number as dumps write it: without sign and without leading zeros.
    pub(super) fn number(&mut self) -> Read<i64> {
        let start = self.at;
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(self.error("this is not as dumps are written", "expected a number"));
        }
        let word = &self.rest()[..digits];
        self.at += digits;
        if digits > 1 && word.starts_with('0') {
            return Err(self.error_over(start, "a number begins with 0", "expected a number"));
        }
        word.parse().map_err(|_| self.error_over(start, "this number does not fit", "2^63 or more"))
    }

    /// `{1,0}`.
    pub(super) fn index(&mut self) -> Read<ShapeIndex> {
        self.expect("{")?;
        let mut index = ShapeIndex::new();
        if self.eat("}") {
            return Ok(index);
        }
        loop {
            index.push(self.number()?);
            if self.eat("}") {
                return Ok(index);
            }
            if index.len() > MAX_INDEX {
                return Err(self.error("this path is longer than any shape is deep", "expected `}`"));
            }
            self.expect(",")?;
        }
    }

    /// The name of an instruction of the module, up to one of `ends`.
    pub(super) fn name(&mut self, names: &Names<'_>, ends: &[char]) -> Read<InstructionId> {
        let start = self.at;
        let line = self.line();
        let word = &line[..line.find(ends).unwrap_or(line.len())];
        self.at += word.len();
        if let Some(&id) = names.get(word) {
            return Ok(id);
        }
        let shown: String = word.chars().take(100).collect();
        let error = self.error_over(start, format!("the module has no instruction `{shown}`"), "not in the module");
        let error = Diagnostic { code: &DUMP_NAMES, ..error };
        Err(match did_you_mean(word, names.keys().copied()) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        })
    }
}
