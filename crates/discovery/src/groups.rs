//! The discovery data model: groups, versions, resources and subresources, as in `apidiscovery.k8s.io/v2`.
//!
//! Serializing yields the wire format: the declaration order of the fields is the key order of the JSON. Equal
//! strings of a document share memory, and documents share unchanged parts with each other.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use api::GroupVersionKind;
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use crate::aggregated;

/// A string shared between documents.
pub type SharedStr = Arc<str>;

/// A list of strings shared between documents; most resources have one of a few verb lists.
pub type SharedStrList = Arc<[SharedStr]>;

/// One discovery document: the groups in order of preference.
///
/// Immutable, because it caches a digest per group; documents are compared by these digests.
#[derive(Debug)]
pub struct GroupDiscoveryList {
    items: Vec<Arc<GroupDiscovery>>,
    /// One per item, in the same order.
    digests: Vec<GroupDigest>,
    merged_etag: DiscoveryEtag,
    etag: OnceLock<DiscoveryEtag>,
}

/// An API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDiscovery {
    /// Empty for the core group.
    pub name: SharedStr,
    /// The form of `metadata.creationTimestamp`.
    pub creation_timestamp: CreationTimestamp,
    /// The preferred version first.
    pub versions: Vec<VersionDiscovery>,
}

/// How `metadata.creationTimestamp` is written: servers up to 1.33 write `null`, later ones omit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CreationTimestamp {
    /// Omitted, as since 1.34.
    #[default]
    Absent,
    /// `"creationTimestamp": null`, as up to 1.33.
    Null,
}

/// A version of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionDiscovery {
    /// Such as `v1`.
    #[serde(rename = "version")]
    pub name: SharedStr,
    /// In document order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Arc<ResourceDiscovery>>,
    /// Whether the server could confirm this version when it wrote the document.
    #[serde(skip_serializing_if = "DiscoveryFreshness::is_unstated")]
    pub freshness: DiscoveryFreshness,
}

/// The freshness of a version, best first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscoveryFreshness {
    /// Confirmed.
    Current,
    /// An unknown value; clients treat it as current.
    Other(SharedStr),
    /// No value; clients treat it as current.
    Unstated,
    /// Not confirmed; clients report the version as failed.
    Stale,
}

/// A resource of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDiscovery {
    /// The plural name.
    #[serde(rename = "resource")]
    pub name: SharedStr,
    /// The kind of responses; if group and version are empty, they are those of the enclosing document.
    #[serde(serialize_with = "serialize_kind", skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    /// Whether objects have a namespace.
    pub scope: DiscoveryScope,
    /// May be empty.
    #[serde(rename = "singularResource")]
    pub singular: SharedStr,
    /// `None` is JSON `null`, as for a parent that is listed only because of its subresource.
    pub verbs: Option<SharedStrList>,
    /// Abbreviations for the command line.
    #[serde(skip_serializing_if = "is_empty")]
    pub short_names: SharedStrList,
    /// Such as `all`.
    #[serde(skip_serializing_if = "is_empty")]
    pub categories: SharedStrList,
    /// In document order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<SubresourceDiscovery>,
}

/// The scope of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscoveryScope {
    /// Objects have no namespace.
    Cluster,
    /// Objects have a namespace.
    Namespaced,
    /// An unknown value, preserved.
    Other(SharedStr),
}

/// A subresource of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubresourceDiscovery {
    /// Without the parent, such as `scale`.
    #[serde(rename = "subresource")]
    pub name: SharedStr,
    /// The kind of responses; if group and version are empty, they are those of the enclosing document.
    #[serde(serialize_with = "serialize_kind", skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    /// The kinds accepted in requests, if there are others than the response kind.
    #[serde(serialize_with = "serialize_kinds", skip_serializing_if = "Vec::is_empty")]
    pub accepted_types: Vec<GroupVersionKind>,
    /// `None` is JSON `null`.
    pub verbs: Option<SharedStrList>,
}

/// The ETag of a document (SHA-512). Equal documents have equal ETags in every encoding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiscoveryEtag(pub(crate) [u8; 64]);

/// The SHA-256 of a group's JSON, by which groups are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupDigest(pub(crate) [u8; 32]);

/// A group with its digest.
#[derive(Clone, Debug)]
pub(crate) struct HashedGroup {
    pub(crate) group: Arc<GroupDiscovery>,
    pub(crate) digest: GroupDigest,
}

impl HashedGroup {
    pub(crate) fn new(group: Arc<GroupDiscovery>) -> Self {
        let digest = aggregated::digest_of_group(&group);
        Self { group, digest }
    }
}

impl GroupDiscoveryList {
    /// Creates a document and hashes each group.
    pub fn new(items: Vec<Arc<GroupDiscovery>>) -> Self {
        Self::from_hashed(items.into_iter().map(HashedGroup::new))
    }

