//! `hloom explain`: what the diagnostic codes mean.

use super::{Outcome, Result, output, usage_error};
use hloom::ir::diagnostic::{Code, codes};
use std::fmt::Write;

pub(crate) fn run(code: Option<&str>) -> Result {
    let text = match code {
        None => list(),
        Some(text) => {
            let code = codes::find(text)
                .ok_or_else(|| usage_error(&format!("there is no code `{text}`; `hloom explain` lists all of them")))?;
            explain(code)
        }
    };
    output::to_stdout(text.as_bytes())?;
    Ok(Outcome::Well)
}

fn list() -> String {
    codes::all().map(|code| format!("{code}  {}\n", code.title)).collect()
}

fn explain(code: &Code) -> String {
    let mut text = format!("{code}: {}\n\n{}\n", code.title, fill(code.explanation, 100));
    if !code.example.is_empty() {
        text.push_str("\nFor example:\n\n");
        for line in code.example.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// `text` in lines of at most `width` characters; blank lines stay.
fn fill(text: &str, width: usize) -> String {
    let mut paragraphs = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut lines = vec![String::new()];
        for word in paragraph.split_whitespace() {
            let line =
                lines.last_mut().filter(|l| l.is_empty() || l.chars().count() + 1 + word.chars().count() <= width);
            match line {
                Some(line) if line.is_empty() => line.push_str(word),
                Some(line) => {
                    line.push(' ');
                    line.push_str(word);
                }
                None => lines.push(word.to_owned()),
            }
        }
        paragraphs.push(lines.join("\n"));
    }
    paragraphs.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_lines_to_the_width() {
        assert_eq!(fill("aa bb cc\n\ndd", 5), "aa bb\ncc\n\ndd");
        assert_eq!(fill("a-very-long-word b", 5), "a-very-long-word\nb");
    }
}
