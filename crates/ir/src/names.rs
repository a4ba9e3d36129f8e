//! Unique names, by XLA's rule.
//!
//! A trailing `.N` is split off; N is kept if it is free for that stem, otherwise the smallest free number is taken. A
//! bare name counts as number 0. So `a, a` become `a, a.1`, and `b.5, b.5, b` become `b.5, b.0, b.1`. Who has no name is
//! called `name`.

use rustc_hash::{FxHashMap, FxHashSet};

/// The names given so far in one name space.
#[derive(Clone, Debug, Default)]
pub struct UniqueNames {
    stems: FxHashMap<Box<str>, Numbers>,
}

/// The numbers taken for one stem.
#[derive(Clone, Debug, Default)]
struct Numbers {
    taken: FxHashSet<u64>,
    /// Every smaller number is taken.
    next: u64,
}

impl UniqueNames {
    /// A name that nobody has yet: `wanted` itself if it is free.
    pub fn register_owned(&mut self, wanted: Box<str>) -> Box<str> {
        if wanted.is_empty() {
            return self.register("name");
        }
        self.taken_instead(&wanted).unwrap_or(wanted)
    }

    /// A name that nobody has yet: `wanted` if it is free.
    pub fn register(&mut self, wanted: &str) -> Box<str> {
        let wanted = if wanted.is_empty() { "name" } else { wanted };
        self.taken_instead(wanted).unwrap_or_else(|| wanted.into())
    }

    /// Registers `wanted`, or, if it is taken, another name, which is returned.
    fn taken_instead(&mut self, wanted: &str) -> Option<Box<str>> {
        let (stem, number) = split_number(wanted);
        let numbers = match self.stems.get_mut(stem) {
            Some(numbers) => numbers,
            None => self.stems.entry(stem.into()).or_default(),
        };
        if numbers.taken.insert(number.unwrap_or(0)) {
            return None;
        }
        while !numbers.taken.insert(numbers.next) {
            numbers.next += 1;
        }
        numbers.next += 1;
        Some(format!("{stem}.{}", numbers.next - 1).into())
    }
}

/// `a.12` is (`a`, 12); anything without a plain trailing number is itself.
fn split_number(name: &str) -> (&str, Option<u64>) {
    let Some((stem, digits)) = name.rsplit_once('.') else { return (name, None) };
    if stem.is_empty() || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return (name, None);
    }
    match digits.parse() {
        Ok(n) => (stem, Some(n)),
        Err(_) => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_where_unique() {
        let mut names = UniqueNames::default();
        let given: Vec<_> = ["a", "a", "b.5", "b.5", "b", "c.1", "c", "c"].map(|n| names.register(n)).into();
        assert_eq!(given, ["a", "a.1", "b.5", "b.0", "b.1", "c.1", "c", "c.2"].map(Box::from));
    }

    #[test]
    fn only_a_plain_number_counts_as_one() {
        let huge = "a.99999999999999999999";
        for (name, split) in [
            ("a.12", ("a", Some(12))),
            ("a.b.1", ("a.b", Some(1))),
            ("a.", ("a.", None)),
            (".5", (".5", None)),
            ("a.-1", ("a.-1", None)),
            ("a.+1", ("a.+1", None)),
            (huge, (huge, None)),
        ] {
            assert_eq!(split_number(name), split, "{name}");
        }
    }

    #[test]
    fn ten_thousand_times_the_same_name_are_numbered_in_order() {
        let mut names = UniqueNames::default();
        names.register("x");
        for n in 1..10_000 {
            assert_eq!(*names.register("x"), *format!("x.{n}"));
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_name_is_given_twice(wanted in proptest::collection::vec("[ab]?(\\.[0-2]{0,2}){0,3}", 0..60)) {
            let mut names = UniqueNames::default();
            let mut given = std::collections::BTreeSet::new();
            for name in wanted {
                let unique = names.register(&name);
                proptest::prop_assert!(given.insert(unique.clone()), "{} came out twice, last for {}", unique, name);
            }
        }
    }
}
