//! The routing table: for everything that anybody lists, who serves it.
//!
//! One lookup by group and version, and one by resource and subresource, find an entry; the verb picks one of its shared slices
//! of members. Immutable. A table is made after another, and takes over from it every version that the same documents list in
//! the same way; who the members with these documents are, and who of them is live, is kept apart from that.

mod build;
mod classes;
mod listing;
mod verbs;

use std::collections::HashMap;
use std::sync::Arc;

use api::{Misfit, Scope, Verb};
use foldhash::fast::RandomState;
use smallvec::SmallVec;

pub use build::Bearer;
pub use verbs::Verbs;

use self::build::Entries;
use self::classes::Classes;

pub(crate) use self::listing::VersionListing;

/// The position of a member in its [`crate::View`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(pub u32);

/// Who serves what.
#[derive(Debug, Default)]
pub struct Table {
    /// By group and version.
    versions: HashMap<Key, Slot, RandomState>,
    /// The documents of the members, by the numbers that entries have for them.
    classes: Classes,
}

/// Names with a slash between each two.
type Key = Arc<[u8]>;

/// One version of a group.
#[derive(Debug)]
struct Slot {
    entries: Arc<Entries>,
    /// The different sets of members that the entries have; few, however many entries there are.
    offers: Box<[Offer]>,
}

/// One resource or subresource of one version. Small, so that many fit into the cache of a processor.
#[derive(Clone, Copy, Debug)]
struct Entry {
    here: Here,
    scope: Option<Scope>,
    /// The position among the offers.
    offer: u32,
}

/// Who of the members has something.
#[derive(Clone, Debug, Default)]
struct Offer {
    live: Bearers,
    away: Bearers,
}

/// Who serves one resource or subresource of one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) here: Here,
    /// The scope that all servers which list it agree on.
    scope: Option<Scope>,
    /// Members that can be reached.
    pub(crate) live: &'a Bearers,
    /// Members that are suspect or have left.
    pub(crate) away: &'a Bearers,
}

/// What of it this server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Here {
    /// Nothing.
    #[default]
    Nothing,
    /// It is listed, because the release has it, and not built.
    Unbuilt,
    /// These verbs.
    Serves(Verbs),
}

impl Here {
    /// What two mentions of one thing amount to.
    fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::Serves(a), Self::Serves(b)) => Self::Serves(a.union(b)),
            (Self::Unbuilt, _) | (_, Self::Unbuilt) => Self::Unbuilt,
            (Self::Nothing, known) | (known, Self::Nothing) => known,
        }
    }
}

/// Members that list one thing. Whoever lists it at all is in `any`, whatever the verbs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bearers {
    /// Empty if there is none.
    any: Option<Arc<[MemberIndex]>>,
    /// No verb is in two of these.
    by_verb: SmallVec<[(Verbs, Arc<[MemberIndex]>); 1]>,
}

impl Bearers {
    pub(crate) fn any(&self) -> Option<&Arc<[MemberIndex]>> {
        self.any.as_ref()
    }

    pub(crate) fn of_verb(&self, verb: Verb) -> Option<&Arc<[MemberIndex]>> {
        self.by_verb.iter().find(|(verbs, _)| verbs.contains(verb)).map(|(_, members)| members)
    }
}

impl Listed<'_> {
    /// Why a request fits the resource on no server, whatever its verbs are; `None` if it may fit on one.
    pub(crate) fn misfit(&self, resource: &api::target::Resource<'_>) -> Option<Misfit> {
        let scope = self.scope?;
        resource.fit(scope, |_| true).err()?;
        resource.fit(scope, |verb| self.offers(verb)).err()
    }

    fn offers(&self, verb: Verb) -> bool {
        let is_here = match self.here {
            Here::Nothing => false,
            // Its verbs are not kept; the handler knows them.
            Here::Unbuilt => true,
            Here::Serves(verbs) => verbs.contains(verb),
        };
        is_here || self.live.of_verb(verb).is_some() || self.away.of_verb(verb).is_some()
    }
}

impl Table {
    /// Who serves what a request is about; `None` if nobody lists it.
    pub(crate) fn find(&self, resource: &api::target::Resource<'_>) -> Option<Listed<'_>> {
        let names = [&*resource.group, &*resource.version, &*resource.resource, &*resource.subresource];
        let version_end = names[0].len() + 1 + names[1].len();
        with_key(names, |key| {
            let slot = self.versions.get(&key[..version_end])?;
            Some(slot.listed(*slot.entries.get(&key[version_end + 1..])?))
        })
    }

    /// Everything listed with group, version, resource and subresource, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = ([&str; 4], Listed<'_>)> {
        let entries = self.versions.iter().flat_map(|(version, slot)| {
            slot.entries.iter().map(move |(name, entry)| (version, name, slot.listed(*entry)))
        });
        entries.filter_map(|(version, name, listed)| {
            let (group, version) = std::str::from_utf8(version).ok()?.split_once('/')?;
            let (resource, subresource) = std::str::from_utf8(name).ok()?.split_once('/')?;
            Some(([group, version, resource, subresource], listed))
        })
    }

    /// How many things are listed.
    pub fn len(&self) -> usize {
        self.versions.values().map(|slot| slot.entries.len()).sum()
    }

    /// Whether nobody lists anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Slot {
    fn listed(&self, entry: Entry) -> Listed<'_> {
        let Offer { live, away } = &self.offers[entry.offer as usize];
        Listed { here: entry.here, scope: entry.scope, live, away }
    }
}

/// The longest key that needs no heap; names in the field stay well below.
const KEY_BYTES: usize = 128;

/// Looks something up by names that stand in one piece of memory, so that it needs neither the heap nor more than one hash.
/// No name of a request holds a slash: its path was split at them.
pub(crate) fn with_key<const N: usize, T>(names: [&str; N], look: impl FnOnce(&[u8]) -> T) -> T {
    let length = names.iter().map(|name| name.len() + 1).sum::<usize>() - 1;
    if length > KEY_BYTES {
        return look(names.join("/").as_bytes());
    }
    let mut key = [b'/'; KEY_BYTES];
    let mut start = 0;
    for name in names {
        key[start..start + name.len()].copy_from_slice(name.as_bytes());
        start += name.len() + 1;
    }
    look(&key[..length])
}

#[cfg(test)]
pub(crate) mod tests;
