use http::StatusCode;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use parking_lot::Mutex;
use prometheus::Registry;
use transport::testing::{Certificates, Heard, ScriptedPeer, Visit};

use super::peers::Standing;
use super::*;
use crate::status::Execution;

mod bandwidth;
mod bodies;
mod failover;
mod fetching;
mod heads;
mod patience;
mod queueing;
mod sharing;
mod upgrades;
mod vouching;

/// Long enough for a loaded machine, and only ever waited for by a test that fails.
const ENOUGH: Duration = Duration::from_secs(60);
/// What a peer that never answers is given, and nobody else.
const SOON: Duration = Duration::from_millis(30);

/// Limits that no working peer meets.
fn generous() -> ForwardLimits {
    ForwardLimits { connect_timeout: ENOUGH, patience: ENOUGH, ping_timeout: ENOUGH, ..ForwardLimits::default() }
}

/// A forwarder and what it needs.
struct Bench {
    certificates: Certificates,
    tasks: Tasks,
    registry: Registry,
    forwarder: Forwarder,
    doubted: Mutex<Vec<ServerId>>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(limits: ForwardLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::new(folder.path());
        let tasks = Tasks::new();
        let registry = Registry::new();
        let forwarder =
            Forwarder::new(Ways::of_server(certificates.connector()), limits, Metrics::new(&registry), &tasks);
        Self { certificates, tasks, registry, forwarder, doubted: Mutex::default(), _folder: folder }
    }

    async fn answering(&self, answer: impl Fn(&Heard) -> String + Clone + Send + Sync + 'static) -> ScriptedPeer {
        ScriptedPeer::answering(self.certificates.server(), &self.tasks, answer).await
    }

    async fn playing<Play, Playing>(&self, script: Play) -> ScriptedPeer
    where
        Play: Fn(Visit) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        ScriptedPeer::start(self.certificates.server(), &self.tasks, script).await
    }

    /// Forwards a request without a body.
    async fn get(&self, peers: &[&ScriptedPeer]) -> Result<Response<AnswerBody>, ForwardError> {
        let request = Request::get("/api/v1/pods").body(Empty::<Bytes>::new()).unwrap();
        self.forward(peers, Effect::Reads, Span::Open, request).await
    }

    /// Forwards a request with one.
    async fn post(&self, peers: &[&ScriptedPeer], body: &'static str) -> Result<Response<AnswerBody>, ForwardError> {
        let request = Request::post("/api/v1/pods").body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap();
        self.forward(peers, Effect::Writes, Span::Open, request).await
    }

    async fn forward<B>(
        &self,
        peers: &[&ScriptedPeer],
        effect: Effect,
        span: Span,
        request: Request<B>,
    ) -> Result<Response<AnswerBody>, ForwardError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let candidates: Vec<_> = peers.iter().enumerate().map(|(number, peer)| candidate(number, peer)).collect();
        let user = Identity::new("jane", "7", ["developers", "testers"], [("scopes", "all")]).unwrap();
        let doubt = |server: &ServerId| self.doubted.lock().push(server.clone());
        let call = Call { effect, span, doubt: &doubt, ..long_read(&candidates, &user) };
        self.forwarder.forward(call, request).await
    }

    fn standing(&self, number: usize) -> Standing {
        self.forwarder.peers().observed(&server(number)).unwrap().standing
    }

    /// The failures that were counted: `a broken 1`.
    fn failures(&self) -> Vec<String> {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == "unskew_peer_transport_failures_total");
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        let line = |metric: &prometheus::proto::Metric| {
            let labels: Vec<_> = metric.get_label().iter().map(|label| label.value()).collect();
            format!("{} {}", labels.join(" "), metric.get_counter().get_value())
        };
        metrics.iter().map(line).collect()
    }
}

/// A long-running read that reports stale peers to no one.
pub(super) fn long_read<'a>(candidates: &'a [Candidate], user: &'a Identity) -> Call<'a> {
    Call {
        candidates,
        user,
        client: IpAddr::from([192, 0, 2, 1]),
        audit_id: None,
        effect: Effect::Reads,
        span: Span::Open,
        prefers: None,
        is_brief: false,
        origin: ResponseOrigin::ServingPeer,
        marks_hop: true,
        doubt: &|_| {},
    }
}

/// The servers are called a, b, c …
fn server(number: usize) -> ServerId {
    ServerId::from_name(&format!("apiserver-{}", ["a", "b", "c", "d"][number])).unwrap()
}

