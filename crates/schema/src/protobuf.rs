//! Decodes bodies in Kubernetes' protobuf encoding into the JSON that the same client would have sent.
//!
//! The envelope names the kind, and the table of types has the number of every field; no kind needs code of its own.
//! Fields of a newer release are skipped, as in Kubernetes: protobuf does not carry field names. No body can cause a
//! panic, a nesting deeper than [`DEPTH_MAX`], more than [`OBJECTS_MAX`] objects, or an allocation by a declared length
//! that exceeds the body.

mod message;
mod special;
mod wire;

use api::{GroupVersion, GroupVersionKind};
use serde_json::{Map, Value};

use crate::{StructType, Types};
use wire::{Payload, WireFields};

pub use wire::WireError;

/// The nesting limit of objects and lists, the same as for JSON bodies.
pub const DEPTH_MAX: usize = 100;

/// Limit of objects in one body: somewhat more than fit into the largest JSON body, 3 MiB. In protobuf an object may
/// take two bytes, far less than its memory.
pub const OBJECTS_MAX: usize = 1 << 18;

/// The prefix of every body.
const PROTOBUF_PREFIX: &[u8] = b"k8s\0";

/// The type of delete options, which every group registers as a kind of its own.
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body is empty.
    #[error("empty body")]
    Empty,
    /// The body lacks the protobuf prefix.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// The envelope, which names the kind, is malformed.
    #[error("the protobuf envelope cannot be read: {0}")]
    Envelope(#[source] WireError),
    /// The release does not have the kind.
    #[error("no kind {:?} is registered for version {:?}", .0.kind, .0.group_version().to_string())]
    UnknownKind(GroupVersionKind),
    /// The object of a known kind is malformed.
    #[error("{}{error}", path_prefix(.path))]
    Message {
        /// The kind it was decoded as.
        kind: GroupVersionKind,
        /// Path of the malformed field; empty if the error is outside of a field.
        path: String,
        /// The error at this path.
        #[source]
        error: WireError,
    },
}

impl ProtobufError {
    /// The kind that the body names; `None` if it could not be decoded.
    pub fn kind(&self) -> Option<GroupVersionKind<&str>> {
        match self {
            Self::UnknownKind(kind) | Self::Message { kind, .. } => Some(kind.borrowed()),
            Self::Empty | Self::NoPrefix | Self::Envelope(_) => None,
        }
    }
}

fn path_prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

/// Decodes a body. Parts of the kind that the envelope omits are taken from `expected`. The result has `kind` and
/// `apiVersion`, for the caller to compare with the expected ones.
pub fn decode(
    body: &[u8],
    types: Types<'_>,
    expected: GroupVersionKind<&str>,
) -> Result<Map<String, Value>, ProtobufError> {
    let envelope = UnknownEnvelope::parse(body)?;
    let kind = envelope.kind_or(expected);
    let known = struct_of_kind(types, kind).ok_or_else(|| ProtobufError::UnknownKind(kind.owned()))?;
    let mut object = message::read_message(envelope.raw, known).map_err(|failure| ProtobufError::Message {
        kind: kind.owned(),
        path: failure.path(),
        error: failure.error,
    })?;
    object.insert("kind".to_owned(), kind.kind.into());
    object.insert("apiVersion".to_owned(), kind.group_version().to_string().into());
    Ok(object)
}

fn struct_of_kind<'t>(types: Types<'t>, kind: GroupVersionKind<&str>) -> Option<StructType<'t>> {
    match kind.kind {
        "DeleteOptions" => types.for_definition(DELETE_OPTIONS),
        _ => types.for_kind(kind),
    }
}

/// `runtime.Unknown` with its `typeMeta`.
#[derive(Debug, Default)]
struct UnknownEnvelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
}

impl<'a> UnknownEnvelope<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, ProtobufError> {
        let message = match body.strip_prefix(PROTOBUF_PREFIX) {
            Some(b"") => return Err(ProtobufError::Empty),
            Some(message) => message,
            None if body.is_empty() => return Err(ProtobufError::Empty),
            None => return Err(ProtobufError::NoPrefix),
        };
        let mut envelope = Self::default();
        envelope.read_fields(message).map_err(ProtobufError::Envelope)?;
        Ok(envelope)
    }

    /// A malformed `apiVersion` is treated as a version without kinds.
    fn kind_or(&self, expected: GroupVersionKind<&'a str>) -> GroupVersionKind<&'a str> {
        let own = GroupVersion::parse(self.api_version);
        let own = own.unwrap_or(GroupVersion { group: "", version: self.api_version });
        let GroupVersion { group, version } = match own.version {
            "" => GroupVersion { group: expected.group, version: expected.version },
            _ => own,
        };
        GroupVersionKind { group, version, kind: if self.kind.is_empty() { expected.kind } else { self.kind } }
    }

    fn read_fields(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        for field in WireFields::new(message) {
            match field? {
                (1, type_meta) => self.read_type_meta(type_meta)?,
                (2, raw) => self.raw = raw.bytes()?,
                // The compression and the media type of the message: no client sets them.
                _ => {}
            }
        }
        Ok(())
    }

    fn read_type_meta(&mut self, type_meta: Payload<'a>) -> Result<(), WireError> {
        for field in WireFields::new(type_meta.bytes()?) {
            match field? {
                (1, api_version) => self.api_version = api_version.text()?,
                (2, kind) => self.kind = kind.text()?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
