//! The quota controller: keeps `status.hard` and `status.used` of resource quotas true.
//!
//! Admission raises `used` when it charges a write; this controller lowers it after objects are deleted or shrink, and
//! fills the status of new quotas. It reads the quota first, then the objects by consistent lists, which are not older,
//! and writes the status only if the quota is unchanged since: a charge in between makes the update a conflict, and the
//! pass is repeated. So it works beside kube-controller-manager's controller, which does the same.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use admission::quota::{self, Evaluator, ResourceList};
use api::GroupResource;
use futures_util::future::{AbortHandle, BoxFuture, abortable};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use kinds::FeatureGates;
use serde_json::Value;
use tasks::Backoff;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::client::{ApiClient, ApiError};
use crate::discovered::DiscoveryCache;
use crate::informer::{EventSink, InformerEvent, InformerScope, ObjectDetail, Uid, run_informer};
use crate::metrics::QueueGauges;
use crate::object_lists::list_objects;
use crate::resources::{DiscoveredResource, ResourceScope};
use crate::work_queue::{WorkQueue, WorkResult};

/// Quotas processed at once; kube-controller-manager's default.
const CONCURRENT_QUOTAS: usize = 5;
/// The interval of passes over all quotas; kube-controller-manager's default.
const RESYNC_INTERVAL: Duration = Duration::from_secs(300);
/// The backoff of a quota that was changed during a pass, or whose objects cannot be listed.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
/// Informer events that may be queued.
const EVENTS_MAX: usize = 256;
/// The informer of the quotas themselves; the others have the numbers after it.
const QUOTAS: usize = 0;
/// A pod that ends leaves this selection, which the informer reports as a deletion.
const RUNNING_PODS: &str = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";

/// The configuration of the quota controller.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) client: ApiClient,
    pub(crate) gauges: QueueGauges,
    pub(crate) gates: FeatureGates,
    pub(crate) clock: fn() -> jiff::Timestamp,
}

/// Namespace and name.
type QuotaKey = (Arc<str>, Arc<str>);

