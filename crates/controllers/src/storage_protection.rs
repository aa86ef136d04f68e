//! The protection of storage objects in use: removes the finalizers that the plugin StorageObjectInUseProtection sets,
//! once an object is being deleted and no longer used.
//!
//! A pass reads the object, then by consistent lists what may use it, and updates the object only if it is unchanged. So
//! it works beside kube-controller-manager's controllers, which do the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::json::JsonObject;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use object::unstructured::{integer, metadata_mut, metadata_string, objects, text};
use serde_json::Value;
use tasks::Backoff;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{ApiClient, ApiError};
use crate::informer::{EventSink, InformerEvent, InformerScope, ObjectDetail, Uid, run_informer};
use crate::metrics::QueueGauges;
use crate::object_lists::list_objects;
use crate::work_queue::{WorkQueue, WorkResult};

/// The backoff of an object that was changed during a pass.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
/// Informer events that may be queued.
const EVENTS_MAX: usize = 256;

const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";

/// A kind whose objects are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Protected {
    Claim,
    Volume,
    Class,
}

impl Protected {
    pub(crate) const fn user_agent(self) -> &'static str {
        match self {
            Self::Claim => "system:serviceaccount:kube-system:pvc-protection-controller",
            Self::Volume => "system:serviceaccount:kube-system:pv-protection-controller",
            Self::Class => "system:serviceaccount:kube-system:volumeattributesclass-protection-controller",
        }
    }

    const fn finalizer(self) -> &'static str {
        match self {
            Self::Claim => "kubernetes.io/pvc-protection",
            Self::Volume => "kubernetes.io/pv-protection",
            Self::Class => "kubernetes.io/vac-protection",
        }
    }

    /// The collection in all namespaces.
    const fn path(self) -> &'static str {
        match self {
            Self::Claim => CLAIMS,
            Self::Volume => VOLUMES,
            Self::Class => CLASSES,
        }
    }
}

/// The configuration of the controllers that are enabled.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Follows pods.
    pub(crate) reader: ApiClient,
    /// One per enabled controller.
    pub(crate) clients: Arc<[(Protected, ApiClient)]>,
    pub(crate) gauges: QueueGauges,
}

/// What an informer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    Protected(Protected),
    Pods,
}

/// Kind, namespace (empty for cluster-scoped objects) and name.
type ObjectKey = (Protected, Arc<str>, Arc<str>);

