//! `v1` Endpoints: the form in which a server publishes its own address.

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

/// Addresses and ports that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// Always `Endpoints`.
    #[serde(default)]
    pub kind: EndpointsKind,
    /// Always `v1`.
    #[serde(default)]
    pub api_version: CoreV1,
    /// Labels and the rest; an endpoint record of a server has no name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Every address of a subset has every port of it.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub subsets: Vec<EndpointSubset>,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Addresses that all have the same ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSubset {
    /// Addresses that are ready.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<EndpointAddress>,
    /// Addresses that are not.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub not_ready_addresses: Vec<EndpointAddress>,
    /// The ports of all of them.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<EndpointPort>,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointAddress {
    /// An IP address as text, IPv6 without brackets.
    #[serde(default)]
    pub ip: String,
    /// A host name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// The node it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// `targetRef`, and fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort {
    /// Its name, such as `https`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its number.
    #[serde(default)]
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// `appProtocol`, and fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
