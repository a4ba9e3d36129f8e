//! What the plugin has to say while no call of its caller's is there to answer: on standard error, a line each.

/// Says something.
#[allow(clippy::print_stderr, reason = "the one place where the plugin prints")]
pub(crate) fn note(text: &str) {
    eprintln!("hloom: {text}");
}
