//! Reading discovery documents that other servers wrote.
//!
//! Any bytes give a value or an error that says where the fault is. Size, number of objects and depth are bounded before or
//! while reading; fields we do not know are passed over; `null` is read as Go reads it, as nothing.

mod aggregated;
mod legacy;
mod nullable_str;

use api::wire::Object;
use serde::Deserialize;

pub use aggregated::parse_aggregated;
pub use legacy::{parse_api_versions, parse_group, parse_group_list, parse_resource_list};

/// The longest document that is read. The largest clusters known, with some ten thousand custom resources, stay under a sixth
/// of this.
pub const DOCUMENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The most JSON objects a document may hold: what a document of [`DOCUMENT_BYTES_MAX`] holds at the size objects have in real ones. It
/// keeps a document of nothing but `{}` from growing many times larger in memory than it was on the wire.
pub const DOCUMENT_OBJECTS_MAX: usize = 400_000;

/// The most separators, and so elements of lists, a document may hold; the same reason.
pub const DOCUMENT_ELEMENTS_MAX: usize = 4_000_000;

/// Why bytes are not the discovery document they should be.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// More than [`DOCUMENT_BYTES_MAX`].
    #[error("the discovery document has {bytes} bytes; at most {DOCUMENT_BYTES_MAX} are read")]
    TooLong {
        /// The length of the document.
        bytes: usize,
    },
    /// More than [`DOCUMENT_OBJECTS_MAX`] or [`DOCUMENT_ELEMENTS_MAX`].
    #[error("the discovery document has {count} {of}; at most {limit} are read")]
    TooMany {
        /// What there is too much of.
        of: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Not JSON, nested too deep, or of another shape; the source names line and column.
    #[error("the discovery document cannot be read: {source}")]
    Malformed {
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// JSON, but another kind of document.
    #[error("expected a document of kind {expected}, found {found:?}")]
    WrongKind {
        /// The kind, or the API version and kind, that was asked for.
        expected: &'static str,
        /// What the document calls itself; shortened if it is long.
        found: String,
    },
    /// Something has no name, so that nothing can be asked for by it.
    #[error("the discovery document lacks a name at {path}")]
    MissingName {
        /// Where in the document, such as `items[3].versions[0].version`.
        path: String,
    },
    /// A `groupVersion` that is none.
    #[error("{found:?} at {path} is not a group and version")]
    InvalidGroupVersion {
        /// Where in the document.
        path: String,
        /// What stands there; shortened if it is long.
        found: String,
    },
}

/// The step every document goes through: the limits, then the JSON.
fn parse_json<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, ParseError> {
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(ParseError::TooLong { bytes: bytes.len() });
    }
    check_count(DOCUMENT_OBJECTS_MAX, "objects", b'{', bytes)?;
    check_count(DOCUMENT_ELEMENTS_MAX, "elements", b',', bytes)?;
    serde_json::from_slice(bytes).map(|Object(value)| value).map_err(|source| ParseError::Malformed { source })
}

/// Counts a byte that JSON needs once per thing. One inside a string counts too, which only makes the limit stricter.
fn check_count(limit: usize, of: &'static str, sign: u8, bytes: &[u8]) -> Result<(), ParseError> {
    let count = bytes.iter().filter(|byte| **byte == sign).count();
    if count > limit { Err(ParseError::TooMany { of, count, limit }) } else { Ok(()) }
}

fn check_kind(expected: &'static str, found: &str) -> Result<(), ParseError> {
    if found == expected { Ok(()) } else { Err(ParseError::WrongKind { expected, found: truncate_for_log(found) }) }
}

/// A text that somebody else chose, cut to what a log line can bear.
fn truncate_for_log(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
