//! A difference as a page: one file for any browser, that loads nothing and in which no input can run.

use super::text::{change_of_cost, headline, place, summary};
use super::{Difference, ModuleDiff};
use hloom_analysis::cost::Cost;
use std::fmt::Write;

/// The difference as an HTML page; `names` are what the two files are called.
pub fn to_html(diff: &ModuleDiff, names: (&str, &str)) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    escape(&mut out, &format!("{} against {}", names.0, names.1));
    let _ = write!(out, "</title>\n<style>\n{}</style>\n</head>\n<body>\n<h1>", include_str!("page.css"));
    escape(&mut out, &format!("{} → {}", names.0, names.1));
    out.push_str("</h1>\n<p class=\"sum\">");
    escape(&mut out, &summary(diff));
    out.push_str(
        "</p>\n<label>Find <input id=\"find\" type=\"search\"> <output id=\"count\"></output></label>\n<main>\n",
    );
    for words in &diff.header {
        out.push_str("<article><h2><span class=\"kind\">header</span> ");
        escape(&mut out, words);
        out.push_str("</h2></article>\n");
    }
    diff.differences.iter().for_each(|d| article(&mut out, d));
    let _ = write!(out, "</main>\n<script>\n{}</script>\n</body>\n</html>\n", include_str!("page.js"));
    out
}

fn article(out: &mut String, difference: &Difference) {
    let _ = write!(out, "<article><h2><span class=\"kind\">{}</span> ", difference.kind());
    escape(out, &headline(difference));
    out.push_str("</h2>\n");
    let texts = [&difference.a, &difference.b].map(|side| side.as_ref().map_or("", |s| &*s.text));
    let both = difference.a.is_some() && difference.b.is_some();
    let same = if both { common_ends(texts[0], texts[1]) } else { (0, 0) };
    for (class, side) in [("a", &difference.a), ("b", &difference.b)] {
        let Some(side) = side else { continue };
        let _ = write!(out, "<pre class=\"{class}\">");
        let (start, end) = (same.0, side.text.len() - same.1);
        escape(out, &side.text[..start]);
        if both && start < end {
            out.push_str("<mark>");
            escape(out, &side.text[start..end]);
            out.push_str("</mark>");
        } else {
            escape(out, &side.text[start..end]);
        }
        escape(out, &side.text[end..]);
        out.push_str("</pre>\n");
        if let Some(place) = place(side) {
            out.push_str("<p class=\"note\">from ");
            escape(out, &place);
            out.push_str("</p>\n");
        }
    }
    let (a, b) = difference.costs();
    if (a, b) != (Cost::default(), Cost::default()) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", change_of_cost(a, b));
    }
    difference.inside.iter().for_each(|inner| article(out, inner));
    out.push_str("</article>\n");
}

/// How many bytes two texts have in common at their beginnings and, of the rest, at their ends.
fn common_ends(a: &str, b: &str) -> (usize, usize) {
    let start: usize = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.chars().rev().zip(b.chars().rev()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum();
    (start, end)
}

/// Text that is shown, whatever it holds.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A control character has no place in HTML.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}
