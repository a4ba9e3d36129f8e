//! Unique names, by XLA's rule.
//!
//! A trailing `.N` is split off; N is kept if it is free for that stem, otherwise the smallest free number is taken. A
//! bare name counts as number 0. So `a, a` become `a, a.1`, and `b.5, b.5, b` become `b.5, b.0, b.1`. A number is written
//! without leading zeros: `c.007` becomes `c.7`. Who has no name is called `name`.

use crate::element_type::ElementType;
use rustc_hash::{FxHashMap, FxHashSet};

/// The names given so far in one name space.
#[derive(Clone, Debug, Default)]
pub struct UniqueNames {
    stems: FxHashMap<Box<str>, Numbers>,
}

/// The numbers taken for one stem.
#[derive(Clone, Debug)]
struct Numbers {
    /// The number that was taken first: most stems never need the set.
    first: i64,
    more: Option<Box<MoreNumbers>>,
}

/// Numbers below this have a bit each.
const SMALL: i64 = 1 << 12;

#[derive(Clone, Debug, Default)]
struct MoreNumbers {
    /// A bit for each of the small numbers that are taken, as far as there are such.
    small: Vec<u64>,
    large: FxHashSet<i64>,
    /// Every smaller number is taken.
    next: i64,
}

impl MoreNumbers {
    /// Takes a number, which is not negative; `false` if it is taken.
    fn insert(&mut self, number: i64) -> bool {
        if number >= SMALL {
            return self.large.insert(number);
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.small.len() <= word {
            self.small.resize(word + 1, 0);
        }
        let is_free = self.small[word] & bit == 0;
        self.small[word] |= bit;
        is_free
    }
}

impl Numbers {
    /// Takes `wanted`, or, if it is taken, the smallest free number.
    fn take(&mut self, wanted: i64) -> i64 {
        let first = self.first;
        let more = self.more.get_or_insert_with(|| {
            let mut more = MoreNumbers::default();
            more.insert(first);
            Box::new(more)
        });
        if more.insert(wanted) {
            return wanted;
        }
        while !more.insert(more.next) {
            more.next += 1;
        }
        more.next += 1;
        more.next - 1
    }
}

impl UniqueNames {
    /// A name that nobody has yet: `wanted` itself if it is free.
    pub fn register_owned(&mut self, wanted: Box<str>) -> Box<str> {
        if wanted.is_empty() {
            return self.register("name");
        }
        self.instead_of(&wanted).unwrap_or(wanted)
    }

    /// A name that nobody has yet: `wanted` if it is free.
    pub fn register(&mut self, wanted: &str) -> Box<str> {
        let wanted = if wanted.is_empty() { "name" } else { wanted };
        self.instead_of(wanted).unwrap_or_else(|| wanted.into())
    }

    /// Registers `wanted`, or another name, which is returned.
    fn instead_of(&mut self, wanted: &str) -> Option<Box<str>> {
        let (stem, number) = split_number(wanted);
        let taken = match self.stems.get_mut(stem) {
            Some(numbers) => numbers.take(number.unwrap_or(0)),
            None => {
                let first = number.unwrap_or(0);
                self.stems.insert(stem.into(), Numbers { first, more: None });
                first
            }
        };
        match number {
            None if taken == 0 => None,
            // Without leading zeros the number is as long as it is written.
            Some(n) if taken == n && !wanted[stem.len() + 1..].starts_with('0') => None,
            Some(0) if taken == 0 && wanted.len() == stem.len() + 2 => None,
            _ => Some(numbered(stem, taken)),
        }
    }
}

/// `a.12` of `a` and 12, which is not negative. Every copy of an instruction is named so, hence in one allocation.
fn numbered(stem: &str, number: i64) -> Box<str> {
    let mut digits = [0; 20];
    let (mut first, mut rest) = (digits.len(), number.unsigned_abs());
    while rest > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut name = String::with_capacity(stem.len() + 1 + digits.len() - first);
    name.push_str(stem);
    name.push('.');
    digits[first..].iter().for_each(|&digit| name.push(char::from(digit)));
    name.into()
}

/// `a.12` is (`a`, 12); anything without a plain trailing number is itself.
fn split_number(name: &str) -> (&str, Option<i64>) {
    // Most names end in a letter or have a number after the dot; look from the end.
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 18 {
        return (name, None);
    }
    let (head, tail) = name.split_at(name.len() - digits);
    match head.strip_suffix('.') {
        Some(stem) if !stem.is_empty() => (stem, tail.parse().ok()),
        _ => (name, None),
    }
}

/// The name as HLO text can write it, by XLA's rule for computations: odd characters become `_`, names of element types
/// get a `_`, and a leading `__` (other than `__xla_`) is kept for compilers.
pub fn sanitize(name: &str) -> Box<str> {
    let mut out: String = name
        .bytes()
        .enumerate()
        .map(|(i, b)| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => b as char,
            b'0'..=b'9' | b'.' | b'-' if i > 0 => b as char,
            _ => '_',
        })
        .collect();
    if is_reserved_type_name(out.as_bytes()) {
        out.push('_');
    }
    if out.starts_with("__") && !out.starts_with("__xla_") {
        out.replace_range(0..1, "a");
    }
    out.into()
}

/// Whether HLO text reads `name` as a type, so that nothing can be called that.
pub fn is_reserved_type_name(name: &[u8]) -> bool {
    ElementType::from_name(name).is_some() || name == b"token" || name == b"opaque"
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

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, 999_999_999_999_999_999, i64::MAX] {
            assert_eq!(*numbered("a.b", number), *format!("a.b.{number}"));
        }
    }

    #[test]
    fn numbers_lose_leading_zeros() {
        let mut names = UniqueNames::default();
        let given: Vec<_> = ["a.007", "a.7", "b.0", "b.00", "c.99999999999999999999"].map(|n| names.register(n)).into();
        assert_eq!(given, ["a.7", "a.0", "b.0", "b.1", "c.99999999999999999999"].map(Box::from));
    }

    #[test]
    fn odd_names_are_made_writable() {
        assert_eq!(
            [sanitize("a#0"), sanitize("1x"), sanitize("f32"), sanitize("__p"), sanitize("__xla_p")],
            ["a_0", "_x", "f32_", "a_p", "__xla_p"].map(Box::from)
        );
    }
}
