//! Rewriting a test's expectations to what came out.
//!
//! Expectations that still hold are kept word for word: only what changed changes.

use crate::file::{Expect, Line, TestFile, classify};
use crate::run::{Came, evaluate, matches, severity_word};
use std::fmt::Write;
use std::path::Path;

/// Rewrites the expectations of the test at `path`.
pub fn bless(path: &Path) -> Result<(), String> {
    let file = TestFile::load(path)?;
    let source = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let outcome = evaluate(&file)?;
    let (blessed, beside) = rewrite(&source, &file, &outcome.diagnostics, outcome.output.as_deref())?;
    let write = |path: &Path, content: &str| std::fs::write(path, content).map_err(|e| e.to_string());
    if blessed != source {
        write(path, &blessed)?;
    }
    if let Some(content) = beside {
        write(&path.with_extension("expected"), &content)?;
    }
    Ok(())
}

/// The test with new expectations, and the content of the file beside it if there is one.
fn rewrite(
    source: &str,
    file: &TestFile,
    came: &[Came],
    output: Option<&str>,
) -> Result<(String, Option<String>), String> {
    let mut blessed = String::with_capacity(source.len());
    for c in came.iter().filter(|c| c.at.is_none()) {
        let words = words(file, c);
        let _ = writeln!(blessed, "// {} {}: {words}", severity_word(c.diagnostic.severity), c.diagnostic.code);
    }
    // Diagnostics without a place go behind the first line, which is the `// test`.
    let placeless = std::mem::take(&mut blessed);
    let mut in_header = true;
    for (i, line) in source.lines().enumerate() {
        in_header &= line.starts_with("//");
        match classify(line, in_header)? {
            Line::Expected { .. } => continue,
            Line::ExpectBlock => break,
            Line::Test(_) => {
                blessed.push_str(line);
                blessed.push('\n');
                blessed.push_str(&placeless);
            }
            _ => {
                blessed.push_str(line);
                blessed.push('\n');
            }
        }
        for c in came.iter().filter(|c| c.at.is_some_and(|p| p.line == i + 1)) {
            blessed.push_str(&annotation(file, c));
        }
    }
    let Some(output) = output else { return Ok((blessed, None)) };
    match file.expect {
        Expect::Itself if file.text.trim() == output.trim() => Ok((blessed, None)),
        Expect::Itself => Err("it is not printed as itself: take the `// expect: itself` away first".into()),
        Expect::Block(_) => {
            blessed.push_str("// expect:\n");
            for line in output.trim().lines() {
                let _ = writeln!(blessed, "{}", format!("// {line}").trim_end());
            }
            Ok((blessed, None))
        }
        Expect::Beside(_) => Ok((blessed, Some(format!("{}\n", output.trim_end())))),
    }
}

/// The line that expects `came`.
fn annotation(file: &TestFile, came: &Came) -> String {
    let column = came.at.map_or(1, |p| p.column);
    let tail = format!("{} {}: {}", severity_word(came.diagnostic.severity), came.diagnostic.code, words(file, came));
    match column {
        0..=2 => format!("// @{column} {tail}\n"),
        _ => format!("//{}^ {tail}\n", " ".repeat(column - 3)),
    }
}

/// The words that were expected where they still hold, otherwise the whole message.
fn words<'a>(file: &'a TestFile, came: &'a Came) -> &'a str {
    match file.expected.iter().find(|e| matches(e, came)) {
        Some(e) => &e.words,
        None => came.diagnostic.message.lines().next().unwrap_or_default(),
    }
}
