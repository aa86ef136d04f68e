//! The writer of the group-versions of extension API servers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aggregation::api_service::{ExtensionServer, GroupPriorities, RemoteApiService, add_local_priority};
use aggregation::condition::Availability;
use aggregation::documents::{self, ListedResources};
use discovery::GroupDiscoveryList;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::header::HeaderValue;
use registry::{CachedValue, Registry, ResourceCache, ResourceSnapshot};
use store::Revision;
use tasks::Backoff;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::FetchedDiscovery;
use super::schedule::Schedule;
use super::{ExtensionApi, ExtensionApis, ExtensionClient, ExtensionMetrics, FAILURES_MAX, LiveExtensionApis};
use crate::shared_resources::SharedPublisher;

/// The interval of checks that pass, as in kube-apiserver.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// After checks that fail. Shorter than kube-apiserver's 30 s: one small request, and the API is back sooner.
const CHECK_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// The interval of discovery requests, as in kube-apiserver.
const FETCH_INTERVAL: Duration = Duration::from_secs(60);
/// After discovery requests that fail.
const FETCH_BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
/// Checks and discovery requests at once.
const CONCURRENT_REQUESTS_MAX: usize = 16;
/// How often changes of services and EndpointSlices are looked at: there may be many of others.
const SERVICE_CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// The writer of [`LiveExtensionApis`].
pub struct ExtensionApiFollower {
    registry: Registry,
    api_service_cache: Arc<ResourceCache>,
    client: Option<Arc<ExtensionClient>>,
    snapshots: watch::Sender<Arc<ExtensionApis>>,
    shared: Arc<SharedPublisher>,
    failures: mpsc::Receiver<String>,
    is_synced: Arc<AtomicBool>,
    metrics: ExtensionMetrics,
    /// By name of the APIService.
    apis: BTreeMap<String, TrackedApi>,
    servers: HashMap<ExtensionServer, TrackedServer>,
    /// Of the groups whose APIServices name no service.
    local_priorities: Arc<GroupPriorities>,
    /// The priorities that were published last.
    published_priorities: Arc<GroupPriorities>,
}

/// An APIService that names a service.
struct TrackedApi {
    api: Arc<ExtensionApi>,
    check: Schedule,
    /// The revisions of service and EndpointSlices at the last check.
    service_revisions: Vec<Revision>,
}

/// A server that APIServices name.
struct TrackedServer {
    fetch: Schedule,
    etag: Option<HeaderValue>,
    /// Its last aggregated document.
    document: Option<Arc<GroupDiscoveryList>>,
}

/// The outcome of a request.
enum Outcome {
    Checked { name: String, api_service: Arc<RemoteApiService>, availability: Availability },
    Fetched { server: ExtensionServer, result: Result<FetchedDiscovery, String> },
}

type Requests = FuturesUnordered<BoxFuture<'static, Outcome>>;

impl ExtensionApiFollower {
    /// The value, empty until the follower runs. Without a client every group-version is unavailable.
    pub(crate) fn new(
        registry: &Registry,
        api_service_cache: Arc<ResourceCache>,
        client: Option<Arc<ExtensionClient>>,
        shared: Arc<SharedPublisher>,
        metrics: ExtensionMetrics,
    ) -> (LiveExtensionApis, Self) {
        let (failures, failed) = mpsc::channel(FAILURES_MAX);
        let snapshots = watch::Sender::<Arc<ExtensionApis>>::default();
        let is_synced = Arc::new(AtomicBool::new(false));
        let live = LiveExtensionApis {
            registry: registry.clone(),
            api_service_cache: api_service_cache.clone(),
            snapshots: snapshots.subscribe(),
            client: client.clone(),
            failures,
            is_synced: is_synced.clone(),
        };
        let follower = Self {
            registry: registry.clone(),
            api_service_cache,
            client,
            snapshots,
            shared,
            failures: failed,
            is_synced,
            metrics,
            apis: BTreeMap::new(),
            servers: HashMap::new(),
            local_priorities: Arc::default(),
            published_priorities: Arc::default(),
        };
        (live, follower)
    }

    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(mut self) {
        if self.registry.cache().wait_for_sync().await.is_err() {
            // The server stops: no change will follow.
            return std::future::pending().await;
        }
        let mut requests = Requests::new();
        loop {
            let stored = self.api_service_cache.snapshot();
            let now = Instant::now();
            self.take_api_services(&stored, now);
            self.publish(stored.revision);
            self.start_due_requests(&mut requests, now);
            let service_revisions = self.service_cache_revisions();
            let due = self.next_due(requests.len());
            let has_apis = !self.apis.is_empty();
            let (registry, api_services) = (self.registry.clone(), self.api_service_cache.clone());
            tokio::select! {
                () = wait_for_change(&registry, &api_services, stored.revision) => {}
                () = wait_for_service_change(&registry, &service_revisions), if has_apis => {
                    tokio::time::sleep(SERVICE_CHANGE_INTERVAL).await;
                    self.recheck_changed_services(Instant::now());
                }
                Some(outcome) = requests.next() => self.take_outcome(outcome, Instant::now()),
                Some(name) = self.failures.recv() => self.recheck(&name, Instant::now()),
                () = tokio::time::sleep_until(due.unwrap_or(now)), if due.is_some() => {}
            }
        }
    }

