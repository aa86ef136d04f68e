//! One copy of every string and of every list of strings.

use std::collections::HashSet;

use crate::groups::{SharedStr, SharedStrList};

/// Gives equal strings, and equal lists of strings, the same memory.
///
/// It keeps all it was ever given, so it lives as long as one document is made, not longer.
#[derive(Debug, Default)]
pub struct Interner {
    strings: HashSet<SharedStr>,
    lists: HashSet<SharedStrList>,
}

impl Interner {
    /// The shared string equal to this text.
    pub fn intern(&mut self, text: &str) -> SharedStr {
        if let Some(name) = self.strings.get(text) {
            return name.clone();
        }
        let name = SharedStr::from(text);
        self.strings.insert(name.clone());
        name
    }

    /// The shared list of these strings.
    pub fn intern_list<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) -> SharedStrList {
        let list: Vec<SharedStr> = texts.into_iter().map(|text| self.intern(text)).collect();
        if let Some(names) = self.lists.get(&list[..]) {
            return names.clone();
        }
        let names = SharedStrList::from(list);
        self.lists.insert(names.clone());
        names
    }
}
