use std::collections::HashMap;

use api::media::AggregatedVersion;
use bytes::Bytes;
use discovery::aggregated;
use discovery::legacy::{ApiGroupList, ApiVersions};
use expect_test::{Expect, expect};
use futures_util::FutureExt as _;
use parking_lot::Mutex;

use super::*;
use crate::ports::Pending;
use crate::testing::{document, server};

/// A peer that answers by path, and remembers what it was asked.
#[derive(Default)]
struct Script {
    answers: HashMap<&'static str, Result<(u16, String, Bytes), FetchFault>>,
    asked: Mutex<Vec<FetchRequest>>,
}

impl Script {
    fn on(mut self, path: &'static str, status: u16, body: impl Into<Bytes>) -> Self {
        self.answers.insert(path, Ok((status, String::new(), body.into())));
        self
    }

    fn with_etag(mut self, path: &'static str, etag: &str) -> Self {
        if let Some(Ok((_, known, _))) = self.answers.get_mut(path) {
            *known = etag.to_owned();
        }
        self
    }

    fn fails(mut self, path: &'static str, fault: FetchFault) -> Self {
        self.answers.insert(path, Err(fault));
        self
    }
}

impl Fetch for Script {
    fn fetch(&self, request: FetchRequest) -> Pending<'_, FetchAnswer, FetchFault> {
        let answer = self.answers.get(&*request.path).cloned().unwrap_or(Ok((404, String::new(), Bytes::new())));
        self.asked.lock().push(request);
        let answer = answer.map(|(status, etag, body)| {
            let mut headers = HeaderMap::new();
            headers.insert(ETAG, etag.parse().unwrap());
            FetchAnswer { status: StatusCode::from_u16(status).unwrap(), headers, body }
        });
        async move { answer }.boxed()
    }
}

fn peer() -> Peer {
    Peer { server: server("b"), address: Address::new("10.0.0.2", 6443).unwrap() }
}

fn v2(notation: &str) -> Bytes {
    aggregated::json(&document(notation), AggregatedVersion::V2).identity
}

async fn ask_script(script: &Script, former: Option<&Former>) -> Result<Answer, AskError> {
    ask(script, &peer(), former, AskLimits::default()).await
}

fn healthy() -> Script {
    let script = Script::default().on("/api", 200, v2("v1 pods:get")).on("/apis", 200, v2("apps/v1 xs:get"));
    script.with_etag("/api", "\"A\"").with_etag("/apis", "\"B\"")
}

fn former() -> Former {
    let document = ServerDocument::new(document("v1 pods:get"), document("apps/v1 xs:get"));
    Former { etags: Etags { api: "\"A\"".to_owned(), apis: "\"B\"".to_owned() }, document: Arc::new(document) }
}

