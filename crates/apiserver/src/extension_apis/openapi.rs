//! OpenAPI documents of extension API servers: fetched when a client needs them, and kept by their hash.
//!
//! A client waits a short time for documents that are being fetched, then gets what is known. What was fetched last stays while
//! a server does not answer. Documents of OpenAPI 3.0 pass unchanged: whatever an extension server writes there harms only itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aggregation::api_service::ExtensionServer;
use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use schema::openapi::{KeptDocuments, OpenApiDocument, hash, parse_index};
use serde_json::value::RawValue;
use tasks::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use super::schedule::Schedule;
use super::{ExtensionApis, LiveExtensionApis};

/// The interval at which an index is fetched again if clients need it. kube-aggregator fetches it every minute, needed or not.
const INDEX_INTERVAL: Duration = Duration::from_secs(5);
/// After an index or a document could not be fetched.
const FETCH_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How long a client waits for indexes: shorter than a peer waits for this server's index.
const INDEX_WAIT: Duration = Duration::from_secs(1);
/// How long a client waits for documents of Swagger 2.0: shorter than a peer waits for this server's document.
const SWAGGER_WAIT: Duration = Duration::from_secs(3);
/// The limit for one document that a client requests.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of an index: several thousand group-versions.
const INDEX_BYTES_MAX: usize = 4 << 20;
/// The limit of a document, of one extension server.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// The limit of all documents that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Entries of one index that are used.
const GROUP_VERSIONS_MAX: usize = 1000;

/// Fetches and keeps the documents of extension API servers. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ExtensionOpenApi {
    apis: LiveExtensionApis,
    known: Arc<KnownDocuments>,
}

#[derive(Debug)]
struct KnownDocuments {
    servers: Mutex<HashMap<ExtensionServer, KnownServer>>,
    bodies: Mutex<KeptDocuments>,
    /// Changes whenever a request has ended.
    finished: watch::Sender<()>,
}

/// What is known of the documents of one server.
#[derive(Debug)]
struct KnownServer {
    index: Option<Arc<ExtensionIndex>>,
    index_schedule: Schedule,
    swagger_schedule: Schedule,
}

/// The documents that a server has.
#[derive(Debug, PartialEq, Eq)]
struct ExtensionIndex {
    /// The hashes of the documents by path below `/openapi/v3/`.
    addresses: BTreeMap<Box<str>, Box<str>>,
    /// The hash of all addresses.
    hash: Box<str>,
}

/// A document of Swagger 2.0, and what of it counts.
#[derive(Clone, Debug)]
pub(crate) struct ExtensionSwagger {
    pub(crate) document: OpenApiDocument,
    /// The group-versions of the server: `apis/metrics.k8s.io/v1beta1`.
    pub(crate) group_versions: Vec<String>,
}

/// The document of a group-version of an extension API server.
#[derive(Clone, Debug)]
pub(crate) enum ExtensionVersion {
    /// The document.
    Document(OpenApiDocument),
    /// The index of the server does not list one.
    Absent,
    /// The server did not answer, or not with a document.
    Unavailable,
}

impl ExtensionOpenApi {
    pub(crate) fn new(apis: LiveExtensionApis) -> Self {
        let known = KnownDocuments {
            servers: Mutex::default(),
            bodies: Mutex::new(KeptDocuments::new(KEPT_BYTES_MAX)),
            finished: watch::Sender::default(),
        };
        Self { apis, known: Arc::new(known) }
    }

    /// The paths of the group-versions below `/openapi/v3/`, and the hashes of their documents.
    pub(crate) async fn addresses(&self) -> BTreeMap<String, Box<str>> {
        let servers = group_versions_by_server(&self.apis.snapshot());
        self.refresh_indexes(&servers).await;
        let known = self.known.servers.lock();
        let mut addresses = BTreeMap::new();
        for (server, group_versions) in servers {
            let Some(index) = known.get(&server).and_then(|known| known.index.as_ref()) else { continue };
            for path in group_versions {
                if let Some(hash) = index.addresses.get(path.as_str()) {
                    addresses.insert(path, hash.clone());
                }
            }
        }
        addresses
    }

