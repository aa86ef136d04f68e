//! The values of a discovery document: groups, their versions, resources and subresources.
//!
//! Field by field what `apidiscovery.k8s.io/v2` says. Serializing gives the wire form: the declaration order of the fields is
//! the key order on the wire. Strings and equal resources are shared, so that many servers' documents cost little more than one.

use std::collections::HashMap;
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
/// Immutable, because its [`Etag`] is kept with it: documents are compared by that.
#[derive(Debug)]
pub struct Groups {
    items: Vec<Arc<Group>>,
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

/// The entity tag of a document: SHA-512 of its JSON. Equal documents have equal tags, whatever they are encoded in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Etag(pub(crate) [u8; 64]);

impl Groups {
    /// A document of these groups. Its ETag is computed here, so that comparing documents later costs nothing.
    pub fn new(items: Vec<Arc<Group>>) -> Self {
        let groups = Self::without_etag(items);
        groups.etag();
        groups
    }

    /// A document that will be encoded next, which gives the ETag on the way.
    pub(crate) fn without_etag(items: Vec<Arc<Group>>) -> Self {
        Self { items, etag: OnceLock::new() }
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

    /// The entity tag, the same that a kube-apiserver sends with this document.
    pub fn etag(&self) -> Etag {
        *self.etag.get_or_init(|| aggregated::etag_of(self))
    }

    /// The entity tag, for one who has just computed it.
    pub(crate) fn etag_or(&self, etag: impl FnOnce() -> Etag) -> Etag {
        *self.etag.get_or_init(etag)
    }

    /// This document in the memory of documents already known: an equal one itself, or else their equal resources.
    pub fn sharing_with(self, known: &[Arc<Groups>]) -> Arc<Groups> {
        if let Some(equal) = known.iter().find(|known| known.etag() == self.etag()) {
            return equal.clone();
        }
        let Self { mut items, etag } = self;
        let known = resources_of(known);
        for group in &mut items {
            let Group { name: group_name, versions, .. } = Arc::make_mut(group);
            for version in versions {
                share_resources(&mut version.resources, |resource| {
                    known.get(&(group_name, &version.name, resource)).copied()
                });
            }
        }
        Arc::new(Self { items, etag })
    }

    /// Every version with its group, in order.
    pub fn versions(&self) -> impl Iterator<Item = (&Group, &Version)> {
        self.items.iter().flat_map(|group| group.versions.iter().map(|version| (&**group, version)))
    }
}

fn resources_of(known: &[Arc<Groups>]) -> HashMap<(&str, &str, &str), &Arc<Resource>> {
    let versions = known.iter().flat_map(|groups| groups.versions());
    versions
        .flat_map(|(group, version)| {
            version.resources.iter().map(|resource| ((&*group.name, &*version.name, &*resource.name), resource))
        })
        .collect()
}

fn share_resources<'a>(resources: &mut [Arc<Resource>], known: impl Fn(&str) -> Option<&'a Arc<Resource>>) {
    for resource in resources {
        match known(&resource.name) {
            Some(shared) if shared == resource => *resource = shared.clone(),
            Some(_) | None => {}
        }
    }
}

/// By content: the ETag is one.
impl PartialEq for Groups {
    fn eq(&self, other: &Self) -> bool {
        self.etag() == other.etag()
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

impl Scope {
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
    fn a_document_takes_the_memory_of_equal_things_already_known() {
        let known = document("a/v1 xs:get ys:get | b/v1 xs:get");
        let equal = Arc::into_inner(document("a/v1 xs:get ys:get | b/v1 xs:get")).unwrap();
        assert!(Arc::ptr_eq(&equal.sharing_with(std::slice::from_ref(&known)), &known));

        let other =
            Arc::into_inner(document("a/v1 xs:get ys:list zs:get")).unwrap().sharing_with(std::slice::from_ref(&known));
        let [of_other, of_known] = [&other, &known].map(|groups| &groups.version("a", "v1").unwrap().resources);
        assert!(Arc::ptr_eq(&of_other[0], &of_known[0]));
        assert_eq!(other, document("a/v1 xs:get ys:list zs:get"));
        assert_eq!(other.etag(), aggregated::etag_of(&other));
    }

    #[test]
    fn things_are_found_by_name() {
        let groups = document("a/v1 xs:get | a/v2 ys:get");
        assert_eq!(&*groups.version("a", "v2").unwrap().resources[0].name, "ys");
        assert!(groups.version("a", "v3").is_none() && groups.group("b").is_none());
    }
}
