//! The merged JSON document, which copies the bytes of unchanged groups from its predecessor.

use std::collections::HashMap;
use std::ops::Range;

use api::json::to_go_json;
use api::media::{AggregatedVersion, Encoding};

use super::{KIND, api_version};
use crate::document::EncodedDocument;
use crate::groups::{GroupDigest, GroupDiscoveryList};

/// The bytes after the last group.
const LIST_END: &[u8] = b"]}\n";

/// An encoded merged document, and the byte range of each group in it.
#[derive(Debug)]
pub struct MergedJson {
    document: EncodedDocument,
    group_ranges: HashMap<GroupDigest, Range<usize>>,
}

impl MergedJson {
    /// Encodes the groups. Groups that the previous document contains, in either version, are copied from it.
    pub fn new(groups: &GroupDiscoveryList, version: AggregatedVersion, previous: Option<&Self>) -> Self {
        let head = format!(r#"{{"kind":"{KIND}","apiVersion":"{}","metadata":{{}},"items":["#, api_version(version));
        // The new document is usually about as long as the previous one; 1/16 of headroom avoids reallocation.
        let length = previous.map_or(0, |former| former.document.identity.len());
        let mut body = Vec::with_capacity(head.len().max(length + length / 16));
        body.extend_from_slice(head.as_bytes());
        let mut places = HashMap::with_capacity(groups.items().len());
        for (at, hashed) in groups.hashed_groups().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            let start = body.len();
            match previous.and_then(|former| former.group_bytes(&hashed.digest)) {
                Some(bytes) => body.extend_from_slice(bytes),
                None => body.extend_from_slice(&to_go_json(&*hashed.group)),
            }
            places.insert(hashed.digest, start..body.len());
        }
        body.extend_from_slice(LIST_END);
        let document = EncodedDocument::new(body, version.media_type(Encoding::Json)).with_etag(groups.merged_etag());
        Self { document, group_ranges: places }
    }

    /// Returns the document to serve.
    pub fn document(&self) -> &EncodedDocument {
        &self.document
    }

    fn group_bytes(&self, group: &GroupDigest) -> Option<&[u8]> {
        Some(&self.document.identity[self.group_ranges.get(group)?.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregated;
    use crate::testing::groups_from_notation;

    #[test]
    fn merged_json_equals_document_encoded_from_scratch() {
        let mut former: Option<MergedJson> = None;
        for notation in
            ["", "a/v1 xs:get", "b/v1 ys:get | a/v1 xs:get", "a/v1 xs:get,list | b/v1 ys:get | c/v1 zs:get", ""]
        {
            for version in [AggregatedVersion::V2, AggregatedVersion::V2Beta1] {
                let groups = groups_from_notation(notation);
                let merged = MergedJson::new(&groups, version, former.as_ref());
                let at_once = aggregated::encode_json(&groups, version);
                assert_eq!(merged.document().identity, at_once.identity, "{notation}");
                assert_eq!(merged.document().content_type, at_once.content_type);
                former = Some(merged);
            }
        }
    }

    #[test]
    fn merged_json_keeps_duplicate_groups() {
        let groups = groups_from_notation("a/v1 xs:get | b/v1 ys:get | a/v1 xs:get");
        let first = MergedJson::new(&groups, AggregatedVersion::V2, None);
        let second = MergedJson::new(&groups, AggregatedVersion::V2, Some(&first));
        assert_eq!(second.document().identity, aggregated::encode_json(&groups, AggregatedVersion::V2).identity);
    }

    #[test]
    fn merged_json_and_protobuf_share_etag() {
        let groups = groups_from_notation("a/v1 xs:get");
        let protobuf = aggregated::encode_merged_protobuf(&groups, AggregatedVersion::V2);
        let json = MergedJson::new(&groups, AggregatedVersion::V2, None);
        assert_eq!(json.document().etag, protobuf.etag);
        assert!(json.document().etag.is_some());
    }
}
