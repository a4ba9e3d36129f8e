//! Tables as pages read them: columns of numbers, texts that are stored once, lists one after another.

use rustc_hash::FxHashMap;
use serde::Serialize;

/// Each text once; number 0 is the empty one.
pub(crate) struct Strings {
    all: Vec<String>,
    number: FxHashMap<String, u32>,
}

impl Strings {
    pub(crate) fn new() -> Strings {
        Strings { all: vec![String::new()], number: FxHashMap::from_iter([(String::new(), 0)]) }
    }

    /// The number of a text.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.number.get(text) {
            return known;
        }
        let number = self.all.len() as u32;
        self.all.push(text.to_owned());
        self.number.insert(text.to_owned(), number);
        number
    }

    pub(crate) fn into_all(self) -> Vec<String> {
        self.all
    }
}

/// For each of many things a list of numbers, one after another.
#[derive(Serialize)]
pub(crate) struct Lists {
    from: Vec<usize>,
    items: Vec<u32>,
}

impl Lists {
    pub(crate) fn new() -> Lists {
        Lists { from: vec![0], items: Vec::new() }
    }

    /// The list of the next thing, as it is.
    pub(crate) fn push(&mut self, list: impl IntoIterator<Item = u32>) {
        self.items.extend(list);
        self.from.push(self.items.len());
    }

    /// The list of the next thing, sorted and each number once.
    pub(crate) fn push_set(&mut self, list: impl IntoIterator<Item = u32>) {
        let mut set: Vec<u32> = list.into_iter().collect();
        set.sort_unstable();
        set.dedup();
        self.push(set);
    }
}
