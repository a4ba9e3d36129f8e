//! Which code an instruction gets: a backend's decision, made once and written down on the instruction.
//!
//! In a compiled module it is the instruction's `backend_config`, JSON such as `{"kernel":"library","routine":"dot"}`, and is
//! printed and read back with it. Whoever lowers the module carries it out, and asks nobody again.

use crate::instruction::Instruction;
use std::fmt::{self, Display, Write};

/// The code that an instruction gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelConfig {
    /// Loops that are made for it.
    Loops,
    /// A routine written by hand.
    Library {
        /// Its name.
        routine: Box<str>,
    },
    /// A routine written by hand, and loops over what it makes as soon as it is made: an output fusion.
    OutputFusion {
        /// The routine's name.
        routine: Box<str>,
    },
    /// None: the evaluator steps in.
    Evaluator {
        /// Why.
        reason: Box<str>,
    },
}

impl KernelConfig {
    /// What is written on the instruction, if it is a decision of this kind.
    pub fn of(instruction: &Instruction) -> Option<KernelConfig> {
        let text = std::str::from_utf8(instruction.common.backend_config.as_deref()?).ok()?;
        KernelConfig::parse(text)
    }

    /// Writes the decision on the instruction, in the place of any other configuration; says whether that is news.
    pub fn write(&self, instruction: &mut Instruction) -> bool {
        let text = self.to_string().into_bytes().into_boxed_slice();
        let is_new = instruction.common.backend_config.as_deref() != Some(&*text);
        instruction.common.backend_config = Some(text);
        is_new
    }

    /// The decision that is written so; `None` for any other text.
    pub fn parse(text: &str) -> Option<KernelConfig> {
        let rest = text.trim().strip_prefix("{\"kernel\":\"")?;
        let (kind, rest) = rest.split_once('"')?;
        let field = |name: &str| {
            let value = rest.strip_prefix(",\"")?.strip_prefix(name)?.strip_prefix("\":\"")?.strip_suffix("\"}")?;
            unescaped(value)
        };
        match kind {
            "loops" if rest == "}" => Some(KernelConfig::Loops),
            "library" => Some(KernelConfig::Library { routine: field("routine")? }),
            "output_fusion" => Some(KernelConfig::OutputFusion { routine: field("routine")? }),
            "evaluator" => Some(KernelConfig::Evaluator { reason: field("reason")? }),
            _ => None,
        }
    }
}

impl Display for KernelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, field) = match self {
            KernelConfig::Loops => ("loops", None),
            KernelConfig::Library { routine } => ("library", Some(("routine", routine))),
            KernelConfig::OutputFusion { routine } => ("output_fusion", Some(("routine", routine))),
            KernelConfig::Evaluator { reason } => ("evaluator", Some(("reason", reason))),
        };
        write!(f, "{{\"kernel\":\"{kind}\"")?;
        if let Some((name, value)) = field {
            write!(f, ",\"{name}\":\"")?;
            for c in value.chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    c if c.is_control() => write!(f, "\\u{:04x}", c as u32)?,
                    c => f.write_char(c)?,
                }
            }
            f.write_char('"')?;
        }
        f.write_char('}')
    }
}

/// The text of a JSON string; `None` if it is not one that is written here.
fn unescaped(text: &str) -> Option<Box<str>> {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => return None,
            '\\' => match characters.next()? {
                c @ ('"' | '\\') => result.push(c),
                'u' => {
                    let digits: String = characters.by_ref().take(4).collect();
                    result.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                _ => return None,
            },
            c => result.push(c),
        }
    }
    Some(result.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let all = [
            KernelConfig::Loops,
            KernelConfig::Library { routine: "dot".into() },
            KernelConfig::OutputFusion { routine: "convolution".into() },
            KernelConfig::Evaluator { reason: "a \"size\" \\ of\nno kind".into() },
        ];
        for config in all {
            assert_eq!(KernelConfig::parse(&config.to_string()), Some(config.clone()), "{config}");
        }
        assert_eq!(
            KernelConfig::Library { routine: "dot".into() }.to_string(),
            r#"{"kernel":"library","routine":"dot"}"#
        );
    }

    #[test]
    fn other_configurations_are_none_of_these() {
        for text in
            ["", "{}", r#"{"known_trip_count":{"n":"5"}}"#, r#"{"kernel":"loops","x":"y"}"#, r#"{"kernel":"library"}"#]
        {
            assert_eq!(KernelConfig::parse(text), None, "{text}");
        }
    }
}