    /// Creates a document from groups that are already hashed.
    pub(crate) fn from_hashed(groups: impl Iterator<Item = HashedGroup>) -> Self {
        let (items, digests): (Vec<_>, Vec<_>) = groups.map(|HashedGroup { group, digest }| (group, digest)).unzip();
        let merged_etag = aggregated::etag_of_digests(&digests);
        Self { items, digests, merged_etag, etag: OnceLock::new() }
    }

    /// Concatenates documents without hashing groups again.
    pub fn concat(documents: &[&Self]) -> Self {
        Self::from_hashed(documents.iter().flat_map(|document| document.hashed_groups()))
    }

    /// Adds the groups of a document whose groups come after this one's. Versions of a group that both have are united,
    /// this document's first; a version that both have stays as it is here.
    pub fn with_later_groups(&self, later: &Self) -> Self {
        let extended = self.hashed_groups().map(|hashed| match later.group(&hashed.group.name) {
            None => hashed,
            Some(more) => {
                let is_new =
                    |version: &&VersionDiscovery| hashed.group.versions.iter().all(|known| known.name != version.name);
                let added: Vec<_> = more.versions.iter().filter(is_new).cloned().collect();
                if added.is_empty() {
                    return hashed;
                }
                let versions = hashed.group.versions.iter().cloned().chain(added).collect();
                HashedGroup::new(Arc::new(GroupDiscovery { versions, ..(*hashed.group).clone() }))
            }
        });
        let others = later.hashed_groups().filter(|hashed| self.group(&hashed.group.name).is_none());
        Self::from_hashed(extended.chain(others))
    }

    /// Adds the groups of a document that also says where they belong: a group comes before the first of this document's groups that
    /// follow it there, otherwise last. Groups without versions only mark places. Versions are united as in
    /// [`Self::with_later_groups`].
    pub fn with_ordered_groups(&self, ordered: &Self) -> Self {
        let positions: HashMap<&str, usize> =
            self.items.iter().enumerate().map(|(position, group)| (&*group.name, position)).collect();
        let mut place = self.items.len();
        let mut placed: Vec<(usize, HashedGroup)> = Vec::new();
        for hashed in ordered.hashed_groups().collect::<Vec<_>>().into_iter().rev() {
            match positions.get(&*hashed.group.name) {
                Some(position) => place = place.min(*position),
                None if hashed.group.versions.is_empty() => {}
                None => placed.push((place, hashed)),
            }
        }
        // Collected from the last to the first: places are in order then.
        let mut placed = placed.into_iter().rev().peekable();
        let united = self.with_later_groups(ordered);
        let mut groups = Vec::with_capacity(united.items.len());
        for (position, hashed) in united.hashed_groups().take(self.items.len()).enumerate() {
            while let Some((_, earlier)) = placed.next_if(|(place, _)| *place <= position) {
                groups.push(earlier);
            }
            groups.push(hashed);
        }
        Self::from_hashed(groups.into_iter().chain(placed.map(|(_, hashed)| hashed)))
    }

    /// Applies `change` to each group; `None` removes it. Only changed groups are hashed again.
    pub fn filter_map_groups(&self, change: impl Fn(&Arc<GroupDiscovery>) -> Option<Arc<GroupDiscovery>>) -> Self {
        let changed = |hashed: HashedGroup| match change(&hashed.group)? {
            same if Arc::ptr_eq(&same, &hashed.group) => Some(hashed),
            other => Some(HashedGroup::new(other)),
        };
        Self::from_hashed(self.hashed_groups().filter_map(changed))
    }

    /// Iterates over the groups with their digests.
    pub(crate) fn hashed_groups(&self) -> impl Iterator<Item = HashedGroup> {
        let pairs = self.items.iter().zip(&self.digests);
        pairs.map(|(group, digest)| HashedGroup { group: group.clone(), digest: *digest })
    }

    /// Returns the groups in order of preference.
    pub fn items(&self) -> &[Arc<GroupDiscovery>] {
        &self.items
    }

    /// Finds a group by name; the core group has an empty name.
    pub fn group(&self, name: &str) -> Option<&Arc<GroupDiscovery>> {
        self.items.iter().find(|group| &*group.name == name)
    }

    /// Finds a version by group and version name.
    pub fn version(&self, group: &str, version: &str) -> Option<&VersionDiscovery> {
        self.group(group)?.versions.iter().find(|candidate| &*candidate.name == version)
    }

    /// Returns the ETag for a single server's document, equal to kube-apiserver's.
    pub fn etag(&self) -> DiscoveryEtag {
        *self.etag.get_or_init(|| aggregated::etag_of_groups(self))
    }

    /// Like [`Self::etag`], with a given computation if it is not cached.
    pub(crate) fn etag_or_init(&self, etag: impl FnOnce() -> DiscoveryEtag) -> DiscoveryEtag {
        *self.etag.get_or_init(etag)
    }

    /// Returns the ETag for a merged document, computed from the group digests, so that a changed group costs only
    /// its own hash. Equal content has an equal ETag on every server.
    pub fn merged_etag(&self) -> DiscoveryEtag {
        self.merged_etag
    }

