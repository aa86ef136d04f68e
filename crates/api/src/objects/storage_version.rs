//! `internal.apiserver.k8s.io/v1alpha1` StorageVersion: the version in which each server encodes a resource.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::wire_constant;
use crate::metadata::{ObjectMeta, is_zero};
use crate::time::Time;
use crate::wire::null_is_default;

wire_constant! {
    /// The kind of a [`StorageVersion`].
    StorageVersionKind = "StorageVersion"
}
wire_constant! {
    /// The group and version of a [`StorageVersion`].
    ApiServerInternalV1Alpha1 = "internal.apiserver.k8s.io/v1alpha1"
}

/// The storage versions of one resource. The name is `<group>.<resource>`, with `core` for the core group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersion {
    /// Always `StorageVersion`.
    #[serde(default)]
    pub kind: StorageVersionKind,
    /// Always `internal.apiserver.k8s.io/v1alpha1`.
    #[serde(default)]
    pub api_version: ApiServerInternalV1Alpha1,
    /// Cluster-scoped.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Always written although empty in every release.
    #[serde(default)]
    pub spec: Map<String, Value>,
    /// Written by all servers.
    #[serde(default)]
    pub status: StorageVersionStatus,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One entry per server, and whether they agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersionStatus {
    /// One entry per server.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub storage_versions: Vec<ServerStorageVersion>,
    /// Set if there are entries and all have the same encoding version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_encoding_version: Option<String>,
    /// Contains `AllEncodingVersionsEqual`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StorageVersionCondition>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The version that all entries name; `None` if they differ or there is none.
pub fn common_encoding_version(entries: &[ServerStorageVersion]) -> Option<&str> {
    let (first, rest) = entries.split_first()?;
    let is_common = rest.iter().all(|entry| entry.encoding_version == first.encoding_version);
    is_common.then_some(&*first.encoding_version)
}

/// The versions of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStorageVersion {
    /// The identity of the server.
    #[serde(
        default,
        rename = "apiServerID",
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub api_server_id: String,
    /// The version it writes, as in `apiVersion`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub encoding_version: String,
    /// The versions it can decode from storage.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub decodable_versions: Vec<String>,
    /// The versions it serves; a subset of the decodable ones.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub served_versions: Vec<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A status condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersionCondition {
    /// Such as `AllEncodingVersionsEqual`.
    #[serde(default, rename = "type")]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// The generation that the condition refers to.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When the status last changed. Written as `null` if absent, as Go does.
    #[serde(default)]
    pub last_transition_time: Option<Time>,
    /// A CamelCase word.
    #[serde(default)]
    pub reason: String,
    /// For humans.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
