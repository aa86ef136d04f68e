//! Reading `APIGroupDiscoveryList`, v2 and v2beta1, which have the same shape.

use std::sync::Arc;

use api::GroupVersionKind;
use api::media::AggregatedVersion;
use api::wire::Object;
use serde::{Deserialize, Deserializer};

use super::text::Text;
use super::{ParseError, check_kind, read, shorten};
use crate::aggregated::{KIND, api_version};
use crate::groups::{CreationTimestamp, Freshness, Group, Groups, Names, Resource, Scope, Subresource, Version};
use crate::intern::Interner;

/// Reads an aggregated document, in either version.
///
/// Duplicate groups, versions or resources stay as they are: aggregated API servers are known to list a resource twice, and one
/// of them must not make a whole server unreadable.
pub fn parse_aggregated(bytes: &[u8]) -> Result<Groups, ParseError> {
    let list: RawList<'_> = read(bytes)?;
    check_kind(KIND, &list.kind)?;
    if ![AggregatedVersion::V2, AggregatedVersion::V2Beta1].map(api_version).contains(&&*list.api_version) {
        return Err(ParseError::Kind {
            expected: api_version(AggregatedVersion::V2),
            found: shorten(&list.api_version),
        });
    }
    let mut reader = Reader { interner: Interner::default() };
    let items = list.items.unwrap_or_default();
    let groups: Result<_, _> =
        items.iter().enumerate().map(|(at, group)| reader.group(group, at).map(Arc::new)).collect();
    Ok(Groups::new(groups?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawList<'a> {
    #[serde(default, borrow)]
    kind: Text<'a>,
    #[serde(default, borrow)]
    api_version: Text<'a>,
    #[serde(default, borrow)]
    items: Option<Vec<Object<RawGroup<'a>>>>,
}

#[derive(Deserialize)]
struct RawGroup<'a> {
    #[serde(default, borrow)]
    metadata: Option<Object<RawMetadata<'a>>>,
    #[serde(default, borrow)]
    versions: Option<Vec<Object<RawVersion<'a>>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(default, borrow)]
    name: Text<'a>,
    #[serde(default, deserialize_with = "creation_timestamp")]
    creation_timestamp: CreationTimestamp,
}

#[derive(Deserialize)]
struct RawVersion<'a> {
    #[serde(default, borrow)]
    version: Text<'a>,
    #[serde(default, borrow)]
    resources: Option<Vec<Object<RawResource<'a>>>>,
    #[serde(default, borrow)]
    freshness: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResource<'a> {
    #[serde(default, borrow)]
    resource: Text<'a>,
    #[serde(default, borrow)]
    response_kind: Option<Object<RawKind<'a>>>,
    #[serde(default, borrow)]
    scope: Text<'a>,
    #[serde(default, borrow)]
    singular_resource: Text<'a>,
    #[serde(default, borrow)]
    verbs: Option<Vec<Text<'a>>>,
    #[serde(default, borrow)]
    short_names: Option<Vec<Text<'a>>>,
    #[serde(default, borrow)]
    categories: Option<Vec<Text<'a>>>,
    #[serde(default, borrow)]
    subresources: Option<Vec<Object<RawSubresource<'a>>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSubresource<'a> {
    #[serde(default, borrow)]
    subresource: Text<'a>,
    #[serde(default, borrow)]
    response_kind: Option<Object<RawKind<'a>>>,
    #[serde(default, borrow)]
    accepted_types: Option<Vec<Object<RawKind<'a>>>>,
    #[serde(default, borrow)]
    verbs: Option<Vec<Text<'a>>>,
}

#[derive(Deserialize)]
struct RawKind<'a> {
    #[serde(default, borrow)]
    group: Text<'a>,
    #[serde(default, borrow)]
    version: Text<'a>,
    #[serde(default, borrow)]
    kind: Text<'a>,
}

/// Called only if the key is there. A real time stands in no discovery document and means nothing in one.
fn creation_timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CreationTimestamp, D::Error> {
    let text = Option::<Text<'de>>::deserialize(deserializer)?;
    Ok(if text.is_none() { CreationTimestamp::Null } else { CreationTimestamp::Absent })
}

