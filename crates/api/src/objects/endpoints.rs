//! `v1` Endpoints, by which a server publishes its address.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::wire_constant;
use crate::metadata::ObjectMeta;
use crate::wire::null_is_default;

wire_constant! {
    /// The kind of [`Endpoints`].
    EndpointsKind = "Endpoints"
}
wire_constant! {
    /// The version of the core group.
    CoreV1 = "v1"
}

/// A set of addresses with their ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// Always `Endpoints`.
    #[serde(default)]
    pub kind: EndpointsKind,
    /// Always `v1`.
    #[serde(default)]
    pub api_version: CoreV1,
    /// The endpoint record of a server has no name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Every address of a subset has all its ports.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub subsets: Vec<EndpointSubset>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Addresses with the same ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSubset {
    /// Ready addresses.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<EndpointAddress>,
    /// Addresses that are not ready.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub not_ready_addresses: Vec<EndpointAddress>,
    /// The ports of all addresses.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<EndpointPort>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A single address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointAddress {
    /// The IP address, IPv6 without brackets.
    #[serde(default)]
    pub ip: String,
    /// The DNS name, if any.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// The node that the endpoint is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// `targetRef`, and fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A single port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort {
    /// Such as `https`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The port number.
    #[serde(default)]
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// `appProtocol`, and fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
