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
pub type Name = Arc<str>;

/// A list of strings that documents share; most resources have one of a few lists of verbs.
pub type Names = Arc<[Name]>;

/// One discovery document: the groups in the order of preference.
///
/// Immutable, because the digests of its groups are kept with it: documents are compared by those.
#[derive(Debug)]
pub struct Groups {
    items: Vec<Arc<Group>>,
    /// Those of the items, in their order.
    digests: Vec<Digest>,
    merged_etag: Etag,
    etag: OnceLock<Etag>,
}

/// One API group; the core group has an empty name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name of the group; empty for core.
    pub name: Name,
    /// Whether `metadata` carries a `creationTimestamp`.
    pub creation_timestamp: CreationTimestamp,
    /// The versions, the preferred one first.
    pub versions: Vec<Version>,
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
pub struct Version {
    /// The name of the version, such as `v1`.
    #[serde(rename = "version")]
    pub name: Name,
    /// The resources in their order on the wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Arc<Resource>>,
    /// Whether the server could confirm this version when it wrote the document.
    #[serde(skip_serializing_if = "Freshness::is_unstated")]
    pub freshness: Freshness,
}

/// Whether a version is known to be served, the best first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freshness {
    /// Served.
    Current,
    /// A word that no release we know uses; clients take it for current.
    Other(Name),
    /// Nothing was said; clients take it for current.
    Unstated,
    /// Not confirmed; clients report the version as failed.
    Stale,
}

/// One resource of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// The plural name.
    #[serde(rename = "resource")]
    pub name: Name,
    /// What the resource answers with; an empty group and version mean those that contain the resource.
    #[serde(serialize_with = "serialize_kind", skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// The singular name; may be empty.
    #[serde(rename = "singularResource")]
    pub singular: Name,
    /// The verbs; `None` is the wire's `null`, which a parent that is listed only for its subresource has.
    pub verbs: Option<Names>,
    /// Short names for the command line.
    #[serde(skip_serializing_if = "is_empty")]
    pub short_names: Names,
    /// Categories such as `all`.
    #[serde(skip_serializing_if = "is_empty")]
    pub categories: Names,
    /// The subresources in their order on the wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<Subresource>,
}

/// Whether the objects of a resource live in namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One per cluster.
    Cluster,
    /// In a namespace.
    Namespaced,
    /// A word that no release we know uses, kept as it came.
    Other(Name),
}

/// One subresource of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subresource {
    /// The name alone, such as `scale`.
    #[serde(rename = "subresource")]
    pub name: Name,
    /// What the subresource answers with; an empty group and version mean those that contain the resource.
    #[serde(serialize_with = "serialize_kind", skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    /// What it accepts in a request, if that is more than the response kind.
    #[serde(serialize_with = "serialize_kinds", skip_serializing_if = "Vec::is_empty")]
    pub accepted_types: Vec<GroupVersionKind>,
    /// The verbs; `None` is the wire's `null`.
    pub verbs: Option<Names>,
}

/// The entity tag of a document. Equal documents have equal tags, whatever they are encoded in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Etag(pub(crate) [u8; 64]);

/// What a group says, in few bytes: SHA-256 of its JSON, which processors have instructions for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest(pub(crate) [u8; 32]);

/// A group with its digest.
#[derive(Clone, Debug)]
pub(crate) struct Hashed {
    pub(crate) group: Arc<Group>,
    pub(crate) digest: Digest,
}

impl Hashed {
    pub(crate) fn new(group: Arc<Group>) -> Self {
        let digest = aggregated::digest_of(&group);
        Self { group, digest }
    }
}

impl Groups {
    /// A document of these groups. Each is hashed here, so that comparing documents later costs nothing.
    pub fn new(items: Vec<Arc<Group>>) -> Self {
        Self::from_hashed(items.into_iter().map(Hashed::new))
    }

    /// A document of groups that were hashed before.
    pub(crate) fn from_hashed(groups: impl Iterator<Item = Hashed>) -> Self {
        let (items, digests): (Vec<_>, Vec<_>) = groups.map(|Hashed { group, digest }| (group, digest)).unzip();
        let merged_etag = aggregated::etag_of_digests(&digests);
        Self { items, digests, merged_etag, etag: OnceLock::new() }
    }

    /// The groups of several documents, one document after the other. Nothing is hashed anew.
    pub fn concat(documents: &[&Self]) -> Self {
        Self::from_hashed(documents.iter().flat_map(|document| document.hashed()))
    }

    /// A document of what becomes of each group; `None` leaves it out. What stays as it is is not hashed anew.
    pub fn map(&self, change: impl Fn(&Arc<Group>) -> Option<Arc<Group>>) -> Self {
        let changed = |hashed: Hashed| match change(&hashed.group)? {
            same if Arc::ptr_eq(&same, &hashed.group) => Some(hashed),
            other => Some(Hashed::new(other)),
        };
        Self::from_hashed(self.hashed().filter_map(changed))
    }

