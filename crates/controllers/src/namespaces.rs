//! The namespace controller: deletes the contents of terminating namespaces, then finalizes them.
//!
//! A namespace is finalized only after a pass in which discovery was complete and a consistent list of every resource
//! was empty. Anything that cannot be checked keeps it: an unreachable server, a stale version, a resource that is no
//! longer listed. The conditions of the namespace report the cause, and since when.

mod conditions;
mod content_deletion;
mod findings;

use std::sync::Arc;
use std::time::Duration;

use api::GroupVersionResource;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tasks::Backoff;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use self::findings::{FinalizeDecision, Findings};
use crate::client::{ApiClient, ApiError};
use crate::discovered::DiscoveryCache;
use crate::informer::{EventSink, InformerEvent, InformerScope, ObjectDetail, run_informer};
use crate::metrics::QueueGauges;
use crate::resources::{DiscoveredResource, DiscoveredResources, ResourceScope};
use crate::work_queue::{WorkQueue, WorkResult};

/// The entry in `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";
/// Namespaces processed at once; kube-controller-manager's default.
const CONCURRENT_NAMESPACES: usize = 10;
/// Resources of one namespace processed at once.
const CONCURRENT_RESOURCES: usize = 8;
/// The backoff of a namespace that cannot be finalized yet; the end of an outage is noticed within the longest.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(4));
/// Informer events that may be queued.
const EVENTS_MAX: usize = 256;
/// The update interval of the gauges while the queue is not empty.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };

/// The configuration of the namespace controller.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) client: ApiClient,
    pub(crate) gauges: QueueGauges,
    pub(crate) clock: fn() -> jiff::Timestamp,
}

/// Deletes the contents of namespaces and finalizes them, until the future is dropped.
pub(crate) async fn run(config: Config) {
    let (sender, mut notices) = mpsc::channel(EVENTS_MAX);
    let selection = InformerScope { path: "/api/v1/namespaces".to_owned(), query: "", detail: ObjectDetail::Metadata };
    let following = run_informer(config.client.clone(), selection, EventSink { id: (), events: sender });
    let mut following = std::pin::pin!(following);
    let terminator = Arc::new(NamespaceTerminator {
        discovery_cache: Mutex::new(DiscoveryCache::new(config.client.clone())),
        config,
    });
    let mut queue: WorkQueue<Arc<str>> = WorkQueue::new(BACKOFF);
    let mut running: FuturesUnordered<BoxFuture<'static, (Arc<str>, WorkResult)>> = FuturesUnordered::new();
    let mut gauges = tokio::time::interval(GAUGE_INTERVAL);
    let mut had_work = true;
    loop {
        while running.len() < CONCURRENT_NAMESPACES
            && let Some(name) = queue.pop(Instant::now())
        {
            let terminator = terminator.clone();
            running.push(Box::pin(async move {
                let ended = terminator.process(&name).await;
                (name, ended)
            }));
        }
        let due = queue.next_due().filter(|_| running.len() < CONCURRENT_NAMESPACES);
        tokio::select! {
            () = following.as_mut() => return,
            Some(((), notice)) = notices.recv() => match notice {
                InformerEvent::Applied(seen) if seen.metadata.is_deleting => queue.add(&seen.metadata.name, Instant::now()),
                InformerEvent::Applied(_) | InformerEvent::Deleted(_) | InformerEvent::Listed(_) => {}
                InformerEvent::Unavailable(error) => tracing::warn!(%error, "failed to watch namespaces, will retry"),
            },
            Some((name, ended)) = running.next() => queue.finish(&name, ended, Instant::now()),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            _ = gauges.tick(), if had_work || queue.len() > 0 => {
                had_work = queue.len() > 0;
                terminator.config.gauges.set(queue.len(), queue.oldest_since());
            }
        }
    }
}

struct NamespaceTerminator {
    discovery_cache: Mutex<DiscoveryCache>,
    config: Config,
}

