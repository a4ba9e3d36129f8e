//! The module as a whole: computations, where each statement ends, and how to go on after an error.

use super::cursor::{ident_end, is_ident_start, skip_space};
use super::instruction::{Target, same_dims};
use super::{Failed, NamedComputation, Read, Reader, Scope};
use hloom_ir::diagnostic::{Diagnostic, Place, Span, codes, did_you_mean};
use hloom_ir::entity::ComputationId;
use hloom_ir::shape::Shape;
use std::sync::atomic::Ordering;

/// What a line looks like, for going on after an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// `name = …` or `ROOT …`.
    Statement,
    /// `}`.
    End,
    /// `ENTRY …` or `name … {`.
    Header,
    Other,
}

impl<'a> Reader<'a> {
    /// The whole text.
    pub(super) fn read_module(&mut self) {
        if self.text.starts_with(b"\xef\xbb\xbf") {
            self.pos = 3;
        }
        self.skip();
        let start = self.pos;
        if self.pos == self.text.len() {
            self.report(
                Diagnostic::error(&codes::text::NO_COMPUTATION, "the text is empty")
                    .at(Span::new(start, start))
                    .label("expected `HloModule`"),
            );
            return;
        }
        // Room for as many instructions as there are lines, but not for more than a real module could have.
        let lines = memchr::memchr_iter(b'\n', self.text).count();
        self.module.reserve_instructions(lines.min(self.text.len() / 40));
        let has_header = self.eat_word(b"HloModule");
        if !has_header && !self.at_computation() {
            let _ = self.single_instruction();
            return;
        }
        if has_header && self.header(start).is_err() {
            self.skip_to_header(start);
        }
        self.skip();
        let start = self.pos;
        if self.stack_frames().is_err() {
            self.skip_to_header(start);
        }
        let mut last = None;
        loop {
            self.skip();
            if self.pos == self.text.len() {
                break;
            }
            let before = self.pos;
            match self.computation() {
                Ok(id) => last = Some(id),
                Err(Failed) => {
                    self.skip_to_header(before);
                }
            }
        }
        let Some(entry) = self.entry.map(|e| e.0).or(last) else {
            if self.diagnostics.is_empty() {
                let end = self.text.len();
                self.report(
                    Diagnostic::error(&codes::text::NO_COMPUTATION, "the module has no computation")
                        .at(Span::new(end, end))
                        .label("expected a computation"),
                );
            }
            return;
        };
        self.module.set_entry(entry);
        if !has_header {
            self.module.name = format!("module_{}", self.module[entry].name()).into();
        }
    }

    /// Whether the text starts with a computation.
    fn at_computation(&mut self) -> bool {
        if self.peek_ident() == b"ENTRY" || matches!(self.peek_ident(), b"FileNames") {
            return true;
        }
        if self.at_shape() {
            return false;
        }
        let percent = usize::from(self.byte() == b'%');
        if !is_ident_start(self.byte_at(percent)) {
            return false;
        }
        let end = ident_end(self.text, self.pos + percent);
        let next = skip_space(self.text, end);
        matches!(self.text.get(next), Some(b'{' | b'('))
    }

    /// A text that is one instruction: `r = f32[4] negate(f32[4] x)`, or only what stands right of `=`.
    fn single_instruction(&mut self) -> Read<()> {
        self.single = Some(0);
        let computation = self.module.start_computation("_");
        self.scope = Scope::new(computation);
        self.module.is_scheduled = true;
        if self.at_shape() {
            let start = self.pos;
            let target = Target { name: b"_", name_span: Span::new(start, start), start };
            self.instruction(target, true)?;
        } else {
            self.statement()?;
        }
        self.skip();
        if self.pos < self.text.len() {
            let span = self.found_at(self.pos).1;
            return self.fail(
                Diagnostic::error(&codes::text::EXTRA_TEXT, "there is more after this single instruction")
                    .at(span)
                    .label("expected the end of the text")
                    .help("a module starts with `HloModule name`, and its entry computation with `ENTRY name {`"),
            );
        }
        self.positions.set_computation(computation, Span::new(0, 0));
        self.module.finish_computation(computation);
        for id in std::mem::take(&mut self.unfinished) {
            self.module.finish_computation(id);
        }
        self.module.set_entry(computation);
        Ok(())
    }

