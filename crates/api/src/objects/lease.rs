//! `coordination.k8s.io/v1` Lease, by which a server shows that it is alive.

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

/// A lease that its holder renews periodically.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Always `Lease`.
    #[serde(default)]
    pub kind: LeaseKind,
    /// Always `coordination.k8s.io/v1`.
    #[serde(default)]
    pub api_version: CoordinationV1,
    /// Identity leases are labelled with their component.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The holder and its times.
    #[serde(default)]
    pub spec: LeaseSpec,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The holder of a lease and its renewal times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    /// For an API server: its identity, `_`, and a random suffix per start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// Validity after each renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// When the current holder acquired the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<MicroTime>,
    /// When the holder last renewed the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<MicroTime>,
    /// The number of changes of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
    /// The election strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The holder that should take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_holder: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
