//! Requests of several writes that fail after the first one. The response must not make a client or a forwarding server
//! retry: no `Retry-After`, no `retryAfterSeconds`, no cause `PeerNotReady`.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use access::authentication::{
    AnonymousAccess, AuthenticationMethod, Authenticator, CertificateFieldSet, RequestIdentity, TokenAuthenticator,
};
use access::tokens::{SigningKey, TokenIssuer};
use access::{Authorizer, User};
use api::Target;
use apiserver::access_control::{AccessRules, AuthenticatedCaller, TokenSigning};
use apiserver::{ApiServer, Config, ServiceRouting, WebhookConfig};
use arc_swap::ArcSwap;
use bytes::Bytes;
use edge::audit::AuditedUsers;
use edge::health::HealthChecks;
use edge::metrics::Metrics;
use edge::pipeline::RequestLimits;
use edge::{AccessControl, CachedConnection, ClientConnection, Error, Pipeline, RequestRecord};
use forward::UnsendableUser;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kinds::{FeatureGates, Release, RuntimeConfig, ServedResources};
use membership::hop::RequestSender;
use parking_lot::Mutex;
use registry::{BarrierClosed, Permit, PermitRequest, Registry, WatchCache, WriteBarrier};
use serde_json::{Value, json};
use store::contract::StoreFuture;
use store::sqlite::SqliteStore;
use store::{Key, KeyRange, RangePage, Revision, Store, StoreEntry, Transaction, TransactionOutcome, Watch};
use tasks::Tasks;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use transport::Reloading;
use transport::peer::Dialer;
use transport::pki::CertificateAuthority;

