//! Requests of several steps that fail between two of them. After the first executed step neither a client nor a forwarding
//! server may be asked to repeat the request: no `Retry-After`, no `retryAfterSeconds`, no cause `PeerNotReady`.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use access::authenticate::{Anonymous, Authenticator, BearerTokens, CertificateParts, Identity, Method};
use access::tokens::{Issuer, SigningKey};
use access::{Authorizer, User};
use api::Target;
use apiserver::gate::{Caller, Rules, Signing};
use apiserver::{ApiServer, Config};
use arc_swap::ArcSwap;
use bytes::Bytes;
use catalogue::{Gates, Release, RuntimeConfig, Surface};
use edge::audit::{Actors, Trail};
use edge::health::Health;
use edge::metrics::Metrics;
use edge::pipeline::Limits;
use edge::{Connection, Error, Gate, Pipeline};
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use peering::forward::{self, UnsendableUser};
use peering::hop::Sender;
use registry::{Barrier, Cache, Held, Permit, Registry, Subject};
use serde_json::{Value, json};
use store::contract::Pending;
use store::sqlite::SqliteStore;
use store::{Entry, Key, Outcome, Page, Range, Revision, Store, Transaction, Watch};
use tasks::Tasks;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use transport::Watched;
use transport::pki::Authority;

const PREFIX: &str = "/registry";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How writes fail once there were enough of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The barrier is closed.
    Held,
    /// The store refuses.
    Unavailable,
    /// The store does not answer.
    Silent,
}

/// Lets a number of writes pass, then fails.
#[derive(Debug)]
struct Faulty {
    store: SqliteStore,
    fault: Fault,
    left: AtomicUsize,
    /// Told when a write is left without an answer.
    silent: Notify,
}

impl Faulty {
    fn may_write(&self) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

#[derive(Debug)]
struct FaultyBarrier(Arc<Faulty>);

impl Barrier for FaultyBarrier {
    fn permit(&self, _: &Subject<'_>) -> Result<Permit, Held> {
        match self.0.fault == Fault::Held && !self.0.may_write() {
            true => Err(Held { reason: "the encoding version is not published".to_owned() }),
            false => Ok(Permit::granted()),
        }
    }

    fn correct(&self, _: &Subject<'_>, _: Option<&Entry>, _: Revision) {}
}

impl Store for Faulty {
    fn get(&self, key: Key) -> Pending<'_, (Option<Entry>, Revision)> {
        self.store.get(key)
    }

    fn range(&self, range: Range) -> Pending<'_, Page> {
        self.store.range(range)
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Outcome> {
        match self.fault {
            Fault::Unavailable if !self.may_write() => {
                let reason = "on purpose".to_owned();
                Box::pin(std::future::ready(Err(store::Error::Unavailable { reason })))
            }
            Fault::Silent if !self.may_write() => {
                self.silent.notify_one();
                Box::pin(std::future::pending())
            }
            Fault::Held | Fault::Unavailable | Fault::Silent => self.store.commit(transaction),
        }
    }

    fn watch(&self, prefix: Key, from: Revision) -> Pending<'_, Watch> {
        self.store.watch(prefix, from)
    }

    fn revision(&self) -> Pending<'_, Revision> {
        self.store.revision()
    }

    fn answers_progress(&self) -> bool {
        self.store.answers_progress()
    }

    fn compact(&self, revision: Revision) -> Pending<'_, ()> {
        self.store.compact(revision)
    }
}

/// Everyone is an administrator.
#[derive(Debug)]
struct OpenGate;

impl Gate for OpenGate {
    type Caller = Caller;

    async fn identify(&self, _: &Connection, _: &mut edge::Request) -> Result<Caller, Error> {
        let user = Arc::new(User::named("admin"));
        let method = Method::Certificate;
        Ok(Identity { user, method, notes: vec![], warnings: vec![], websocket_protocols: None }.into())
    }

    fn act_as(&self, caller: Caller, _: &mut edge::Request) -> Result<Caller, Error> {
        Ok(caller)
    }

    fn authorize(&self, _: &Caller, _: &Target<'_>, _: Option<&Trail>) -> Result<(), Error> {
        Ok(())
    }

    fn actors(&self, caller: &Caller) -> Actors {
        Actors { user: Some(caller.user.clone()), impersonated: None }
    }

    fn sender(&self, _: &Caller) -> Sender {
        Sender::Other
    }

    fn identity(&self, caller: &Caller) -> Result<forward::Identity, UnsendableUser> {
        edge::claims::named(&caller.user)
    }
}

