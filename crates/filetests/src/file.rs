//! Reading a test file: directives, expectations and the text that is tested.
//!
//! A line is exactly one of: a directive, an expectation, a line of the expected output, or text. The text keeps its
//! line numbers: everything else becomes an empty line in it.

use crate::execution::Execution;
use hloom_compiler::Emit;
use hloom_ir::diagnostic::Severity;
use std::path::Path;

/// What is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the words are explained in the crate's documentation")]
pub enum Kind {
    Read,
    Verify,
    Print,
    Elide,
    Roundtrip,
    Proto,
    Run,
    Opt,
    Emit,
}

impl Kind {
    fn from_word(word: &str) -> Option<Kind> {
        Some(match word {
            "read" => Kind::Read,
            "verify" => Kind::Verify,
            "print" => Kind::Print,
            "elide" => Kind::Elide,
            "roundtrip" => Kind::Roundtrip,
            "proto" => Kind::Proto,
            "run" => Kind::Run,
            "opt" => Kind::Opt,
            "emit" => Kind::Emit,
            _ => return None,
        })
    }
}

/// Where the expected output is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expect {
    /// The text is printed as it is.
    Itself,
    /// After `// expect:` in the same file.
    Block(String),
    /// In the file beside; the content if that exists.
    Beside(Option<String>),
}

/// A place in the text: line and column, both from 1, the column in characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// A diagnostic that must come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Error or warning.
    pub severity: Severity,
    /// As `H0123`.
    pub code: String,
    /// Words that the message must contain.
    pub words: String,
    /// Where; `None` for a diagnostic without a place.
    pub at: Option<Position>,
}

/// A test file, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestFile {
    /// What is tested.
    pub kinds: Vec<Kind>,
    /// The HLO text, with directives and expectations blanked.
    pub text: String,
    /// The expected diagnostics, in the order of the file.
    pub expected: Vec<Expected>,
    /// The expected output.
    pub expect: Expect,
    /// How `run` runs the program, and what must come out.
    pub execution: Execution,
    /// The passes that `opt` runs.
    pub passes: Vec<String>,
    /// The form that `emit` prints.
    pub emit: Option<Emit>,
    /// Lines that the print of `emit` has, in this order, where it is not told as a whole.
    pub has: Vec<String>,
}

impl TestFile {
    /// Reads the test at `path`, and the expected output beside it where there is one.
    pub fn load(path: &Path) -> Result<TestFile, String> {
        let source = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let mut file = TestFile::parse(&source)?;
        if file.expect == Expect::Beside(None) {
            file.expect = Expect::Beside(std::fs::read_to_string(path.with_extension("expected")).ok());
        }
        Ok(file)
    }

    /// Takes a test apart; a file beside is not looked for.
    pub fn parse(source: &str) -> Result<TestFile, String> {
        let mut kinds = None;
        let mut text = String::with_capacity(source.len());
        let mut expected = Vec::new();
        let mut expect = Expect::Beside(None);
        let mut execution = Execution::default();
        let mut passes = Vec::new();
        let (mut emit, mut has) = (None, Vec::new());
        // The last line of text: the one that expectations beneath it speak of.
        let mut text_line = 0;
        let mut in_header = true;
        let mut lines = source.lines().enumerate();
        while let Some((i, line)) = lines.next() {
            in_header &= line.starts_with("//");
            match classify(line, in_header).map_err(|e| format!("line {}: {e}", i + 1))? {
                Line::Test(words) => {
                    if kinds.replace(words).is_some() {
                        return Err(format!("line {}: a second `// test`", i + 1));
                    }
                }
                Line::ExpectItself => expect = Expect::Itself,
                Line::ExpectBlock => expect = Expect::Block(block(&mut lines)?),
                Line::Expected { column, mut expected_here } => {
                    expected_here.at = match column {
                        Some(_) if text_line == 0 => {
                            return Err(format!("line {}: no line above to expect this on", i + 1));
                        }
                        Some(column) => Some(Position { line: text_line, column }),
                        None => None,
                    };
                    expected.push(expected_here);
                }
                Line::HeaderComment => {
                    let words = line.trim_start_matches('/').trim();
                    if let Some(names) = words.strip_prefix("passes ") {
                        passes.extend(names.split(',').map(|n| n.trim().to_owned()));
                    } else if let Some(name) = words.strip_prefix("emit ") {
                        let form = Emit::ALL.into_iter().find(|f| f.name() == name);
                        emit = Some(form.ok_or_else(|| format!("line {}: `{name}` is no form to emit", i + 1))?);
                    } else if let Some(line) = words.strip_prefix("has: ") {
                        has.push(line.to_owned());
                    } else {
                        execution.take(words)?;
                    }
                }
                Line::Text => {
                    text_line = i + 1;
                    text.push_str(line);
                }
            }
            text.push('\n');
        }
        let kinds = kinds.ok_or("the first line must be `// test` and what is tested")?;
        if kinds.contains(&Kind::Opt) == passes.is_empty() {
            return Err("`// test opt` and `// passes a,b` go together".into());
        }
        if kinds.contains(&Kind::Emit) != emit.is_some() || !has.is_empty() && emit.is_none() {
            return Err("`// test emit` and `// emit form` go together, and `// has:` goes with them".into());
        }
        Ok(TestFile { kinds, text, expected, expect, execution, passes, emit, has })
    }
}

