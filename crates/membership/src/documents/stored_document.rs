//! The document of a server in storage: compressed, with the holder that served it.
//!
//! A line of JSON about the document, then the document as an aggregated list of all groups, compressed together.

use std::io::{Read, Write};
use std::sync::Arc;

use api::media::AggregatedVersion;
use bytes::Bytes;
use discovery::parse::{self, DOCUMENT_BYTES_MAX, parse_aggregated};
use discovery::{GroupDiscoveryList, aggregated};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::{ServerDocument, UnimplementedResource};
use crate::identity::HolderIdentity;

/// The version of the layout above. Fields may be added without a new version: servers ignore unknown fields. A server that
/// finds a higher version treats the document as unknown and fetches it.
const FORMAT_VERSION: u32 = 1;
/// The longest line before the document: holder, ETags and a few hundred names.
const HEADER_BYTES_MAX: usize = 256 * 1024;

/// A document in storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    /// The process that served the document.
    pub holder: HolderIdentity,
    /// How the document came into storage.
    pub source: DocumentSource,
    /// Whether the document has a time to live.
    pub retention: Retention,
    /// The document itself.
    pub document: Arc<ServerDocument>,
}

/// How a document came into storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentSource {
    /// The server itself stored it, and does so after every change: no other server fetches it.
    Published,
    /// A peer fetched it over HTTP, and revalidates it.
    Fetched {
        /// For revalidation.
        etags: Etags,
    },
}

/// The ETags of both responses, as received; empty if there was none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etags {
    /// Of `/api`.
    pub api: String,
    /// Of `/apis`.
    pub apis: String,
}

/// Whether a document stays in storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Until it is replaced.
    UntilReplaced,
    /// For the linger, because the lease of its server is gone.
    Lingering,
}

/// Why stored bytes are no document.
#[derive(Debug, thiserror::Error)]
pub enum StoredDocumentError {
    /// Not gzip, cut short, or longer than any document.
    #[error("it cannot be decompressed: {0}")]
    Compression(std::io::Error),
    /// The document is longer than the limit.
    #[error("it is longer than any document")]
    TooLong,
    /// The line before the document is not valid.
    #[error("it does not begin with a line that can be read: {0}")]
    Header(serde_json::Error),
    /// A newer server wrote it.
    #[error("it has the format {0}, and this server knows only {FORMAT_VERSION}")]
    Format(u32),
    /// The document is not valid.
    #[error(transparent)]
    Document(parse::ParseError),
}

