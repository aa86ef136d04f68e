//! Legacy (unaggregated) discovery documents: `/api`, `/apis`, `/apis/<group>` and `/apis/<group>/<version>`.
//!
//! The field order is Go's, which is the key order of the JSON. Legacy documents have no ETag but contain
//! `storageVersionHash`, which aggregated ones lack.

mod convert;

use api::json::to_go_json;
use api::wire::{null_is_default, object, objects};
use aws_lc_rs::digest;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

pub use convert::{groups_from_api, groups_from_apis};

use crate::document::EncodedDocument;
use crate::groups::{SharedStr, SharedStrList};

/// `/api`: the versions of the core group, and server addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiVersions {
    /// Always `v1` alone on real servers.
    #[serde(deserialize_with = "null_is_default")]
    pub versions: SharedStrList,
    /// The server address per client network.
    #[serde(rename = "serverAddressByClientCIDRs", deserialize_with = "objects")]
    pub server_addresses: Vec<ServerAddress>,
}

/// The server address for clients of one network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerAddress {
    /// The network in CIDR notation, such as `0.0.0.0/0`.
    #[serde(rename = "clientCIDR", deserialize_with = "null_is_default")]
    pub client_cidr: SharedStr,
    /// Host and port.
    #[serde(rename = "serverAddress", deserialize_with = "null_is_default")]
    pub server_address: SharedStr,
}

/// `/apis`: every group except core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiGroupList {
    /// In order of preference.
    #[serde(deserialize_with = "objects")]
    pub groups: Vec<ApiGroup>,
}

/// `/apis/<group>`: one group and its versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiGroup {
    /// Never empty; the core group is in `/api`.
    #[serde(deserialize_with = "null_is_default")]
    pub name: SharedStr,
    /// The preferred version first.
    #[serde(deserialize_with = "objects")]
    pub versions: Vec<ApiGroupVersion>,
    /// The version clients should use.
    #[serde(deserialize_with = "object")]
    pub preferred_version: ApiGroupVersion,
    /// The server address per client network; absent on real servers.
    #[serde(
        rename = "serverAddressByClientCIDRs",
        deserialize_with = "objects",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub server_addresses: Vec<ServerAddress>,
}

/// A version of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiGroupVersion {
    /// Such as `apps/v1`.
    #[serde(deserialize_with = "null_is_default")]
    pub group_version: SharedStr,
    /// Such as `v1`.
    #[serde(deserialize_with = "null_is_default")]
    pub version: SharedStr,
}

/// `/apis/<group>/<version>` and `/api/v1`: the resources of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiResourceList {
    /// Such as `apps/v1`, or `v1` for core.
    #[serde(deserialize_with = "null_is_default")]
    pub group_version: SharedStr,
    /// Resources and subresources in one list.
    #[serde(deserialize_with = "objects")]
    pub resources: Vec<ApiResource>,
}

/// A resource or subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiResource {
    /// `deployments`, or `deployments/scale`.
    #[serde(deserialize_with = "null_is_default")]
    pub name: SharedStr,
    /// Empty for subresources.
    #[serde(deserialize_with = "null_is_default")]
    pub singular_name: SharedStr,
    /// Whether objects have a namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub namespaced: bool,
    /// The group of the kind, if it differs from the list's.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub group: SharedStr,
    /// The version of the kind, if group and version differ from the list's.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub version: SharedStr,
    /// The kind of responses.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: SharedStr,
    /// `None` is JSON `null`.
    pub verbs: Option<SharedStrList>,
    /// Abbreviations for the command line.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "<[SharedStr]>::is_empty")]
    pub short_names: SharedStrList,
    /// Such as `all`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "<[SharedStr]>::is_empty")]
    pub categories: SharedStrList,
    /// Identifies the storage version, see [`storage_version_hash`]; empty if the resource is not stored.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub storage_version_hash: SharedStr,
}

impl ApiVersions {
    pub(crate) const KIND: &str = "APIVersions";

    /// Encodes the document.
    pub fn to_document(&self) -> EncodedDocument {
        encode_document(Self::KIND, TypeMetaVersion::Unstated, self)
    }
}

impl ApiGroupList {
    pub(crate) const KIND: &str = "APIGroupList";

    /// Encodes the document.
    pub fn to_document(&self) -> EncodedDocument {
        encode_document(Self::KIND, TypeMetaVersion::V1, self)
    }
}

impl ApiGroup {
    pub(crate) const KIND: &str = "APIGroup";

    /// Encodes the document.
    pub fn to_document(&self) -> EncodedDocument {
        encode_document(Self::KIND, TypeMetaVersion::V1, self)
    }
}

impl ApiResourceList {
    pub(crate) const KIND: &str = "APIResourceList";

    /// Encodes the document. As on real servers, `apiVersion` is omitted for the core group.
    pub fn to_document(&self) -> EncodedDocument {
        let is_core = !self.group_version.contains('/');
        encode_document(Self::KIND, if is_core { TypeMetaVersion::Unstated } else { TypeMetaVersion::V1 }, self)
    }
}

/// Computes the hash by which clients notice a change of the storage version.
///
/// Group, version and kind are those of the encoding in storage; the core group is empty.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let digest = digest::digest(&digest::SHA256, format!("{group}/{version}/{kind}").as_bytes());
    BASE64_STANDARD.encode(&digest.as_ref()[..8])
}

#[derive(Clone, Copy)]
enum TypeMetaVersion {
    V1,
    /// Documents of the core group have no `apiVersion`.
    Unstated,
}

/// Serializes a value with its kind in front, like Go's embedded `TypeMeta`.
fn encode_document(kind: &str, api_version: TypeMetaVersion, value: &impl Serialize) -> EncodedDocument {
    let mut body = format!(r#"{{"kind":"{kind}","#).into_bytes();
    match api_version {
        TypeMetaVersion::V1 => body.extend_from_slice(br#""apiVersion":"v1","#),
        TypeMetaVersion::Unstated => {}
    }
    body.extend_from_slice(&to_go_json(value)[1..]);
    body.push(b'\n');
    EncodedDocument::new(body, "application/json")
}

#[cfg(test)]
mod tests;
