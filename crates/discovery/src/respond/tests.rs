use std::io::Read;

use api::media::AggregatedVersion;
use expect_test::{Expect, expect};
use flate2::read::GzDecoder;

use super::*;
use crate::aggregated;
use crate::document::GZIP_THRESHOLD;
use crate::legacy::ApiGroupList;
use crate::testing::groups_from_notation;

fn small() -> EncodedDocument {
    aggregated::encode_json(&groups_from_notation("apps/v1 ds:get"), AggregatedVersion::V2)
}

fn large() -> EncodedDocument {
    let resources: String = (0..2000).map(|number| format!(" resource{number}s:get,list")).collect();
    let document =
        aggregated::encode_json(&groups_from_notation(&format!("apps/v1{resources}")), AggregatedVersion::V2);
    assert!(document.identity.len() > GZIP_THRESHOLD);
    document
}

fn respond_to(document: &EncodedDocument, headers: &[(&str, &str)]) -> Response<Bytes> {
    let mut request = HeaderMap::new();
    for (name, value) in headers {
        request.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    respond(document, &request)
}

#[track_caller]
fn check(document: &EncodedDocument, headers: &[(&str, &str)], expected: &Expect) {
    let response = respond_to(document, headers);
    let mut text = format!("{}\n", response.status().as_u16());
    for (name, value) in response.headers() {
        let is_own_tag = name == ETAG && Some(value) == document.etag.as_ref();
        let value = if is_own_tag { "the document's" } else { value.to_str().unwrap() };
        text += &format!("{name}: {value}\n");
    }
    expected.assert_eq(&text);
}

#[test]
fn small_document_is_sent_uncompressed() {
    let document = small();
    check(
        &document,
        &[("accept-encoding", "gzip")],
        &expect![[r#"
            200
            etag: the document's
            vary: Accept
            cache-control: public
            content-type: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList
        "#]],
    );
    assert_eq!(respond_to(&document, &[]).body(), &document.identity);
}

#[test]
fn large_document_is_gzipped_when_accepted() {
    let document = large();
    let response = respond_to(&document, &[("accept-encoding", "gzip")]);
    check(
        &document,
        &[("accept-encoding", "deflate, gzip;q=0.5")],
        &expect![[r#"
            200
            etag: the document's
            vary: Accept
            vary: Accept-Encoding
            cache-control: public
            content-type: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList
            content-encoding: gzip
        "#]],
    );
    let mut plain = Vec::new();
    GzDecoder::new(&response.body()[..]).read_to_end(&mut plain).unwrap();
    assert_eq!(plain, document.identity);
    assert!(response.body().len() * 4 < plain.len());
}

#[test]
fn document_is_uncompressed_unless_gzip_is_named() {
    let document = large();
    for accepted in ["", "identity", "*", "deflate, br", "gzip;q=0", "gzip; q=0.000", "x-gzip", "gzip2"] {
        let response = respond_to(&document, &[("accept-encoding", accepted)]);
        assert_eq!(response.body(), &document.identity, "{accepted}");
        assert_eq!(response.headers().get(CONTENT_ENCODING), None, "{accepted}");
    }
    assert_eq!(respond_to(&document, &[]).body(), &document.identity);
    for accepted in ["gzip", "GZIP", "br;q=1, gzip", " gzip ; q=1"] {
        assert_eq!(Some(respond_to(&document, &[("accept-encoding", accepted)]).body()), document.gzip(), "{accepted}");
    }
}

#[test]
fn matching_if_none_match_returns_304() {
    let document = large();
    let etag = document.etag.clone().unwrap();
    let headers = [("if-none-match", etag.to_str().unwrap()), ("accept-encoding", "gzip")];
    check(
        &document,
        &headers,
        &expect![[r#"
            304
            etag: the document's
            vary: Accept
            cache-control: public
        "#]],
    );
    assert!(respond_to(&document, &headers).body().is_empty());
}

#[test]
fn if_none_match_is_compared_verbatim() {
    let document = small();
    let etag = document.etag.clone().unwrap();
    let etag = etag.to_str().unwrap();
    let other = aggregated::encode_json(&document_with_more(), AggregatedVersion::V2).etag.unwrap();
    for tag in
        [&format!("W/{etag}"), &format!("{etag}, \"x\""), "*", "", etag.trim_matches('"'), other.to_str().unwrap()]
    {
        let response = respond_to(&document, &[("if-none-match", tag)]);
        assert_eq!((response.status(), response.body()), (StatusCode::OK, &document.identity), "{tag}");
    }
}

fn document_with_more() -> std::sync::Arc<crate::GroupDiscoveryList> {
    groups_from_notation("apps/v1 ds:get,list")
}

#[test]
fn legacy_document_has_no_etag_or_cache_headers() {
    let document = ApiGroupList::from_groups(&groups_from_notation("apps/v1 ds:get")).to_document();
    check(
        &document,
        &[("if-none-match", "\"\"")],
        &expect![[r#"
        200
        content-type: application/json
    "#]],
    );
}