impl StoredDocumentError {
    /// True if a newer server may be able to read the bytes, so that they must not be removed.
    pub fn is_newer_format(&self) -> bool {
        match self {
            Self::Format(format) => *format > FORMAT_VERSION,
            Self::Compression(_) | Self::TooLong | Self::Header(_) | Self::Document(_) => false,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredHeader {
    format: u32,
    holder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etags: Option<Etags>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaving: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unbuilt: Vec<UnimplementedResource>,
}

impl StoredDocument {
    /// The bytes to store.
    pub fn encode(&self) -> Bytes {
        let head = StoredHeader {
            format: FORMAT_VERSION,
            holder: self.holder.as_str().to_owned(),
            etags: match &self.source {
                DocumentSource::Published => None,
                DocumentSource::Fetched { etags } => Some(etags.clone()),
            },
            leaving: self.retention == Retention::Lingering,
            unbuilt: self.document.unimplemented().to_vec(),
        };
        let whole = GroupDiscoveryList::concat(&[self.document.core(), self.document.apis()]);
        let whole = aggregated::encode_json(&whole, AggregatedVersion::V2);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let head = serde_json::to_vec(&head).expect("strings and numbers are JSON");
        for part in [&head[..], b"\n", &whole.identity] {
            encoder.write_all(part).expect("writing to memory cannot fail");
        }
        encoder.finish().expect("writing to memory cannot fail").into()
    }

    /// Decodes stored bytes, with limits on their size.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoredDocumentError> {
        let limit = HEADER_BYTES_MAX + DOCUMENT_BYTES_MAX;
        let mut plain = Vec::new();
        let mut decoder = GzDecoder::new(bytes).take(limit as u64 + 1);
        decoder.read_to_end(&mut plain).map_err(StoredDocumentError::Compression)?;
        if plain.len() > limit {
            return Err(StoredDocumentError::TooLong);
        }
        let head_end = plain.iter().take(HEADER_BYTES_MAX).position(|byte| *byte == b'\n').unwrap_or(0);
        let (head, whole) = plain.split_at(head_end);
        let head: StoredHeader = serde_json::from_slice(head).map_err(StoredDocumentError::Header)?;
        if head.format != FORMAT_VERSION {
            return Err(StoredDocumentError::Format(head.format));
        }
        let whole = parse_aggregated(whole).map_err(StoredDocumentError::Document)?;
        Ok(Self {
            holder: HolderIdentity::from_text(&head.holder),
            source: head.etags.map_or(DocumentSource::Published, |etags| DocumentSource::Fetched { etags }),
            retention: if head.leaving { Retention::Lingering } else { Retention::UntilReplaced },
            document: Arc::new(ServerDocument::from_all_groups(&Arc::new(whole)).with_unimplemented(head.unbuilt)),
        })
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::groups_from_notation;

    fn stored_document(source: DocumentSource, retention: Retention) -> StoredDocument {
        let exec = UnimplementedResource { group: "".into(), resource: "pods".into(), subresource: "exec".into() };
        let whole = groups_from_notation("v1 pods:get pods/exec:create | apps/v1 deployments:get | batch/v1! jobs:get");
        StoredDocument {
            holder: HolderIdentity::from_text("apiserver-x_1"),
            source,
            retention,
            document: Arc::new(ServerDocument::from_all_groups(&whole).with_unimplemented(vec![exec])),
        }
    }

    #[test]
    fn stored_document_round_trips() {
        let etags = Etags { api: "\"A\"".to_owned(), apis: String::new() };
        for source in [DocumentSource::Published, DocumentSource::Fetched { etags }] {
            for retention in [Retention::UntilReplaced, Retention::Lingering] {
                let stored = stored_document(source.clone(), retention);
                assert_eq!(StoredDocument::decode(&stored.encode()).unwrap(), stored);
            }
        }
    }

    #[test]
    fn encoded_document_of_a_release_is_small() {
        let gates = kinds::FeatureGates::new(kinds::Release::R36);
        let served_resources = kinds::ServedResources::new(&gates, &kinds::RuntimeConfig::default());
        let document = ServerDocument::new(
            served_resources.discovery_of_core().into(),
            served_resources.discovery_of_apis().into(),
        );
        let stored = StoredDocument {
            document: Arc::new(document),
            ..stored_document(DocumentSource::Published, Retention::UntilReplaced)
        };
        let bytes = stored.encode();
        assert_eq!(StoredDocument::decode(&bytes).unwrap(), stored);
        assert!(bytes.len() < 8 * 1024, "{} bytes", bytes.len());
    }

    #[track_caller]
    fn check(plain: &str, error: &Expect) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain.as_bytes()).unwrap();
        error.assert_eq(&StoredDocument::decode(&encoder.finish().unwrap()).unwrap_err().to_string());
    }

    #[test]
    fn decode_error_names_cause() {
        let error = StoredDocument::decode(b"{}").unwrap_err().to_string();
        assert!(error.starts_with("it cannot be decompressed: "), "{error}");
        check(
            "",
            &expect!["it does not begin with a line that can be read: EOF while parsing a value at line 1 column 0"],
        );
        check(
            "{}\n{}",
            &expect!["it does not begin with a line that can be read: missing field `format` at line 1 column 2"],
        );
        check("{\"format\":2,\"holder\":\"a\"}\n{}", &expect!["it has the format 2, and this server knows only 1"]);
        check(
            "{\"format\":1,\"holder\":\"a\"}\n{}",
            &expect![[r#"expected a document of kind APIGroupDiscoveryList, found """#]],
        );
    }

    proptest! {
        #[test]
        fn decode_never_panics_on_arbitrary_bytes(bytes in any::<Vec<u8>>(), plain in any::<String>(), cut in 0_usize..400) {
            let _ = StoredDocument::decode(&bytes);
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(format!("{{\"format\":1,\"holder\":\"a\"}}\n{plain}").as_bytes()).unwrap();
            let _ = StoredDocument::decode(&encoder.finish().unwrap());
            let whole = stored_document(DocumentSource::Published, Retention::UntilReplaced).encode();
            let cut = cut.min(whole.len() - 1);
            prop_assert!(StoredDocument::decode(&whole[..cut]).is_err());
        }
    }

    #[test]
    fn decode_rejects_decompression_bomb() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let block = vec![b' '; 1 << 20];
        for _ in 0..=(HEADER_BYTES_MAX + DOCUMENT_BYTES_MAX) / block.len() {
            encoder.write_all(&block).unwrap();
        }
        let error = StoredDocument::decode(&encoder.finish().unwrap()).unwrap_err();
        assert!(matches!(error, StoredDocumentError::TooLong), "{error}");
    }
}
