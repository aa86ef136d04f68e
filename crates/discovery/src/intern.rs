//! Deduplicates strings and lists of strings.

use std::collections::HashSet;

use crate::groups::{SharedStr, SharedStrList};

/// Returns the same allocation for equal strings and equal lists.
///
/// It never releases entries, so use one interner per document.
#[derive(Debug, Default)]
pub struct Interner {
    strings: HashSet<SharedStr>,
    lists: HashSet<SharedStrList>,
}

impl Interner {
    /// Returns the shared string equal to `text`.
    pub fn intern(&mut self, text: &str) -> SharedStr {
        if let Some(name) = self.strings.get(text) {
            return name.clone();
        }
        let name = SharedStr::from(text);
        self.strings.insert(name.clone());
        name
    }

    /// Returns the shared list of these strings.
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
