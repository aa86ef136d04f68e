//! Content negotiation by media types.
//!
//! Follows kube-apiserver exactly, including its quirks, because clients rely on them. Callers pass the first
//! `Accept` header line; kube-apiserver reads only that one.

mod accept;
mod discovery;
mod object;
mod pretty;

use std::fmt;

pub use accept::ACCEPT_CLAUSES_MAX;
pub use discovery::{AggregatedVersion, DiscoveryFormat, DiscoveryOffer, Profile, negotiate_discovery};
pub use object::{
    MetaVersion, NegotiatedMediaType, ObjectOffer, Transform, TransformKind, negotiate, negotiate_stream,
};
pub use pretty::is_pretty_print;

use crate::status::Status;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Encoding {
    /// In kube-apiserver's order of preference.
    pub const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    /// Returns the `Content-Type` of an object.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns the `Content-Type` of a watch; YAML has none. JSON is without `stream=watch`, as clients expect.
    pub const fn watch_media_type(self) -> Option<&'static str> {
        match self {
            Self::Json => Some("application/json"),
            Self::Yaml => None,
            Self::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
        }
    }

    /// Returns the encoding for a `Content-Type`, ignoring parameters; JSON if it is empty.
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        let (media_type, _) = content_type.split_once(';').unwrap_or((content_type, ""));
        match media_type.trim() {
            "" => Some(Self::Json),
            named => Self::ALL.into_iter().find(|encoding| encoding.media_type().eq_ignore_ascii_case(named)),
        }
    }

    /// Returns the part after `application/`.
    fn subtype(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Protobuf => "vnd.kubernetes.protobuf",
        }
    }

    /// Returns the name used in the 406 of a watch.
    fn watch_media_type_in_error(self) -> Option<&'static str> {
        match self {
            Self::Json => Some("application/json;stream=watch"),
            Self::Yaml => None,
            Self::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
        }
    }
}

/// A set of encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encodings(u8);

impl Encodings {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// JSON alone.
    pub const JSON: Self = Self(1);
    /// JSON and YAML.
    pub const JSON_AND_YAML: Self = Self(1 | 2);
    /// JSON, YAML and protobuf.
    pub const ALL: Self = Self(1 | 2 | 4);

    /// Reports whether the set contains the encoding.
    pub const fn contains(self, encoding: Encoding) -> bool {
        self.0 & Self::from_encoding(encoding).0 != 0
    }

    /// Returns the union.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Iterates in the order of [`Encoding::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Encoding> {
        Encoding::ALL.into_iter().filter(move |encoding| self.contains(*encoding))
    }

    const fn from_encoding(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self(1),
            Encoding::Yaml => Self(2),
            Encoding::Protobuf => Self(4),
        }
    }
}

/// The endpoint offers nothing that the client accepts; converts to a 406.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAcceptable {
    offered: Encodings,
    streaming: bool,
}

impl NotAcceptable {
    fn media_types(self) -> Vec<&'static str> {
        let name = |encoding: Encoding| {
            if self.streaming { encoding.watch_media_type_in_error() } else { Some(encoding.media_type()) }
        };
        self.offered.iter().filter_map(name).collect()
    }
}

impl From<NotAcceptable> for Status {
    fn from(error: NotAcceptable) -> Self {
        Self::not_acceptable(&error.media_types())
    }
}

impl fmt::Display for NotAcceptable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only the following media types are accepted: {}", self.media_types().join(", "))
    }
}

impl std::error::Error for NotAcceptable {}

#[cfg(test)]
mod tests;