/// Keeps the status of all quotas, until the future is dropped.
pub(crate) async fn run(config: Config) {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let calculator = Arc::new(UsageCalculator {
        discovery_cache: Mutex::new(DiscoveryCache::new(config.client.clone())),
        config: config.clone(),
    });
    let mut informers = FuturesUnordered::new();
    let start = |id: usize, path: String, query: &'static str, detail| {
        let scope = InformerScope { path, query, detail };
        let sink = EventSink { id, events: sender.clone() };
        abortable(Box::pin(run_informer(config.client.clone(), scope, sink)))
    };
    let (quotas, _) = start(QUOTAS, "/api/v1/resourcequotas".to_owned(), "", ObjectDetail::Full);
    informers.push(quotas);
    let mut ends: HashMap<usize, AbortHandle> = HashMap::new();
    let mut view = QuotaView::default();
    let mut queue: WorkQueue<QuotaKey> = WorkQueue::new(BACKOFF);
    let mut running: FuturesUnordered<BoxFuture<'static, (QuotaKey, Pass)>> = FuturesUnordered::new();
    let mut resync = tokio::time::interval_at(Instant::now() + RESYNC_INTERVAL, RESYNC_INTERVAL);
    loop {
        while running.len() < CONCURRENT_QUOTAS
            && let Some(key) = queue.pop(Instant::now())
        {
            let calculator = calculator.clone();
            running.push(Box::pin(async move {
                let pass = calculator.process(&key).await;
                (key, pass)
            }));
        }
        config.gauges.set(queue.len(), queue.oldest_since());
        let due = queue.next_due().filter(|_| running.len() < CONCURRENT_QUOTAS);
        tokio::select! {
            // An informer only ends when it is aborted.
            Some(_) = informers.next() => {}
            Some((id, event)) = events.recv() => {
                if view.forget_unserved(id, &event)
                    && let Some(end) = ends.remove(&id)
                {
                    end.abort();
                }
                for key in view.apply(id, event) {
                    queue.add(&key, Instant::now());
                }
            }
            Some((key, pass)) = running.next() => {
                queue.finish(&key, pass.result, Instant::now());
                for resource in pass.resources {
                    if let Some(id) = view.add_resource(resource.group_resource()) {
                        let query = if view.is_pods(id) { RUNNING_PODS } else { "" };
                        let (informer, end) = start(id, resource.path(""), query, ObjectDetail::Metadata);
                        informers.push(informer);
                        ends.insert(id, end);
                    }
                }
            }
            _ = resync.tick() => view.all().iter().for_each(|key| queue.add(key, Instant::now())),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

/// The quotas, and the objects whose changes may lower what is used.
#[derive(Debug, Default)]
struct QuotaView {
    /// With the spec, since each charge changes the status.
    quotas: HashMap<Uid, (QuotaKey, Option<Value>)>,
    /// Watched resources with their groups, by the number of the informer.
    resources: HashMap<usize, (String, String)>,
    /// The number of the last informer; [`QUOTAS`] at first.
    last_id: usize,
    /// Objects that may shrink: of services and claims.
    seen: HashSet<(usize, Uid)>,
}

impl QuotaView {
    /// Applies an event; returns the quotas to check.
    fn apply(&mut self, id: usize, event: InformerEvent) -> Vec<QuotaKey> {
        match event {
            InformerEvent::Unavailable(error) => {
                if id == QUOTAS || self.resources.contains_key(&id) {
                    tracing::warn!(%error, "failed to watch objects of quotas, will retry");
                }
                Vec::new()
            }
            InformerEvent::Applied(seen) if id == QUOTAS => {
                let metadata = &seen.metadata;
                let key = (metadata.namespace.clone(), metadata.name.clone());
                let previous = self.quotas.insert(metadata.uid.clone(), (key.clone(), seen.spec.clone()));
                if previous.is_some_and(|(_, spec)| spec == seen.spec) { Vec::new() } else { vec![key] }
            }
            InformerEvent::Deleted(seen) if id == QUOTAS => {
                self.quotas.remove(&seen.metadata.uid);
                Vec::new()
            }
            InformerEvent::Listed(uids) if id == QUOTAS => {
                self.quotas.retain(|uid, _| uids.contains(uid));
                Vec::new()
            }
            // Objects may have been deleted before the list.
            InformerEvent::Listed(uids) => {
                self.seen.retain(|(informer, uid)| *informer != id || uids.contains(uid));
                self.all()
            }
            InformerEvent::Applied(seen) => {
                let may_shrink = self.resources.get(&id).is_some_and(|(group, resource)| {
                    matches!((&**group, &**resource), ("", "services" | "persistentvolumeclaims"))
                });
                let is_update = may_shrink && !self.seen.insert((id, seen.metadata.uid.clone()));
                if is_update { self.in_namespace(&seen.metadata.namespace) } else { Vec::new() }
            }
            InformerEvent::Deleted(seen) => {
                self.seen.remove(&(id, seen.metadata.uid.clone()));
                self.in_namespace(&seen.metadata.namespace)
            }
        }
    }

    fn all(&self) -> Vec<QuotaKey> {
        self.quotas.values().map(|(key, _)| key.clone()).collect()
    }

    fn in_namespace(&self, namespace: &str) -> Vec<QuotaKey> {
        self.all().into_iter().filter(|key| &*key.0 == namespace).collect()
    }

    /// The number of the informer to start; `None` if the resource is watched.
    fn add_resource(&mut self, resource: GroupResource<&str>) -> Option<usize> {
        let name = (resource.group.to_owned(), resource.resource.to_owned());
        if self.resources.values().any(|watched| *watched == name) {
            return None;
        }
        self.last_id += 1;
        self.resources.insert(self.last_id, name);
        Some(self.last_id)
    }

    /// Forgets the resource of an informer if it is no longer served there, such as after the deletion of a definition;
    /// returns true if it was watched. A later pass over a quota watches it again where it is served then.
    fn forget_unserved(&mut self, id: usize, event: &InformerEvent) -> bool {
        let InformerEvent::Unavailable(error) = event else { return false };
        let is_forgotten = error.is_resource_not_served() && self.resources.remove(&id).is_some();
        if is_forgotten {
            self.seen.retain(|(informer, _)| *informer != id);
        }
        is_forgotten
    }

    fn is_pods(&self, id: usize) -> bool {
        self.resources.get(&id).is_some_and(|(group, resource)| group.is_empty() && resource == "pods")
    }
}

/// The result of a pass over a quota.
struct Pass {
    result: WorkResult,
    /// The resources that the quota limits.
    resources: Vec<Arc<DiscoveredResource>>,
}

struct UsageCalculator {
    discovery_cache: Mutex<DiscoveryCache>,
    config: Config,
}

impl UsageCalculator {
    async fn process(&self, key: &QuotaKey) -> Pass {
        let mut resources = Vec::new();
        let result = match self.try_update(key, &mut resources).await {
            Ok(result) => result,
            Err(error) => {
                let (namespace, name) = key;
                tracing::debug!(%namespace, %name, %error, "quota pass failed, will retry");
                WorkResult::Failed
            }
        };
        Pass { result, resources }
    }

    async fn try_update(
        &self,
        (namespace, name): &QuotaKey,
        limited: &mut Vec<Arc<DiscoveredResource>>,
    ) -> Result<WorkResult, ApiError> {
        let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
        let quotas = list_objects(&self.config.client, &path, &format!("fieldSelector=metadata.name%3D{name}")).await?;
        let Some(mut quota) = quotas.into_iter().next() else { return Ok(WorkResult::Done) };
        let discovered = self.discovery_cache.lock().await.refresh().await;
        let discovered = discovered.map_err(|error| ApiError::InvalidResponse(error.to_string()))?;
        let limits = quota::limits(&quota);
        let (mut used, mut result) = (ResourceList::default(), WorkResult::Done);
        for resource in discovered.deletable().filter(|resource| resource.scope == ResourceScope::Namespace) {
            let group_resource = resource.group_resource();
            let gates = &self.config.gates;
            let Some(evaluator) = Evaluator::of(group_resource.group, group_resource.resource, gates) else { continue };
            if evaluator.matching(&limits).is_empty() {
                continue;
            }
            limited.push(resource.clone());
            // What cannot be counted keeps its value.
            match list_objects(&self.config.client, &resource.path(namespace), "").await {
                Ok(objects) => {
                    let now = (self.config.clock)().into();
                    used.add(&quota::measure(&evaluator, &quota, &objects, gates, now));
                }
                Err(error) => {
                    tracing::debug!(%error, resource = group_resource.resource, "failed to count objects of a quota");
                    result = WorkResult::Failed;
                }
            }
        }
        let status = quota::status(&quota, &used);
        if quota::is_same_status(&quota, &status) {
            return Ok(result);
        }
        quota.insert("status".to_owned(), status);
        match self.config.client.update(&format!("{path}/{name}/status"), &Value::Object(quota)).await {
            Ok(_) => Ok(result),
            // A write was charged meanwhile.
            Err(error) if error.is_conflict() => Ok(WorkResult::Failed),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