/// The lines of expected output: all that are left, each behind `// `.
fn block<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Result<String, String> {
    let mut content = String::new();
    for (i, line) in lines {
        let rest = line.strip_prefix("//").ok_or(format!("line {}: text after the expected output", i + 1))?;
        content.push_str(rest.strip_prefix(' ').unwrap_or(rest));
        content.push('\n');
    }
    Ok(content)
}

/// What a line of a test file is.
pub(crate) enum Line {
    Test(Vec<Kind>),
    ExpectItself,
    ExpectBlock,
    Expected { column: Option<usize>, expected_here: Expected },
    HeaderComment,
    Text,
}

/// Says what `line` is; `in_header` is true until the first line that is not a comment.
pub(crate) fn classify(line: &str, in_header: bool) -> Result<Line, String> {
    let Some(comment) = line.strip_prefix("//") else { return Ok(Line::Text) };
    let words = comment.trim();
    if let Some(rest) = words.strip_prefix("^ ") {
        let caret = line.chars().position(|c| c == '^').unwrap_or(0) + 1;
        return expectation(rest, Some(caret));
    }
    if let Some(rest) = words.strip_prefix('@') {
        let (column, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let column = column.parse().map_err(|_| format!("`@{column}` is not a column"))?;
        return expectation(rest, Some(column));
    }
    if words == "expect:" {
        return Ok(Line::ExpectBlock);
    }
    if !in_header {
        return Ok(Line::Text);
    }
    if let Some(kinds) = words.strip_prefix("test ") {
        let kinds = kinds.split_whitespace().map(|w| Kind::from_word(w).ok_or(format!("`{w}` is no kind of test")));
        return Ok(Line::Test(kinds.collect::<Result<_, _>>()?));
    }
    if words == "expect: itself" {
        return Ok(Line::ExpectItself);
    }
    if words.starts_with("error H") || words.starts_with("warning H") {
        return expectation(words, None);
    }
    Ok(Line::HeaderComment)
}

/// `error H0123: words`.
fn expectation(text: &str, column: Option<usize>) -> Result<Line, String> {
    let (severity, rest) = text.split_once(' ').unwrap_or((text, ""));
    let severity = match severity {
        "error" => Severity::Error,
        "warning" => Severity::Warning,
        other => return Err(format!("`{other}` is neither `error` nor `warning`")),
    };
    let (code, words) = rest.split_once(':').unwrap_or((rest, ""));
    let (code, words) = (code.trim().to_string(), words.trim().to_string());
    if hloom_ir::diagnostic::codes::find(&code).is_none_or(|c| c.to_string() != code) {
        return Err(format!("`{code}` is not the code of a diagnostic"));
    }
    Ok(Line::Expected { column, expected_here: Expected { severity, code, words, at: None } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_code() -> String {
        hloom_ir::diagnostic::codes::all().next().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn expectations_point_at_the_line_above() {
        let code = some_code();
        let source = format!(
            "// test read verify\n// Words.\nHloModule m\n// a comment\n  x = y\n//    ^ error {code}: no y\n// @1 warning {code}\nz\n"
        );
        let file = TestFile::parse(&source).expect("a well-formed test");
        assert_eq!(file.kinds, [Kind::Read, Kind::Verify]);
        assert_eq!(file.text, "\n\nHloModule m\n// a comment\n  x = y\n\n\nz\n");
        let expected = |severity, words: &str, column| Expected {
            severity,
            code: code.clone(),
            words: words.into(),
            at: Some(Position { line: 5, column }),
        };
        assert_eq!(file.expected, [expected(Severity::Error, "no y", 7), expected(Severity::Warning, "", 1)]);
    }

    #[test]
    fn output_is_expected_behind_the_text() {
        let file = TestFile::parse("// test print\na\n\n// expect:\n// b\n//\n//   c\n").expect("a well-formed test");
        assert_eq!(file.expect, Expect::Block("b\n\n  c\n".into()));
        assert_eq!(file.text, "\na\n\n\n");
    }

    #[test]
    fn faulty_tests_are_refused() {
        for source in [
            "",
            "HloModule m\n",
            "// test\n",
            "// test frobnicate\n",
            "// test read\n// test read\n",
            "// test read\nx\n// ^ error H9999: no such code\n",
            "// test read\nx\n// ^ fault H0100\n",
            "// test opt\nx\n",
            "// test read\n// passes dce\nx\n",
            "// test emit\nx\n",
            "// test emit\n// emit nothing\nx\n",
            "// test read\n// has: y\nx\n",
            "// test read\nx\n// @x error H0100\n",
            "// test print\nx\n// expect:\n// y\nz\n",
        ] {
            assert!(TestFile::parse(source).is_err(), "accepted {source:?}");
        }
    }
}