fn candidate(number: usize, peer: &ScriptedPeer) -> Candidate {
    let address = Address::new("127.0.0.1", peer.address.port()).unwrap();
    Candidate { server: server(number), address }
}

fn ok(heard: &Heard) -> String {
    answer(200, "", &format!("{} {}", heard.line, heard.body))
}

fn answer(status: u16, lines: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} x\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

async fn text(response: Response<AnswerBody>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn answered_by(response: &Response<AnswerBody>) -> &ServerId {
    &response.extensions().get::<AnsweredBy>().unwrap().0
}

#[tokio::test]
async fn a_peer_hears_the_request_the_user_and_the_mark_and_nothing_of_the_clients_claims() {
    let bench = Bench::new(generous());
    let peer = bench.answering(ok).await;
    let target = "/apis/example.com/v1/namespaces/a%2Fb/xs/n%20?limit=%zz&&q=%2F&pretty";
    let request = Request::delete(target)
        .header("X-Remote-User", "admin")
        .header("X-Remote-Group", "system:masters")
        .header("Impersonate-User", "admin")
        .header("Authorization", "Bearer secret")
        .header("Connection", "x-remote-user")
        .header("User-Agent", "kubectl/v1.36")
        .body(Full::new(Bytes::from_static(b"{}")))
        .unwrap();
    let response = bench.forward(&[&peer], Effect::Writes, Span::Open, request).await.unwrap();
    assert_eq!((response.status(), answered_by(&response)), (StatusCode::OK, &server(0)));
    assert_eq!(text(response).await, format!("DELETE {target} HTTP/1.1 {{}}"));
    let mut lines: Vec<_> =
        peer.heard().await.headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    lines.sort();
    let lines = lines.join("\n").replace(&peer.address.to_string(), "PEER");
    expect_test::expect![[r#"
        content-length: 2
        host: PEER
        user-agent: kubectl/v1.36
        x-forwarded-for: 192.0.2.1
        x-forwarded-proto: https
        x-kubernetes-apiserver-rerouted: true
        x-kubernetes-peer-proxied: true
        x-remote-extra-scopes: all
        x-remote-group: developers
        x-remote-group: testers
        x-remote-uid: 7
        x-remote-user: jane"#]]
    .assert_eq(&lines);
}

#[tokio::test]
async fn short_requests_share_a_connection_and_a_watch_keeps_its_own() {
    let bench = Bench::new(generous());
    let peer = bench
        .playing(|mut visit| async move {
            while let Some(heard) = visit.hear().await {
                if heard.line.contains("watch") {
                    visit.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                    visit.closed().await;
                    return;
                }
                visit.say(&ok(&heard)).await;
            }
        })
        .await;
    let watch = Request::get("/api/v1/pods?watch=1").body(Empty::<Bytes>::new()).unwrap();
    let watch = bench.forward(&[&peer], Effect::Reads, Span::Open, watch).await.unwrap();
    for _ in 0..5 {
        text(bench.get(&[&peer]).await.unwrap()).await;
    }
    assert_eq!(peer.connections(), 2);
    let served = bench.forwarder.peers().served_by(&server(0)).unwrap();
    assert_eq!((served.opened, served.reused), (2, 4));
    let observed = bench.forwarder.peers().observed(&server(0)).unwrap();
    assert_eq!((observed.in_flight, observed.streams), (0, 1));
    drop(watch);
    assert_eq!(bench.forwarder.peers().observed(&server(0)).unwrap().streams, 0);
}

#[tokio::test]
async fn no_candidate_is_no_endpoint() {
    let bench = Bench::new(generous());
    let error = bench.get(&[]).await.unwrap_err();
    assert!(matches!(error, ForwardError::NoEndpoint), "{error}");
    assert_eq!(error.execution(), Execution::None);
}

#[tokio::test]
async fn an_answer_tells_how_many_were_tried_before() {
    let bench = Bench::new(generous());
    let dead = bench.playing(|_visit| async {}).await;
    let b = bench.answering(ok).await;
    let response = bench.get(&[&dead, &b]).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&Retried(1)));
    // It is passed over from then on.
    assert_eq!(bench.get(&[&dead, &b]).await.unwrap().extensions().get::<Retried>(), None);
    let error = bench.get(&[&dead]).await.unwrap_err();
    assert_eq!(error.retries(), 0);
}

#[tokio::test]
async fn a_peer_that_has_enough_to_do_is_passed_over_and_keeps_its_standing() {
    let bench = Bench::new(ForwardLimits { in_flight_max: Some(1), ..generous() });
    let (a, b) = (bench.answering(ok).await, bench.answering(ok).await);
    let until = Span::Until(Instant::now() + ENOUGH);
    let get = || Request::get("/").body(Empty::<Bytes>::new()).unwrap();
    let unread = bench.forward(&[&a], Effect::Reads, until, get()).await.unwrap();
    let second = bench.forward(&[&a, &b], Effect::Reads, until, get()).await.unwrap();
    assert_eq!(answered_by(&second), &server(1));
    let error = bench.forward(&[&a, &b], Effect::Reads, until, get()).await.unwrap_err();
    assert_eq!(error.execution(), Execution::None);
    assert_eq!(bench.standing(0), Standing::Well);
    drop(unread);
    let third = bench.forward(&[&a, &b], Effect::Reads, until, get()).await.unwrap();
    assert_eq!(answered_by(&third), &server(0));
    assert_eq!(bench.failures(), ["apiserver-a busy 1", "apiserver-b busy 1"]);
}

#[tokio::test]
async fn a_peer_that_is_no_member_any_more_is_forgotten() {
    let bench = Bench::new(generous());
    let peer = bench.answering(ok).await;
    text(bench.get(&[&peer]).await.unwrap()).await;
    let (views, receiver) = watch::channel(Arc::new(crate::testing::view("here: v1 pods:get; a live: v1 pods:get")));
    bench.forwarder.follow(receiver, &bench.tasks);
    assert!(bench.forwarder.peers().observed(&server(0)).is_some());
    views.send_replace(Arc::new(crate::testing::view("here: v1 pods:get")));
    let forgotten = async {
        while bench.forwarder.peers().observed(&server(0)).is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(ENOUGH, forgotten).await.unwrap();
}

#[test]
fn response_origin_is_the_backend_for_whatever_a_server_relays() {
    let origin = |method: &str, line: &str| match api::Target::parse(method, line).unwrap() {
        api::Target::Resource(resource) => ResponseOrigin::of(&resource),
        api::Target::NonResource(_) => panic!("{line}"),
    };
    for part in ["exec", "attach", "portforward", "proxy", "proxy/x", "log"] {
        for method in ["GET", "HEAD", "POST", "OPTIONS"] {
            let line = format!("/api/v1/namespaces/a/pods/b/{part}");
            assert_eq!(origin(method, &line), ResponseOrigin::ProxiedBackend, "{method} {line}");
        }
    }
    for line in ["/api/v1/namespaces/a/services/b/proxy/", "/api/v1/nodes/n/proxy/logs", "/api/v1/proxy/nodes/n"] {
        assert_eq!(origin("GET", line), ResponseOrigin::ProxiedBackend, "{line}");
    }
    for line in ["/api/v1/pods?watch=1", "/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods/b/status"] {
        assert_eq!(origin("GET", line), ResponseOrigin::ServingPeer, "{line}");
    }
}

#[test]
fn reading_is_what_can_be_repeated() {
    let effect = |method: &str, line: &str| match api::Target::parse(method, line).unwrap() {
        api::Target::Resource(resource) => Effect::of(&resource),
        api::Target::NonResource(_) => panic!("{line}"),
    };
    assert_eq!(effect("GET", "/api/v1/pods"), Effect::Reads);
    assert_eq!(effect("HEAD", "/api/v1/namespaces/a/pods/b"), Effect::Reads);
    assert_eq!(effect("GET", "/api/v1/pods?watch=1"), Effect::Reads);
    assert_eq!(effect("GET", "/api/v1/namespaces/a/pods/b/log"), Effect::Reads);
    assert_eq!(effect("GET", "/api/v1/namespaces/a/pods/b/exec"), Effect::Writes);
    assert_eq!(effect("GET", "/api/v1/namespaces/a/pods/b/proxy/x"), Effect::Writes);
    assert_eq!(effect("HEAD", "/api/v1/namespaces/a/services/b/proxy/"), Effect::Writes);
    assert_eq!(effect("OPTIONS", "/api/v1/nodes/n/proxy/x"), Effect::Writes);
    assert_eq!(effect("GET", "/api/v1/proxy/nodes/n"), Effect::Writes);
    assert_eq!(effect("POST", "/api/v1/namespaces/a/pods"), Effect::Writes);
    assert_eq!(effect("DELETE", "/api/v1/namespaces/a/pods"), Effect::Writes);
}
