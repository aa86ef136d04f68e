//! Parses `APIGroupDiscoveryList`, v2 and v2beta1, which have the same schema.

use std::sync::Arc;

use api::GroupVersionKind;
use api::media::AggregatedVersion;
use api::wire::Object;
use serde::{Deserialize, Deserializer};

use super::nullable_str::NullableStr;
use super::{ParseError, check_kind, parse_json, truncate_for_log};
use crate::aggregated::{KIND, api_version};
use crate::groups::{
    CreationTimestamp, DiscoveryFreshness, DiscoveryScope, GroupDiscovery, GroupDiscoveryList, ResourceDiscovery,
    SharedStrList, SubresourceDiscovery, VersionDiscovery,
};
use crate::intern::Interner;

/// Parses an aggregated document of either version.
///
/// Duplicate groups, versions and resources are kept: some aggregated API servers list a resource twice, and one of
/// them must not make a whole server's document unreadable.
pub fn parse_aggregated(bytes: &[u8]) -> Result<GroupDiscoveryList, ParseError> {
    let list: RawList<'_> = parse_json(bytes)?;
    check_kind(KIND, &list.kind)?;
    if ![AggregatedVersion::V2, AggregatedVersion::V2Beta1].map(api_version).contains(&&*list.api_version) {
        return Err(ParseError::WrongKind {
            expected: api_version(AggregatedVersion::V2),
            found: truncate_for_log(&list.api_version),
        });
    }
    let mut reader = AggregatedReader { interner: Interner::default() };
    let items = list.items.unwrap_or_default();
    let groups: Result<_, _> =
        items.iter().enumerate().map(|(at, group)| reader.read_group(group, at).map(Arc::new)).collect();
    Ok(GroupDiscoveryList::new(groups?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawList<'a> {
    #[serde(default, borrow)]
    kind: NullableStr<'a>,
    #[serde(default, borrow)]
    api_version: NullableStr<'a>,
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
    name: NullableStr<'a>,
    #[serde(default, deserialize_with = "deserialize_creation_timestamp")]
    creation_timestamp: CreationTimestamp,
}

#[derive(Deserialize)]
struct RawVersion<'a> {
    #[serde(default, borrow)]
    version: NullableStr<'a>,
    #[serde(default, borrow)]
    resources: Option<Vec<Object<RawResource<'a>>>>,
    #[serde(default, borrow)]
    freshness: NullableStr<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResource<'a> {
    #[serde(default, borrow)]
    resource: NullableStr<'a>,
    #[serde(default, borrow)]
    response_kind: Option<Object<RawKind<'a>>>,
    #[serde(default, borrow)]
    scope: NullableStr<'a>,
    #[serde(default, borrow)]
    singular_resource: NullableStr<'a>,
    #[serde(default, borrow)]
    verbs: Option<Vec<NullableStr<'a>>>,
    #[serde(default, borrow)]
    short_names: Option<Vec<NullableStr<'a>>>,
    #[serde(default, borrow)]
    categories: Option<Vec<NullableStr<'a>>>,
    #[serde(default, borrow)]
    subresources: Option<Vec<Object<RawSubresource<'a>>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSubresource<'a> {
    #[serde(default, borrow)]
    subresource: NullableStr<'a>,
    #[serde(default, borrow)]
    response_kind: Option<Object<RawKind<'a>>>,
    #[serde(default, borrow)]
    accepted_types: Option<Vec<Object<RawKind<'a>>>>,
    #[serde(default, borrow)]
    verbs: Option<Vec<NullableStr<'a>>>,
}

#[derive(Deserialize)]
struct RawKind<'a> {
    #[serde(default, borrow)]
    group: NullableStr<'a>,
    #[serde(default, borrow)]
    version: NullableStr<'a>,
    #[serde(default, borrow)]
    kind: NullableStr<'a>,
}

/// Called only if the key is present. Discovery documents never contain an actual time.
fn deserialize_creation_timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CreationTimestamp, D::Error> {
    let text = Option::<NullableStr<'de>>::deserialize(deserializer)?;
    Ok(if text.is_none() { CreationTimestamp::Null } else { CreationTimestamp::Absent })
}

/// Converts the parsed document to values with interned strings.
struct AggregatedReader {
    interner: Interner,
}

impl AggregatedReader {
    fn read_group(&mut self, raw: &RawGroup<'_>, at: usize) -> Result<GroupDiscovery, ParseError> {
        let empty = RawMetadata::default();
        let metadata = raw.metadata.as_deref().unwrap_or(&empty);
        let name = self.interner.intern(&metadata.name);
        let creation_timestamp = metadata.creation_timestamp;
        let mut versions = Vec::with_capacity(raw.versions.as_ref().map_or(0, Vec::len));
        for (version_at, version) in raw.versions.iter().flatten().enumerate() {
            if version.version.is_empty() {
                return Err(ParseError::MissingName { path: format!("items[{at}].versions[{version_at}].version") });
            }
            versions.push(self.read_version(version).map_err(|inside| inside.into_error(at, version_at))?);
        }
        Ok(GroupDiscovery { name, creation_timestamp, versions })
    }

    fn read_version(&mut self, raw: &RawVersion<'_>) -> Result<VersionDiscovery, MissingNamePosition> {
        let name = self.interner.intern(&raw.version);
        let resources = raw.resources.iter().flatten().enumerate();
        let resources: Result<_, _> =
            resources.map(|(at, resource)| self.read_resource(resource, at).map(Arc::new)).collect();
        let freshness = match &*raw.freshness {
            "Current" => DiscoveryFreshness::Current,
            "Stale" => DiscoveryFreshness::Stale,
            "" => DiscoveryFreshness::Unstated,
            other => DiscoveryFreshness::Other(self.interner.intern(other)),
        };
        Ok(VersionDiscovery { name, resources: resources?, freshness })
    }

    fn read_resource(&mut self, raw: &RawResource<'_>, at: usize) -> Result<ResourceDiscovery, MissingNamePosition> {
        if raw.resource.is_empty() {
            return Err(MissingNamePosition { resource: at, subresource: None });
        }
        let subresources = raw.subresources.iter().flatten().enumerate();
        let subresources: Result<_, _> = subresources
            .map(|(inside, subresource)| {
                self.read_subresource(subresource)
                    .ok_or(MissingNamePosition { resource: at, subresource: Some(inside) })
            })
            .collect();
        Ok(ResourceDiscovery {
            name: self.interner.intern(&raw.resource),
            response_kind: raw.response_kind.as_ref().map(|kind| self.read_kind(kind)),
            scope: match &*raw.scope {
                "Cluster" => DiscoveryScope::Cluster,
                "Namespaced" => DiscoveryScope::Namespaced,
                other => DiscoveryScope::Other(self.interner.intern(other)),
            },
            singular: self.interner.intern(&raw.singular_resource),
            verbs: self.read_strings(raw.verbs.as_deref()),
            short_names: self.read_strings(raw.short_names.as_deref()).unwrap_or_default(),
            categories: self.read_strings(raw.categories.as_deref()).unwrap_or_default(),
            subresources: subresources?,
        })
    }

    fn read_subresource(&mut self, raw: &RawSubresource<'_>) -> Option<SubresourceDiscovery> {
        if raw.subresource.is_empty() {
            return None;
        }
        Some(SubresourceDiscovery {
            name: self.interner.intern(&raw.subresource),
            response_kind: raw.response_kind.as_ref().map(|kind| self.read_kind(kind)),
            accepted_types: raw.accepted_types.iter().flatten().map(|kind| self.read_kind(kind)).collect(),
            verbs: self.read_strings(raw.verbs.as_deref()),
        })
    }

    fn read_kind(&mut self, raw: &RawKind<'_>) -> GroupVersionKind {
        let RawKind { group, version, kind } = raw;
        let mut name = |text: &NullableStr<'_>| self.interner.intern(text);
        GroupVersionKind { group: name(group), version: name(version), kind: name(kind) }
    }

    fn read_strings(&mut self, raw: Option<&[NullableStr<'_>]>) -> Option<SharedStrList> {
        raw.map(|texts| self.interner.intern_list(texts.iter().map(|text| &**text)))
    }
}

/// Returns the path of a resource or subresource without a name.
struct MissingNamePosition {
    resource: usize,
    subresource: Option<usize>,
}

impl MissingNamePosition {
    fn into_error(self, group: usize, version: usize) -> ParseError {
        let mut path = format!("items[{group}].versions[{version}].resources[{}]", self.resource);
        match self.subresource {
            Some(at) => path.push_str(&format!(".subresources[{at}].subresource")),
            None => path.push_str(".resource"),
        }
        ParseError::MissingName { path }
    }
}
