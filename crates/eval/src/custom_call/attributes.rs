//! What stands in `backend_config` of calls of the foreign function interface: an MLIR dictionary.

/// The attributes of a call, by name.
#[derive(Clone, Debug)]
pub struct Attributes(Vec<(String, i64)>);

impl Attributes {
    /// From an MLIR dictionary of numbers and booleans; what is of another kind is left out. Values without names, as in
    /// `1,0,100`, are named by their places.
    pub fn read(text: &str) -> Attributes {
        let inner = text.trim().trim_start_matches('{').trim_end_matches('}');
        let entries = inner.split(',').enumerate().filter_map(|(place, entry)| {
            let place = place.to_string();
            let (name, value) = entry.split_once('=').unwrap_or((&place, entry));
            let value = value.split(':').next()?.trim();
            let number = match value {
                "true" => 1,
                "false" => 0,
                _ => value.parse().ok()?,
            };
            Some((name.trim().trim_matches('"').to_owned(), number))
        });
        Attributes(entries.collect())
    }

    /// The attribute of that name.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
    }

    /// Whether the attribute is that character.
    pub fn is(&self, name: &str, character: u8) -> bool {
        self.get(name) == Some(i64::from(character))
    }

    /// Whether the lower triangle is meant: LAPACK's `uplo`, or `lower` elsewhere.
    pub fn is_lower(&self) -> bool {
        self.is("uplo", b'L') || self.get("lower") == Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_from_mlir() {
        let a = Attributes::read("{diag = 78 : ui8, left = true, low = -1 : i32, name = \"x\"}");
        assert!(a.is("diag", b'N') && a.get("left") == Some(1) && a.get("low") == Some(-1));
        assert!(a.get("name").is_none() && a.get("other").is_none());
        let list = Attributes::read("1,0,100,1e-6");
        assert_eq!((list.get("0"), list.get("1"), list.get("2"), list.get("3")), (Some(1), Some(0), Some(100), None));
        assert!(Attributes::read("").0.is_empty() && Attributes::read("{}").0.is_empty());
    }
}
