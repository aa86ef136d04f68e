//! `coordination.k8s.io/v1` Lease: how a server says that it is alive.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::wire_constant;
use crate::metadata::ObjectMeta;
use crate::time::MicroTime;

wire_constant! {
    /// The kind of a [`Lease`].
    LeaseKind = "Lease"
}
wire_constant! {
    /// The group and version of a [`Lease`].
    CoordinationV1 = "coordination.k8s.io/v1"
}

/// A claim that its holder renews while it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Always `Lease`.
    #[serde(default)]
    pub kind: LeaseKind,
    /// Always `coordination.k8s.io/v1`.
    #[serde(default)]
    pub api_version: CoordinationV1,
    /// Name, labels and the rest.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who holds it and since when.
    #[serde(default)]
    pub spec: LeaseSpec,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Who holds a lease, and when it was last renewed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    /// The holder; for an API server its identity, `_`, and a random part for each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// How long the lease is valid after a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// When the present holder took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<MicroTime>,
    /// When the holder last renewed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<MicroTime>,
    /// How often it changed hands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
    /// How the next holder is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The holder that should take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_holder: Option<String>,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
