use std::io::Read;

use api::media::AggregatedVersion;
use expect_test::{Expect, expect};
use flate2::read::GzDecoder;

use super::*;
use crate::aggregated;
use crate::document::GZIP_THRESHOLD;
use crate::legacy::ApiGroupList;
use crate::testing::document;

fn small() -> Document {
    aggregated::json(&document("apps/v1 ds:get"), AggregatedVersion::V2)
}

fn large() -> Document {
    let resources: String = (0..2000).map(|number| format!(" resource{number}s:get,list")).collect();
    let document = aggregated::json(&document(&format!("apps/v1{resources}")), AggregatedVersion::V2);
    assert!(document.identity.len() > GZIP_THRESHOLD);
    document
}

fn ask(document: &Document, headers: &[(&str, &str)]) -> Response<Bytes> {
    let mut request = HeaderMap::new();
    for (name, value) in headers {
        request.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    respond(document, &request)
}

#[track_caller]
fn check(document: &Document, headers: &[(&str, &str)], expected: &Expect) {
    let response = ask(document, headers);
    let mut text = format!("{}\n", response.status().as_u16());
    for (name, value) in response.headers() {
        let is_own_tag = name == ETAG && Some(value) == document.etag.as_ref();
        let value = if is_own_tag { "the document's" } else { value.to_str().unwrap() };
        text += &format!("{name}: {value}\n");
    }
    expected.assert_eq(&text);
}

#[test]
fn a_small_document_goes_out_as_it_is() {
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
    assert_eq!(ask(&document, &[]).body(), &document.identity);
}

#[test]
fn a_large_document_is_compressed_for_those_who_ask() {
    let document = large();
    let response = ask(&document, &[("accept-encoding", "gzip")]);
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
fn who_does_not_name_gzip_gets_the_plain_bytes() {
    let document = large();
    for accepted in ["", "identity", "*", "deflate, br", "gzip;q=0", "gzip; q=0.000", "x-gzip", "gzip2"] {
        let response = ask(&document, &[("accept-encoding", accepted)]);
        assert_eq!(response.body(), &document.identity, "{accepted}");
        assert_eq!(response.headers().get(CONTENT_ENCODING), None, "{accepted}");
    }
    assert_eq!(ask(&document, &[]).body(), &document.identity);
    for accepted in ["gzip", "GZIP", "br;q=1, gzip", " gzip ; q=1"] {
        assert_eq!(Some(ask(&document, &[("accept-encoding", accepted)]).body()), document.gzip(), "{accepted}");
    }
}

#[test]
fn a_matching_tag_is_answered_without_a_body() {
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
    assert!(ask(&document, &headers).body().is_empty());
}

#[test]
fn a_tag_is_compared_as_it_stands() {
    let document = small();
    let etag = document.etag.clone().unwrap();
    let etag = etag.to_str().unwrap();
    let other = aggregated::json(&document_with_more(), AggregatedVersion::V2).etag.unwrap();
    for tag in
        [&format!("W/{etag}"), &format!("{etag}, \"x\""), "*", "", etag.trim_matches('"'), other.to_str().unwrap()]
    {
        let response = ask(&document, &[("if-none-match", tag)]);
        assert_eq!((response.status(), response.body()), (StatusCode::OK, &document.identity), "{tag}");
    }
}

fn document_with_more() -> std::sync::Arc<crate::Groups> {
    document("apps/v1 ds:get,list")
}

#[test]
fn a_legacy_document_has_no_tag_and_may_not_be_cached_by_others() {
    let document = ApiGroupList::from_groups(&document("apps/v1 ds:get")).to_document();
    check(
        &document,
        &[("if-none-match", "\"\"")],
        &expect![[r#"
        200
        content-type: application/json
    "#]],
    );
}