/// From what the document says to values with shared strings.
struct Reader {
    interner: Interner,
}

impl Reader {
    fn group(&mut self, raw: &RawGroup<'_>, at: usize) -> Result<Group, ParseError> {
        let empty = RawMetadata::default();
        let metadata = raw.metadata.as_deref().unwrap_or(&empty);
        let name = self.interner.name(&metadata.name);
        let creation_timestamp = metadata.creation_timestamp;
        let mut versions = Vec::with_capacity(raw.versions.as_ref().map_or(0, Vec::len));
        for (version_at, version) in raw.versions.iter().flatten().enumerate() {
            if version.version.is_empty() {
                return Err(ParseError::Unnamed { path: format!("items[{at}].versions[{version_at}].version") });
            }
            versions.push(self.version(version).map_err(|inside| inside.within(at, version_at))?);
        }
        Ok(Group { name, creation_timestamp, versions })
    }

    fn version(&mut self, raw: &RawVersion<'_>) -> Result<Version, Nameless> {
        let name = self.interner.name(&raw.version);
        let resources = raw.resources.iter().flatten().enumerate();
        let resources: Result<_, _> =
            resources.map(|(at, resource)| self.resource(resource, at).map(Arc::new)).collect();
        let freshness = match &*raw.freshness {
            "Current" => Freshness::Current,
            "Stale" => Freshness::Stale,
            "" => Freshness::Unstated,
            other => Freshness::Other(self.interner.name(other)),
        };
        Ok(Version { name, resources: resources?, freshness })
    }

    fn resource(&mut self, raw: &RawResource<'_>, at: usize) -> Result<Resource, Nameless> {
        if raw.resource.is_empty() {
            return Err(Nameless { resource: at, subresource: None });
        }
        let subresources = raw.subresources.iter().flatten().enumerate();
        let subresources: Result<_, _> = subresources
            .map(|(inside, subresource)| {
                self.subresource(subresource).ok_or(Nameless { resource: at, subresource: Some(inside) })
            })
            .collect();
        Ok(Resource {
            name: self.interner.name(&raw.resource),
            response_kind: raw.response_kind.as_ref().map(|kind| self.kind(kind)),
            scope: match &*raw.scope {
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                other => Scope::Other(self.interner.name(other)),
            },
            singular: self.interner.name(&raw.singular_resource),
            verbs: self.list(raw.verbs.as_deref()),
            short_names: self.list(raw.short_names.as_deref()).unwrap_or_default(),
            categories: self.list(raw.categories.as_deref()).unwrap_or_default(),
            subresources: subresources?,
        })
    }

    fn subresource(&mut self, raw: &RawSubresource<'_>) -> Option<Subresource> {
        if raw.subresource.is_empty() {
            return None;
        }
        Some(Subresource {
            name: self.interner.name(&raw.subresource),
            response_kind: raw.response_kind.as_ref().map(|kind| self.kind(kind)),
            accepted_types: raw.accepted_types.iter().flatten().map(|kind| self.kind(kind)).collect(),
            verbs: self.list(raw.verbs.as_deref()),
        })
    }

    fn kind(&mut self, raw: &RawKind<'_>) -> GroupVersionKind {
        let RawKind { group, version, kind } = raw;
        let mut name = |text: &Text<'_>| self.interner.name(text);
        GroupVersionKind { group: name(group), version: name(version), kind: name(kind) }
    }

    fn list(&mut self, raw: Option<&[Text<'_>]>) -> Option<Names> {
        raw.map(|texts| self.interner.names(texts.iter().map(|text| &**text)))
    }
}

/// The position of a resource or subresource without a name.
struct Nameless {
    resource: usize,
    subresource: Option<usize>,
}

impl Nameless {
    fn within(self, group: usize, version: usize) -> ParseError {
        let mut path = format!("items[{group}].versions[{version}].resources[{}]", self.resource);
        match self.subresource {
            Some(at) => path.push_str(&format!(".subresources[{at}].subresource")),
            None => path.push_str(".resource"),
        }
        ParseError::Unnamed { path }
    }
}
