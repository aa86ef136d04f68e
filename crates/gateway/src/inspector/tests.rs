use std::sync::atomic::{AtomicBool, Ordering};

use access::authentication::FrontProxyHeaderNames;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use membership::ports::PortFuture;
use prometheus::Registry;
use tasks::Tasks;

use super::*;
use crate::StateDir;

const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// An upstream that responds while it is up, with an empty discovery document.
#[derive(Default)]
struct StubUpstream {
    is_up: AtomicBool,
    /// Whether the settings list a username header that the gateway does not set.
    has_unknown_header: AtomicBool,
    /// Last value passed to `set_vouching`.
    is_vouched: AtomicBool,
}

impl vouching::VouchingEnforcer for StubUpstream {
    fn set_vouching(&self, _upstream: &Upstream, is_allowed: bool) {
        self.is_vouched.store(is_allowed, Ordering::Relaxed);
    }

    fn set_removed_headers(&self, _headers: forward::IdentityHeaders) {}
}

const SETTINGS: &str = r#"{"data":{"requestheader-username-headers":"[\"X-Remote-User\"]",
    "requestheader-group-headers":"[\"X-Remote-Group\"]"}}"#;
const SETTINGS_WITH_UNKNOWN_HEADER: &str = r#"{"data":{"requestheader-username-headers":"[\"X-Other-User\",\"X-Remote-User\"]",
    "requestheader-group-headers":"[\"X-Remote-Group\"]"}}"#;

impl Fetch for StubUpstream {
    fn fetch(&self, request: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError> {
        let is_up = self.is_up.load(Ordering::Relaxed);
        let is_odd = self.has_unknown_header.load(Ordering::Relaxed);
        async move {
            if !is_up {
                return Err(FetchError::Unreachable { reason: "down".to_owned() });
            }
            let body = match request.path.as_str() {
                "/readyz" => "ok",
                vouching::CONFIG_MAP if is_odd => SETTINGS_WITH_UNKNOWN_HEADER,
                vouching::CONFIG_MAP => SETTINGS,
                "/version" => r#"{"gitVersion":"v1.36.0"}"#,
                _ => {
                    r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}"#
                }
            };
            let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            Ok(FetchResponse { status: StatusCode::OK, headers, body: Bytes::from_static(body.as_bytes()) })
        }
        .boxed()
    }
}

/// A stub upstream with a running inspector.
struct InspectorFixture {
    stub: Arc<StubUpstream>,
    upstream: Upstream,
    members: UpstreamMembers,
    state_dir: StateDir,
    tasks: Tasks,
    _refresh_requested_at: watch::Sender<Option<Instant>>,
    _dir: tempfile::TempDir,
}

impl InspectorFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kept = StateDir::open(dir.path()).unwrap();
        let (members, stub, tasks) =
            (UpstreamMembers::new(kept.clone()), Arc::new(StubUpstream::default()), Tasks::new());
        let upstream: Upstream = "https://10.0.0.1:6443".parse().unwrap();
        let wanted = watch::Sender::new(None);
        members.add_upstream(&upstream.server);
        let inspector = Inspector {
            upstream: upstream.clone(),
            members: members.clone(),
            fetch: stub.clone(),
            forget_after: FORGET_AFTER,
            refresh_requested_at: wanted.subscribe(),
            status: watch::Sender::new(UpstreamStatus::default()),
            metrics: Metrics::new(&Registry::new()),
            vouching_decider: Arc::new(VouchingDecider::new(
                FrontProxyHeaderNames::standard(),
                None,
                stub.clone(),
                stub.clone(),
            )),
        };
        tasks.spawn_once("inspector", inspector.run(tasks.stop_token()));
        Self { stub, upstream, members, state_dir: kept, tasks, _refresh_requested_at: wanted, _dir: dir }
    }

    fn set_up(&self, is_up: bool) {
        self.stub.is_up.store(is_up, Ordering::Relaxed);
    }

    /// Whether the upstream is a member, is ready, has a document, and has a document in the state directory.
    fn snapshot(&self) -> [bool; 4] {
        let server = &self.upstream.server;
        let [counts, is_open] = self.members.is_member_and_ready(server);
        [counts, is_open, self.members.document(server).is_some(), self.state_dir.read(server).is_some()]
    }

    /// Snapshot after `time`. The paused clock does not advance while files are written.
    async fn snapshot_after(&self, time: Duration) -> [bool; 4] {
        tokio::time::sleep(time).await;
        self.snapshot()
    }
}