#[tokio::test]
async fn a_peer_is_asked_for_both_documents_as_the_user_that_servers_are() {
    let script = healthy();
    let Answer::New { document: answered, etags } = ask_script(&script, None).await.unwrap() else { panic!("new") };
    assert_eq!(*answered, *former().document);
    assert_eq!(etags, former().etags);
    let asked = script.asked.lock();
    let shown: Vec<_> =
        asked.iter().map(|request| format!("{}{} {:?}", request.address, request.path, request.headers)).collect();
    expect![[r#"
        10.0.0.2:6443/api {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "x-remote-user": "system:apiserver", "x-remote-uid": "system:apiserver", "x-remote-group": "system:authenticated", "x-kubernetes-peer-proxied": "true", "x-kubernetes-apiserver-rerouted": "true"}
        10.0.0.2:6443/apis {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "x-remote-user": "system:apiserver", "x-remote-uid": "system:apiserver", "x-remote-group": "system:authenticated", "x-kubernetes-peer-proxied": "true", "x-kubernetes-apiserver-rerouted": "true"}"#]]
    .assert_eq(&shown.join("\n"));
}

#[tokio::test]
async fn what_did_not_change_is_confirmed() {
    let script = Script::default().on("/api", 304, "").on("/apis", 304, "");
    assert_eq!(ask_script(&script, Some(&former())).await.unwrap(), Answer::Same);
    let asked = script.asked.lock();
    let tags: Vec<_> = asked.iter().map(|request| request.headers[IF_NONE_MATCH].clone()).collect();
    assert_eq!(tags, ["\"A\"", "\"B\""]);
}

#[tokio::test]
async fn a_document_that_changed_alone_is_put_together_with_the_former_other() {
    let script = Script::default().on("/api", 304, "").on("/apis", 200, v2("apps/v2 xs:get"));
    let answer = ask_script(&script, Some(&former())).await.unwrap();
    let expected = ServerDocument::new(document("v1 pods:get"), document("apps/v2 xs:get"));
    let etags = Etags { api: "\"A\"".to_owned(), apis: String::new() };
    assert_eq!(answer, Answer::New { document: Arc::new(expected), etags });
}

#[tokio::test]
async fn the_same_answered_again_in_full_is_the_same() {
    assert_eq!(ask_script(&healthy(), Some(&former())).await.unwrap(), Answer::Same);
}

#[tokio::test]
async fn a_server_without_aggregation_is_asked_version_by_version() {
    let (core, apis) = (document("v1 pods:get pods/exec:create"), document("apps/v1 xs:get | apps/v2 ys:get"));
    let list = |groups: &Groups, group: &str, version: &str| {
        let version = groups.version(group, version).unwrap();
        discovery::legacy::ApiResourceList::from_version(group, version, |_, _| None).to_document().identity
    };
    let script = Script::default()
        .on("/api", 200, ApiVersions::from_groups(&core).to_document().identity)
        .on("/api/v1", 200, list(&core, "", "v1"))
        .on("/apis", 200, ApiGroupList::from_groups(&apis).to_document().identity)
        .on("/apis/apps/v1", 200, list(&apis, "apps", "v1"))
        .on("/apis/apps/v2", 200, list(&apis, "apps", "v2"));
    let Answer::New { document, etags } = ask_script(&script, None).await.unwrap() else { panic!("new") };
    assert_eq!(etags, Etags::default());
    let table = crate::Table::default().next(&document, &[], &crate::exclusion::Exclusion::default());
    assert_eq!(table.len(), 4);

    let broken = Script { answers: script.answers, ..Script::default() }.on("/apis/apps/v2", 503, "");
    let error = ask_script(&broken, None).await.unwrap_err().to_string();
    assert_eq!(error, "/apis/apps/v2: the answer is 503 Service Unavailable");
}

#[track_caller]
fn check(script: &Script, reason: &str, expected: &Expect) {
    let error = ask_script(script, None).now_or_never().unwrap().unwrap_err();
    expected.assert_eq(&error.to_string());
    assert_eq!(error.faults.last().unwrap().kind.as_str(), reason);
}

#[tokio::test]
async fn half_an_answer_is_none() {
    let unreachable = FetchFault::Unreachable { reason: "connection refused".to_owned() };
    check(
        &healthy().fails("/apis", unreachable.clone()),
        "unreachable",
        &expect!["/apis: it cannot be reached: connection refused"],
    );
    check(&healthy().on("/api", 500, ""), "status", &expect!["/api: the answer is 500 Internal Server Error"]);
    check(
        &healthy().on("/api", 500, "").fails("/apis", unreachable),
        "unreachable",
        &expect!["/api: the answer is 500 Internal Server Error; /apis: it cannot be reached: connection refused"],
    );
}

#[tokio::test]
async fn answers_that_are_none_say_why() {
    check(&healthy().on("/apis", 401, ""), "unauthorized", &expect!["/apis: the answer is 401 Unauthorized"]);
    check(&healthy().on("/apis", 302, ""), "redirect", &expect!["/apis: the answer is 302 Found"]);
    check(&healthy().on("/apis", 304, ""), "redirect", &expect!["/apis: the answer is 304 Not Modified"]);
    check(&healthy().on("/apis", 206, v2("")), "status", &expect!["/apis: the answer is 206 Partial Content"]);
    check(
        &healthy().on("/apis", 200, "<html>"),
        "garbage",
        &expect!["/apis: the discovery document cannot be read: expected value at line 1 column 1"],
    );
    check(
        &healthy().on("/apis", 200, "{}"),
        "garbage",
        &expect![[r#"/apis: expected a document of kind APIGroupList, found """#]],
    );
    check(
        &healthy().on("/apis", 200, v2("apps/v1 xs:get").slice(..40)),
        "garbage",
        &expect!["/apis: the discovery document cannot be read: EOF while parsing a string at line 1 column 40"],
    );
    let tls = FetchFault::Tls { reason: "certificate of somebody else".to_owned() };
    check(
        &healthy().fails("/apis", tls),
        "tls",
        &expect!["/apis: the TLS handshake failed: certificate of somebody else"],
    );
    let broken = FetchFault::Broken { reason: "reset".to_owned() };
    check(&healthy().fails("/apis", broken), "broken", &expect!["/apis: its answer broke off: reset"]);
    let hostile =
        r#"{"kind":"APIGroupList","groups":[{"name":"a","versions":[{"groupVersion":"a/b c","version":"b c"}]}]}"#;
    check(&healthy().on("/apis", 200, hostile), "garbage", &expect![[r#"/apis: "a/b c" is no name of a version"#]]);
}

#[tokio::test]
async fn a_document_over_the_limit_is_refused() {
    let limits = AskLimits { bytes_max: 100, ..AskLimits::default() };
    let error = ask(&healthy(), &peer(), None, limits).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "/api: its answer is longer than 50 bytes; /apis: its answer is longer than 50 bytes"
    );
    assert_eq!(error.faults[0].kind.as_str(), "too_long");
}

struct Deaf;

impl Fetch for Deaf {
    fn fetch(&self, _: FetchRequest) -> Pending<'_, FetchAnswer, FetchFault> {
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_accepts_and_never_answers_costs_the_timeout() {
    let started = tokio::time::Instant::now();
    let error = ask(&Deaf, &peer(), None, AskLimits::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "/api: it did not answer in time; /apis: it did not answer in time");
    assert_eq!(error.faults[0].kind.as_str(), "timeout");
    assert_eq!(started.elapsed(), AskLimits::TIMEOUT);
}