    /// Brings the tracked APIServices in line with storage.
    fn take_api_services(&mut self, stored: &ResourceSnapshot, now: Instant) {
        if self.snapshots.borrow().revision == stored.revision {
            return;
        }
        let mut current = BTreeMap::new();
        let mut priorities = GroupPriorities::new();
        for entry in stored.entries.values() {
            let CachedValue::Object(object) = &entry.value else { continue };
            let object = object.to_object();
            add_local_priority(&mut priorities, &object);
            if let Some(remote) = RemoteApiService::from_object(&object) {
                current.insert(remote.name(), remote);
            }
        }
        if *self.local_priorities != priorities {
            self.local_priorities = Arc::new(priorities);
        }
        let removed: Vec<String> = self.apis.keys().filter(|name| !current.contains_key(*name)).cloned().collect();
        let mut is_changed = !removed.is_empty();
        for name in removed {
            self.apis.remove(&name);
            self.metrics.remove(&name);
        }
        for (name, remote) in current {
            let known = self.apis.get(&name);
            if known.is_some_and(|known| *known.api.api_service == remote) {
                continue;
            }
            is_changed = true;
            let has_same_server = known.is_some_and(|known| known.api.api_service.server == remote.server);
            let server = remote.server.clone();
            match self.apis.get_mut(&name).filter(|_| has_same_server) {
                // Its priorities changed.
                Some(known) => {
                    known.api = Arc::new(ExtensionApi { api_service: Arc::new(remote), ..(*known.api).clone() });
                }
                None => {
                    let api = ExtensionApi { api_service: Arc::new(remote), availability: None, listed: None };
                    let check = Schedule::new(CHECK_INTERVAL, CHECK_BACKOFF, now);
                    let tracked = TrackedApi { api: Arc::new(api), check, service_revisions: Vec::new() };
                    self.apis.insert(name, tracked);
                }
            }
            let fetch = || Schedule::new(FETCH_INTERVAL, FETCH_BACKOFF, now);
            let tracked = self.servers.entry(server);
            let tracked = tracked.or_insert_with(|| TrackedServer { fetch: fetch(), etag: None, document: None });
            // The document may be known, but not what a server without one lists of this group-version.
            tracked.fetch.trigger(now);
        }
        if is_changed {
            let apis = &self.apis;
            let is_named = |server: &ExtensionServer| apis.values().any(|it| it.api.api_service.server == *server);
            self.servers.retain(|server, _| is_named(server));
            if let Some(client) = &self.client {
                client.retain_servers(&self.servers.keys().collect::<Vec<_>>());
            }
        }
    }

