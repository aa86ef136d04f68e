//! Sets of verbs.

use api::Verb;
use discovery::SharedStrList;

/// A set of verbs of a discovery document, without those that no request can have (`bind`, `impersonate`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestVerbs(u16);

impl RequestVerbs {
    /// The verbs of a list in a document.
    pub fn from_names(names: &SharedStrList) -> Self {
        names.iter().filter_map(|name| Verb::from_name(name)).fold(Self::default(), Self::with)
    }

    /// True if the verb is in the set.
    pub fn contains(self, verb: Verb) -> bool {
        self.0 & bit(verb) != 0
    }

    /// The set with this verb.
    pub fn with(self, verb: Verb) -> Self {
        Self(self.0 | bit(verb))
    }

    /// The verbs that are in either set.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The verbs that are in this set and not in the other.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True for the empty set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The verbs of the set.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::NAMED.into_iter().filter(move |verb| self.contains(*verb))
    }
}

/// 0 for verbs that are in no document.
fn bit(verb: Verb) -> u16 {
    if verb == Verb::Unknown { 0 } else { 1 << verb as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_verbs_ignore_verbs_without_requests() {
        let names: SharedStrList = ["watch", "get", "bind"].map(Into::into).into();
        let verbs = RequestVerbs::from_names(&names);
        assert_eq!(verbs.iter().collect::<Vec<_>>(), [Verb::Get, Verb::Watch]);
        assert!(!verbs.contains(Verb::List) && !verbs.contains(Verb::Unknown));
        assert_eq!(verbs.without(RequestVerbs::default().with(Verb::Get)), RequestVerbs::default().with(Verb::Watch));
        assert!(RequestVerbs::default().with(Verb::Unknown).is_empty());
    }
}
