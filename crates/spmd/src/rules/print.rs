//! Sharding rules as text.

use super::{FactorKind, Rule, TensorFactors};
use std::fmt::{self, Display};

/// `i` to `z`, then `z_1` and so on.
struct Symbol(usize);

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: &str = "ijklmnopqrstuvwxyz";
        match LETTERS.get(self.0..self.0 + 1) {
            Some(letter) => f.write_str(letter),
            None => write!(f, "z_{}", self.0 + 1 - LETTERS.len()),
        }
    }
}

fn tensors(f: &mut fmt::Formatter<'_>, tensors: &[TensorFactors]) -> fmt::Result {
    f.write_str("(")?;
    for (t, tensor) in tensors.iter().enumerate() {
        f.write_str(if t > 0 { ", [" } else { "[" })?;
        for (d, dim) in tensor.iter().enumerate() {
            if d > 0 {
                f.write_str(", ")?;
            }
            dim.iter().try_for_each(|&factor| Symbol(usize::from(factor)).fmt(f))?;
        }
        f.write_str("]")?;
    }
    f.write_str(")")
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("#sdy.op_sharding_rule<")?;
        let (operands, results) = self.tensors.split_at(self.operands);
        tensors(f, operands)?;
        f.write_str("->")?;
        tensors(f, results)?;
        f.write_str(" {")?;
        for (i, factor) in self.factors.iter().enumerate() {
            write!(f, "{}{}={}", if i > 0 { ", " } else { "" }, Symbol(i), factor.size)?;
        }
        f.write_str("}")?;
        let of_kind = |kind| move |i: &usize| self.factors[*i].kind == kind;
        let blocked = |i: &usize| self.factors[*i].blocked;
        let all = 0..self.factors.len();
        for (word, list) in [
            ("reduction", all.clone().filter(of_kind(FactorKind::Reduction)).collect::<Vec<_>>()),
            ("need_replication", all.clone().filter(of_kind(FactorKind::NeedReplication)).collect()),
            ("permutation", all.clone().filter(of_kind(FactorKind::Permutation)).collect()),
            ("blocked_propagation", all.filter(blocked).collect()),
        ] {
            if !list.is_empty() {
                write!(f, " {word}={{")?;
                for (n, &i) in list.iter().enumerate() {
                    write!(f, "{}{}", if n > 0 { ", " } else { "" }, Symbol(i))?;
                }
                f.write_str("}")?;
            }
        }
        f.write_str(if self.custom { ", custom>" } else { ">" })
    }
}