    /// Starts the checks and discovery requests that are due.
    fn start_due_requests(&mut self, requests: &mut Requests, now: Instant) {
        let Some(client) = &self.client else { return self.judge_without_client() };
        for (name, tracked) in &mut self.apis {
            if requests.len() >= CONCURRENT_REQUESTS_MAX {
                return;
            }
            if !tracked.check.start_if_due(now) {
                continue;
            }
            let (client, name, api_service) = (client.clone(), name.clone(), tracked.api.api_service.clone());
            let ExtensionServer { namespace, service, .. } = &api_service.server;
            tracked.service_revisions = client.services.revisions(namespace, service);
            requests.push(Box::pin(async move {
                let availability = client.check(&api_service).await;
                Outcome::Checked { name, api_service, availability }
            }));
        }
        for (server, tracked) in &mut self.servers {
            if requests.len() >= CONCURRENT_REQUESTS_MAX {
                return;
            }
            if !tracked.fetch.start_if_due(now) {
                continue;
            }
            let (client, server, etag) = (client.clone(), server.clone(), tracked.etag.clone());
            let of_server = self.apis.values().map(|it| &it.api.api_service).filter(|it| it.server == server);
            let api_services: Vec<_> = of_server.cloned().collect();
            requests.push(Box::pin(async move {
                let result = client.fetch_discovery(&server, &api_services, etag).await;
                Outcome::Fetched { server, result }
            }));
        }
    }

    /// Without a front-proxy certificate no extension server can be asked.
    fn judge_without_client(&mut self) {
        for (name, tracked) in self.apis.iter_mut().filter(|(_, tracked)| tracked.api.availability.is_none()) {
            let missing = "--proxy-client-cert-file and --proxy-client-key-file are not given".to_owned();
            let availability = Availability::failed_discovery(missing);
            self.metrics.record(name, &availability, None);
            let listed = Some(ListedResources::after_failure(None));
            tracked.api = Arc::new(ExtensionApi { availability: Some(availability), listed, ..(*tracked.api).clone() });
        }
        let revision = self.snapshots.borrow().revision;
        self.publish(revision);
    }

    fn next_due(&self, running: usize) -> Option<Instant> {
        if self.client.is_none() || running >= CONCURRENT_REQUESTS_MAX {
            return None;
        }
        let checks = self.apis.values().filter_map(|tracked| tracked.check.next());
        checks.chain(self.servers.values().filter_map(|tracked| tracked.fetch.next())).min()
    }