    /// Makes a computation part of the module once it is read.
    pub(super) fn finish_computation(&mut self, id: ComputationId) {
        if self.single.is_some() {
            self.unfinished.push(id);
        } else {
            self.module.finish_computation(id);
        }
    }

    /// `[ENTRY] name [(p: shape) -> shape] { … }[, execution_thread="x"]`.
    fn computation(&mut self) -> Read<ComputationId> {
        self.depth = 0;
        let start = self.pos;
        let is_entry = self.eat_word(b"ENTRY");
        let entry_span = Span::new(start, start + 5);
        self.skip();
        let name_start = self.pos;
        let name = self.name("a computation")?;
        let name_span = Span::new(name_start, self.pos);
        let mut result = None;
        if self.peek() == b'(' {
            match self.signature() {
                Ok(signature) => result = Some(signature),
                // The body can be read all the same.
                Err(Failed) => self.skip_to_brace()?,
            }
        }
        let header = self.span_from(start);
        self.expect(b'{', "before the instructions of a computation")?;
        let text = std::str::from_utf8(name).unwrap_or_default();
        let id = self.body(text, header, false)?;
        if let Some((shape, span)) = result {
            self.check_signature(id, &shape, span);
        }
        self.computation_attributes(id)?;
        if is_entry {
            match self.entry {
                None => self.entry = Some((id, entry_span)),
                Some((_, first)) => self.report(
                    Diagnostic::error(&codes::text::SECOND_ENTRY, "this module has an entry already")
                        .at(entry_span)
                        .label("a second ENTRY")
                        .note_at("the first ENTRY", Place::Span(first)),
                ),
            }
        }
        self.name_computation(name, name_span, id);
        Ok(id)
    }

    fn computation_attributes(&mut self, id: ComputationId) -> Read<()> {
        let mut has_thread = false;
        while self.eat(b',') {
            self.skip();
            let start = self.pos;
            let Some(name) = self.attribute_name() else { return self.expected("an attribute: name=value") };
            let span = Span::new(start, start + name.len());
            if name != b"execution_thread" {
                return self.unknown_attribute(name, span, ["execution_thread"].into_iter());
            }
            if std::mem::replace(&mut has_thread, true) {
                return self.repeated(name, span);
            }
            let thread = self.text_string()?;
            let thread = (*thread != *"main").then(|| thread.into());
            self.module.computation_mut(id).execution_thread = thread;
        }
        Ok(())
    }

    fn name_computation(&mut self, name: &'a [u8], span: Span, id: ComputationId) {
        let named = NamedComputation { id: Some(id), span, report: None };
        let Some(old) = self.computations.insert(name, named) else { return };
        if let Some(report) = old.report {
            self.add_note(report, "it is defined only here; a computation stands before its callers", span);
        }
        if old.id.is_none() {
            return;
        }
        self.computations.insert(name, old);
        let text = String::from_utf8_lossy(name).into_owned();
        self.report(
            Diagnostic::error(&codes::text::DUPLICATE_COMPUTATION, format!("`{text}` is defined twice"))
                .at(span)
                .label("defined again")
                .note_at("first defined here", Place::Span(old.span)),
        );
    }

