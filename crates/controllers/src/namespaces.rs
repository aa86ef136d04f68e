//! The life of namespaces: one that is deleted goes when everything in it is gone, and not before.
//!
//! A namespace is finalized only after a pass in which discovery was whole and a consistent list of every resource was empty.
//! Whatever cannot be seen keeps it: a server that is away, a version that is stale, a resource that is no longer listed. Its
//! conditions say which, and since when.

mod conditions;
mod empty;
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

use self::findings::{Findings, Verdict};
use crate::catalog::Catalog;
use crate::client::{CallError, Client};
use crate::follow::{Depth, Listener, Notice, Selection, follow};
use crate::metrics::QueueGauges;
use crate::queue::{Ended, Queue};
use crate::resources::{Place, Resource, Resources};

/// The finalizer that is this controller's to remove.
const FINALIZER: &str = "kubernetes";
/// How many namespaces are emptied at once; kube-controller-manager's default.
const NAMESPACES_AT_ONCE: usize = 10;
/// How many resources of one namespace are.
const RESOURCES_AT_ONCE: usize = 8;
/// A namespace that cannot go yet is looked at again after so long; an outage that ends is noticed within the last of these.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(4));
/// How many notices may wait.
const NOTICES_MAX: usize = 256;
/// How often the gauges of a queue that is not empty are renewed.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };

/// What the controller is told.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) client: Client,
    pub(crate) gauges: QueueGauges,
    pub(crate) clock: fn() -> jiff::Timestamp,
}

/// Empties and finalizes namespaces until it is dropped.
pub(crate) async fn run(config: Config) {
    let (sender, mut notices) = mpsc::channel(NOTICES_MAX);
    let selection = Selection { path: "/api/v1/namespaces".to_owned(), query: "", depth: Depth::Metadata };
    let following = follow(config.client.clone(), selection, Listener { id: (), notices: sender });
    let mut following = std::pin::pin!(following);
    let terminator = Arc::new(Terminator { catalog: Mutex::new(Catalog::new(config.client.clone())), config });
    let mut queue: Queue<Arc<str>> = Queue::new(BACKOFF);
    let mut running: FuturesUnordered<BoxFuture<'static, (Arc<str>, Ended)>> = FuturesUnordered::new();
    let mut gauges = tokio::time::interval(GAUGE_INTERVAL);
    let mut had_work = true;
    loop {
        while running.len() < NAMESPACES_AT_ONCE
            && let Some(name) = queue.take(Instant::now())
        {
            let terminator = terminator.clone();
            running.push(Box::pin(async move {
                let ended = terminator.look_at(&name).await;
                (name, ended)
            }));
        }
        let due = queue.next_due().filter(|_| running.len() < NAMESPACES_AT_ONCE);
        tokio::select! {
            () = following.as_mut() => return,
            Some(((), notice)) = notices.recv() => match notice {
                Notice::Is(seen) if seen.metadata.is_deleting => queue.add(&seen.metadata.name, Instant::now()),
                Notice::Is(_) | Notice::Gone(_) | Notice::Listed(_) => {}
                Notice::Away(error) => tracing::warn!(%error, "namespaces cannot be followed; trying again"),
            },
            Some((name, ended)) = running.next() => queue.end(&name, ended, Instant::now()),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            _ = gauges.tick(), if had_work || queue.len() > 0 => {
                had_work = queue.len() > 0;
                terminator.config.gauges.set(queue.len(), queue.oldest());
            }
        }
    }
}

/// Looks at one namespace after another.
struct Terminator {
    catalog: Mutex<Catalog>,
    config: Config,
}

impl Terminator {
    async fn look_at(&self, name: &str) -> Ended {
        match self.try_to_finish(name).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::debug!(namespace = name, %error, "a namespace could not be looked at; trying again");
                Ended::Failed
            }
        }
    }

    /// One pass over a namespace, from its state to its conditions or its end.
    async fn try_to_finish(&self, name: &str) -> Result<Ended, CallError> {
        let path = format!("/api/v1/namespaces/{name}");
        let namespace = match self.config.client.get(&path, "application/json").await {
            Ok(answer) => read(&answer.body)?,
            Err(error) if error.is_absent(NAMESPACES, name) => return Ok(Ended::Done),
            Err(error) => return Err(error),
        };
        if namespace["metadata"]["deletionTimestamp"].is_null() || !is_ours(&namespace) {
            return Ok(Ended::Done);
        }
        let findings = self.pass_over(name).await;
        match findings.verdict() {
            Verdict::Finalize => self.finalize(&path, namespace).await.map(|()| Ended::Done),
            Verdict::LookAgain => Ok(Ended::Again),
            Verdict::Wait => self.tell(&path, namespace, &findings).await.map(|()| Ended::Failed),
        }
    }

    async fn pass_over(&self, namespace: &str) -> Findings {
        let mut findings = Findings::default();
        let resources = match self.catalog.lock().await.read().await {
            Ok(resources) => resources,
            Err(error) => {
                findings.discovery = Some(error.to_string());
                return findings;
            }
        };
        findings.note_discovery(&resources);
        let client = &self.config.client;
        // Pods first: what they use must not be taken from under them.
        let (pods, others): (Vec<_>, Vec<_>) = contents(&resources).partition(|resource| is_pods(resource));
        for resources in [pods, others] {
            let emptying = stream::iter(resources)
                .map(async |resource| (resource.clone(), empty::empty(client, &resource, namespace).await))
                .buffer_unordered(RESOURCES_AT_ONCE);
            let emptied: Vec<_> = emptying.collect().await;
            for (resource, emptied) in emptied {
                findings.note(&resource, namespace, emptied);
            }
            if !findings.remaining.is_empty() || !findings.failures.is_empty() {
                break;
            }
        }
        findings
    }

    /// Says on the namespace why it is still there.
    async fn tell(&self, path: &str, mut namespace: Value, findings: &Findings) -> Result<(), CallError> {
        let before = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let now = (self.config.clock)().into();
        let Some(conditions) = conditions::updated(&before, findings, now) else { return Ok(()) };
        namespace["status"]["phase"] = "Terminating".into();
        namespace["status"]["conditions"] = conditions.into();
        match self.config.client.update(&format!("{path}/status"), &namespace).await {
            Ok(_) => Ok(()),
            // The next pass tells it.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lets a namespace go, provided that it is the one that was looked at.
    async fn finalize(&self, path: &str, mut namespace: Value) -> Result<(), CallError> {
        let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        let rest: Vec<Value> = finalizers.into_iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        namespace["spec"]["finalizers"] = json!(rest);
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match self.config.client.update(&format!("{path}/finalize"), &namespace).await {
            Ok(_) => {
                tracing::info!(namespace = name, "a namespace is empty and may go");
                Ok(())
            }
            Err(error) if error.is_absent(NAMESPACES, &name) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What must be empty. Bindings and the like can be neither listed nor deleted, and hold nothing.
fn contents(resources: &Resources) -> impl Iterator<Item = Arc<Resource>> + use<'_> {
    resources.deletable().filter(|resource| resource.scope == Place::Namespace).cloned()
}

fn is_pods(resource: &Resource) -> bool {
    resource.name.group.is_empty() && &*resource.name.resource == "pods"
}

fn is_ours(namespace: &Value) -> bool {
    namespace["spec"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|each| each == FINALIZER))
}

fn read(body: &[u8]) -> Result<Value, CallError> {
    serde_json::from_slice(body).map_err(|error| CallError::Unreadable(format!("a namespace: {error}")))
}