    /// The document of a group-version; `None` if no extension API server serves it.
    pub(crate) async fn version(&self, path: &str) -> Option<ExtensionVersion> {
        let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
        let server = self.apis.get(group, version)?.api_service.server.clone();
        // Once more with a new index, if the server has another document by now.
        for is_outdated in [false, true] {
            let servers = HashMap::from([(server.clone(), vec![path.to_owned()])]);
            if is_outdated && let Some(known) = self.known.servers.lock().get_mut(&server) {
                known.index_schedule.trigger(Instant::now());
            }
            self.refresh_indexes(&servers).await;
            let index = self.known.servers.lock().get(&server).and_then(|known| known.index.clone());
            let Some(index) = index else { return Some(ExtensionVersion::Unavailable) };
            let Some(hash) = index.addresses.get(path) else { return Some(ExtensionVersion::Absent) };
            let key = format!("{} {path} {hash}", server.server_name());
            if let Some(body) = self.known.bodies.lock().find(&key) {
                return Some(ExtensionVersion::Document(OpenApiDocument { body, hash: hash.clone() }));
            }
            let address = format!("/openapi/v3/{path}?hash={hash}");
            let fetched = self.get(&server, &address, DOCUMENT_BYTES_MAX);
            let fetched = tokio::time::timeout(DOCUMENT_TIMEOUT, fetched).await;
            match fetched.unwrap_or(Err(FetchError::TimedOut)) {
                Ok(Fetched::Body(body)) if is_json_object(&body) => {
                    self.known.bodies.lock().insert(&key, body.clone());
                    return Some(ExtensionVersion::Document(OpenApiDocument { body, hash: hash.clone() }));
                }
                Ok(Fetched::Moved) => {}
                Ok(Fetched::Body(_)) => tracing::warn!(path, "OpenAPI document of extension API server is no JSON"),
                Ok(Fetched::NotFound) => tracing::warn!(path, "OpenAPI document of extension API server is missing"),
                Err(error) => {
                    tracing::warn!(path, %error, "failed to fetch an OpenAPI document of an extension API server")
                }
            }
        }
        Some(ExtensionVersion::Unavailable)
    }

    /// The documents of Swagger 2.0 of all extension API servers, as far as they are known, in a fixed order.
    pub(crate) async fn swaggers(&self) -> Vec<ExtensionSwagger> {
        let servers = group_versions_by_server(&self.apis.snapshot());
        if servers.is_empty() {
            return Vec::new();
        }
        self.refresh_indexes(&servers).await;
        self.refresh_swaggers(&servers).await;
        let mut swaggers: Vec<_> = servers
            .into_iter()
            .filter_map(|(server, group_versions)| {
                let index = self.known.servers.lock().get(&server)?.index.clone()?;
                let body = self.known.bodies.lock().find(&swagger_key(&server, &index))?;
                Some((
                    server,
                    ExtensionSwagger { document: OpenApiDocument { body, hash: index.hash.clone() }, group_versions },
                ))
            })
            .collect();
        swaggers.sort_by(|a, b| a.0.cmp(&b.0));
        swaggers.into_iter().map(|(_, swagger)| swagger).collect()
    }

    /// Starts to fetch the indexes that are due, and waits a short time for those that are being fetched.
    async fn refresh_indexes(&self, servers: &HashMap<ExtensionServer, Vec<String>>) {
        let now = Instant::now();
        let due: Vec<ExtensionServer> = {
            let mut known = self.known.servers.lock();
            known.retain(|server, _| self.apis.snapshot().has_server(server));
            let due = servers.keys().filter(|server| {
                let known = known.entry((*server).clone()).or_insert_with(|| KnownServer::new(now));
                self.apis.snapshot().is_server_available(server) && known.index_schedule.start_if_due(now)
            });
            due.cloned().collect()
        };
        for server in due {
            let this = self.clone();
            self.apis.spawn("openapi-index", async move { this.refresh_index(&server).await });
        }
        self.wait_for(INDEX_WAIT, |known| {
            servers.keys().any(|server| known.get(server).is_some_and(|known| known.index_schedule.next().is_none()))
        })
        .await;
    }

    async fn refresh_index(&self, server: &ExtensionServer) {
        let fetched = self.fetch_index(server).await;
        if let Err(error) = &fetched {
            let service = server.server_name();
            tracing::warn!(service, %error, "failed to fetch the OpenAPI index of an extension API server");
        }
        if let Some(known) = self.known.servers.lock().get_mut(server) {
            known.index_schedule.finish(fetched.is_ok(), Instant::now());
            if let Ok(index) = fetched
                && known.index.as_ref().is_none_or(|last| **last != index)
            {
                known.index = Some(Arc::new(index));
                known.swagger_schedule.trigger(Instant::now());
            }
        }
        self.known.finished.send_replace(());
    }

    async fn fetch_index(&self, server: &ExtensionServer) -> Result<ExtensionIndex, FetchError> {
        match self.get(server, "/openapi/v3", INDEX_BYTES_MAX).await? {
            Fetched::Body(body) => {
                let mut addresses = parse_index(&body)?;
                while addresses.len() > GROUP_VERSIONS_MAX {
                    addresses.pop_last();
                }
                Ok(ExtensionIndex::new(addresses))
            }
            Fetched::NotFound => self.fetch_swagger_as_index(server).await,
            Fetched::Moved => Err(FetchError::Redirected),
        }
    }

    /// For a server without documents of OpenAPI 3.0: the hash of its document of Swagger 2.0 takes the place of an index.
    async fn fetch_swagger_as_index(&self, server: &ExtensionServer) -> Result<ExtensionIndex, FetchError> {
        let mut index = ExtensionIndex::new(BTreeMap::new());
        match self.get(server, "/openapi/v2", DOCUMENT_BYTES_MAX).await? {
            Fetched::Body(body) => {
                index.hash = hash([&*body]);
                self.known.bodies.lock().insert(&swagger_key(server, &index), body);
                Ok(index)
            }
            Fetched::NotFound => Ok(index),
            Fetched::Moved => Err(FetchError::Redirected),
        }
    }

