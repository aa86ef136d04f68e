//! The requests of the garbage collector for one object.
//!
//! Every write is conditional on the uid and resourceVersion that the decision was based on; an object that changed
//! meanwhile is examined again.

use std::sync::Arc;

use api::GroupVersionResource;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use super::absent_owners::AbsentOwnerCache;
use super::decide::{DependentsState, GarbageDecision, OwnerState, decide};
use super::graph::{NodeState, ObjectNode, ObjectType};
use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::client::{ApiClient, ApiError, METADATA_ONLY};
use crate::informer::{ObservedObject, ObservedOwnerReference, Uid};
use crate::resources::{DiscoveredResource, DiscoveredResources, ResourceScope};

/// Dependents orphaned at once.
const CONCURRENT_ORPHANS: usize = 8;

/// The shared inputs of all tasks.
#[derive(Clone, Debug)]
pub(super) struct TaskContext {
    pub(super) client: ApiClient,
    pub(super) resources: Arc<DiscoveredResources>,
    pub(super) absent_owners: Arc<AbsentOwnerCache>,
}

/// The result of a task.
#[derive(Debug)]
pub(super) enum TaskOutcome {
    Done,
    /// The server says that the object does not exist.
    ObjectNotFound,
    /// Discovery does not know the kind of an owner or of the object.
    AwaitingDiscovery,
    /// The graph does not show all objects yet, so the task must be retried.
    ViewIncomplete,
    /// The request failed.
    Failed(ApiError),
}

impl From<ApiError> for TaskOutcome {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl TaskContext {
    /// Checks whether an owner exists that is referenced but was never observed.
    pub(super) async fn examine_virtual_owner(self, uid: Uid, node: ObjectNode) -> TaskOutcome {
        let Some(resource) = self.resolve_resource(&node.object_type) else { return TaskOutcome::AwaitingDiscovery };
        if resource.scope == ResourceScope::Namespace && node.namespace.is_empty() {
            // A cluster-scoped object refers to a namespaced owner, which cannot be resolved.
            return TaskOutcome::Done;
        }
        match self.get_object(&resource, &node.namespace, &node.name).await {
            Ok(Some(found)) if found.metadata.uid == uid => TaskOutcome::ViewIncomplete,
            Ok(Some(_) | None) => TaskOutcome::ObjectNotFound,
            Err(error) => error.into(),
        }
    }