/// Lets unused objects go, until the future is dropped.
pub(crate) async fn run(config: Config) {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let mut informers: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    let start = |followed: Followed, client: &ApiClient, path: &str| {
        let scope = InformerScope { path: path.to_owned(), query: "", detail: ObjectDetail::Metadata };
        let sink = EventSink { id: followed, events: sender.clone() };
        Box::pin(run_informer(client.clone(), scope, sink)) as BoxFuture<'static, ()>
    };
    for (protected, client) in config.clients.iter() {
        informers.push(start(Followed::Protected(*protected), client, protected.path()));
    }
    informers.push(start(Followed::Pods, &config.reader, "/api/v1/pods"));
    let mut waiting = WaitingObjects::default();
    let mut queue: WorkQueue<ObjectKey> = WorkQueue::new(BACKOFF);
    loop {
        config.gauges.set(queue.len(), queue.oldest_since());
        if let Some(key) = queue.pop(Instant::now()) {
            let result = process(&config, &key).await;
            queue.finish(&key, result, Instant::now());
            continue;
        }
        let due = queue.next_due();
        tokio::select! {
            Some(()) = informers.next() => {}
            Some((followed, event)) = events.recv() => {
                for key in waiting.apply(followed, event) {
                    queue.add(&key, Instant::now());
                }
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

/// Protected objects that are being deleted.
#[derive(Debug, Default)]
struct WaitingObjects(HashMap<Uid, ObjectKey>);

impl WaitingObjects {
    /// Applies an event; returns the objects to check.
    fn apply(&mut self, followed: Followed, event: InformerEvent) -> Vec<ObjectKey> {
        match (followed, event) {
            (_, InformerEvent::Unavailable(error)) => {
                tracing::warn!(%error, "failed to watch storage objects, will retry");
                Vec::new()
            }
            (Followed::Protected(protected), InformerEvent::Applied(seen)) => {
                let metadata = &seen.metadata;
                if metadata.is_deleting && metadata.has_finalizer(protected.finalizer()) {
                    let key = (protected, metadata.namespace.clone(), metadata.name.clone());
                    self.0.insert(metadata.uid.clone(), key.clone());
                    return vec![key];
                }
                self.0.remove(&metadata.uid);
                self.users_of(protected)
            }
            (Followed::Protected(protected), InformerEvent::Deleted(seen)) => {
                self.0.remove(&seen.metadata.uid);
                self.users_of(protected)
            }
            (Followed::Protected(protected), InformerEvent::Listed(uids)) => {
                self.0.retain(|uid, key| key.0 != protected || uids.contains(uid));
                self.users_of(protected)
            }
            (Followed::Pods, InformerEvent::Applied(seen)) if !seen.metadata.is_deleting => Vec::new(),
            (Followed::Pods, InformerEvent::Applied(seen) | InformerEvent::Deleted(seen)) => {
                let namespace = &seen.metadata.namespace;
                self.find(|(protected, of, _)| *protected == Protected::Claim && of == namespace)
            }
            (Followed::Pods, InformerEvent::Listed(_)) => self.find(|key| key.0 == Protected::Claim),
        }
    }

    /// Classes, which claims and volumes use.
    fn users_of(&self, changed: Protected) -> Vec<ObjectKey> {
        match changed {
            Protected::Claim | Protected::Volume => self.find(|key| key.0 == Protected::Class),
            Protected::Class => Vec::new(),
        }
    }

    fn find(&self, is_wanted: impl Fn(&ObjectKey) -> bool) -> Vec<ObjectKey> {
        self.0.values().filter(|key| is_wanted(key)).cloned().collect()
    }
}

async fn process(config: &Config, key: &ObjectKey) -> WorkResult {
    match try_release(config, key).await {
        Ok(()) => WorkResult::Done,
        Err(error) if error.is_not_found() => WorkResult::Done,
        Err(error) => {
            let (_, namespace, name) = key;
            tracing::debug!(%namespace, %name, %error, "storage protection failed, will retry");
            WorkResult::Failed
        }
    }
}

/// Removes the finalizer of an object that is being deleted, unless it is used.
async fn try_release(config: &Config, (protected, namespace, name): &ObjectKey) -> Result<(), ApiError> {
    let Some((_, client)) = config.clients.iter().find(|(of, _)| of == protected) else { return Ok(()) };
    let path = match protected {
        Protected::Claim => format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"),
        Protected::Volume | Protected::Class => format!("{}/{name}", protected.path()),
    };
    let body = client.get(&path, "application/json").await?.body;
    let mut object: JsonObject =
        serde_json::from_slice(&body).map_err(|error| ApiError::InvalidResponse(error.to_string()))?;
    if metadata_string(&object, "deletionTimestamp").is_empty() {
        return Ok(());
    }
    let is_used = match protected {
        Protected::Claim => {
            let pods = list_objects(client, &format!("/api/v1/namespaces/{namespace}/pods"), "").await?;
            pods.iter().any(|pod| uses_claim(pod, &object))
        }
        Protected::Volume => text(&object, &["status", "phase"]) == "Bound",
        Protected::Class => {
            let (claims, volumes) = (list_objects(client, CLAIMS, "").await?, list_objects(client, VOLUMES, "").await?);
            claims.iter().any(|claim| claim_uses_class(claim, name))
                || volumes.iter().any(|volume| text(volume, &["spec", "volumeAttributesClassName"]) == &**name)
        }
    };
    if is_used {
        return Ok(());
    }
    let Some(Value::Array(finalizers)) = metadata_mut(&mut object).get_mut("finalizers") else { return Ok(()) };
    let count = finalizers.len();
    finalizers.retain(|finalizer| finalizer != protected.finalizer());
    if finalizers.len() == count {
        return Ok(());
    }
    client.update(&path, &Value::Object(object)).await?;
    tracing::debug!(%namespace, %name, finalizer = protected.finalizer(), "removed the finalizer of an unused object");
    Ok(())
}

/// True if a pod uses a claim. Only pods with a node count: a kubelet starts none whose claim is being deleted.
fn uses_claim(pod: &JsonObject, claim: &JsonObject) -> bool {
    if text(pod, &["spec", "nodeName"]).is_empty() {
        return false;
    }
    let (name, pod_name) = (metadata_string(claim, "name"), metadata_string(pod, "name"));
    // Its volumes are unpublished, or it was force-deleted.
    let is_shut_down = !metadata_string(pod, "deletionTimestamp").is_empty()
        && integer(pod, &["metadata", "deletionGracePeriodSeconds"]) == Some(0);
    let is_for_pod = objects(claim, &["metadata", "ownerReferences"]).any(|owner| {
        text(owner, &["uid"]) == metadata_string(pod, "uid") && owner.get("controller") == Some(&Value::Bool(true))
    });
    objects(pod, &["spec", "volumes"]).any(|volume| {
        let is_ephemeral = volume.contains_key("ephemeral")
            && format!("{pod_name}-{}", text(volume, &["name"])) == name
            && is_for_pod
            && !is_shut_down;
        text(volume, &["persistentVolumeClaim", "claimName"]) == name || is_ephemeral
    })
}

fn claim_uses_class(claim: &JsonObject, class: &str) -> bool {
    [
        &["spec", "volumeAttributesClassName"][..],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ]
    .iter()
    .any(|path| text(claim, path) == class)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        let Value::Object(object) = value else { panic!("no object") };
        object
    }

    #[test]
    fn claim_is_used_by_scheduled_pods_until_their_volumes_are_gone() {
        let claim = |owner: &str| {
            object(json!({"metadata": {"name": "p-data", "ownerReferences": [{"uid": owner, "controller": true}]}}))
        };
        let pod = |node: &str, volume: Value, metadata: Value| {
            let mut metadata = object(metadata);
            metadata.insert("name".to_owned(), "p".into());
            metadata.insert("uid".to_owned(), "7".into());
            object(json!({"metadata": metadata, "spec": {"nodeName": node, "volumes": [volume]}}))
        };
        let named = || json!({"name": "v", "persistentVolumeClaim": {"claimName": "p-data"}});
        let ephemeral = || json!({"name": "data", "ephemeral": {}});
        let gone = || json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        assert!(uses_claim(&pod("n", named(), json!({})), &claim("7")));
        assert!(!uses_claim(&pod("", named(), json!({})), &claim("7")), "not scheduled");
        assert!(uses_claim(&pod("n", named(), gone()), &claim("7")), "until the pod is removed");
        assert!(uses_claim(&pod("n", ephemeral(), json!({})), &claim("7")));
        assert!(!uses_claim(&pod("n", ephemeral(), json!({})), &claim("8")), "the claim of another pod");
        assert!(!uses_claim(&pod("n", ephemeral(), gone()), &claim("7")), "shut down");
        let other = json!({"name": "v", "persistentVolumeClaim": {"claimName": "other"}});
        assert!(!uses_claim(&pod("n", other, json!({})), &claim("7")));
    }

    #[test]
    fn class_is_used_by_claims_that_have_it_or_get_it() {
        for (claim, expected) in [
            (json!({"spec": {"volumeAttributesClassName": "gold"}}), true),
            (json!({"status": {"currentVolumeAttributesClassName": "gold"}}), true),
            (json!({"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}}}), true),
            (json!({"spec": {"volumeAttributesClassName": "silver"}}), false),
        ] {
            assert_eq!(claim_uses_class(&object(claim.clone()), "gold"), expected, "{claim}");
        }
    }
}