    fn take_outcome(&mut self, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Checked { name, api_service, availability } => {
                let Some(tracked) = self.apis.get_mut(&name) else { return };
                if tracked.api.api_service.server != api_service.server {
                    return;
                }
                tracked.check.finish(availability.is_available(), now);
                let previous = tracked.api.availability.as_ref();
                self.metrics.record(&name, &availability, previous);
                if previous.is_some_and(|previous| *previous == availability) {
                    return;
                }
                let is_changed = previous.is_some_and(|it| it.is_available() != availability.is_available());
                tracing::info!(
                    api_service = name,
                    status = availability.status,
                    reason = availability.reason,
                    message = availability.message,
                    "availability of APIService changed"
                );
                tracked.api = Arc::new(ExtensionApi { availability: Some(availability), ..(*tracked.api).clone() });
                // What it lists becomes stale, or current again.
                if is_changed && let Some(server) = self.servers.get_mut(&api_service.server) {
                    server.fetch.trigger(now);
                }
            }
            Outcome::Fetched { server, result } => self.take_discovery(&server, result, now),
        }
    }

    fn take_discovery(&mut self, server: &ExtensionServer, result: Result<FetchedDiscovery, String>, now: Instant) {
        let Some(tracked) = self.servers.get_mut(server) else { return };
        tracked.fetch.finish(result.is_ok(), now);
        let mut legacy = HashMap::new();
        match result {
            Ok(FetchedDiscovery::Unchanged) => {}
            Ok(FetchedDiscovery::Document { etag, groups }) => {
                (tracked.etag, tracked.document) = (etag, Some(groups));
            }
            Ok(FetchedDiscovery::Legacy(listed)) => {
                (tracked.etag, tracked.document) = (None, None);
                legacy.extend(listed);
            }
            Err(error) => {
                tracing::warn!(service = server.server_name(), error, "discovery of extension API server failed");
                for tracked in self.apis.values_mut().filter(|it| it.api.api_service.server == *server) {
                    let listed = ListedResources::after_failure(tracked.api.listed.as_ref());
                    set_listed(&mut tracked.api, listed);
                }
                return;
            }
        }
        let document = tracked.document.clone();
        for (name, tracked) in self.apis.iter_mut().filter(|(_, it)| it.api.api_service.server == *server) {
            let listed = match (&document, legacy.remove(name)) {
                (Some(document), _) => ListedResources::from_document(document, &tracked.api.api_service),
                (None, Some(Some(resources))) => ListedResources { resources, is_current: true },
                (None, Some(None)) => ListedResources::after_failure(tracked.api.listed.as_ref()),
                // Added while the request ran; the next one is due.
                (None, None) => continue,
            };
            set_listed(&mut tracked.api, listed);
        }
    }

    fn recheck(&mut self, name: &str, now: Instant) {
        if let Some(tracked) = self.apis.get_mut(name) {
            tracked.check.trigger(now);
        }
    }

    fn recheck_changed_services(&mut self, now: Instant) {
        let Some(client) = &self.client else { return };
        for tracked in self.apis.values_mut() {
            let ExtensionServer { namespace, service, .. } = &tracked.api.api_service.server;
            if client.services.revisions(namespace, service) != tracked.service_revisions {
                tracked.check.trigger(now);
            }
        }
    }

    /// The caches of services and EndpointSlices with their revisions.
    fn service_cache_revisions(&self) -> Vec<(Arc<ResourceCache>, Revision)> {
        let caches = self.client.iter().flat_map(|client| client.services.caches()).flatten();
        caches.map(|cache| (cache.clone(), cache.snapshot().revision)).collect()
    }

    /// Publishes the value if anything in it changed.
    fn publish(&mut self, revision: Revision) {
        let previous = self.snapshots.borrow().clone();
        let by_name: HashMap<String, Arc<ExtensionApi>> =
            self.apis.iter().map(|(name, tracked)| (name.clone(), tracked.api.clone())).collect();
        if self.apis.values().all(|it| it.api.availability.is_some() && it.api.listed.is_some()) {
            self.is_synced.store(true, Ordering::Relaxed);
        }
        let is_same = |(name, api): (&String, &Arc<ExtensionApi>)| {
            previous.by_name.get(name).is_some_and(|known| Arc::ptr_eq(known, api))
        };
        let is_unchanged = by_name.len() == previous.by_name.len() && by_name.iter().all(is_same);
        if is_unchanged && previous.revision == revision {
            return;
        }
        let is_listed_alike = |(name, api): (&String, &Arc<ExtensionApi>)| {
            let known = previous.by_name.get(name);
            known.is_some_and(|known| known.api_service == api.api_service && known.listed == api.listed)
        };
        let are_listed_alike = by_name.len() == previous.by_name.len() && by_name.iter().all(is_listed_alike);
        let group_versions = match are_listed_alike {
            true => previous.group_versions.clone(),
            false => {
                let parts = self.apis.values().map(|it| &it.api);
                let parts = parts.map(|api| documents::group_version(&api.api_service, api.listed.as_ref()));
                Arc::new(parts.collect())
            }
        };
        // Before the snapshot, because routing must know what a request waits for in the snapshot.
        let has_other_order = !Arc::ptr_eq(&self.local_priorities, &self.published_priorities);
        if !Arc::ptr_eq(&group_versions, &previous.group_versions) || has_other_order && !group_versions.is_empty() {
            self.published_priorities = self.local_priorities.clone();
            self.shared.set_extensions(&group_versions, &self.local_priorities);
        }
        self.snapshots.send_replace(Arc::new(ExtensionApis { revision, by_name, group_versions }));
    }
}

fn set_listed(api: &mut Arc<ExtensionApi>, listed: ListedResources) {
    if api.listed.as_ref() != Some(&listed) {
        *api = Arc::new(ExtensionApi { listed: Some(listed), ..(**api).clone() });
    }
}

async fn wait_for_change(registry: &Registry, cache: &Arc<ResourceCache>, revision: Revision) {
    // Fails if the revision was compacted in between; the caller then takes a newer snapshot.
    if let Ok(mut watcher) = registry.watch(cache, revision) {
        let _ = watcher.next_changes().await;
    }
}

/// Waits for a change of any service or EndpointSlice.
async fn wait_for_service_change(registry: &Registry, caches: &[(Arc<ResourceCache>, Revision)]) {
    let mut changes: FuturesUnordered<_> =
        caches.iter().map(|(cache, revision)| wait_for_change(registry, cache, *revision)).collect();
    if changes.next().await.is_none() {
        // There are no services.
        std::future::pending::<()>().await;
    }
}