struct Server {
    pipeline: Pipeline<OpenGate, ApiServer>,
    faulty: Arc<Faulty>,
    _folder: tempfile::TempDir,
}

fn rules(folder: &std::path::Path) -> Arc<Rules> {
    Authority::open(folder, "tokens").expect("the folder can be written");
    let key = std::fs::read_to_string(folder.join("tokens.key")).expect("it was just made");
    let key = SigningKey::from_pem(&key).expect("it is a private key");
    let issuer = Issuer { name: "test".to_owned(), key, audiences: vec![], seconds_max: None, extends: false };
    Arc::new(Rules {
        authenticator: Watched::fixed(Authenticator {
            front_proxy: None,
            certificates: CertificateParts::ALL,
            tokens: BearerTokens::default(),
            anonymous: Anonymous::No,
        }),
        signing: Watched::fixed(Signing { issuer, documents: None }),
        authorizer: Authorizer::parse("AlwaysAllow").expect("it is a mode"),
        index: Arc::new(ArcSwap::from_pointee(access::rbac::Index::default())),
    })
}

impl Server {
    /// A server whose writes all succeed until [`Server::fail_after`].
    async fn start(fault: Fault) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let tasks = Tasks::new();
        let gates = Gates::new(Release::R36);
        let config = RuntimeConfig::parse(Release::R36, "").expect("the defaults are valid");
        let surface = Arc::new(Surface::new(&gates, &config));
        let config = store::sqlite::Config::new(folder.path().join("store.db"));
        let store = SqliteStore::open(config, &tasks).await.expect("the folder is there");
        let faulty = Arc::new(Faulty { store, fault, left: AtomicUsize::new(usize::MAX), silent: Notify::new() });
        let shelves = apiserver::shelves(&surface, PREFIX);
        let cache = Cache::start(faulty.clone(), format!("{PREFIX}/").into(), shelves, &tasks);
        cache.filled().await.expect("the cache runs");
        let registry = Registry::new(faulty.clone(), cache, Arc::new(FaultyBarrier(faulty.clone())));
        let git_version = "v1.36.0".to_owned();
        let config = Config { git_version, address: "127.0.0.1".to_owned(), watch_seconds_min: 60, gates };
        let local = ApiServer::new(registry, surface, PREFIX, &config, rules(folder.path()), CancellationToken::new());
        let metrics = Metrics::new(&prometheus::Registry::new());
        let limits = Limits { reads: 0, writes: 0, request_timeout: REQUEST_TIMEOUT };
        let pipeline = Pipeline::new(OpenGate, local, Health::new(vec![]), metrics, limits);
        let server = Self { pipeline, faulty, _folder: folder };
        server.expect(201, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "default"}})).await;
        server
    }

    fn fail_after(&self, writes: usize) {
        self.faulty.left.store(writes, Ordering::SeqCst);
    }

    fn recover(&self) {
        self.fail_after(usize::MAX);
    }

    /// Sends a request over an HTTP/1.1 connection of its own.
    async fn ask(&self, method: &str, path: &str, body: Value) -> http::Response<Bytes> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let connection = Connection {
            peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            certificates: vec![],
            memory: Mutex::new(None),
            sticks_to: Mutex::new(None),
        };
        let answer =
            service_fn(|request| async { Ok::<_, Infallible>(self.pipeline.answer(&connection, request).await) });
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), answer);
        let asking = async {
            let (mut sender, driver) =
                hyper::client::conn::http1::handshake(TokioIo::new(near)).await.expect("the connection is open");
            let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
            let request = http::Request::builder().method(method).uri(path).header("host", "test");
            let request = request.header("content-type", "application/json").body(Full::new(body));
            let exchange = async move {
                let request = request.expect("it is well-formed");
                let (parts, body) = sender.send_request(request).await.expect("it is answered").into_parts();
                http::Response::from_parts(parts, body.collect().await.expect("it is whole").to_bytes())
            };
            tokio::join!(driver, exchange).1
        };
        tokio::join!(serving, asking).1
    }

    async fn expect(&self, code: u16, method: &str, path: &str, body: Value) -> Value {
        let response = self.ask(method, path, body).await;
        let text = String::from_utf8_lossy(response.body()).into_owned();
        assert_eq!(response.status(), code, "{method} {path}: {text}");
        serde_json::from_str(&text).expect("an answer is JSON")
    }

    async fn maps_left(&self) -> usize {
        self.recover();
        self.expect(200, "GET", MAPS, Value::Null).await["items"].as_array().map_or(0, Vec::len)
    }
}

