//! Small helpers for sentences.

/// `1 loop`, `2 loops`.
pub(crate) fn plural<N: std::fmt::Display + PartialEq + From<u8>>(n: N, word: &str) -> String {
    let ending = if n == N::from(1) { "" } else { "s" };
    format!("{n} {word}{ending}")
}
