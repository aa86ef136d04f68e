//! The routing table: the servers of every listed resource.
//!
//! One lookup by group and version and one by resource and subresource find an entry; the verb selects one of its shared slices
//! of members. Immutable. A new table reuses every version of the last one that the same documents list; the members of each
//! document and their liveness are kept apart.

mod build;
mod document_classes;
mod request_verbs;
mod version_listing;

use std::collections::HashMap;
use std::sync::Arc;

use api::{KindScope, RouteMismatch, Verb};
use foldhash::fast::RandomState;
use smallvec::SmallVec;

pub use build::ServingMember;
pub use request_verbs::RequestVerbs;

use self::build::VersionEntries;
use self::document_classes::DocumentClasses;

pub(crate) use self::version_listing::VersionListing;

/// The position of a member in its [`crate::View`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(pub u32);

/// Servers by resource.
#[derive(Debug, Default)]
pub struct RoutingTable {
    /// Keyed by group and version.
    versions: HashMap<TableKey, VersionSlot, RandomState>,
    /// The documents of the members, by class number.
    document_classes: DocumentClasses,
}

/// Names joined by slashes.
type TableKey = Arc<[u8]>;

/// One version of a group.
#[derive(Debug)]
struct VersionSlot {
    entries: Arc<VersionEntries>,
    /// The distinct sets of members of the entries; few, however many entries there are.
    offer_sets: Box<[MemberOffer]>,
}

/// One resource or subresource of one version. Small, for the processor cache.
#[derive(Clone, Copy, Debug)]
struct TableEntry {
    local: LocalSupport,
    scope: Option<KindScope>,
    /// Index into `offer_sets`.
    offer_index: u32,
}

/// The members that serve something.
#[derive(Clone, Debug, Default)]
struct MemberOffer {
    live: ServingMembers,
    unreachable: ServingMembers,
}

/// The servers of one resource or subresource of one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceServers<'a> {
    pub(crate) local: LocalSupport,
    /// The scope, if all servers that list the resource agree on it.
    scope: Option<KindScope>,
    /// Live members.
    pub(crate) live: &'a ServingMembers,
    /// Members that are suspect or have left.
    pub(crate) unreachable: &'a ServingMembers,
}

/// What this server serves of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LocalSupport {
    /// Nothing.
    #[default]
    NotListed,
    /// The resource is listed, because the release has it, but not implemented.
    NotImplemented,
    /// These verbs.
    Serves(RequestVerbs),
}

impl LocalSupport {
    /// Combines two listings of one resource.
    fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::Serves(a), Self::Serves(b)) => Self::Serves(a.union(b)),
            (Self::NotImplemented, _) | (_, Self::NotImplemented) => Self::NotImplemented,
            (Self::NotListed, known) | (known, Self::NotListed) => known,
        }
    }
}

/// The members that list a resource, all of them in `any`, whatever the verbs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServingMembers {
    /// `None` if there are no members.
    any: Option<Arc<[MemberIndex]>>,
    /// The sets of verbs are disjoint.
    by_verb: SmallVec<[(RequestVerbs, Arc<[MemberIndex]>); 1]>,
}

impl ServingMembers {
    pub(crate) fn any(&self) -> Option<&Arc<[MemberIndex]>> {
        self.any.as_ref()
    }

    pub(crate) fn with_verb(&self, verb: Verb) -> Option<&Arc<[MemberIndex]>> {
        self.by_verb.iter().find(|(verbs, _)| verbs.contains(verb)).map(|(_, members)| members)
    }
}

impl ResourceServers<'_> {
    /// Why a request fits the resource on no server; `None` if it may fit on one.
    pub(crate) fn route_mismatch(&self, resource: &api::target::ResourceTarget<'_>) -> Option<RouteMismatch> {
        let scope = self.scope?;
        resource.check_route(scope, |_| true).err()?;
        resource.check_route(scope, |verb| self.is_verb_offered(verb)).err()
    }

    fn is_verb_offered(&self, verb: Verb) -> bool {
        let is_here = match self.local {
            LocalSupport::NotListed => false,
            // Its verbs are not in the table; the handler knows them.
            LocalSupport::NotImplemented => true,
            LocalSupport::Serves(verbs) => verbs.contains(verb),
        };
        is_here || self.live.with_verb(verb).is_some() || self.unreachable.with_verb(verb).is_some()
    }
}

impl RoutingTable {
    /// The servers of the resource of a request; `None` if no server lists it.
    pub(crate) fn lookup(&self, resource: &api::target::ResourceTarget<'_>) -> Option<ResourceServers<'_>> {
        let names = [&*resource.group, &*resource.version, &*resource.resource, &*resource.subresource];
        let version_end = names[0].len() + 1 + names[1].len();
        with_key(names, |key| {
            let slot = self.versions.get(&key[..version_end])?;
            Some(slot.resource_servers(*slot.entries.get(&key[version_end + 1..])?))
        })
    }

    /// All entries with group, version, resource and subresource, unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ([&str; 4], ResourceServers<'_>)> {
        let entries = self.versions.iter().flat_map(|(version, slot)| {
            slot.entries.iter().map(move |(name, entry)| (version, name, slot.resource_servers(*entry)))
        });
        entries.filter_map(|(version, name, listed)| {
            let (group, version) = std::str::from_utf8(version).ok()?.split_once('/')?;
            let (resource, subresource) = std::str::from_utf8(name).ok()?.split_once('/')?;
            Some(([group, version, resource, subresource], listed))
        })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.versions.values().map(|slot| slot.entries.len()).sum()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl VersionSlot {
    fn resource_servers(&self, entry: TableEntry) -> ResourceServers<'_> {
        let MemberOffer { live, unreachable } = &self.offer_sets[entry.offer_index as usize];
        ResourceServers { local: entry.local, scope: entry.scope, live, unreachable }
    }
}

/// The longest key on the stack; real names are well below.
const STACK_KEY_BYTES: usize = 128;

/// Calls `look` with the names joined by slashes, on the stack if they fit. Names of a request hold no slash: its path was
/// split at slashes.
pub(crate) fn with_key<const N: usize, T>(names: [&str; N], look: impl FnOnce(&[u8]) -> T) -> T {
    let length = names.iter().map(|name| name.len() + 1).sum::<usize>() - 1;
    if length > STACK_KEY_BYTES {
        return look(names.join("/").as_bytes());
    }
    let mut key = [b'/'; STACK_KEY_BYTES];
    let mut start = 0;
    for name in names {
        key[start..start + name.len()].copy_from_slice(name.as_bytes());
        start += name.len() + 1;
    }
    look(&key[..length])
}

#[cfg(test)]
pub(crate) mod tests;
