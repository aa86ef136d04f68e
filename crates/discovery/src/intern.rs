//! One copy of every string and of every list of strings.

use std::collections::HashSet;

use crate::groups::{Name, Names};

/// Gives equal strings, and equal lists of strings, the same memory.
///
/// It keeps all it was ever given, so it lives as long as one document is made, not longer.
#[derive(Debug, Default)]
pub struct Interner {
    names: HashSet<Name>,
    lists: HashSet<Names>,
}

impl Interner {
    /// The shared string equal to this text.
    pub fn name(&mut self, text: &str) -> Name {
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        let name = Name::from(text);
        self.names.insert(name.clone());
        name
    }

    /// The shared list of these strings.
    pub fn names<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) -> Names {
        let list: Vec<Name> = texts.into_iter().map(|text| self.name(text)).collect();
        if let Some(names) = self.lists.get(&list[..]) {
            return names.clone();
        }
        let names = Names::from(list);
        self.lists.insert(names.clone());
        names
    }
}
