//! The values of a discovery document: groups, their versions, resources and subresources.
//!
//! Field by field what `apidiscovery.k8s.io/v2` says. Serializing gives the wire form: the declaration order of the fields is
//! the key order on the wire. Equal strings of a document are one, and what documents take from each other they share.

use std::fmt;
use std::sync::{Arc, OnceLock};

use api::GroupVersionKind;
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use crate::aggregated;

/// A string that documents share.
pub type SharedStr = Arc<str>;

/// A list of strings that documents share; most resources have one of a few lists of verbs.
pub type SharedStrList = Arc<[SharedStr]>;

/// One discovery document: the groups in the order of preference.
///
/// Immutable, because the digests of its groups are kept with it: documents are compared by those.
#[derive(Debug)]
pub struct GroupDiscoveryList {
    items: Vec<Arc<GroupDiscovery>>,
    /// Those of the items, in their order.
    digests: Vec<GroupDigest>,
    merged_etag: DiscoveryEtag,
    etag: OnceLock<DiscoveryEtag>,
}

/// One API group; the core group has an empty name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDiscovery {
    /// The name of the group; empty for core.
    pub name: SharedStr,
    /// Whether `metadata` carries a `creationTimestamp`.
    pub creation_timestamp: CreationTimestamp,
    /// The versions, the preferred one first.
    pub versions: Vec<VersionDiscovery>,
}

/// What a group's metadata says of its creation: servers up to 1.33 wrote a `null`, later ones nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CreationTimestamp {
    /// Nothing, as servers from 1.34 write it.
    #[default]
    Absent,
    /// `"creationTimestamp": null`, as servers up to 1.33 write it.
    Null,
}

/// One version of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionDiscovery {
    /// The name of the version, such as `v1`.
    #[serde(rename = "version")]
    pub name: SharedStr,
    /// The resources in their order on the wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Arc<ResourceDiscovery>>,
    /// Whether the server could confirm this version when it wrote the document.
    #[serde(skip_serializing_if = "DiscoveryFreshness::is_unstated")]
    pub freshness: DiscoveryFreshness,
}

/// Whether a version is known to be served, the best first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscoveryFreshness {
    /// Served.
    Current,
    /// A word that no release we know uses; clients take it for current.
    Other(SharedStr),
    /// Nothing was said; clients take it for current.
    Unstated,
    /// Not confirmed; clients report the version as failed.
    Stale,
}

/// One resource of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDiscovery {
    /// The plural name.
    #[serde(rename = "resource")]
    pub name: SharedStr,
    /// What the resource answers with; an empty group and version mean those that contain the resource.
    #[serde(serialize_with = "serialize_kind", skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    /// Whether objects live in namespaces.
    pub scope: DiscoveryScope,
    /// The singular name; may be empty.
    #[serde(rename = "singularResource")]
    pub singular: SharedStr,
    /// The verbs; `None` is the wire's `null`, which a parent that is listed only for its subresource has.
    pub verbs: Option<SharedStrList>,
    /// Short names for the command line.
    #[serde(skip_serializing_if = "is_empty")]
    pub short_names: SharedStrList,
    /// Categories such as `all`.
    #[serde(skip_serializing_if = "is_empty")]
    pub categories: SharedStrList,
    /// The subresources in their order on the wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<SubresourceDiscovery>,
}

/// Whether the objects of a resource live in namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscoveryScope {
    /// One per cluster.
    Cluster,
    /// In a namespace.
    Namespaced,
    /// A word that no release we know uses, kept as it came.
    Other(SharedStr),
}

/// One subresource of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubresourceDiscovery {
    /// The name alone, such as `scale`.
    #[serde(rename = "subresource")]
    pub name: SharedStr,
    /// What the subresource answers with; an empty group and version mean those that contain the resource.
    #[serde(serialize_with = "serialize_kind", skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    /// What it accepts in a request, if that is more than the response kind.
    #[serde(serialize_with = "serialize_kinds", skip_serializing_if = "Vec::is_empty")]
    pub accepted_types: Vec<GroupVersionKind>,
    /// The verbs; `None` is the wire's `null`.
    pub verbs: Option<SharedStrList>,
}

