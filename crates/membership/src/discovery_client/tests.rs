use std::collections::HashMap;

use api::media::AggregatedVersion;
use bytes::Bytes;
use discovery::aggregated;
use discovery::legacy::{ApiGroupList, ApiVersions};
use expect_test::{Expect, expect};
use futures_util::FutureExt as _;
use parking_lot::Mutex;

use super::*;
use crate::ports::PortFuture;
use crate::testing::{groups_from_notation, server_id};

/// A peer that responds by path and records its requests.
#[derive(Default)]
struct ScriptedFetch {
    responses: HashMap<&'static str, Result<(u16, String, Bytes), FetchError>>,
    requests: Mutex<Vec<FetchRequest>>,
}

impl ScriptedFetch {
    fn respond(mut self, path: &'static str, status: u16, body: impl Into<Bytes>) -> Self {
        self.responses.insert(path, Ok((status, String::new(), body.into())));
        self
    }

    fn with_etag(mut self, path: &'static str, etag: &str) -> Self {
        if let Some(Ok((_, known, _))) = self.responses.get_mut(path) {
            *known = etag.to_owned();
        }
        self
    }

    fn fail(mut self, path: &'static str, fault: FetchError) -> Self {
        self.responses.insert(path, Err(fault));
        self
    }
}

impl Fetch for ScriptedFetch {
    fn fetch(&self, request: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError> {
        let answer = self.responses.get(&*request.path).cloned().unwrap_or(Ok((404, String::new(), Bytes::new())));
        self.requests.lock().push(request);
        let answer = answer.map(|(status, etag, body)| {
            let mut headers = HeaderMap::new();
            headers.insert(ETAG, etag.parse().unwrap());
            FetchResponse { status: StatusCode::from_u16(status).unwrap(), headers, body }
        });
        async move { answer }.boxed()
    }
}

fn peer() -> DiscoveryPeer {
    DiscoveryPeer { server: server_id("b"), address: Address::new("10.0.0.2", 6443).unwrap() }
}

fn aggregated_v2(notation: &str) -> Bytes {
    aggregated::encode_json(&groups_from_notation(notation), AggregatedVersion::V2).identity
}

async fn fetch_from_script(
    script: &ScriptedFetch,
    previous: Option<&PreviousDiscovery>,
) -> Result<FetchedDiscovery, DiscoveryFetchError> {
    fetch_discovery(script, &peer(), previous, DiscoveryFetchLimits::default()).await
}

fn healthy_script() -> ScriptedFetch {
    let script = ScriptedFetch::default().respond("/api", 200, aggregated_v2("v1 pods:get")).respond(
        "/apis",
        200,
        aggregated_v2("apps/v1 xs:get"),
    );
    script.with_etag("/api", "\"A\"").with_etag("/apis", "\"B\"")
}

fn previous_discovery() -> PreviousDiscovery {
    let document = ServerDocument::new(groups_from_notation("v1 pods:get"), groups_from_notation("apps/v1 xs:get"));
    PreviousDiscovery {
        etags: Etags { api: "\"A\"".to_owned(), apis: "\"B\"".to_owned() },
        document: Arc::new(document),
    }
}

#[tokio::test]
async fn fetch_requests_both_documents_as_system_apiserver() {
    let script = healthy_script();
    let FetchedDiscovery::Changed { document: answered, etags } = fetch_from_script(&script, None).await.unwrap()
    else {
        panic!("new")
    };
    assert_eq!(*answered, *previous_discovery().document);
    assert_eq!(etags, previous_discovery().etags);
    let asked = script.requests.lock();
    let shown: Vec<_> =
        asked.iter().map(|request| format!("{}{} {:?}", request.address, request.path, request.headers)).collect();
    expect![[r#"
        10.0.0.2:6443/api {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "x-kubernetes-peer-proxied": "true", "x-kubernetes-apiserver-rerouted": "true"}
        10.0.0.2:6443/apis {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "x-kubernetes-peer-proxied": "true", "x-kubernetes-apiserver-rerouted": "true"}"#]]
    .assert_eq(&shown.join("\n"));
}

#[tokio::test]
async fn fetch_revalidates_with_etags_and_reports_unchanged() {
    let script = ScriptedFetch::default().respond("/api", 304, "").respond("/apis", 304, "");
    assert_eq!(fetch_from_script(&script, Some(&previous_discovery())).await.unwrap(), FetchedDiscovery::Unchanged);
    let asked = script.requests.lock();
    let tags: Vec<_> = asked.iter().map(|request| request.headers[IF_NONE_MATCH].clone()).collect();
    assert_eq!(tags, ["\"A\"", "\"B\""]);
}

#[tokio::test]
async fn fetch_combines_changed_document_with_unchanged_one() {
    let script =
        ScriptedFetch::default().respond("/api", 304, "").respond("/apis", 200, aggregated_v2("apps/v2 xs:get"));
    let answer = fetch_from_script(&script, Some(&previous_discovery())).await.unwrap();
    let expected = ServerDocument::new(groups_from_notation("v1 pods:get"), groups_from_notation("apps/v2 xs:get"));
    let etags = Etags { api: "\"A\"".to_owned(), apis: String::new() };
    assert_eq!(answer, FetchedDiscovery::Changed { document: Arc::new(expected), etags });
}

#[tokio::test]
async fn fetch_of_equal_document_is_unchanged() {
    assert_eq!(
        fetch_from_script(&healthy_script(), Some(&previous_discovery())).await.unwrap(),
        FetchedDiscovery::Unchanged
    );
}

#[tokio::test]
async fn fetch_falls_back_to_legacy_discovery_per_version() {
    let (core, apis) =
        (groups_from_notation("v1 pods:get pods/exec:create"), groups_from_notation("apps/v1 xs:get | apps/v2 ys:get"));
    let list = |groups: &GroupDiscoveryList, group: &str, version: &str| {
        let version = groups.version(group, version).unwrap();
        discovery::legacy::ApiResourceList::from_version(group, version, |_, _| None).to_document().identity
    };
    let script = ScriptedFetch::default()
        .respond("/api", 200, ApiVersions::from_groups(&core).to_document().identity)
        .respond("/api/v1", 200, list(&core, "", "v1"))
        .respond("/apis", 200, ApiGroupList::from_groups(&apis).to_document().identity)
        .respond("/apis/apps/v1", 200, list(&apis, "apps", "v1"))
        .respond("/apis/apps/v2", 200, list(&apis, "apps", "v2"));
    let FetchedDiscovery::Changed { document, etags } = fetch_from_script(&script, None).await.unwrap() else {
        panic!("new")
    };
    assert_eq!(etags, Etags::default());
    let table = crate::RoutingTable::default().rebuild(&document, &[], &crate::exclusion::Exclusion::default());
    assert_eq!(table.len(), 4);

    let broken =
        ScriptedFetch { responses: script.responses, ..ScriptedFetch::default() }.respond("/apis/apps/v2", 503, "");
    let error = fetch_from_script(&broken, None).await.unwrap_err().to_string();
    assert_eq!(error, "/apis/apps/v2: the answer is 503 Service Unavailable");
}

#[track_caller]
fn check(scripted: &ScriptedFetch, reason: &str, expected: &Expect) {
    let error = fetch_from_script(scripted, None).now_or_never().unwrap().unwrap_err();
    expected.assert_eq(&error.to_string());
    assert_eq!(error.failures.last().unwrap().kind.as_str(), reason);
}

#[tokio::test]
async fn fetch_fails_if_either_document_fails() {
    let unreachable = FetchError::Unreachable { reason: "connection refused".to_owned() };
    check(
        &healthy_script().fail("/apis", unreachable.clone()),
        "unreachable",
        &expect!["/apis: it cannot be reached: connection refused"],
    );
    check(
        &healthy_script().respond("/api", 500, ""),
        "status",
        &expect!["/api: the answer is 500 Internal Server Error"],
    );
    check(
        &healthy_script().respond("/api", 500, "").fail("/apis", unreachable),
        "unreachable",
        &expect!["/api: the answer is 500 Internal Server Error; /apis: it cannot be reached: connection refused"],
    );
}

#[tokio::test]
async fn fetch_error_names_cause() {
    check(
        &healthy_script().respond("/apis", 401, ""),
        "unauthorized",
        &expect!["/apis: the answer is 401 Unauthorized"],
    );
    check(&healthy_script().respond("/apis", 302, ""), "redirect", &expect!["/apis: the answer is 302 Found"]);
    check(&healthy_script().respond("/apis", 304, ""), "redirect", &expect!["/apis: the answer is 304 Not Modified"]);
    check(
        &healthy_script().respond("/apis", 206, aggregated_v2("")),
        "status",
        &expect!["/apis: the answer is 206 Partial Content"],
    );
    check(
        &healthy_script().respond("/apis", 200, "<html>"),
        "garbage",
        &expect!["/apis: the discovery document cannot be read: expected value at line 1 column 1"],
    );
    check(
        &healthy_script().respond("/apis", 200, "{}"),
        "garbage",
        &expect![[r#"/apis: expected a document of kind APIGroupList, found """#]],
    );
    check(
        &healthy_script().respond("/apis", 200, aggregated_v2("apps/v1 xs:get").slice(..40)),
        "garbage",
        &expect!["/apis: the discovery document cannot be read: EOF while parsing a string at line 1 column 40"],
    );
    let tls = FetchError::Tls { reason: "certificate of another server".to_owned() };
    check(
        &healthy_script().fail("/apis", tls),
        "tls",
        &expect!["/apis: the TLS handshake failed: certificate of another server"],
    );
    let broken = FetchError::Broken { reason: "reset".to_owned() };
    check(&healthy_script().fail("/apis", broken), "broken", &expect!["/apis: its answer broke off: reset"]);
    let hostile =
        r#"{"kind":"APIGroupList","groups":[{"name":"a","versions":[{"groupVersion":"a/b c","version":"b c"}]}]}"#;
    check(
        &healthy_script().respond("/apis", 200, hostile),
        "garbage",
        &expect![[r#"/apis: "a/b c" is no name of a version"#]],
    );
}

#[tokio::test]
async fn fetch_rejects_document_over_size_limit() {
    let limits = DiscoveryFetchLimits { bytes_max: 100, ..DiscoveryFetchLimits::default() };
    let error = fetch_discovery(&healthy_script(), &peer(), None, limits).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "/api: its answer is longer than 50 bytes; /apis: its answer is longer than 50 bytes"
    );
    assert_eq!(error.failures[0].kind.as_str(), "too_long");
}

struct UnresponsivePeer;

impl Fetch for UnresponsivePeer {
    fn fetch(&self, _: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError> {
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn fetch_from_unresponsive_peer_ends_after_timeout() {
    let started = tokio::time::Instant::now();
    let error = fetch_discovery(&UnresponsivePeer, &peer(), None, DiscoveryFetchLimits::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "/api: it did not answer in time; /apis: it did not answer in time");
    assert_eq!(error.failures[0].kind.as_str(), "timeout");
    assert_eq!(started.elapsed(), DiscoveryFetchLimits::TIMEOUT);
}
