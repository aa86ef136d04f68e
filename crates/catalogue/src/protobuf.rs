//! Bodies in Kubernetes' protobuf encoding, read as the JSON that the same client would have sent.
//!
//! An envelope names the kind, the table of types gives every field its number; no kind has code of its own. What a client of
//! a newer release sends, and this release does not know, is skipped, as Kubernetes does: protobuf does not name its fields.
//! Nothing in a body makes this panic, nest deeper than [`DEPTH_MAX`], hold more than [`OBJECTS_MAX`] or allocate by a length
//! that the body does not have.

mod message;
mod special;
mod wire;

use api::{GroupVersion, GroupVersionKind};
use serde_json::{Map, Value};

use crate::release::Release;
use crate::schema::Struct;
use wire::{Fields, Payload};

pub use wire::Fault;

/// How deep objects and lists may nest: as deep as in a body of JSON.
pub const DEPTH_MAX: usize = 100;

/// How many objects one body may hold: some more than JSON has room for in the largest body that servers take, 3 MiB. An
/// object takes far more memory than the two bytes that it may have here.
pub const OBJECTS_MAX: usize = 1 << 18;

/// What every body begins with.
const PREFIX: &[u8] = b"k8s\0";

/// The type of the options of a delete request, which every group has under its own name.
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is nothing in it.
    #[error("empty body")]
    Empty,
    /// It is something else.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// The part that names the kind is broken.
    #[error("the protobuf envelope cannot be read: {0}")]
    Envelope(#[source] Fault),
    /// It names a kind that this release does not have.
    #[error("no kind {:?} is registered for version {:?}", .0.kind, .0.group_version().to_string())]
    UnknownKind(GroupVersionKind),
    /// The object of a known kind is broken.
    #[error("{}{fault}", at(.path))]
    Message {
        /// The kind that it was read as.
        kind: GroupVersionKind,
        /// The fields on the way to the fault; empty if it is not in a field.
        path: String,
        /// What is wrong there.
        #[source]
        fault: Fault,
    },
}

impl ReadError {
    /// The kind that the body says it is; `None` if it could not be told.
    pub fn kind(&self) -> Option<GroupVersionKind<&str>> {
        match self {
            Self::UnknownKind(kind) | Self::Message { kind, .. } => Some(kind.borrowed()),
            Self::Empty | Self::NoPrefix | Self::Envelope(_) => None,
        }
    }
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

/// Reads a body. What the envelope leaves out of the kind is as expected; that it is the expected kind is for the caller to
/// check, since the object says what it is.
pub fn read(body: &[u8], release: Release, expected: GroupVersionKind<&str>) -> Result<Map<String, Value>, ReadError> {
    let envelope = Envelope::open(body)?;
    let kind = envelope.kind_or(expected);
    let known = type_of(release, kind).ok_or_else(|| ReadError::UnknownKind(kind.owned()))?;
    let mut object = message::read(envelope.raw, known).map_err(|failure| ReadError::Message {
        kind: kind.owned(),
        path: failure.path(),
        fault: failure.fault,
    })?;
    object.insert("kind".to_owned(), kind.kind.into());
    object.insert("apiVersion".to_owned(), kind.group_version().to_string().into());
    Ok(object)
}

fn type_of(release: Release, kind: GroupVersionKind<&str>) -> Option<Struct> {
    match kind.kind {
        "DeleteOptions" => Struct::of_definition(release, DELETE_OPTIONS),
        _ => Struct::of_kind(release, kind),
    }
}

/// `runtime.Unknown` with its `typeMeta`.
#[derive(Debug, Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn open(body: &'a [u8]) -> Result<Self, ReadError> {
        let message = match body.strip_prefix(PREFIX) {
            Some(b"") => return Err(ReadError::Empty),
            Some(message) => message,
            None if body.is_empty() => return Err(ReadError::Empty),
            None => return Err(ReadError::NoPrefix),
        };
        let mut envelope = Self::default();
        envelope.fill(message).map_err(ReadError::Envelope)?;
        Ok(envelope)
    }

    /// A version that cannot be read is one that no kind has.
    fn kind_or(&self, expected: GroupVersionKind<&'a str>) -> GroupVersionKind<&'a str> {
        let own = GroupVersion::parse(self.api_version);
        let own = own.unwrap_or(GroupVersion { group: "", version: self.api_version });
        let GroupVersion { group, version } = match own.version {
            "" => GroupVersion { group: expected.group, version: expected.version },
            _ => own,
        };
        GroupVersionKind { group, version, kind: if self.kind.is_empty() { expected.kind } else { self.kind } }
    }

    fn fill(&mut self, message: &'a [u8]) -> Result<(), Fault> {
        for field in Fields::of(message) {
            match field? {
                (1, type_meta) => self.name(type_meta)?,
                (2, raw) => self.raw = raw.bytes()?,
                // How the message is compressed, and its media type: nobody sets them.
                _ => {}
            }
        }
        Ok(())
    }

    fn name(&mut self, type_meta: Payload<'a>) -> Result<(), Fault> {
        for field in Fields::of(type_meta.bytes()?) {
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