    /// Reads the owners of an object, decides, and executes the decision.
    pub(super) async fn examine_object(self, uid: Uid, node: ObjectNode, dependents: DependentsState) -> TaskOutcome {
        let Some(resource) = self.resolve_resource(&node.object_type) else { return TaskOutcome::AwaitingDiscovery };
        let NodeState::Observed { resource_version: version, policy, .. } = &node.state else {
            return TaskOutcome::Done;
        };
        let mut owners = Vec::with_capacity(node.owners.len());
        for reference in &node.owners {
            match self.owner_state(&node.namespace, reference).await {
                Ok(owner) => owners.push((reference.uid.clone(), owner)),
                Err(error) => return error.into(),
            }
        }
        let path = resource.object_path(&node.namespace, &node.name);
        let acted = match decide(&owners, dependents, *policy) {
            GarbageDecision::Keep => return TaskOutcome::Done,
            GarbageDecision::AwaitDiscovery => return TaskOutcome::AwaitingDiscovery,
            GarbageDecision::RemoveOwners(owners) => {
                let keep = |reference: &mut Value| !owners.iter().any(|owner| reference["uid"] == **owner);
                self.patch_owner_references(&resource, &node, &uid, keep).await
            }
            GarbageDecision::Delete { policy, unblock_owners: unblock } => {
                if unblock {
                    let unblock = |reference: &mut Value| {
                        reference["blockOwnerDeletion"] = false.into();
                        true
                    };
                    match self.patch_owner_references(&resource, &node, &uid, unblock).await {
                        // The resourceVersion has changed, so the delete below is conditional on the uid alone.
                        Ok(_) => {}
                        Err(error) => return error.into(),
                    }
                }
                let preconditions = match unblock {
                    true => json!({"uid": uid}),
                    false => json!({"uid": uid, "resourceVersion": version}),
                };
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
                    "propagationPolicy": policy.as_str(), "preconditions": preconditions});
                tracing::debug!(path, ?policy, "deleting object without owners");
                self.client.delete(&path, &options).await.map(drop)
            }
        };
        self.to_outcome(acted, &resource, &node.name)
    }

    /// Removes the foreground finalizer of an object whose dependents are gone.
    pub(super) async fn finish_foreground_deletion(self, uid: Uid, node: ObjectNode) -> TaskOutcome {
        self.remove_finalizer(&uid, &node, FINALIZER_FOREGROUND).await
    }

    /// Removes the references to an object from its dependents, then its orphan finalizer once none is left.
    pub(super) async fn orphan_dependents(
        self,
        uid: Uid,
        node: ObjectNode,
        dependents: Vec<(Uid, ObjectNode)>,
    ) -> TaskOutcome {
        let keep = |reference: &mut Value| reference["uid"] != *uid;
        let unlink = async |(dependent, node): (Uid, ObjectNode)| {
            let Some(resource) = self.resolve_resource(&node.object_type) else {
                return TaskOutcome::AwaitingDiscovery;
            };
            let unlinked = self.patch_owner_references(&resource, &node, &dependent, keep).await;
            self.to_outcome(unlinked, &resource, &node.name)
        };
        let outcomes: Vec<TaskOutcome> =
            stream::iter(dependents).map(unlink).buffer_unordered(CONCURRENT_ORPHANS).collect().await;
        for outcome in outcomes {
            match outcome {
                TaskOutcome::Done | TaskOutcome::ObjectNotFound => {}
                TaskOutcome::AwaitingDiscovery | TaskOutcome::ViewIncomplete | TaskOutcome::Failed(_) => {
                    return outcome;
                }
            }
        }
        match self.has_dependents(&uid, &node).await {
            Ok(false) => self.remove_finalizer(&uid, &node, FINALIZER_ORPHAN).await,
            Ok(true) => TaskOutcome::ViewIncomplete,
            Err(error) => error.into(),
        }
    }

    fn resolve_resource(&self, sort: &ObjectType) -> Option<Arc<DiscoveredResource>> {
        match sort {
            ObjectType::Resource(resource) => Some(resource.clone()),
            ObjectType::Kind { api_version, kind } => self.resources.find_by_kind(api_version, kind).cloned(),
        }
    }

    fn to_outcome(&self, result: Result<(), ApiError>, resource: &DiscoveredResource, name: &str) -> TaskOutcome {
        match result {
            Ok(()) => TaskOutcome::Done,
            Err(error) if error.is_object_not_found(resource.name.borrowed(), name) => TaskOutcome::ObjectNotFound,
            Err(error) => error.into(),
        }
    }

    /// The state of an owner, by a live read.
    async fn owner_state(&self, namespace: &str, reference: &ObservedOwnerReference) -> Result<OwnerState, ApiError> {
        let ObservedOwnerReference { api_version, kind, name, uid, .. } = reference;
        let Some(resource) = self.resources.find_by_kind(api_version, kind).filter(|resource| resource.supports("get"))
        else {
            return Ok(OwnerState::UnknownKind);
        };
        let namespace = match resource.scope {
            ResourceScope::Cluster => "",
            ResourceScope::Namespace if namespace.is_empty() => return Ok(OwnerState::OutOfNamespace),
            ResourceScope::Namespace => namespace,
        };
        let path = resource.object_path(namespace, name);
        if self.absent_owners.contains(&path, uid) {
            return Ok(OwnerState::Absent);
        }
        match self.get_object(resource, namespace, name).await? {
            Some(found) if found.metadata.uid == *uid => {
                let waits = found.metadata.is_deleting && found.metadata.has_finalizer(FINALIZER_FOREGROUND);
                Ok(if waits { OwnerState::WaitingForDependents } else { OwnerState::Solid })
            }
            Some(_) | None => {
                self.absent_owners.insert(&path, uid);
                Ok(OwnerState::Absent)
            }
        }
    }

    /// Reads an object; `None` only if the server says that exactly this object does not exist.
    async fn get_object(
        &self,
        resource: &DiscoveredResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ObservedObject>, ApiError> {
        match self.client.get(&resource.object_path(namespace, name), METADATA_ONLY).await {
            Ok(answer) => serde_json::from_slice(&answer.body)
                .map(Some)
                .map_err(|error| ApiError::InvalidResponse(format!("object: {error}"))),
            Err(error) if error.is_object_not_found(resource.name.borrowed(), name) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Rewrites the owner references of an object: drops those for which `keep` returns false; `keep` may also change
    /// them.
    async fn patch_owner_references(
        &self,
        resource: &DiscoveredResource,
        node: &ObjectNode,
        uid: &Uid,
        mut keep: impl FnMut(&mut Value) -> bool,
    ) -> Result<(), ApiError> {
        let Some(mut live) = self.get_live_metadata(resource, node, uid).await? else { return Ok(()) };
        let Some(Value::Array(owners)) = live.get_mut("ownerReferences").map(Value::take) else { return Ok(()) };
        let before = owners.clone();
        let kept: Vec<Value> = owners.into_iter().filter_map(|mut owner| keep(&mut owner).then_some(owner)).collect();
        if kept == before {
            return Ok(());
        }
        self.patch_metadata(resource, node, &live, "ownerReferences", kept).await
    }

    async fn remove_finalizer(&self, uid: &Uid, node: &ObjectNode, finalizer: &str) -> TaskOutcome {
        let Some(resource) = self.resolve_resource(&node.object_type) else { return TaskOutcome::AwaitingDiscovery };
        let live = match self.get_live_metadata(&resource, node, uid).await {
            Ok(Some(live)) => live,
            Ok(None) => return TaskOutcome::ObjectNotFound,
            Err(error) => return error.into(),
        };
        let finalizers = live["finalizers"].as_array().cloned().unwrap_or_default();
        let rest: Vec<Value> = finalizers.iter().filter(|each| **each != finalizer).cloned().collect();
        if rest.len() == finalizers.len() {
            return TaskOutcome::Done;
        }
        let patched = self.patch_metadata(&resource, node, &live, "finalizers", rest).await;
        self.to_outcome(patched, &resource, &node.name)
    }

    /// Reads the metadata of an object; `None` if it is gone or has another uid.
    async fn get_live_metadata(
        &self,
        resource: &DiscoveredResource,
        node: &ObjectNode,
        uid: &Uid,
    ) -> Result<Option<Value>, ApiError> {
        let path = resource.object_path(&node.namespace, &node.name);
        let answer = match self.client.get(&path, METADATA_ONLY).await {
            Ok(answer) => answer,
            Err(error) if error.is_object_not_found(resource.name.borrowed(), &node.name) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut object: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| ApiError::InvalidResponse(format!("object: {error}")))?;
        let metadata = object["metadata"].take();
        Ok((metadata["uid"] == **uid).then_some(metadata))
    }

    async fn patch_metadata(
        &self,
        resource: &DiscoveredResource,
        node: &ObjectNode,
        live: &Value,
        field: &str,
        list: Vec<Value>,
    ) -> Result<(), ApiError> {
        let mut metadata = json!({"uid": live["uid"], "resourceVersion": live["resourceVersion"]});
        // An empty list is written as null, as Go does.
        metadata[field] = if list.is_empty() { Value::Null } else { list.into() };
        let path = resource.object_path(&node.namespace, &node.name);
        self.client.merge_patch(&path, &json!({"metadata": metadata})).await.map(drop)
    }
}

/// The Event for an owner reference into another namespace.
pub(super) fn invalid_namespace_event(
    dependent: &ObjectNode,
    uid: &Uid,
    owner: &ObservedOwnerReference,
    now: jiff::Timestamp,
) -> Option<(String, Value)> {
    let ObjectType::Resource(resource) = &dependent.object_type else { return None };
    let GroupVersionResource { group, version, .. } = &resource.name;
    let api_version = api::GroupVersion { group: &**group, version: &**version }.to_string();
    let namespace = if dependent.namespace.is_empty() { "default" } else { &dependent.namespace };
    let ObservedOwnerReference { api_version: owner_version, kind, name, uid: owner_uid, .. } = owner;
    let message = format!(
        "ownerRef [{owner_version}/{kind}, namespace: {}, name: {name}, uid: {owner_uid}] does not exist in namespace {:?}",
        dependent.namespace, dependent.namespace
    );
    let at = api::time::Time::from(now).to_string();
    let event = json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": format!("{}.{:x}", dependent.name, now.as_nanosecond()), "namespace": namespace},
        "involvedObject": {"kind": resource.kind, "apiVersion": api_version, "namespace": dependent.namespace,
            "name": dependent.name, "uid": uid},
        "reason": "OwnerRefInvalidNamespace", "message": message, "type": "Warning", "count": 1,
        "source": {"component": "garbage-collector-controller"},
        "reportingComponent": "garbage-collector-controller",
        "firstTimestamp": at, "lastTimestamp": at,
    });
    Some((format!("/api/v1/namespaces/{namespace}/events"), event))
}
