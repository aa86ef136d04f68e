//! An encoded discovery document: immutable bytes, cheap to clone.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;

use crate::groups::DiscoveryEtag;

/// Documents larger than this are compressed for clients that accept gzip. The threshold is kube-apiserver's, so that
/// clients see the same headers.
pub const GZIP_THRESHOLD: usize = 128 * 1024;

/// kube-apiserver's compression level. Discovery documents are so repetitive that a higher one gains little.
const GZIP_LEVEL: Compression = Compression::fast();

/// An encoded discovery document. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct EncodedDocument {
    /// The uncompressed body.
    pub identity: Bytes,
    /// The compressed body, computed on first use.
    gzip: Arc<OnceLock<Option<Bytes>>>,
    /// The media type, with parameters for aggregated documents.
    pub content_type: HeaderValue,
    /// Only aggregated documents have one.
    pub etag: Option<HeaderValue>,
}

impl EncodedDocument {
    /// Creates a document without an ETag, as legacy documents are.
    pub(crate) fn new(identity: Vec<u8>, content_type: &'static str) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        Self { identity: into_shrunk_bytes(identity), gzip: Arc::default(), content_type, etag: None }
    }

    pub(crate) fn with_etag(mut self, etag: DiscoveryEtag) -> Self {
        let header = HeaderValue::try_from(etag.to_string()).expect("quoted hexadecimal digits are a header value");
        self.etag = Some(header);
        self
    }

    /// Returns the compressed body; `None` if the document is below the threshold or does not shrink. Compressed on
    /// first use and shared by all clones: in a large cluster most documents are replaced before a client requests
    /// them.
    pub fn gzip(&self) -> Option<&Bytes> {
        self.gzip.get_or_init(|| compress(&self.identity)).as_ref()
    }

    /// Returns the JSON document indented as Go does, without the trailing newline; the ETag is unchanged.
    pub fn to_indented(&self) -> Self {
        let identity = api::json::indent(self.identity.trim_ascii_end());
        Self { identity: into_shrunk_bytes(identity), gzip: Arc::default(), ..self.clone() }
    }
}

fn compress(identity: &[u8]) -> Option<Bytes> {
    if identity.len() <= GZIP_THRESHOLD {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(identity.len() / 8), GZIP_LEVEL);
    encoder.write_all(identity).expect("writing to memory cannot fail");
    let gzip = encoder.finish().expect("writing to memory cannot fail");
    (gzip.len() < identity.len()).then(|| into_shrunk_bytes(gzip))
}

/// Frees the spare capacity of a long-lived buffer.
fn into_shrunk_bytes(mut bytes: Vec<u8>) -> Bytes {
    bytes.shrink_to_fit();
    bytes.into()
}