    /// The groups with their digests.
    pub(crate) fn hashed(&self) -> impl Iterator<Item = Hashed> {
        let pairs = self.items.iter().zip(&self.digests);
        pairs.map(|(group, digest)| Hashed { group: group.clone(), digest: *digest })
    }

    /// The groups in the order of preference.
    pub fn items(&self) -> &[Arc<Group>] {
        &self.items
    }

    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.items.iter().find(|group| &*group.name == name)
    }

    /// The version of this name in the group of this name.
    pub fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?.versions.iter().find(|candidate| &*candidate.name == version)
    }

    /// The entity tag as one server's document, the same that a kube-apiserver sends with it.
    pub fn etag(&self) -> Etag {
        *self.etag.get_or_init(|| aggregated::etag_of(self))
    }

    /// The same, for one who has just computed it.
    pub(crate) fn etag_or(&self, etag: impl FnOnce() -> Etag) -> Etag {
        *self.etag.get_or_init(etag)
    }

    /// The entity tag as a document of several servers. It is made from the digests of the groups, so that a change of one
    /// group costs no more than that group; equal content has an equal tag on every server.
    pub fn merged_etag(&self) -> Etag {
        self.merged_etag
    }

    /// Every version with its group, in order.
    pub fn versions(&self) -> impl Iterator<Item = (&Group, &Version)> {
        self.items.iter().flat_map(|group| group.versions.iter().map(|version| (&**group, version)))
    }
}

/// By content: the digests are one.
impl PartialEq for Groups {
    fn eq(&self, other: &Self) -> bool {
        self.digests == other.digests
    }
}

impl Eq for Groups {}

impl Freshness {
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

impl From<api::Scope> for Scope {
    fn from(scope: api::Scope) -> Self {
        match scope {
            api::Scope::Cluster => Self::Cluster,
            api::Scope::Namespaced => Self::Namespaced,
        }
    }
}

impl Scope {
    /// The scope, unless its word is unknown to this release.
    pub fn known(&self) -> Option<api::Scope> {
        match self {
            Self::Cluster => Some(api::Scope::Cluster),
            Self::Namespaced => Some(api::Scope::Namespaced),
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

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As the header has it: upper-case hexadecimal digits in quotes.
impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
        f.write_str("\"")
    }
}

impl fmt::Debug for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut group = serializer.serialize_struct("Group", 2)?;
        group.serialize_field("metadata", &Metadata(self))?;
        if !self.versions.is_empty() {
            group.serialize_field("versions", &self.versions)?;
        }
        group.end()
    }
}

struct Metadata<'a>(&'a Group);

impl Serialize for Metadata<'_> {
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

impl Serialize for Freshness {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

struct Kind<'a>(&'a GroupVersionKind);

impl Serialize for Kind<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut kind = serializer.serialize_struct("GroupVersionKind", 3)?;
        kind.serialize_field("group", &self.0.group)?;
        kind.serialize_field("version", &self.0.version)?;
        kind.serialize_field("kind", &self.0.kind)?;
        kind.end()
    }
}

fn serialize_kind<S: Serializer>(kind: &Option<GroupVersionKind>, serializer: S) -> Result<S::Ok, S::Error> {
    kind.as_ref().map(Kind).serialize(serializer)
}

fn serialize_kinds<S: Serializer>(kinds: &[GroupVersionKind], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(kinds.len()))?;
    kinds.iter().try_for_each(|kind| list.serialize_element(&Kind(kind)))?;
    list.end()
}

/// For serde, which passes a reference to the field.
fn is_empty(names: &Names) -> bool {
    names.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    #[test]
    fn parts_and_wholes_have_the_digests_of_documents_made_anew() {
        let whole = document("v1 pods:get | a/v1 xs:get | b/v1 ys:get");
        let part = whole.map(|group| (!group.name.is_empty()).then(|| group.clone()));
        assert_eq!(part, *document("a/v1 xs:get | b/v1 ys:get"));
        assert_eq!(part.merged_etag(), document("a/v1 xs:get | b/v1 ys:get").merged_etag());
        assert_eq!(Groups::concat(&[&document("v1 pods:get"), &part]), *whole);
        let emptied = part.map(|group| Some(Arc::new(Group { versions: Vec::new(), ..(**group).clone() })));
        assert_eq!(emptied, Groups::new(emptied.items().to_vec()));
        assert_ne!(emptied, part);
    }

    #[test]
    fn things_are_found_by_name() {
        let groups = document("a/v1 xs:get | a/v2 ys:get");
        assert_eq!(&*groups.version("a", "v2").unwrap().resources[0].name, "ys");
        assert!(groups.version("a", "v3").is_none() && groups.group("b").is_none());
    }
}