    /// Iterates over all versions with their groups, in order.
    pub fn versions(&self) -> impl Iterator<Item = (&GroupDiscovery, &VersionDiscovery)> {
        self.items.iter().flat_map(|group| group.versions.iter().map(|version| (&**group, version)))
    }
}

/// Compares content, by digest.
impl PartialEq for GroupDiscoveryList {
    fn eq(&self, other: &Self) -> bool {
        self.digests == other.digests
    }
}

impl Eq for GroupDiscoveryList {}

impl DiscoveryFreshness {
    fn is_unstated(&self) -> bool {
        *self == Self::Unstated
    }

    /// Returns the wire value, empty if unstated.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Current => "Current",
            Self::Other(word) => word,
            Self::Unstated => "",
            Self::Stale => "Stale",
        }
    }
}

impl From<api::KindScope> for DiscoveryScope {
    fn from(scope: api::KindScope) -> Self {
        match scope {
            api::KindScope::Cluster => Self::Cluster,
            api::KindScope::Namespaced => Self::Namespaced,
        }
    }
}

impl DiscoveryScope {
    /// Returns the scope; `None` for an unknown value.
    pub fn as_kind_scope(&self) -> Option<api::KindScope> {
        match self {
            Self::Cluster => Some(api::KindScope::Cluster),
            Self::Namespaced => Some(api::KindScope::Namespaced),
            Self::Other(_) => None,
        }
    }

    /// Returns the wire value.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespaced => "Namespaced",
            Self::Other(word) => word,
        }
    }
}

impl fmt::Display for DiscoveryScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Formats as in the header: upper-case hexadecimal digits in quotes.
impl fmt::Display for DiscoveryEtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
        f.write_str("\"")
    }
}

impl fmt::Debug for DiscoveryEtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for GroupDiscovery {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut group = serializer.serialize_struct("Group", 2)?;
        group.serialize_field("metadata", &SerializeGroupMetadata(self))?;
        if !self.versions.is_empty() {
            group.serialize_field("versions", &self.versions)?;
        }
        group.end()
    }
}

struct SerializeGroupMetadata<'a>(&'a GroupDiscovery);

impl Serialize for SerializeGroupMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(group) = self;
        let mut metadata = serializer.serialize_struct("Metadata", 2)?;
        if !group.name.is_empty() {
            metadata.serialize_field("name", &group.name)?;
        }
        if group.creation_timestamp == CreationTimestamp::Null {
            metadata.serialize_field("creationTimestamp", &())?;
        }
        metadata.end()
    }
}

impl Serialize for DiscoveryFreshness {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for DiscoveryScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

struct SerializeKind<'a>(&'a GroupVersionKind);

impl Serialize for SerializeKind<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut kind = serializer.serialize_struct("GroupVersionKind", 3)?;
        kind.serialize_field("group", &self.0.group)?;
        kind.serialize_field("version", &self.0.version)?;
        kind.serialize_field("kind", &self.0.kind)?;
        kind.end()
    }
}

fn serialize_kind<S: Serializer>(kind: &Option<GroupVersionKind>, serializer: S) -> Result<S::Ok, S::Error> {
    kind.as_ref().map(SerializeKind).serialize(serializer)
}

fn serialize_kinds<S: Serializer>(kinds: &[GroupVersionKind], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(kinds.len()))?;
    kinds.iter().try_for_each(|kind| list.serialize_element(&SerializeKind(kind)))?;
    list.end()
}

/// serde passes a reference to the field.
fn is_empty(names: &SharedStrList) -> bool {
    names.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::groups_from_notation;

    #[test]
    fn filtered_and_concatenated_lists_equal_fresh_ones() {
        let whole = groups_from_notation("v1 pods:get | a/v1 xs:get | b/v1 ys:get");
        let part = whole.filter_map_groups(|group| (!group.name.is_empty()).then(|| group.clone()));
        assert_eq!(part, *groups_from_notation("a/v1 xs:get | b/v1 ys:get"));
        assert_eq!(part.merged_etag(), groups_from_notation("a/v1 xs:get | b/v1 ys:get").merged_etag());
        assert_eq!(GroupDiscoveryList::concat(&[&groups_from_notation("v1 pods:get"), &part]), *whole);
        let emptied = part
            .filter_map_groups(|group| Some(Arc::new(GroupDiscovery { versions: Vec::new(), ..(**group).clone() })));
        assert_eq!(emptied, GroupDiscoveryList::new(emptied.items().to_vec()));
        assert_ne!(emptied, part);
    }

    #[test]
    fn group_and_version_lookup_by_name() {
        let groups = groups_from_notation("a/v1 xs:get | a/v2 ys:get");
        assert_eq!(&*groups.version("a", "v2").unwrap().resources[0].name, "ys");
        assert!(groups.version("a", "v3").is_none() && groups.group("b").is_none());
    }
}
