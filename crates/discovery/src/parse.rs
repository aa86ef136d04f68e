//! Parses discovery documents of other servers.
//!
//! Any input results in a value or in an error with its position. Size, object count and depth are bounded; unknown
//! fields are ignored; `null` is read as an empty value, as in Go.

mod aggregated;
mod legacy;
mod nullable_str;

use api::wire::Object;
use serde::Deserialize;

pub use aggregated::parse_aggregated;
pub use legacy::{parse_api_versions, parse_group, parse_group_list, parse_resource_list};

/// Limit on a document's size in bytes. The largest known clusters, with some ten thousand custom resources, need
/// less than a sixth.
pub const DOCUMENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Limit on JSON objects in a document: what [`DOCUMENT_BYTES_MAX`] holds at the usual object size. It prevents a
/// document of many `{}` from using many times its size in memory.
pub const DOCUMENT_OBJECTS_MAX: usize = 400_000;

/// Limit on commas, and thus list elements, for the same reason.
pub const DOCUMENT_ELEMENTS_MAX: usize = 4_000_000;

/// Why a document cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Larger than [`DOCUMENT_BYTES_MAX`].
    #[error("the discovery document has {bytes} bytes; at most {DOCUMENT_BYTES_MAX} are read")]
    TooLong {
        /// The document's length.
        bytes: usize,
    },
    /// More than [`DOCUMENT_OBJECTS_MAX`] objects or [`DOCUMENT_ELEMENTS_MAX`] elements.
    #[error("the discovery document has {count} {of}; at most {limit} are read")]
    TooMany {
        /// `objects` or `elements`.
        of: &'static str,
        /// The number found.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// Not JSON, nested too deeply, or not matching the schema.
    #[error("the discovery document cannot be read: {source}")]
    Malformed {
        /// The error, with line and column.
        source: serde_json::Error,
    },
    /// A document of another kind.
    #[error("expected a document of kind {expected}, found {found:?}")]
    WrongKind {
        /// The expected kind, or API version and kind.
        expected: &'static str,
        /// The document's own kind; truncated if long.
        found: String,
    },
    /// An item has no name.
    #[error("the discovery document lacks a name at {path}")]
    MissingName {
        /// Its path, such as `items[3].versions[0].version`.
        path: String,
    },
    /// A malformed `groupVersion`.
    #[error("{found:?} at {path} is not a group and version")]
    InvalidGroupVersion {
        /// Its path in the document.
        path: String,
        /// The value; truncated if long.
        found: String,
    },
}

/// Checks the limits, then parses the JSON.
fn parse_json<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, ParseError> {
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(ParseError::TooLong { bytes: bytes.len() });
    }
    check_count(DOCUMENT_OBJECTS_MAX, "objects", b'{', bytes)?;
    check_count(DOCUMENT_ELEMENTS_MAX, "elements", b',', bytes)?;
    serde_json::from_slice(bytes).map(|Object(value)| value).map_err(|source| ParseError::Malformed { source })
}

/// Counts a byte that JSON has once per item. Bytes inside strings count too, which only makes the limit stricter.
fn check_count(limit: usize, of: &'static str, sign: u8, bytes: &[u8]) -> Result<(), ParseError> {
    let count = bytes.iter().filter(|byte| **byte == sign).count();
    if count > limit { Err(ParseError::TooMany { of, count, limit }) } else { Ok(()) }
}

fn check_kind(expected: &'static str, found: &str) -> Result<(), ParseError> {
    if found == expected { Ok(()) } else { Err(ParseError::WrongKind { expected, found: truncate_for_log(found) }) }
}

/// Truncates text of a remote server to 80 characters for log lines.
fn truncate_for_log(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
