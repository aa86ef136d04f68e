use std::sync::atomic::{AtomicBool, Ordering};

use access::authenticate::HeaderNames;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use peering::ports::Pending;
use prometheus::Registry;
use tasks::Tasks;

use super::*;
use crate::StateDir;

const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// An upstream that answers while it is up, and serves nothing.
#[derive(Default)]
struct Stub {
    is_up: AtomicBool,
    /// Whether its settings name a header that the gateway does not know.
    is_odd: AtomicBool,
    /// Whether users may be named to it, as the inspector says.
    is_vouched: AtomicBool,
}

impl vouching::Enforcer for Stub {
    fn set_vouching(&self, _upstream: &Upstream, is_allowed: bool) {
        self.is_vouched.store(is_allowed, Ordering::Relaxed);
    }

    fn remove_headers(&self, _headers: peering::forward::IdentityHeaders) {}
}

const SETTINGS: &str = r#"{"data":{"requestheader-username-headers":"[\"X-Remote-User\"]",
    "requestheader-group-headers":"[\"X-Remote-Group\"]"}}"#;
const ODD_SETTINGS: &str = r#"{"data":{"requestheader-username-headers":"[\"X-Other-User\",\"X-Remote-User\"]",
    "requestheader-group-headers":"[\"X-Remote-Group\"]"}}"#;

impl Fetch for Stub {
    fn fetch(&self, request: FetchRequest) -> Pending<'_, FetchAnswer, FetchFault> {
        let is_up = self.is_up.load(Ordering::Relaxed);
        let is_odd = self.is_odd.load(Ordering::Relaxed);
        async move {
            if !is_up {
                return Err(FetchFault::Unreachable { reason: "it is down".to_owned() });
            }
            let body = match request.path.as_str() {
                "/readyz" => "ok",
                vouching::CONFIG_MAP if is_odd => ODD_SETTINGS,
                vouching::CONFIG_MAP => SETTINGS,
                "/version" => r#"{"gitVersion":"v1.36.0"}"#,
                _ => {
                    r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}"#
                }
            };
            let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            Ok(FetchAnswer { status: StatusCode::OK, headers, body: Bytes::from_static(body.as_bytes()) })
        }
        .boxed()
    }
}

/// An upstream that is inspected, and what the board shows of it.
struct Scene {
    stub: Arc<Stub>,
    upstream: Upstream,
    board: Board,
    kept: StateDir,
    tasks: Tasks,
    _wanted: watch::Sender<Option<Instant>>,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kept = StateDir::open(folder.path()).unwrap();
        let (board, stub, tasks) = (Board::new(kept.clone()), Arc::new(Stub::default()), Tasks::new());
        let upstream: Upstream = "https://10.0.0.1:6443".parse().unwrap();
        let wanted = watch::Sender::new(None);
        board.admit(&upstream);
        let inspector = Inspector {
            upstream: upstream.clone(),
            board: board.clone(),
            fetch: stub.clone(),
            forget_after: FORGET_AFTER,
            wanted: wanted.subscribe(),
            sight: watch::Sender::new(Sight::default()),
            metrics: Metrics::new(&Registry::new()),
            vouching: Arc::new(Vouching::new(HeaderNames::standard(), None, stub.clone(), stub.clone())),
        };
        tasks.spawn_once("inspector", inspector.run(tasks.stopping()));
        Self { stub, upstream, board, kept, tasks, _wanted: wanted, _folder: folder }
    }

    fn is_up(&self, is_up: bool) {
        self.stub.is_up.store(is_up, Ordering::Relaxed);
    }

    /// Whether it counts, whether requests may go to it, whether it is known what it serves, and whether that is kept.
    fn shown(&self) -> [bool; 4] {
        let server = &self.upstream.server;
        let [counts, is_open] = self.board.has(server);
        [counts, is_open, self.board.document(server).is_some(), self.kept.read(server).is_some()]
    }

    /// What is shown when so much time has passed. The clock stands still while files are written.
    async fn after(&self, time: Duration) -> [bool; 4] {
        tokio::time::sleep(time).await;
        self.shown()
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_counts_until_it_has_failed_for_too_long_and_is_gone_then() {
    let scene = Scene::new();
    scene.is_up(true);
    assert_eq!(scene.after(INTERVAL).await, [true, true, true, true]);
    scene.is_up(false);
    assert_eq!(scene.after(INTERVAL * 3).await, [true, false, true, true], "away");
    assert_eq!(scene.after(FORGET_AFTER - INTERVAL * 6).await, [true, false, true, true], "almost for too long");
    assert_eq!(scene.after(INTERVAL * 6).await, [false, false, false, false], "for too long");
    scene.is_up(true);
    assert_eq!(scene.after(INTERVAL * 3).await, [true, true, true, true], "back");
    scene.tasks.stop(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_short_absence_is_not_added_to_the_next() {
    let scene = Scene::new();
    for _ in 0..3 {
        scene.is_up(true);
        assert_eq!(scene.after(INTERVAL * 3).await, [true, true, true, true]);
        scene.is_up(false);
        assert_eq!(scene.after(FORGET_AFTER / 2).await, [true, false, true, true]);
    }
    scene.tasks.stop(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_was_never_heard_is_gone_as_well() {
    let scene = Scene::new();
    assert_eq!(scene.after(FORGET_AFTER - INTERVAL * 3).await, [true, false, false, false]);
    assert_eq!(scene.after(INTERVAL * 6).await, [false, false, false, false]);
    scene.tasks.stop(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn settings_are_compared_every_minute_and_when_an_upstream_comes_back() {
    let scene = Scene::new();
    let is_vouched = || scene.stub.is_vouched.load(Ordering::Relaxed);
    scene.is_up(true);
    scene.after(INTERVAL).await;
    assert!(is_vouched());
    scene.stub.is_odd.store(true, Ordering::Relaxed);
    scene.after(COMPARE_INTERVAL + INTERVAL).await;
    assert!(!is_vouched(), "the change was found");
    assert_eq!(scene.shown(), [true, true, true, true], "tokens need no vouching");
    scene.stub.is_odd.store(false, Ordering::Relaxed);
    scene.after(COMPARE_RETRY_INTERVAL + INTERVAL).await;
    assert!(is_vouched(), "it was mended");
    scene.is_up(false);
    scene.after(INTERVAL * 3).await;
    scene.stub.is_odd.store(true, Ordering::Relaxed);
    scene.is_up(true);
    scene.after(INTERVAL * 2).await;
    assert!(!is_vouched(), "it came back as another");
    scene.tasks.stop(Duration::from_secs(60)).await.unwrap();
}
