use api::status::{CAUSE_NOT_SERVED_BY_PEER, CAUSE_PEER_NOT_READY};
use api::{Address, Status};
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::watch;
use transport::testing::{ReceivedRequest, ScriptedConnection, ScriptedPeer, TestCertificates};

use super::peer_set::PeerHealth;
use super::*;

mod bandwidth;
mod bodies;
mod failover;
mod fetch;
mod head_requests;
mod multiplexing;
mod queue;
mod unresponsive_peers;
mod upgrades;
mod vouching;

/// Long enough for a loaded machine; only a failing test waits for it.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// For peers that never answer.
const SHORT_TIMEOUT: Duration = Duration::from_millis(30);

/// Limits that no working peer reaches.
fn generous_limits() -> ForwardLimits {
    ForwardLimits {
        connect_timeout: TEST_TIMEOUT,
        silence_timeout: TEST_TIMEOUT,
        ping_timeout: TEST_TIMEOUT,
        ..ForwardLimits::default()
    }
}

/// A forwarder, its certificates and its metrics.
struct ForwarderFixture {
    certificates: TestCertificates,
    tasks: Tasks,
    registry: Registry,
    forwarder: Forwarder,
    stale_marks: Mutex<Vec<Arc<str>>>,
    _dir: tempfile::TempDir,
}

impl ForwarderFixture {
    fn new(limits: ForwardLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let certificates = TestCertificates::new(dir.path());
        let tasks = Tasks::new();
        let registry = Registry::new();
        let forwarder = Forwarder::new(
            ForwarderConfig::for_server(certificates.connector()),
            limits,
            Metrics::new(&registry),
            &tasks,
        );
        Self { certificates, tasks, registry, forwarder, stale_marks: Mutex::default(), _dir: dir }
    }

    async fn start_responder(
        &self,
        respond: impl Fn(&ReceivedRequest) -> String + Clone + Send + Sync + 'static,
    ) -> ScriptedPeer {
        ScriptedPeer::start_responder(self.certificates.server_config(), &self.tasks, respond).await
    }

    async fn start_peer<Play, Playing>(&self, script: Play) -> ScriptedPeer
    where
        Play: Fn(ScriptedConnection) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        ScriptedPeer::start(self.certificates.server_config(), &self.tasks, script).await
    }

    /// Forwards a request without a body.
    async fn get(&self, peers: &[&ScriptedPeer]) -> Result<Response<ForwardedBody>, ForwardError> {
        let request = Request::get("/api/v1/pods").body(Empty::<Bytes>::new()).unwrap();
        self.forward(peers, Effect::Reads, Lifetime::LongRunning, request).await
    }

    /// Forwards a request with a body.
    async fn post(&self, peers: &[&ScriptedPeer], body: &'static str) -> Result<Response<ForwardedBody>, ForwardError> {
        let request = Request::post("/api/v1/pods").body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap();
        self.forward(peers, Effect::Writes, Lifetime::LongRunning, request).await
    }

    async fn forward<B>(
        &self,
        peers: &[&ScriptedPeer],
        effect: Effect,
        lifetime: Lifetime,
        request: Request<B>,
    ) -> Result<Response<ForwardedBody>, ForwardError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let candidates: Vec<_> = peers.iter().enumerate().map(|(number, peer)| candidate(number, peer)).collect();
        let user = ForwardedUser::new("jane", "7", ["developers", "testers"], [("scopes", "all")]).unwrap();
        let doubt = |id: &str| self.stale_marks.lock().push(id.into());
        let forward_request = ForwardRequest { effect, lifetime, mark_stale: &doubt, ..long_read(&candidates, &user) };
        self.forwarder.forward(forward_request, request).await
    }

    fn peer_health(&self, number: usize) -> PeerHealth {
        self.forwarder.peers().status(&server(number)).unwrap().health
    }

    /// The failures that were counted: `a broken 1`.
    fn failure_counts(&self) -> Vec<String> {
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
pub(super) fn long_read<'a>(candidates: &'a [Candidate], user: &'a ForwardedUser) -> ForwardRequest<'a> {
    ForwardRequest {
        candidates,
        add_hop_mark: true,
        ..ForwardRequest::new(
            user,
            IpAddr::from([192, 0, 2, 1]),
            Effect::Reads,
            ResponseOrigin::ServingPeer,
            Lifetime::LongRunning,
        )
    }
}

/// The servers are called a, b, c …
fn server(number: usize) -> Arc<str> {
    format!("apiserver-{}", ["a", "b", "c", "d"][number]).into()
}

fn candidate(number: usize, peer: &ScriptedPeer) -> Candidate {
    let address = Address::new("127.0.0.1", peer.address.port()).unwrap();
    Candidate::new(server(number), address)
}

/// The status of a server that executed nothing, as a peer sends it.
fn not_executed_status(cause: &'static str) -> Status {
    Status::service_unavailable("nothing was executed").with_retry_after(1).with_cause(cause, "")
}

fn echo_response(received: &ReceivedRequest) -> String {
    http_response(200, "", &format!("{} {}", received.request_line, received.body))
}

fn http_response(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} x\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

async fn body_text(response: Response<ForwardedBody>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn responding_peer(response: &Response<ForwardedBody>) -> &Arc<str> {
    &response.extensions().get::<RespondingPeer>().unwrap().0
}

#[tokio::test]
async fn forward_sends_user_and_hop_mark_without_client_identity() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture.start_responder(echo_response).await;
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
    let response = fixture.forward(&[&peer], Effect::Writes, Lifetime::LongRunning, request).await.unwrap();
    assert_eq!((response.status(), responding_peer(&response)), (StatusCode::OK, &server(0)));
    assert_eq!(body_text(response).await, format!("DELETE {target} HTTP/1.1 {{}}"));
    let mut lines: Vec<_> =
        peer.next_request().await.headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
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
async fn short_requests_reuse_a_connection_and_watch_has_its_own() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture
        .start_peer(|mut connection| async move {
            while let Some(received) = connection.read_request().await {
                if received.request_line.contains("watch") {
                    connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                    connection.wait_for_close().await;
                    return;
                }
                connection.write(&echo_response(&received)).await;
            }
        })
        .await;
    let watch = Request::get("/api/v1/pods?watch=1").body(Empty::<Bytes>::new()).unwrap();
    let watch = fixture.forward(&[&peer], Effect::Reads, Lifetime::LongRunning, watch).await.unwrap();
    for _ in 0..5 {
        body_text(fixture.get(&[&peer]).await.unwrap()).await;
    }
    assert_eq!(peer.connection_count(), 2);
    let served = fixture.forwarder.peers().pool_stats(&server(0)).unwrap();
    assert_eq!((served.opened, served.reused), (2, 4));
    let observed = fixture.forwarder.peers().status(&server(0)).unwrap();
    assert_eq!((observed.in_flight, observed.streams), (0, 1));
    drop(watch);
    assert_eq!(fixture.forwarder.peers().status(&server(0)).unwrap().streams, 0);
}

#[tokio::test]
async fn forward_without_candidates_is_no_endpoint() {
    let fixture = ForwarderFixture::new(generous_limits());
    let error = fixture.get(&[]).await.unwrap_err();
    assert!(matches!(error, ForwardError::NoEndpoint), "{error}");
    assert_eq!(error.execution(), Execution::None);
}

#[tokio::test]
async fn forward_reports_failed_attempts_in_extensions() {
    let fixture = ForwarderFixture::new(generous_limits());
    let dead = fixture.start_peer(|_visit| async {}).await;
    let b = fixture.start_responder(echo_response).await;
    let response = fixture.get(&[&dead, &b]).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&FailedAttempts(1)));
    // The failed peer is tried last from then on.
    assert_eq!(fixture.get(&[&dead, &b]).await.unwrap().extensions().get::<FailedAttempts>(), None);
    let error = fixture.get(&[&dead]).await.unwrap_err();
    assert_eq!(error.retries(), 0);
}