/// The entity tag of a document. Equal documents have equal tags, whatever they are encoded in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiscoveryEtag(pub(crate) [u8; 64]);

/// What a group says, in few bytes: SHA-256 of its JSON, which processors have instructions for.
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
    /// A document of these groups. Each is hashed here, so that comparing documents later costs nothing.
    pub fn new(items: Vec<Arc<GroupDiscovery>>) -> Self {
        Self::from_hashed(items.into_iter().map(HashedGroup::new))
    }

    /// A document of groups that were hashed before.
    pub(crate) fn from_hashed(groups: impl Iterator<Item = HashedGroup>) -> Self {
        let (items, digests): (Vec<_>, Vec<_>) = groups.map(|HashedGroup { group, digest }| (group, digest)).unzip();
        let merged_etag = aggregated::etag_of_digests(&digests);
        Self { items, digests, merged_etag, etag: OnceLock::new() }
    }

    /// The groups of several documents, one document after the other. Nothing is hashed anew.
    pub fn concat(documents: &[&Self]) -> Self {
        Self::from_hashed(documents.iter().flat_map(|document| document.hashed_groups()))
    }

    /// A document of what becomes of each group; `None` leaves it out. What stays as it is is not hashed anew.
    pub fn filter_map_groups(&self, change: impl Fn(&Arc<GroupDiscovery>) -> Option<Arc<GroupDiscovery>>) -> Self {
        let changed = |hashed: HashedGroup| match change(&hashed.group)? {
            same if Arc::ptr_eq(&same, &hashed.group) => Some(hashed),
            other => Some(HashedGroup::new(other)),
        };
        Self::from_hashed(self.hashed_groups().filter_map(changed))
    }

    /// The groups with their digests.
    pub(crate) fn hashed_groups(&self) -> impl Iterator<Item = HashedGroup> {
        let pairs = self.items.iter().zip(&self.digests);
        pairs.map(|(group, digest)| HashedGroup { group: group.clone(), digest: *digest })
    }

    /// The groups in the order of preference.
    pub fn items(&self) -> &[Arc<GroupDiscovery>] {
        &self.items
    }

    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&Arc<GroupDiscovery>> {
        self.items.iter().find(|group| &*group.name == name)
    }

    /// The version of this name in the group of this name.
    pub fn version(&self, group: &str, version: &str) -> Option<&VersionDiscovery> {
        self.group(group)?.versions.iter().find(|candidate| &*candidate.name == version)
    }

    /// The entity tag as one server's document, the same that a kube-apiserver sends with it.
    pub fn etag(&self) -> DiscoveryEtag {
        *self.etag.get_or_init(|| aggregated::etag_of_groups(self))
    }

    /// The same, for one who has just computed it.
    pub(crate) fn etag_or_init(&self, etag: impl FnOnce() -> DiscoveryEtag) -> DiscoveryEtag {
        *self.etag.get_or_init(etag)
    }

    /// The entity tag as a document of several servers. It is made from the digests of the groups, so that a change of one
    /// group costs no more than that group; equal content has an equal tag on every server.
    pub fn merged_etag(&self) -> DiscoveryEtag {
        self.merged_etag
    }

    /// Every version with its group, in order.
    pub fn versions(&self) -> impl Iterator<Item = (&GroupDiscovery, &VersionDiscovery)> {
        self.items.iter().flat_map(|group| group.versions.iter().map(|version| (&**group, version)))
    }
}

/// By content: the digests are one.
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

    /// The word on the wire, empty if there is none.
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
    /// The scope, unless its word is unknown to this release.
    pub fn as_kind_scope(&self) -> Option<api::KindScope> {
        match self {
            Self::Cluster => Some(api::KindScope::Cluster),
            Self::Namespaced => Some(api::KindScope::Namespaced),
            Self::Other(_) => None,
        }
    }

    /// The word on the wire.
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

/// As the header has it: upper-case hexadecimal digits in quotes.
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

/// For serde, which passes a reference to the field.
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
