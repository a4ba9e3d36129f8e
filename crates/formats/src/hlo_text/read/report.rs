//! How the reader reports: what was expected, what stands there instead, and where.

use super::cursor::{ident_end, is_ident};
use super::{Failed, Read, Reader};
use hloom_ir::diagnostic::{Code, Diagnostic, Span, codes};

impl<'a> Reader<'a> {
    /// Takes note of a diagnostic. Once there are too many, reading stops.
    #[cold]
    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() < Self::MAX_DIAGNOSTICS {
            self.diagnostics.push(diagnostic);
        } else if !self.stopped {
            self.stopped = true;
            let place = diagnostic.place;
            let message = format!("more than {} errors; reading stops here", Self::MAX_DIAGNOSTICS);
            self.diagnostics.push(Diagnostic::error(&codes::text::TOO_MANY_ERRORS, message).at_place(place));
        }
        if self.stopped {
            self.pos = self.text.len();
        }
    }

    /// Reports an error and gives up on the construct at hand.
    #[cold]
    pub(super) fn fail<T>(&mut self, diagnostic: Diagnostic) -> Read<T> {
        self.report(diagnostic);
        Err(Failed)
    }

    /// Reports `code` at `span`, with `label` there.
    #[cold]
    pub(super) fn fail_at<T>(
        &mut self,
        code: &'static Code,
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Read<T> {
        self.fail(Diagnostic::error(code, message).at(span).label(label))
    }

    /// Reports that `what` was expected where the reader stands.
    #[cold]
    pub(super) fn expected<T>(&mut self, what: &str) -> Read<T> {
        self.skip();
        let (code, span) = self.found_at(self.pos);
        let message = match code.number {
            102 => format!("expected {what}, but the text ends here"),
            103 => format!("expected {what}, found {}", describe_character(self.text, self.pos)),
            104 => "this comment does not end".to_owned(),
            _ => format!("expected {what}, found {}", self.quote(span)),
        };
        let label = if code.number == 104 { "the comment starts here".to_owned() } else { format!("expected {what}") };
        self.fail(Diagnostic::error(code, message).at(span).label(label))
    }

    /// What stands at `pos`, and how far it reaches.
    pub(super) fn found_at(&self, pos: usize) -> (&'static Code, Span) {
        let rest = self.text.get(pos..).unwrap_or_default();
        let Some(&first) = rest.first() else {
            return (&codes::text::UNEXPECTED_END, Span::new(self.text.len(), self.text.len()));
        };
        if rest.starts_with(b"/*") {
            return (&codes::text::UNTERMINATED_COMMENT, Span::new(pos, pos + 2));
        }
        if !(b' '..=b'~').contains(&first) {
            let len = std::str::from_utf8(&rest[..rest.len().min(4)])
                .map_or_else(|e| if e.valid_up_to() > 0 { e.valid_up_to() } else { 1 }, str::len);
            let len = std::str::from_utf8(&rest[..len]).ok().and_then(|s| s.chars().next()).map_or(1, char::len_utf8);
            return (&codes::text::BAD_CHARACTER, Span::new(pos, pos + len));
        }
        let word = if first == b'%' { 1 } else { 0 };
        let end = if is_ident(first) || word == 1 { ident_end(self.text, pos + word) } else { pos + 1 };
        (&codes::text::UNEXPECTED_TOKEN, Span::new(pos, end.max(pos + 1)))
    }

    /// The text of `span`, shortened, in quotes.
    pub(super) fn quote(&self, span: Span) -> String {
        let bytes = self.text.get(span.start as usize..span.end as usize).unwrap_or_default();
        quote(bytes)
    }
}

/// `bytes` in quotes, shortened if they are long.
pub(super) fn quote(bytes: &[u8]) -> String {
    const LONGEST: usize = 60;
    if bytes.len() <= LONGEST {
        return format!("`{}`", String::from_utf8_lossy(bytes));
    }
    format!("`{}…`", String::from_utf8_lossy(&bytes[..LONGEST]))
}

fn describe_character(text: &[u8], pos: usize) -> String {
    match text.get(pos) {
        Some(0) => "a NUL byte".to_owned(),
        Some(&b) if b < 0x80 => format!("the control character {b:#04x}"),
        _ => "a character that is not ASCII".to_owned(),
    }
}
