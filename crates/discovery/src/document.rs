//! A finished document: the bytes a client is given, made once and cloned for nothing.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;

use crate::groups::DiscoveryEtag;

/// A document of more bytes than this is compressed for clients that accept gzip: kube-apiserver's threshold, kept because a
/// client should see the same headers for the same document. Smaller ones fit in few packets anyway.
pub const GZIP_THRESHOLD: usize = 128 * 1024;

/// The speed kube-apiserver compresses with. Discovery repeats itself so much that more effort gains little.
const GZIP_LEVEL: Compression = Compression::fast();

/// A discovery document in its encoded forms. Cloning it copies no content.
#[derive(Clone, Debug)]
pub struct EncodedDocument {
    /// The body as it is.
    pub identity: Bytes,
    /// The body compressed, once somebody asked for it.
    gzip: Arc<OnceLock<Option<Bytes>>>,
    /// The media type, with the parameters of an aggregated document.
    pub content_type: HeaderValue,
    /// The entity tag; only aggregated documents have one.
    pub etag: Option<HeaderValue>,
}

impl EncodedDocument {
    /// A finished legacy document, which has no ETag.
    pub(crate) fn new(identity: Vec<u8>, content_type: &'static str) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        Self { identity: into_shrunk_bytes(identity), gzip: Arc::default(), content_type, etag: None }
    }

    /// The same document with an ETag.
    pub(crate) fn with_etag(mut self, etag: DiscoveryEtag) -> Self {
        let header = HeaderValue::try_from(etag.to_string()).expect("quoted hexadecimal digits are a header value");
        self.etag = Some(header);
        self
    }

    /// The body compressed; `None` if it is too small for that, or would not become smaller. Made when first asked for, and
    /// then shared by all clones: most documents of a large cluster are replaced before anybody wants them.
    pub fn gzip(&self) -> Option<&Bytes> {
        self.gzip.get_or_init(|| compress(&self.identity)).as_ref()
    }

    /// A JSON document for people: indented as Go does, without the newline at the end; the ETag stays.
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

/// Bytes that are kept for long, without the room they grew in.
fn into_shrunk_bytes(mut bytes: Vec<u8>) -> Bytes {
    bytes.shrink_to_fit();
    bytes.into()
}
