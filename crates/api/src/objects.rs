//! The object kinds by which API servers coordinate: Lease, Endpoints and StorageVersion.
//!
//! They are read and written in kube-apiserver's JSON: Go's field order, empty fields omitted, unknown fields
//! preserved. `kind` and `apiVersion` are fixed by the type: they may be absent, as in list items, but must not differ.

mod endpoints;
mod lease;
mod storage_version;

pub use endpoints::{CoreV1, EndpointAddress, EndpointPort, EndpointSubset, Endpoints, EndpointsKind};
pub use lease::{CoordinationV1, Lease, LeaseKind, LeaseSpec};
pub use storage_version::{
    ApiServerInternalV1Alpha1, ServerStorageVersion, StorageVersion, StorageVersionCondition, StorageVersionKind,
    StorageVersionStatus, common_encoding_version,
};

use crate::json::to_go_json;

/// Decodes one of this module's objects.
pub fn from_json<Object: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<Object, ObjectDecodeError> {
    serde_json::from_slice(bytes).map_err(ObjectDecodeError)
}

/// Encodes one of this module's objects as kube-apiserver stores it: one line with a trailing newline.
pub fn to_stored_json(object: &impl serde::Serialize) -> Vec<u8> {
    let mut bytes = to_go_json(object);
    bytes.push(b'\n');
    bytes
}

/// The bytes are not the expected object.
#[derive(Debug, thiserror::Error)]
#[error("the object cannot be read: {0}")]
pub struct ObjectDecodeError(serde_json::Error);

/// Declares a unit type that serializes as a fixed string.
macro_rules! wire_constant {
    ($(#[$doc:meta])* $name:ident = $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// The serialized string.
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
