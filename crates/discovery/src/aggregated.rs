//! Aggregated documents: `APIGroupDiscoveryList` in JSON and protobuf, and its ETag.

use std::sync::Arc;

use api::json::to_go_json;
use api::media::{AggregatedVersion, Encoding};
use aws_lc_rs::digest;
use serde::Serialize;

use crate::document::Document;
use crate::groups::{Etag, Group, Groups};
use crate::protobuf;

/// The kind of an aggregated document.
pub const KIND: &str = "APIGroupDiscoveryList";

/// The `apiVersion` of documents in each version of the form. All carry the same fields and the same ETag.
pub const fn api_version(version: AggregatedVersion) -> &'static str {
    match version {
        AggregatedVersion::V2 => "apidiscovery.k8s.io/v2",
        AggregatedVersion::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
    }
}

/// The finished JSON document. Whether clients are offered v2beta1, which servers refuse from 1.33 on, is the caller's choice.
pub fn json(groups: &Groups, version: AggregatedVersion) -> Document {
    let list = List { kind: KIND, api_version: api_version(version), metadata: Empty {}, items: groups.items() };
    let mut body = to_go_json(&list);
    let etag = groups.etag_or(|| etag_of_body(&body));
    body.push(b'\n');
    Document::new(body, version.media_type(Encoding::Json)).with_etag(etag)
}

/// The finished protobuf document, with the ETag of the JSON one.
pub fn protobuf(groups: &Groups, version: AggregatedVersion) -> Document {
    let body = protobuf::envelope(api_version(version), KIND, &protobuf::list(groups));
    Document::new(body, version.media_type(Encoding::Protobuf)).with_etag(groups.etag())
}

/// Go's struct order. The ETag covers what follows `apiVersion`, so the kind and the version come first.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    metadata: Empty,
    items: &'a [Arc<Group>],
}

#[derive(Serialize)]
struct Empty {}

/// The ETag is taken over the list without its kind and version, `{"metadata":{},"items":[…]}`.
pub(crate) fn etag_of(groups: &Groups) -> Etag {
    let list = List { kind: "", api_version: "", metadata: Empty {}, items: groups.items() };
    digest_of(&[&to_go_json(&list)])
}

/// The same from an encoded body, whose end those bytes are: hashing it in two pieces saves encoding twice.
fn etag_of_body(body: &[u8]) -> Etag {
    let metadata = br#""metadata":{}"#;
    let start = body.windows(metadata.len()).position(|window| window == metadata).expect("every list has metadata");
    digest_of(&[b"{", &body[start..]])
}

fn digest_of(pieces: &[&[u8]]) -> Etag {
    let mut context = digest::Context::new(&digest::SHA512);
    for piece in pieces {
        context.update(piece);
    }
    Etag(context.finish().as_ref().try_into().expect("SHA-512 gives 64 bytes"))
}

#[cfg(test)]
mod tests;