    /// `(p: shape, …) -> shape`; answers the result and where it stands.
    fn signature(&mut self) -> Read<(Shape, Span)> {
        self.expect(b'(', "before the parameters")?;
        if self.peek() != b')' {
            loop {
                self.name("a parameter")?;
                self.eat(b':');
                self.shape()?;
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b')', "or `,` after a parameter")?;
        if !self.eat_text(b"->") {
            return self.expected("`->` after the parameters");
        }
        self.skip();
        let start = self.pos;
        let shape = self.shape()?;
        Ok((shape, self.span_from(start)))
    }

    fn check_signature(&mut self, id: ComputationId, shape: &Shape, span: Span) {
        let Some(root) = self.module.root(id) else { return };
        let actual = &self.module[root].shape;
        if same_dims(actual, shape) {
            return;
        }
        let message = format!("the signature says {shape}, but the root `{}` is {actual}", self.module[root].name());
        let mut diagnostic =
            Diagnostic::error(&codes::text::ROOT_SHAPE, message).at(span).label("not the shape of the root");
        if let Some(at) = self.positions.instruction(root) {
            diagnostic = diagnostic.note_at("the root", Place::Span(at));
        }
        // With errors in the body the root may be another than was meant.
        if !self.diagnostics.iter().any(|d| d.severity == hloom_ir::diagnostic::Severity::Error) {
            self.report(diagnostic);
        }
    }

    /// Instructions up to the `}`; the `{` is passed already.
    fn body(&mut self, name: &str, header: Span, in_place: bool) -> Read<ComputationId> {
        let id = self.module.start_computation(name);
        self.positions.set_computation(id, header);
        let mut scope = Scope::new(id);
        if !in_place {
            // The table is used again, unless it is far larger than this computation needs: clearing it costs its size.
            let mut names = std::mem::take(&mut self.scope.names);
            let count = self.statements_ahead();
            if names.capacity() <= 1024 || names.capacity() / 8 <= count {
                names.clear();
                scope.names = names;
            }
            scope.names.reserve(count);
        }
        let outer = std::mem::replace(&mut self.scope, scope);
        if in_place {
            self.outer_scopes.push(outer);
        }
        let read = self.statements(in_place);
        if let Some((root, _)) = self.scope.root {
            self.module.set_root(root);
        }
        if in_place && let Some(outer) = self.outer_scopes.pop() {
            self.scope = outer;
        }
        read?;
        self.finish_computation(id);
        Ok(id)
    }

    /// About how many statements the computation has: the lines up to its `}` at the start of a line. Where it is not
    /// written so, the search goes beyond its end and is not made again before it has been read that far.
    fn statements_ahead(&mut self) -> usize {
        if self.pos < self.searched_to {
            return 16;
        }
        let rest = self.text.get(self.pos..).unwrap_or_default();
        let end = memchr::memmem::find(rest, b"\n}").unwrap_or(rest.len());
        self.searched_to = self.pos + end;
        // A statement has at least a dozen bytes, whatever the number of lines.
        memchr::memchr_iter(b'\n', &rest[..end]).count().min(end / 12)
    }

    fn statements(&mut self, in_place: bool) -> Read<()> {
        let depth = self.depth;
        let mut is_empty = true;
        loop {
            if self.peek() == b'}' {
                if is_empty {
                    let span = Span::new(self.pos, self.pos + 1);
                    let message = "a computation has at least one instruction";
                    self.pos += 1;
                    return self.fail_at(&codes::text::EMPTY_COMPUTATION, span, message, "expected an instruction");
                }
                self.pos += 1;
                return Ok(());
            }
            is_empty = false;
            self.depth = depth;
            let before = self.pos;
            if let Some(watched) = self.watched {
                watched.store(before, Ordering::Relaxed);
            }
            if self.statement().is_ok() {
                continue;
            }
            if in_place {
                return Err(Failed);
            }
            match self.skip_to(before, |line| line != Line::Other) {
                Line::Statement | Line::End => {}
                // The end of the computation is missing or was passed over.
                Line::Header | Line::Other => return Ok(()),
            }
        }
    }

    /// A computation as the value of an attribute: a name, or a body in place.
    pub(super) fn computation_value(&mut self) -> Read<ComputationId> {
        self.skip();
        let start = self.pos;
        if self.byte() == b'{' {
            self.enter()?;
            self.pos += 1;
            let id = self.body("_", Span::new(start, start + 1), true)?;
            self.leave();
            return Ok(id);
        }
        let name = self.name("a computation")?;
        let span = self.span_from(start);
        match self.computations.get(name) {
            Some(NamedComputation { id: Some(id), .. }) => Ok(*id),
            Some(_) => Err(Failed),
            None => self.undefined_computation(name, span),
        }
    }

    #[cold]
    fn undefined_computation(&mut self, name: &'a [u8], span: Span) -> Read<ComputationId> {
        const MOST_NAMES: usize = 10_000;
        let text = String::from_utf8_lossy(name).into_owned();
        let message = format!("there is no computation `{text}` before this one");
        let mut diagnostic =
            Diagnostic::error(&codes::text::UNDEFINED_COMPUTATION, message).at(span).label("not defined");
        if self.computations.len() <= MOST_NAMES {
            let known = self.computations.iter().filter(|(_, c)| c.id.is_some());
            let mut known: Vec<&str> = known.filter_map(|(n, _)| std::str::from_utf8(n).ok()).collect();
            known.sort_unstable();
            if let Some(near) = did_you_mean(&text, known) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
        }
        let report = self.next_report();
        self.report(diagnostic);
        self.computations.insert(name, NamedComputation { id: None, span, report });
        Err(Failed)
    }

    // Going on after an error.

    /// Goes to the next line after the one of `from`, where the trouble began, that looks as wanted; says what it looks
    /// like. The reader may stand before that line, or at its first word already.
    fn skip_to(&mut self, from: usize, wanted: impl Fn(Line) -> bool) -> Line {
        let passed = self.text.get(from..self.pos).unwrap_or_default();
        if let Some(n) = memchr::memrchr(b'\n', passed) {
            let start = from + n + 1;
            let line = self.line_at(start);
            if passed[n + 1..].iter().all(u8::is_ascii_whitespace) && wanted(line) {
                return line;
            }
        }
        while let Some(n) = self.text.get(self.pos..).and_then(|rest| memchr::memchr(b'\n', rest)) {
            self.pos += n + 1;
            let line = self.line_at(self.pos);
            if wanted(line) {
                return line;
            }
        }
        self.pos = self.text.len();
        Line::Other
    }

    fn skip_to_header(&mut self, from: usize) {
        self.skip_to(from, |line| line == Line::Header);
    }

    /// Goes to the last `{` of the line, which starts the body.
    fn skip_to_brace(&mut self) -> Read<()> {
        let rest = self.text.get(self.pos..).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        match memchr::memrchr(b'{', &rest[..end]) {
            Some(n) => {
                self.pos += n;
                Ok(())
            }
            None => Err(Failed),
        }
    }

    fn line_at(&self, start: usize) -> Line {
        let rest = self.text.get(start..).unwrap_or_default();
        let line = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
        let line = line.trim_ascii();
        let word =
            |word: &[u8]| line.strip_prefix(word).is_some_and(|r| r.first().is_some_and(u8::is_ascii_whitespace));
        match line.first() {
            Some(b'}') => return Line::End,
            Some(b'%' | b'_' | b'a'..=b'z' | b'A'..=b'Z') => {}
            _ => return Line::Other,
        }
        if word(b"ROOT") {
            return Line::Statement;
        }
        if word(b"ENTRY") || line == b"FileNames" {
            return Line::Header;
        }
        let has_percent = line[0] == b'%';
        let end = ident_end(line, usize::from(has_percent));
        let after = line[end..].trim_ascii_start();
        // `name=value` without a percent sign or a space is an attribute on a line of its own.
        if after.first() == Some(&b'=') && (has_percent || after.len() < line.len() - end) {
            return Line::Statement;
        }
        if line.last() == Some(&b'{') && matches!(after.first(), Some(b'(' | b'{')) {
            return Line::Header;
        }
        Line::Other
    }
}