/// What a failure says about repeating the request: the header, the seconds in the body, and the cause for other servers.
fn invitations(response: &http::Response<Bytes>) -> (bool, bool, bool) {
    let status: Value = serde_json::from_slice(response.body()).expect("a failure is a Status");
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    (
        response.headers().contains_key("retry-after"),
        status["details"].get("retryAfterSeconds").is_some(),
        causes.iter().any(|cause| cause["reason"] == "PeerNotReady"),
    )
}

#[tokio::test]
async fn delete_collection_asks_for_repetition_only_if_nothing_was_deleted() {
    for fault in [Fault::Held, Fault::Unavailable] {
        let server = Server::start(fault).await;
        for name in ["a", "b", "c"] {
            server.expect(201, "POST", MAPS, json!({"metadata": {"name": name}})).await;
        }
        server.fail_after(0);
        let untouched = server.ask("DELETE", MAPS, Value::Null).await;
        assert_eq!(untouched.status(), 503, "{fault:?}");
        assert_eq!(invitations(&untouched), (true, true, fault == Fault::Held), "{fault:?}");
        assert_eq!(server.maps_left().await, 3);
        server.fail_after(1);
        let partial = server.ask("DELETE", MAPS, Value::Null).await;
        assert_eq!(partial.status(), 503, "{fault:?}");
        assert_eq!(invitations(&partial), (false, false, false), "{fault:?}: {partial:?}");
        assert_eq!(server.maps_left().await, 2, "one was deleted before the failure");
        server.fail_after(2);
        server.expect(200, "DELETE", MAPS, Value::Null).await;
    }
}

#[tokio::test]
async fn delete_collection_stopped_by_its_deadline_asks_for_no_repetition() {
    let server = Server::start(Fault::Silent).await;
    for name in ["a", "b", "c"] {
        server.expect(201, "POST", MAPS, json!({"metadata": {"name": name}})).await;
    }
    server.fail_after(1);
    let strike = async {
        server.faulty.silent.notified().await;
        tokio::time::pause();
        tokio::time::advance(REQUEST_TIMEOUT).await;
        tokio::time::resume();
    };
    let (partial, ()) = tokio::join!(server.ask("DELETE", MAPS, Value::Null), strike);
    assert_eq!(partial.status(), 504);
    assert_eq!(invitations(&partial), (false, false, false), "{partial:?}");
    assert_eq!(server.maps_left().await, 2, "one was deleted before the deadline");
}

#[tokio::test]
async fn eviction_asks_for_repetition_only_if_the_budget_is_untouched() {
    for fault in [Fault::Held, Fault::Unavailable] {
        let server = Server::start(fault).await;
        let spec = json!({"nodeName": "n", "containers": [{"name": "a", "image": "i"}]});
        let pod = json!({"metadata": {"name": "p", "labels": {"app": "a"}}, "spec": spec});
        let mut pod = server.expect(201, "POST", PODS, pod).await;
        pod["status"]["phase"] = json!("Running");
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        server.expect(200, "PUT", &format!("{PODS}/p/status"), pod).await;
        let spec = json!({"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}});
        let mut budget = server.expect(201, "POST", BUDGETS, json!({"metadata": {"name": "b"}, "spec": spec})).await;
        budget["status"] = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1,
            "desiredHealthy": 0, "expectedPods": 1});
        server.expect(200, "PUT", &format!("{BUDGETS}/b/status"), budget).await;
        let allowed = async || {
            server.recover();
            server.expect(200, "GET", &format!("{BUDGETS}/b"), Value::Null).await["status"]["disruptionsAllowed"]
                .clone()
        };
        let evict = async |writes: usize| {
            server.fail_after(writes);
            server.ask("POST", &format!("{PODS}/p/eviction"), json!({"metadata": {"name": "p"}})).await
        };
        let untouched = evict(0).await;
        assert_eq!((untouched.status().as_u16(), invitations(&untouched)), (503, (true, true, fault == Fault::Held)));
        assert_eq!(allowed().await, 1);
        let partial = evict(1).await;
        assert_eq!(partial.status(), 503, "{fault:?}");
        assert_eq!(invitations(&partial), (false, false, false), "{fault:?}: {partial:?}");
        assert_eq!(allowed().await, 0, "the budget was spent before the failure");
        server.expect(200, "GET", &format!("{PODS}/p"), Value::Null).await;
    }
}
