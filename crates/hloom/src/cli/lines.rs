//! Lines and columns of a source text, and the excerpt of a line around a place.
//!
//! The text may be any bytes. Lines end with `\n`; columns count characters from 1, bytes that are not UTF-8 as one each.
//! An excerpt is at most [`WIDTH`] characters however long its line is.

use hloom::ir::diagnostic::Span;
use std::ops::Range;

/// The most characters of a line that are shown.
const WIDTH: usize = 120;
/// Of these, the most before the marked part, where the line is clipped.
const BEFORE: usize = 60;
/// The most bytes of a line that are looked at: enough for [`WIDTH`] characters of four bytes.
const WINDOW: usize = 4 * WIDTH;

/// Where the lines of a text begin.
pub(crate) struct LineIndex<'a> {
    text: &'a [u8],
    starts: Vec<usize>,
}

/// A place in a text, ready to be shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The line and column behind its last character.
    pub end: (usize, usize),
    /// The part of the line to show.
    pub excerpt: String,
    /// The bytes of the excerpt that are the place.
    pub marked: Range<usize>,
    /// The column of the place in the excerpt.
    pub excerpt_column: usize,
}

impl<'a> LineIndex<'a> {
    /// Finds the lines of `text`.
    pub(crate) fn new(text: &'a [u8]) -> LineIndex<'a> {
        let newlines = text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1);
        LineIndex { text, starts: std::iter::once(0).chain(newlines).collect() }
    }

    /// The line (from 0) that holds byte `at`.
    fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|&start| start <= at).saturating_sub(1)
    }

    /// The bytes of a line (from 0), without its end.
    fn line_range(&self, line: usize) -> Range<usize> {
        let start = self.starts.get(line).copied().unwrap_or(self.text.len());
        let end = self.starts.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let text = &self.text[start..end];
        start..end - usize::from(text.ends_with(b"\r"))
    }

    /// The line and column of byte `at`, both from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        let line = self.line_of(at);
        let range = self.line_range(line);
        (line + 1, count_chars(&self.text[range.start..at.clamp(range.start, range.end)]) + 1)
    }

    /// The place `span`. A span over several lines is marked to the end of its first.
    pub(crate) fn locate(&self, span: Span) -> Located {
        let start = (span.start as usize).min(self.text.len());
        let end = (span.end as usize).clamp(start, self.text.len());
        let (line, column) = self.position(start);
        let range = self.line_range(line - 1);
        let start = start.clamp(range.start, range.end);
        let marked_end = end.clamp(start, range.end);

        let before = lossy(&self.text[start.saturating_sub(WINDOW).max(range.start)..start]);
        let marked = lossy(&self.text[start..marked_end.min(start + WINDOW)]);
        let after = lossy(&self.text[marked_end..range.end.min(marked_end + WINDOW)]);
        let fits = range.len() <= WINDOW && count_chars(&self.text[range.clone()]) <= WIDTH;
        let (before, marked, after) = if fits {
            (before, marked, after)
        } else {
            let before = clip_front(&before, BEFORE, start - range.start);
            let marked = clip(&marked, WIDTH - BEFORE);
            let room = (WIDTH - BEFORE).saturating_sub(marked.chars().count()).max(1);
            (before, marked, clip(&after, room))
        };
        let excerpt = format!("{before}{marked}{after}");
        Located {
            line,
            column,
            end: self.position(end),
            marked: before.len()..before.len() + marked.len(),
            excerpt_column: before.chars().count() + 1,
            excerpt,
        }
    }
}

/// Control characters (a tab apart) would move the terminal's cursor: each is shown as the replacement character.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// Characters of `bytes` as a lossy reading gives them.
fn count_chars(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().count(),
        Err(_) => String::from_utf8_lossy(bytes).chars().count(),
    }
}

/// The first `width` characters of `text`, the last of them `…` where something is left out.
pub(crate) fn clip(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The last `width` characters of `text`, the first of them `…` where something is left out: of the text, or of the
/// `full` bytes before the place of which it is the end.
fn clip_front(text: &str, width: usize, full: usize) -> String {
    let count = text.chars().count();
    if count <= width && text.len() >= full {
        return text.to_owned();
    }
    let kept = text.chars().skip(count.saturating_sub(width - 1));
    std::iter::once('…').chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locate(text: &str, part: &str) -> Located {
        let start = text.find(part).expect("the part is in the text");
        LineIndex::new(text.as_bytes()).locate(Span::new(start, start + part.len()))
    }

    #[test]
    fn counts_lines_and_characters_from_one() {
        let at = locate("one\ntwo é three\n", "three");
        assert_eq!((at.line, at.column, at.end), (2, 7, (2, 12)));
        assert_eq!(&at.excerpt[at.marked.clone()], "three");
    }

    #[test]
    fn a_place_at_the_end_is_on_the_last_line() {
        let text = b"one\ntwo";
        let at = LineIndex::new(text).locate(Span::new(7, 7));
        assert_eq!((at.line, at.column, &*at.excerpt), (2, 4, "two"));
        let beyond = LineIndex::new(text).locate(Span::new(70, 80));
        assert_eq!((beyond.line, beyond.column), (2, 4));
        let empty = LineIndex::new(b"").locate(Span::new(0, 0));
        assert_eq!((empty.line, empty.column, &*empty.excerpt), (1, 1, ""));
    }

    #[test]
    fn long_lines_are_clipped_around_the_place() {
        let text = format!("{}HERE{}", "a,".repeat(50_000), ",b".repeat(50_000));
        let at = locate(&text, "HERE");
        assert_eq!(at.column, 100_001);
        assert_eq!(&at.excerpt[at.marked.clone()], "HERE");
        assert_eq!(at.excerpt.chars().count(), WIDTH);
        assert!(at.excerpt.starts_with('…') && at.excerpt.ends_with('…'));
    }

    #[test]
    fn a_span_over_lines_is_marked_on_its_first() {
        let at = locate("ab\ncd", "b\nc");
        assert_eq!((&at.excerpt[at.marked.clone()], at.end), ("b", (2, 2)));
    }

    #[test]
    fn bytes_that_are_not_text_are_shown_as_such() {
        let text = b"x\xff\x1b[31my";
        let at = LineIndex::new(text).locate(Span::new(7, 8));
        assert_eq!(at.excerpt, "x\u{fffd}\u{fffd}[31my");
        assert_eq!(&at.excerpt[at.marked.clone()], "y");
    }
}