    async fn refresh_swaggers(&self, servers: &HashMap<ExtensionServer, Vec<String>>) {
        let now = Instant::now();
        let due: Vec<(ExtensionServer, Arc<ExtensionIndex>)> = {
            let mut known = self.known.servers.lock();
            let due = servers.keys().filter_map(|server| {
                let known = known.get_mut(server)?;
                let index = known.index.clone()?;
                let is_missing = self.known.bodies.lock().find(&swagger_key(server, &index)).is_none();
                let is_due = is_missing && self.apis.snapshot().is_server_available(server);
                (is_due && known.swagger_schedule.start_if_due(now)).then(|| (server.clone(), index))
            });
            due.collect()
        };
        for (server, index) in due {
            let this = self.clone();
            self.apis.spawn("openapi-swagger", async move { this.refresh_swagger(&server, &index).await });
        }
        self.wait_for(SWAGGER_WAIT, |known| {
            servers.keys().any(|server| known.get(server).is_some_and(|known| known.swagger_schedule.next().is_none()))
        })
        .await;
    }

    async fn refresh_swagger(&self, server: &ExtensionServer, index: &ExtensionIndex) {
        let fetched = match self.get(server, "/openapi/v2", DOCUMENT_BYTES_MAX).await {
            Ok(Fetched::Body(body)) => Ok(Some(body)),
            // Without a document there is nothing to add.
            Ok(Fetched::NotFound) => Ok(None),
            Ok(Fetched::Moved) => Err(FetchError::Redirected),
            Err(error) => Err(error),
        };
        match &fetched {
            Ok(Some(body)) => self.known.bodies.lock().insert(&swagger_key(server, index), body.clone()),
            Ok(None) => {}
            Err(error) => {
                let service = server.server_name();
                tracing::warn!(service, %error, "failed to fetch the Swagger document of an extension API server");
            }
        }
        if let Some(known) = self.known.servers.lock().get_mut(server) {
            known.swagger_schedule.finish(fetched.is_ok(), Instant::now());
        }
        self.known.finished.send_replace(());
    }

    /// Waits while `is_running`, at most `wait`.
    async fn wait_for(&self, wait: Duration, is_running: impl Fn(&HashMap<ExtensionServer, KnownServer>) -> bool) {
        let mut finished = self.known.finished.subscribe();
        let done = finished.wait_for(|()| !is_running(&self.known.servers.lock()));
        // What is not known by then is left out.
        let _ = tokio::time::timeout(wait, done).await;
    }

    async fn get(&self, server: &ExtensionServer, path: &str, bytes_max: usize) -> Result<Fetched, FetchError> {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        let response = self.apis.get_document(server, path, headers, bytes_max).await.map_err(FetchError::Request)?;
        match response.status() {
            StatusCode::OK => Ok(Fetched::Body(response.into_body().to_vec().into())),
            StatusCode::NOT_FOUND => Ok(Fetched::NotFound),
            status if status.is_redirection() => Ok(Fetched::Moved),
            status => Err(FetchError::Status(status)),
        }
    }
}

/// What a server answers.
enum Fetched {
    Body(Bytes),
    NotFound,
    /// A redirect to another hash: the document changed.
    Moved,
}

/// Why a document could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Request(String),
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("the answer is a redirect")]
    Redirected,
    #[error("timed out")]
    TimedOut,
    #[error("not an OpenAPI index: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl KnownServer {
    fn new(now: Instant) -> Self {
        let schedule = || Schedule::new(INDEX_INTERVAL, FETCH_BACKOFF, now);
        Self { index: None, index_schedule: schedule(), swagger_schedule: schedule() }
    }
}

impl ExtensionIndex {
    fn new(addresses: BTreeMap<Box<str>, Box<str>>) -> Self {
        let pieces = addresses.iter().flat_map(|(path, hash)| [&**path, " ", &**hash, " "]);
        let hash = hash(pieces.map(str::as_bytes));
        Self { addresses, hash }
    }
}

/// The paths of the group-versions of each server: `apis/metrics.k8s.io/v1beta1`.
fn group_versions_by_server(apis: &ExtensionApis) -> HashMap<ExtensionServer, Vec<String>> {
    let mut servers: HashMap<ExtensionServer, Vec<String>> = HashMap::new();
    for api in apis.by_name.values() {
        let path = api.api_service.path().trim_start_matches('/').to_owned();
        servers.entry(api.api_service.server.clone()).or_default().push(path);
    }
    servers.values_mut().for_each(|paths| paths.sort());
    servers
}

fn swagger_key(server: &ExtensionServer, index: &ExtensionIndex) -> String {
    format!("v2 {} {}", server.server_name(), index.hash)
}

fn is_json_object(body: &[u8]) -> bool {
    serde_json::from_slice::<BTreeMap<String, &RawValue>>(body).is_ok()
}
