//! The few kinds that servers keep about each other, as small types of our own.
//!
//! They read and write JSON as kube-apiserver stores and serves it: Go's field order, empty fields left out, fields of a
//! newer release kept. `kind` and `apiVersion` are fixed by the type: absent is fine (items of a list), different is an error.

mod endpoints;
mod lease;
mod storage_version;

pub use endpoints::{CoreV1, EndpointAddress, EndpointPort, EndpointSubset, Endpoints, EndpointsKind};
pub use lease::{CoordinationV1, Lease, LeaseKind, LeaseSpec};
pub use storage_version::{
    ApiServerInternalV1Alpha1, ServerStorageVersion, StorageVersion, StorageVersionCondition, StorageVersionKind,
    StorageVersionStatus,
};

use crate::json::to_go_json;

/// Reads one of the objects of this module.
pub fn from_json<Object: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<Object, ObjectDecodeError> {
    serde_json::from_slice(bytes).map_err(ObjectDecodeError)
}

/// Writes one of the objects of this module as kube-apiserver stores it: on one line, with a newline at the end.
pub fn to_stored_json(object: &impl serde::Serialize) -> Vec<u8> {
    let mut bytes = to_go_json(object);
    bytes.push(b'\n');
    bytes
}

/// Bytes that are not the object they should be.
#[derive(Debug, thiserror::Error)]
#[error("the object cannot be read: {0}")]
pub struct ObjectDecodeError(serde_json::Error);

/// Declares a type with one value, which stands for one string on the wire.
macro_rules! wire_constant {
    ($(#[$doc:meta])* $name:ident = $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// The string on the wire.
            pub const TEXT: &'static str = $text;
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                if text == $text || text.is_empty() {
                    return Ok(Self);
                }
                Err(serde::de::Error::invalid_value(serde::de::Unexpected::Str(&text), &concat!('"', $text, '"')))
            }
        }
    };
}
use wire_constant;

#[cfg(test)]
mod tests;
