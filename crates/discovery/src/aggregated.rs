//! Encodes aggregated discovery documents (`APIGroupDiscoveryList`) as JSON and protobuf, with their ETags.
//!
//! The document of one server has the same ETag as on a kube-apiserver. A merged document uses its own ETag
//! ([`GroupDiscoveryList::merged_etag`]), because a kube-apiserver would list the groups in another order anyway.

mod merged;

use std::sync::Arc;

use api::json::to_go_json;
use api::media::{AggregatedVersion, Encoding};
use aws_lc_rs::digest;
use serde::Serialize;

use crate::document::EncodedDocument;
use crate::groups::{DiscoveryEtag, GroupDigest, GroupDiscovery, GroupDiscoveryList};
use crate::protobuf;

pub use merged::MergedJson;

/// The `kind` of an aggregated document.
pub const KIND: &str = "APIGroupDiscoveryList";

/// Returns the `apiVersion` of a document. All versions have the same fields and the same ETag.
pub const fn api_version(version: AggregatedVersion) -> &'static str {
    match version {
        AggregatedVersion::V2 => "apidiscovery.k8s.io/v2",
        AggregatedVersion::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
    }
}

/// Encodes the JSON document of one server. The caller decides whether to serve v2beta1, which servers refuse since
/// 1.33.
pub fn encode_json(groups: &GroupDiscoveryList, version: AggregatedVersion) -> EncodedDocument {
    let list = AggregatedList {
        kind: KIND,
        api_version: api_version(version),
        metadata: EmptyMetadata {},
        items: groups.items(),
    };
    let mut body = to_go_json(&list);
    let etag = groups.etag_or_init(|| etag_of_body(&body));
    body.push(b'\n');
    EncodedDocument::new(body, version.media_type(Encoding::Json)).with_etag(etag)
}

/// Encodes the protobuf document of one server, with the ETag of the JSON document.
pub fn encode_protobuf(groups: &GroupDiscoveryList, version: AggregatedVersion) -> EncodedDocument {
    encode_protobuf_with_etag(groups, version, groups.etag())
}

/// Encodes the merged protobuf document of several servers.
pub fn encode_merged_protobuf(groups: &GroupDiscoveryList, version: AggregatedVersion) -> EncodedDocument {
    encode_protobuf_with_etag(groups, version, groups.merged_etag())
}

fn encode_protobuf_with_etag(
    groups: &GroupDiscoveryList,
    version: AggregatedVersion,
    etag: DiscoveryEtag,
) -> EncodedDocument {
    let body = api::protobuf::wrap_in_unknown(api_version(version), KIND, &protobuf::encode_group_list(groups));
    EncodedDocument::new(body, version.media_type(Encoding::Protobuf)).with_etag(etag)
}

/// Fields in Go's struct order. The ETag covers what follows `apiVersion`, so kind and version come first.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedList<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    metadata: EmptyMetadata,
    items: &'a [Arc<GroupDiscovery>],
}

#[derive(Serialize)]
struct EmptyMetadata {}

/// Computes the ETag: SHA-512 of the list without kind and version, `{"metadata":{},"items":[…]}`.
pub(crate) fn etag_of_groups(groups: &GroupDiscoveryList) -> DiscoveryEtag {
    let list = AggregatedList { kind: "", api_version: "", metadata: EmptyMetadata {}, items: groups.items() };
    etag_of_bytes(&[&to_go_json(&list)])
}

/// Computes the same ETag from an encoded body, whose tail those bytes are; this avoids encoding twice.
fn etag_of_body(body: &[u8]) -> DiscoveryEtag {
    let metadata = br#""metadata":{}"#;
    let start = body.windows(metadata.len()).position(|window| window == metadata).expect("every list has metadata");
    etag_of_bytes(&[b"{", &body[start..]])
}

pub(crate) fn digest_of_group(group: &GroupDiscovery) -> GroupDigest {
    let digest = digest::digest(&digest::SHA256, &to_go_json(group));
    GroupDigest(digest.as_ref().try_into().expect("SHA-256 gives 32 bytes"))
}

/// Computes the ETag of a merged document from the digests of its groups.
pub(crate) fn etag_of_digests(digests: &[GroupDigest]) -> DiscoveryEtag {
    etag_of_bytes(&digests.iter().map(|GroupDigest(digest)| &digest[..]).collect::<Vec<_>>())
}

fn etag_of_bytes(pieces: &[&[u8]]) -> DiscoveryEtag {
    let mut context = digest::Context::new(&digest::SHA512);
    for piece in pieces {
        context.update(piece);
    }
    DiscoveryEtag(context.finish().as_ref().try_into().expect("SHA-512 gives 64 bytes"))
}

#[cfg(test)]
mod tests;
