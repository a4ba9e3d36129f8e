//! Shardy's rules of operations as text. The reader of bytecode gives them as structs: `sdy.op_sharding_rule`
//! {factor_sizes, operands, results, reduction, need_replication, permutation, blocked_propagation, custom}, where an
//! operand or result is an array of the factors of each of its dimensions.

use super::{AttrId, Module};
use std::fmt::Write;

/// A rule has no more factors, and an array no more dimensions.
const MAX_FACTORS: usize = 1024;

/// `i` to `z`, then `z_1` and so on.
fn write_factor(out: &mut String, factor: i64) {
    const LETTERS: &str = "ijklmnopqrstuvwxyz";
    let last = LETTERS.len() as i64;
    match usize::try_from(factor).ok().and_then(|f| LETTERS.get(f..f + 1)) {
        Some(letter) => out.push_str(letter),
        None => {
            let _ = write!(out, "z_{}", factor.saturating_add(1).saturating_sub(last));
        }
    }
}

impl Module<'_> {
    /// The text of a `sdy.op_sharding_rule`.
    pub(super) fn sharding_rule_text(&self, id: AttrId) -> String {
        let ints = |key: &str| self.field(id, key).and_then(|f| self.as_ints(f)).unwrap_or_default();
        let mut out = String::from("#sdy.op_sharding_rule<");
        for (key, before) in [("operands", ""), ("results", "->")] {
            out.push_str(before);
            let tensors = self.field(id, key).map_or(&[][..], |t| self.list(t));
            out.push('(');
            for (t, &tensor) in tensors.iter().enumerate().take(MAX_FACTORS) {
                out.push_str(if t > 0 { ", [" } else { "[" });
                for (d, &dim) in self.list(tensor).iter().enumerate().take(MAX_FACTORS) {
                    if d > 0 {
                        out.push_str(", ");
                    }
                    let factors = self.as_ints(dim).unwrap_or_default();
                    factors.iter().take(MAX_FACTORS).for_each(|&f| write_factor(&mut out, f));
                }
                out.push(']');
            }
            out.push(')');
        }
        for (i, size) in ints("factor_sizes").iter().enumerate().take(MAX_FACTORS) {
            out.push_str(if i > 0 { ", " } else { " {" });
            write_factor(&mut out, i as i64);
            let _ = write!(out, "={size}");
        }
        out.push_str(if ints("factor_sizes").is_empty() { "" } else { "}" });
        for key in ["reduction", "need_replication", "permutation", "blocked_propagation"] {
            let factors = ints(key);
            if factors.is_empty() {
                continue;
            }
            let _ = write!(out, " {key}={{");
            for (i, &factor) in factors.iter().enumerate().take(MAX_FACTORS) {
                out.push_str(if i > 0 { ", " } else { "" });
                write_factor(&mut out, factor);
            }
            out.push('}');
        }
        let custom = self.field(id, "custom").and_then(|c| self.as_bool(c)) == Some(true);
        out.push_str(if custom { ", custom>" } else { ">" });
        out
    }
}
