//! `internal.apiserver.k8s.io/v1alpha1` StorageVersion: which version each server encodes a resource in.

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

/// What the servers say about one resource; its name is `<group>.<resource>`, with `core` for the core group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersion {
    /// Always `StorageVersion`.
    #[serde(default)]
    pub kind: StorageVersionKind,
    /// Always `internal.apiserver.k8s.io/v1alpha1`.
    #[serde(default)]
    pub api_version: ApiServerInternalV1Alpha1,
    /// Name and the rest.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Empty in every release so far, and always written.
    #[serde(default)]
    pub spec: Map<String, Value>,
    /// One entry per server, and their agreement.
    #[serde(default)]
    pub status: StorageVersionStatus,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One entry per server, and their agreement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersionStatus {
    /// What each server encodes, decodes and serves.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub storage_versions: Vec<ServerStorageVersion>,
    /// Set when there are entries and all encode alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_encoding_version: Option<String>,
    /// The agreement in words and with its time.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StorageVersionCondition>,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The version that all entries name; `None` if they differ or there is none.
pub fn common_encoding_version(entries: &[ServerStorageVersion]) -> Option<&str> {
    let (first, rest) = entries.split_first()?;
    let is_common = rest.iter().all(|entry| entry.encoding_version == first.encoding_version);
    is_common.then_some(&*first.encoding_version)
}

/// What one server encodes, decodes and serves.
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
    /// The versions it can read from storage.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub decodable_versions: Vec<String>,
    /// The versions it serves; a subset of those it can read.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub served_versions: Vec<String>,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A statement about the agreement, and when it last changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersionCondition {
    /// What is stated.
    #[serde(default, rename = "type")]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// The generation the statement is about.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When the status last changed. Written as `null` when absent, because Go cannot omit a struct.
    #[serde(default)]
    pub last_transition_time: Option<Time>,
    /// Why, in one word.
    #[serde(default)]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