#[tokio::test(start_paused = true)]
async fn failing_upstream_is_removed_after_forget_timeout() {
    let fixture = InspectorFixture::new();
    fixture.set_up(true);
    assert_eq!(fixture.snapshot_after(INSPECTION_INTERVAL).await, [true, true, true, true]);
    fixture.set_up(false);
    assert_eq!(fixture.snapshot_after(INSPECTION_INTERVAL * 3).await, [true, false, true, true], "not ready");
    assert_eq!(
        fixture.snapshot_after(FORGET_AFTER - INSPECTION_INTERVAL * 6).await,
        [true, false, true, true],
        "shortly before the forget timeout"
    );
    assert_eq!(
        fixture.snapshot_after(INSPECTION_INTERVAL * 6).await,
        [false, false, false, false],
        "after the forget timeout"
    );
    fixture.set_up(true);
    assert_eq!(fixture.snapshot_after(INSPECTION_INTERVAL * 3).await, [true, true, true, true], "ready again");
    fixture.tasks.stop(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn short_outages_do_not_accumulate() {
    let fixture = InspectorFixture::new();
    for _ in 0..3 {
        fixture.set_up(true);
        assert_eq!(fixture.snapshot_after(INSPECTION_INTERVAL * 3).await, [true, true, true, true]);
        fixture.set_up(false);
        assert_eq!(fixture.snapshot_after(FORGET_AFTER / 2).await, [true, false, true, true]);
    }
    fixture.tasks.stop(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn never_reachable_upstream_is_removed_after_forget_timeout() {
    let fixture = InspectorFixture::new();
    assert_eq!(fixture.snapshot_after(FORGET_AFTER - INSPECTION_INTERVAL * 3).await, [true, false, false, false]);
    assert_eq!(fixture.snapshot_after(INSPECTION_INTERVAL * 6).await, [false, false, false, false]);
    fixture.tasks.stop(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn settings_are_compared_periodically_and_after_return() {
    let fixture = InspectorFixture::new();
    let is_vouched = || fixture.stub.is_vouched.load(Ordering::Relaxed);
    fixture.set_up(true);
    fixture.snapshot_after(INSPECTION_INTERVAL).await;
    assert!(is_vouched());
    fixture.stub.has_unknown_header.store(true, Ordering::Relaxed);
    fixture.snapshot_after(SETTINGS_INTERVAL + INSPECTION_INTERVAL).await;
    assert!(!is_vouched(), "the change was found");
    assert_eq!(fixture.snapshot(), [true, true, true, true], "tokens need no vouching");
    fixture.stub.has_unknown_header.store(false, Ordering::Relaxed);
    fixture.snapshot_after(SETTINGS_RETRY_INTERVAL + INSPECTION_INTERVAL).await;
    assert!(is_vouched(), "the settings were fixed");
    fixture.set_up(false);
    fixture.snapshot_after(INSPECTION_INTERVAL * 3).await;
    fixture.stub.has_unknown_header.store(true, Ordering::Relaxed);
    fixture.set_up(true);
    fixture.snapshot_after(INSPECTION_INTERVAL * 2).await;
    assert!(!is_vouched(), "it returned with other settings");
    fixture.tasks.stop(Duration::from_secs(60)).await.unwrap();
}