impl NamespaceTerminator {
    async fn process(&self, name: &str) -> WorkResult {
        match self.try_finalize(name).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::debug!(namespace = name, %error, "namespace pass failed, will retry");
                WorkResult::Failed
            }
        }
    }

    /// Runs one pass over a namespace: deletes contents, then updates the conditions or finalizes.
    async fn try_finalize(&self, name: &str) -> Result<WorkResult, ApiError> {
        let path = format!("/api/v1/namespaces/{name}");
        let namespace = match self.config.client.get(&path, "application/json").await {
            Ok(answer) => parse_namespace(&answer.body)?,
            Err(error) if error.is_object_not_found(NAMESPACES, name) => return Ok(WorkResult::Done),
            Err(error) => return Err(error),
        };
        if namespace["metadata"]["deletionTimestamp"].is_null() || !has_kubernetes_finalizer(&namespace) {
            return Ok(WorkResult::Done);
        }
        let findings = self.delete_contents(name).await;
        match findings.decide() {
            FinalizeDecision::Finalize => self.finalize(&path, namespace).await.map(|()| WorkResult::Done),
            FinalizeDecision::Recheck => Ok(WorkResult::Requeue),
            FinalizeDecision::Wait => {
                self.update_conditions(&path, namespace, &findings).await.map(|()| WorkResult::Failed)
            }
        }
    }

    /// Deletes the pods and, once none remains, all other objects of a namespace.
    async fn delete_contents(&self, namespace: &str) -> Findings {
        let mut findings = Findings::default();
        let resources = match self.discovery_cache.lock().await.refresh().await {
            Ok(resources) => resources,
            Err(error) => {
                findings.discovery = Some(error.to_string());
                return findings;
            }
        };
        findings.record_discovery(&resources);
        let client = &self.config.client;
        // Pods first, so that they do not lose objects that they use.
        let (pods, others): (Vec<_>, Vec<_>) =
            deletable_in_namespace(&resources).partition(|resource| is_pods(resource));
        for resources in [pods, others] {
            let emptying = stream::iter(resources)
                .map(async |resource| {
                    (resource.clone(), content_deletion::delete_all_objects(client, &resource, namespace).await)
                })
                .buffer_unordered(CONCURRENT_RESOURCES);
            let emptied: Vec<_> = emptying.collect().await;
            for (resource, emptied) in emptied {
                findings.record_deletion(&resource, namespace, emptied);
            }
            if !findings.remaining.is_empty() || !findings.failures.is_empty() {
                break;
            }
        }
        findings
    }

    /// Reports in the conditions why the namespace still exists.
    async fn update_conditions(&self, path: &str, mut namespace: Value, findings: &Findings) -> Result<(), ApiError> {
        let before = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let now = (self.config.clock)().into();
        let Some(conditions) = conditions::merge_conditions(&before, findings, now) else { return Ok(()) };
        namespace["status"]["phase"] = "Terminating".into();
        namespace["status"]["conditions"] = conditions.into();
        match self.config.client.update(&format!("{path}/status"), &namespace).await {
            Ok(_) => Ok(()),
            // The next pass repeats the update.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the finalizer, if the namespace is unchanged since the pass began.
    async fn finalize(&self, path: &str, mut namespace: Value) -> Result<(), ApiError> {
        let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        let rest: Vec<Value> = finalizers.into_iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        namespace["spec"]["finalizers"] = json!(rest);
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match self.config.client.update(&format!("{path}/finalize"), &namespace).await {
            Ok(_) => {
                tracing::info!(namespace = name, "finalized empty namespace");
                Ok(())
            }
            Err(error) if error.is_object_not_found(NAMESPACES, &name) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The resources that must be empty. Resources that cannot be listed and deleted, such as bindings, hold no objects.
fn deletable_in_namespace(resources: &DiscoveredResources) -> impl Iterator<Item = Arc<DiscoveredResource>> + use<'_> {
    resources.deletable().filter(|resource| resource.scope == ResourceScope::Namespace).cloned()
}

fn is_pods(resource: &DiscoveredResource) -> bool {
    resource.name.group.is_empty() && &*resource.name.resource == "pods"
}

fn has_kubernetes_finalizer(namespace: &Value) -> bool {
    namespace["spec"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|each| each == FINALIZER))
}

fn parse_namespace(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::InvalidResponse(format!("namespace: {error}")))
}