const PREFIX: &str = "/registry";
const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";
const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
const BUDGETS_PATH: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How writes fail after `fail_after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteFault {
    BarrierClosed,
    /// The store returns an error.
    Unavailable,
    /// The store never responds.
    NoResponse,
}

/// A store that fails all writes after the first `writes_left`.
#[derive(Debug)]
struct FailingStore {
    store: SqliteStore,
    fault: WriteFault,
    writes_left: AtomicUsize,
    /// Notified when a write gets no response.
    unanswered: Notify,
}

impl FailingStore {
    fn take_write(&self) -> bool {
        self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

#[derive(Debug)]
struct FailingBarrier(Arc<FailingStore>);

impl WriteBarrier for FailingBarrier {
    fn permit(&self, _: &PermitRequest<'_>) -> Result<Permit, BarrierClosed> {
        match self.0.fault == WriteFault::BarrierClosed && !self.0.take_write() {
            true => Err(BarrierClosed { reason: "the encoding version is not published".to_owned() }),
            false => Ok(Permit::granted()),
        }
    }

    fn handle_stale_permit(&self, _: &PermitRequest<'_>, _: Option<&StoreEntry>, _: Revision) {}
}

impl Store for FailingStore {
    fn get(&self, key: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)> {
        self.store.get(key)
    }

    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage> {
        self.store.range(range)
    }

    fn commit(&self, transaction: Transaction) -> StoreFuture<'_, TransactionOutcome> {
        match self.fault {
            WriteFault::Unavailable if !self.take_write() => {
                let reason = "on purpose".to_owned();
                Box::pin(std::future::ready(Err(store::Error::Unavailable { reason })))
            }
            WriteFault::NoResponse if !self.take_write() => {
                self.unanswered.notify_one();
                Box::pin(std::future::pending())
            }
            WriteFault::BarrierClosed | WriteFault::Unavailable | WriteFault::NoResponse => {
                self.store.commit(transaction)
            }
        }
    }

    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch> {
        self.store.watch(prefix, from)
    }

    fn revision(&self) -> StoreFuture<'_, Revision> {
        self.store.revision()
    }

    fn supports_progress_requests(&self) -> bool {
        self.store.supports_progress_requests()
    }

    fn compact(&self, revision: Revision) -> StoreFuture<'_, ()> {
        self.store.compact(revision)
    }
}

/// Authenticates every request as `admin` and allows everything.
#[derive(Debug)]
struct AllowAllAccessControl;

impl AccessControl for AllowAllAccessControl {
    type Caller = AuthenticatedCaller;
    type ConnectionCache = ();

    async fn authenticate(
        &self,
        _: &CachedConnection<()>,
        _: &mut edge::Request,
        _: &RequestRecord,
    ) -> Result<AuthenticatedCaller, Error> {
        let user = Arc::new(User::named("admin"));
        let method = AuthenticationMethod::Certificate;
        Ok(RequestIdentity { user, method, audit_annotations: vec![], warnings: vec![], websocket_protocols: None }
            .into())
    }

    fn impersonate(&self, caller: AuthenticatedCaller, _: &mut edge::Request) -> Result<AuthenticatedCaller, Error> {
        Ok(caller)
    }

    async fn authorize(&self, _: &AuthenticatedCaller, _: &Target<'_>, _: &RequestRecord) -> Result<(), Error> {
        Ok(())
    }

    fn audited_users(&self, caller: &AuthenticatedCaller) -> AuditedUsers {
        AuditedUsers { user: Some(caller.user.clone()), impersonated: None }
    }

    fn request_sender(&self, _: &AuthenticatedCaller) -> RequestSender {
        RequestSender::Other
    }

    fn forwarded_user(&self, caller: &AuthenticatedCaller) -> Result<forward::ForwardedUser, UnsendableUser> {
        edge::identity_headers::to_forwarded_user(&caller.user)
    }
}

struct FailingServer {
    pipeline: Pipeline<AllowAllAccessControl, ApiServer>,
    failing_store: Arc<FailingStore>,
    _dir: tempfile::TempDir,
}

fn access_rules(dir: &std::path::Path) -> Arc<AccessRules> {
    CertificateAuthority::open_or_create(dir, "tokens").expect("the directory is writable");
    let key = std::fs::read_to_string(dir.join("tokens.key")).expect("the key was just created");
    let key = SigningKey::from_pem(&key).expect("the file holds a private key");
    let issuer = TokenIssuer {
        issuer: "test".to_owned(),
        signing_key: key,
        audiences: vec![],
        max_expiration_seconds: None,
        extend_expiration: false,
    };
    Arc::new(AccessRules {
        authenticator: Reloading::fixed(Authenticator {
            front_proxy: None,
            certificate_fields: CertificateFieldSet::ALL,
            token_authenticator: TokenAuthenticator::default(),
            anonymous: AnonymousAccess::Disabled,
        }),
        signing: Reloading::fixed(TokenSigning { issuer, openid_documents: None }),
        authorizer: Authorizer::parse("AlwaysAllow").expect("AlwaysAllow is a valid mode"),
        index: Arc::new(ArcSwap::from_pointee(access::rbac::RbacIndex::default())),
    })
}

impl FailingServer {
    /// Starts a server whose writes all succeed until [`Self::fail_after`].
    async fn start(fault: WriteFault) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory can be created");
        let tasks = Tasks::new();
        let feature_gates = FeatureGates::new(Release::R36);
        let config = RuntimeConfig::parse(Release::R36, "").expect("the defaults are valid");
        let served_resources = Arc::new(ServedResources::new(&feature_gates, &config));
        let config = store::sqlite::Config::new(folder.path().join("store.db"));
        let store = SqliteStore::open(config, &tasks).await.expect("the directory exists");
        let faulty = Arc::new(FailingStore {
            store,
            fault,
            writes_left: AtomicUsize::new(usize::MAX),
            unanswered: Notify::new(),
        });
        let resource_prefixes = apiserver::resource_prefixes(&served_resources, PREFIX);
        let cache = WatchCache::start(faulty.clone(), format!("{PREFIX}/").into(), resource_prefixes, &tasks);
        cache.wait_for_sync().await.expect("the cache runs");
        let registry = Registry::new(faulty.clone(), cache, Arc::new(FailingBarrier(faulty.clone())));
        let git_version = "v1.36.0".to_owned();
        let admission = apiserver::AdmissionConfig::for_release(feature_gates.release());
        let config = Config {
            git_version,
            address: "127.0.0.1".to_owned(),
            watch_seconds_min: 60,
            feature_gates,
            admission,
            service_ranges: apiserver::ServiceRanges::default(),
            webhooks: WebhookConfig { url_dialer: Dialer::direct(), routing: ServiceRouting::ClusterIp },
            extensions: None,
            metrics: prometheus::Registry::new(),
        };
        let (local, _definitions, _extension_apis) = ApiServer::new(
            registry,
            served_resources,
            PREFIX,
            &config,
            access_rules(folder.path()),
            CancellationToken::new(),
        );
        let metrics = Metrics::new(&prometheus::Registry::new());
        let limits = RequestLimits { reads: 0, writes: 0, request_timeout: REQUEST_TIMEOUT };
        let pipeline = Pipeline::new(AllowAllAccessControl, local, HealthChecks::new(vec![]), metrics, limits);
        let server = Self { pipeline, failing_store: faulty, _dir: folder };
        server.expect_status(201, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "default"}})).await;
        server
    }

    fn fail_after(&self, writes: usize) {
        self.failing_store.writes_left.store(writes, Ordering::SeqCst);
    }

    fn recover(&self) {
        self.fail_after(usize::MAX);
    }

    /// Sends a request over an HTTP/1.1 connection of its own.
    async fn send(&self, method: &str, path: &str, body: Value) -> http::Response<Bytes> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let client = ClientConnection {
            client_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            certificates: vec![],
            sticky_peer: Mutex::new(None),
        };
        let connection = CachedConnection { client, cache: () };
        let target = Target::parse(method, path);
        let answer = service_fn(|request| async {
            Ok::<_, Infallible>(self.pipeline.handle(&connection, &target, request).await)
        });
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), answer);
        let asking = async {
            let (mut sender, driver) =
                hyper::client::conn::http1::handshake(TokioIo::new(near)).await.expect("the connection is open");
            let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
            let request = http::Request::builder().method(method).uri(path).header("host", "test");
            let request = request.header("content-type", "application/json").body(Full::new(body));
            let exchange = async move {
                let request = request.expect("the request is well-formed");
                let (parts, body) = sender.send_request(request).await.expect("the server responds").into_parts();
                http::Response::from_parts(parts, body.collect().await.expect("the body is complete").to_bytes())
            };
            tokio::join!(driver, exchange).1
        };
        tokio::join!(serving, asking).1
    }

    async fn expect_status(&self, code: u16, method: &str, path: &str, body: Value) -> Value {
        let response = self.send(method, path, body).await;
        let text = String::from_utf8_lossy(response.body()).into_owned();
        assert_eq!(response.status(), code, "{method} {path}: {text}");
        serde_json::from_str(&text).expect("a response is JSON")
    }

    async fn config_map_count(&self) -> usize {
        self.recover();
        self.expect_status(200, "GET", CONFIG_MAPS_PATH, Value::Null).await["items"].as_array().map_or(0, Vec::len)
    }
}

/// Whether a failure has `Retry-After`, `retryAfterSeconds` and the cause `PeerNotReady`.
fn retry_hints(response: &http::Response<Bytes>) -> (bool, bool, bool) {
    let status: Value = serde_json::from_slice(response.body()).expect("a failure is a Status");
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    (
        response.headers().contains_key("retry-after"),
        status["details"].get("retryAfterSeconds").is_some(),
        causes.iter().any(|cause| cause["reason"] == "PeerNotReady"),
    )
}

#[tokio::test]
async fn delete_collection_has_retry_hints_only_if_nothing_was_deleted() {
    for fault in [WriteFault::BarrierClosed, WriteFault::Unavailable] {
        let server = FailingServer::start(fault).await;
        for name in ["a", "b", "c"] {
            server.expect_status(201, "POST", CONFIG_MAPS_PATH, json!({"metadata": {"name": name}})).await;
        }
        server.fail_after(0);
        let untouched = server.send("DELETE", CONFIG_MAPS_PATH, Value::Null).await;
        assert_eq!(untouched.status(), 503, "{fault:?}");
        assert_eq!(retry_hints(&untouched), (true, true, fault == WriteFault::BarrierClosed), "{fault:?}");
        assert_eq!(server.config_map_count().await, 3);
        server.fail_after(1);
        let partial = server.send("DELETE", CONFIG_MAPS_PATH, Value::Null).await;
        assert_eq!(partial.status(), 503, "{fault:?}");
        assert_eq!(retry_hints(&partial), (false, false, false), "{fault:?}: {partial:?}");
        assert_eq!(server.config_map_count().await, 2, "one was deleted before the failure");
        server.fail_after(2);
        server.expect_status(200, "DELETE", CONFIG_MAPS_PATH, Value::Null).await;
    }
}

#[tokio::test]
async fn delete_collection_stopped_at_deadline_has_no_retry_hints() {
    let server = FailingServer::start(WriteFault::NoResponse).await;
    for name in ["a", "b", "c"] {
        server.expect_status(201, "POST", CONFIG_MAPS_PATH, json!({"metadata": {"name": name}})).await;
    }
    server.fail_after(1);
    let strike = async {
        server.failing_store.unanswered.notified().await;
        tokio::time::pause();
        tokio::time::advance(REQUEST_TIMEOUT).await;
        tokio::time::resume();
    };
    let (partial, ()) = tokio::join!(server.send("DELETE", CONFIG_MAPS_PATH, Value::Null), strike);
    assert_eq!(partial.status(), 504);
    assert_eq!(retry_hints(&partial), (false, false, false), "{partial:?}");
    assert_eq!(server.config_map_count().await, 2, "one was deleted before the deadline");
}

#[tokio::test]
async fn eviction_has_retry_hints_only_if_budget_is_untouched() {
    for fault in [WriteFault::BarrierClosed, WriteFault::Unavailable] {
        let server = FailingServer::start(fault).await;
        let spec = json!({"nodeName": "n", "containers": [{"name": "a", "image": "i"}]});
        let pod = json!({"metadata": {"name": "p", "labels": {"app": "a"}}, "spec": spec});
        let account = json!({"metadata": {"name": "default"}});
        server.expect_status(201, "POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
        let mut pod = server.expect_status(201, "POST", PODS_PATH, pod).await;
        pod["status"]["phase"] = json!("Running");
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        server.expect_status(200, "PUT", &format!("{PODS_PATH}/p/status"), pod).await;
        let spec = json!({"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}});
        let mut budget =
            server.expect_status(201, "POST", BUDGETS_PATH, json!({"metadata": {"name": "b"}, "spec": spec})).await;
        budget["status"] = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1,
            "desiredHealthy": 0, "expectedPods": 1});
        server.expect_status(200, "PUT", &format!("{BUDGETS_PATH}/b/status"), budget).await;
        let allowed = async || {
            server.recover();
            server.expect_status(200, "GET", &format!("{BUDGETS_PATH}/b"), Value::Null).await["status"]["disruptionsAllowed"]
                .clone()
        };
        let evict = async |writes: usize| {
            server.fail_after(writes);
            server.send("POST", &format!("{PODS_PATH}/p/eviction"), json!({"metadata": {"name": "p"}})).await
        };
        let untouched = evict(0).await;
        assert_eq!(
            (untouched.status().as_u16(), retry_hints(&untouched)),
            (503, (true, true, fault == WriteFault::BarrierClosed))
        );
        assert_eq!(allowed().await, 1);
        let partial = evict(1).await;
        assert_eq!(partial.status(), 503, "{fault:?}");
        assert_eq!(retry_hints(&partial), (false, false, false), "{fault:?}: {partial:?}");
        assert_eq!(allowed().await, 0, "the budget was spent before the failure");
        server.expect_status(200, "GET", &format!("{PODS_PATH}/p"), Value::Null).await;
    }
}