#[tokio::test]
async fn forward_skips_busy_peer_without_marking_it_failed() {
    let fixture = ForwarderFixture::new(ForwardLimits { in_flight_max: Some(1), ..generous_limits() });
    let (a, b) = (fixture.start_responder(echo_response).await, fixture.start_responder(echo_response).await);
    let until = Lifetime::Until(Instant::now() + TEST_TIMEOUT);
    let get = || Request::get("/").body(Empty::<Bytes>::new()).unwrap();
    let unread = fixture.forward(&[&a], Effect::Reads, until, get()).await.unwrap();
    let second = fixture.forward(&[&a, &b], Effect::Reads, until, get()).await.unwrap();
    assert_eq!(responding_peer(&second), &server(1));
    let error = fixture.forward(&[&a, &b], Effect::Reads, until, get()).await.unwrap_err();
    assert_eq!(error.execution(), Execution::None);
    assert_eq!(fixture.peer_health(0), PeerHealth::Healthy);
    drop(unread);
    let third = fixture.forward(&[&a, &b], Effect::Reads, until, get()).await.unwrap();
    assert_eq!(responding_peer(&third), &server(0));
    assert_eq!(fixture.failure_counts(), ["apiserver-a busy 1", "apiserver-b busy 1"]);
}

#[tokio::test]
async fn retain_candidates_forgets_all_others() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture.start_responder(echo_response).await;
    body_text(fixture.get(&[&peer]).await.unwrap()).await;
    fixture.forwarder.retain_candidates(|id| *id == *server(0));
    assert!(fixture.forwarder.peers().status(&server(0)).is_some());
    fixture.forwarder.retain_candidates(|_| false);
    assert!(fixture.forwarder.peers().status(&server(0)).is_none());
}

#[test]
fn response_origin_is_the_backend_for_whatever_a_server_relays() {
    let origin = |method: &str, line: &str| match api::Target::parse(method, line).unwrap() {
        api::Target::Resource(resource) => ResponseOrigin::for_resource(&resource),
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
fn effect_is_reads_only_for_safe_verbs() {
    let effect = |method: &str, line: &str| match api::Target::parse(method, line).unwrap() {
        api::Target::Resource(resource) => Effect::for_resource(&resource),
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
