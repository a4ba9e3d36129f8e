//! The table of diagnostic codes: one file per area, each with its range of numbers.
//!
//! | range | area |
//! |---|---|
//! | 0100–0199 | HLO text: syntax and names ([`text`]) |
//! | 0200–0299 | protos ([`proto`]) |
//! | 0300–0399 | shapes: what an operation makes of its operands ([`infer`]) |
//! | 0400–0599 | the verifier: structure, attributes, schedule, aliasing, devices ([`verify`]) |
//! | 0600–0699 | targets and memory planning ([`plan`]) |
//! | 0700–0799 | passes ([`passes`]) |
//! | 0800–0899 | files and the command line ([`io`]) |
//! | 0900–0999 | StableHLO: reading, translating, checking ([`mlir`]) |
//! | 1000–1199 | running a program ([`eval`]) |
//! | 1200–1299 | shardings and partitioning ([`spmd`]) |
//! | 1300–1399 | costs and simulations ([`simulate`]) |

pub mod eval;
pub mod infer;
pub mod io;
pub mod mlir;
pub mod passes;
pub mod plan;
pub mod proto;
pub mod simulate;
pub mod spmd;
pub mod text;
pub mod verify;

use super::Code;

/// Declares codes, and `ALL` with every one of them.
macro_rules! codes {
    ($($(#[$doc:meta])* $number:literal $name:ident $title:literal, $explanation:literal, $example:literal;)*) => {
        $(
            #[doc = $title]
            $(#[$doc])*
            pub static $name: $crate::diagnostic::Code = $crate::diagnostic::Code {
                number: $number,
                title: $title,
                explanation: $explanation,
                example: $example,
            };
        )*
        /// Every code of this area.
        pub static ALL: &[&$crate::diagnostic::Code] = &[$(&$name),*];
    };
}
pub(crate) use codes;

/// Every code, by area and then number.
pub fn all() -> impl Iterator<Item = &'static Code> {
    [
        text::ALL,
        proto::ALL,
        infer::ALL,
        verify::ALL,
        plan::ALL,
        passes::ALL,
        io::ALL,
        mlir::ALL,
        eval::ALL,
        spmd::ALL,
        simulate::ALL,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The code written `H0123` (or `h123`, or `123`).
pub fn find(text: &str) -> Option<&'static Code> {
    let digits = text.trim().trim_start_matches(['H', 'h']);
    let number: u16 = digits.parse().ok()?;
    all().find(|c| c.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_in_their_range() {
        let mut seen = std::collections::BTreeSet::new();
        for code in all() {
            assert!(seen.insert(code.number), "{code} is used twice");
            assert!(!code.explanation.is_empty() && !code.title.is_empty(), "{code} explains nothing");
            assert_eq!(find(&code.to_string()), Some(code));
        }
        for (codes, range) in [
            (text::ALL, 100..200),
            (proto::ALL, 200..300),
            (infer::ALL, 300..400),
            (verify::ALL, 400..600),
            (plan::ALL, 600..700),
            (passes::ALL, 700..800),
            (io::ALL, 800..900),
            (mlir::ALL, 900..1000),
            (eval::ALL, 1000..1200),
            (spmd::ALL, 1200..1300),
            (simulate::ALL, 1300..1400),
        ] {
            assert!(codes.iter().all(|c| range.contains(&c.number)), "a code lies outside {range:?}");
        }
    }
}
