//! Sharding rules that a program gives: `#sdy.op_sharding_rule<([ij, k], [])->([i, k]) {i=4, j=2, k=8} reduction={j}>`.

use super::{DimFactors, Factor, FactorKind, Rule, TensorFactors};
use smallvec::SmallVec;

/// More factors than any operation has.
const MAX_FACTORS: usize = 1024;

struct Cursor<'t> {
    rest: &'t str,
}

impl<'t> Cursor<'t> {
    fn eat(&mut self, text: &str) -> bool {
        match self.rest.trim_start().strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Option<()> {
        self.eat(text).then_some(())
    }

    fn number(&mut self) -> Option<i64> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.rest = &rest[end..];
        rest[..end].parse().ok()
    }

    /// `i` to `z`, then `z_1` and so on.
    fn factor(&mut self) -> Option<u16> {
        let rest = self.rest.trim_start();
        let letter = rest.chars().next().filter(|c| ('i'..='z').contains(c))?;
        self.rest = &rest[1..];
        let first = letter as u16 - 'i' as u16;
        if letter == 'z' && self.rest.starts_with('_') {
            self.rest = &self.rest[1..];
            let more = u16::try_from(self.number()?).ok().filter(|&n| usize::from(n) < MAX_FACTORS)?;
            return Some(first + more);
        }
        Some(first)
    }

    fn list<T>(&mut self, open: &str, close: &str, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.eat(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Some(items)
    }

    fn tensors(&mut self) -> Option<Vec<TensorFactors>> {
        self.list("(", ")", |c| {
            let dims = c.list("[", "]", |c| {
                let mut factors = DimFactors::new();
                while let Some(factor) = c.factor() {
                    factors.push(factor);
                }
                (!factors.is_empty()).then_some(factors)
            })?;
            Some(dims.into_iter().collect())
        })
    }
}

/// The rule in that text; `None` if it is none, or names factors that it does not give a size.
pub(crate) fn parse(text: &str) -> Option<Rule> {
    let mut c = Cursor { rest: text };
    let _ = c.eat("#sdy.op_sharding_rule");
    c.expect("<")?;
    let operands = c.tensors()?;
    c.expect("->")?;
    let results = c.tensors()?;
    let sizes = c.list("{", "}", |c| {
        let factor = c.factor()?;
        c.expect("=")?;
        Some((factor, c.number()?))
    })?;
    let mut factors: SmallVec<[Factor; 4]> = SmallVec::new();
    for (i, &(factor, size)) in sizes.iter().enumerate() {
        if usize::from(factor) != i || size < 0 {
            return None;
        }
        factors.push(Factor { size, kind: FactorKind::PassThrough, blocked: false });
    }
    for (word, kind) in [
        ("reduction", Some(FactorKind::Reduction)),
        ("need_replication", Some(FactorKind::NeedReplication)),
        ("permutation", Some(FactorKind::Permutation)),
        ("blocked_propagation", None),
    ] {
        if c.eat(word) {
            c.expect("=")?;
            for factor in c.list("{", "}", Cursor::factor)? {
                let factor = factors.get_mut(usize::from(factor))?;
                match kind {
                    Some(kind) => factor.kind = kind,
                    None => factor.blocked = true,
                }
            }
        }
    }
    let _ = c.eat(",");
    let custom = c.eat("custom");
    c.expect(">")?;
    let count = operands.len();
    let tensors: SmallVec<[TensorFactors; 3]> = operands.into_iter().chain(results).collect();
    let known = tensors.iter().flatten().flatten().all(|&f| usize::from(f) < factors.len());
    known.then_some(Rule { factors, tensors, operands: count, custom, leading: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_printed() {
        for text in [
            "#sdy.op_sharding_rule<([i, j], [i, j])->([i, j]) {i=8, j=8}>",
            "#sdy.op_sharding_rule<([ij, k], [])->([i, k]) {i=4, j=2, k=8} reduction={j} blocked_propagation={k}, custom>",
            "#sdy.op_sharding_rule<([zz_1])->() {i=1, j=1, k=1, l=1, m=1, n=1, o=1, p=1, q=1, r=1, s=1, t=1, u=1, v=1, w=1, x=1, y=1, z=2, z_1=3} need_replication={z} permutation={z_1}>",
        ] {
            let rule = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(rule.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["", "<([i])->([j]) {i=8}>", "<([i]->([i]) {i=8}>", "<([])->([]) {}", "<([i])->([i]) {j=8}>"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
