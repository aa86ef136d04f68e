//! What the garbage collector does to objects, one at a time, through the API.
//!
//! Everything written is conditional on the uid and the resourceVersion that was judged: an object that changed meanwhile is
//! judged anew.

use std::sync::Arc;

use api::GroupVersionResource;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use super::absent::Absences;
use super::graph::{Node, Sight, Sort};
use super::judge::{Dependents, Owner, Verdict, judge};
use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::client::{CallError, Client, METADATA_ONLY};
use crate::follow::{OwnerReference, Seen, Uid};
use crate::resources::{Place, Resource, Resources};

/// How many dependents are orphaned at once.
const ORPHANED_AT_ONCE: usize = 8;

/// What work needs beside the object.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) client: Client,
    pub(super) resources: Arc<Resources>,
    pub(super) absences: Arc<Absences>,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Nothing more to do.
    Done,
    /// The server says that the object is not there.
    Vanished,
    /// Discovery does not know the kind of an owner, or of the object.
    Parked,
    /// It was seen at the server, and is not in the graph yet.
    NotSeenYet,
    /// It did not work, now.
    Failed(CallError),
}

impl From<CallError> for Outcome {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

impl Tools {
    /// Looks for an owner that was named and not seen.
    pub(super) async fn look_for(self, uid: Uid, node: Node) -> Outcome {
        let Some(resource) = self.resource_of(&node.sort) else { return Outcome::Parked };
        if resource.scope == Place::Namespace && node.namespace.is_empty() {
            // A cluster-scoped object names it, and that reference leads nowhere.
            return Outcome::Done;
        }
        match self.find(&resource, &node.namespace, &node.name).await {
            Ok(Some(found)) if found.metadata.uid == uid => Outcome::NotSeenYet,
            Ok(Some(_) | None) => Outcome::Vanished,
            Err(error) => error.into(),
        }
    }

    /// Judges an object by its owners, and acts on it.
    pub(super) async fn examine(self, uid: Uid, node: Node, dependents: Dependents) -> Outcome {
        let Some(resource) = self.resource_of(&node.sort) else { return Outcome::Parked };
        let Sight::Seen { version, policy, .. } = &node.sight else { return Outcome::Done };
        let mut owners = Vec::with_capacity(node.owners.len());
        for reference in &node.owners {
            match self.look_up(&node.namespace, reference).await {
                Ok(owner) => owners.push((reference.uid.clone(), owner)),
                Err(error) => return error.into(),
            }
        }
        let path = resource.object_path(&node.namespace, &node.name);
        let acted = match judge(&owners, dependents, *policy) {
            Verdict::Leave => return Outcome::Done,
            Verdict::Park => return Outcome::Parked,
            Verdict::Unlink(owners) => {
                let keep = |reference: &mut Value| !owners.iter().any(|owner| reference["uid"] == **owner);
                self.change_owners(&resource, &node, &uid, keep).await
            }
            Verdict::Delete { policy, unblock } => {
                if unblock {
                    let unblock = |reference: &mut Value| {
                        reference["blockOwnerDeletion"] = false.into();
                        true
                    };
                    match self.change_owners(&resource, &node, &uid, unblock).await {
                        // The next look has the new version, and finds nothing to unblock but the same verdict.
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
                tracing::debug!(path, ?policy, "nobody owns it any more");
                self.client.delete(&path, &options).await.map(drop)
            }
        };
        self.conclude(acted, &resource, &node.name)
    }

    /// Lets an object go that has waited for its dependents.
    pub(super) async fn finish_foreground(self, uid: Uid, node: Node) -> Outcome {
        self.remove_finalizer(&uid, &node, FINALIZER_FOREGROUND).await
    }

    /// Takes an object out of the owners of its dependents, and then lets it go.
    pub(super) async fn orphan(self, uid: Uid, node: Node, dependents: Vec<(Uid, Node)>) -> Outcome {
        let keep = |reference: &mut Value| reference["uid"] != *uid;
        let unlink = async |(dependent, node): (Uid, Node)| {
            let Some(resource) = self.resource_of(&node.sort) else { return Outcome::Parked };
            let unlinked = self.change_owners(&resource, &node, &dependent, keep).await;
            self.conclude(unlinked, &resource, &node.name)
        };
        let outcomes: Vec<Outcome> =
            stream::iter(dependents).map(unlink).buffer_unordered(ORPHANED_AT_ONCE).collect().await;
        for outcome in outcomes {
            match outcome {
                Outcome::Done | Outcome::Vanished => {}
                Outcome::Parked | Outcome::NotSeenYet | Outcome::Failed(_) => return outcome,
            }
        }
        self.remove_finalizer(&uid, &node, FINALIZER_ORPHAN).await
    }

    fn resource_of(&self, sort: &Sort) -> Option<Arc<Resource>> {
        match sort {
            Sort::Resource(resource) => Some(resource.clone()),
            Sort::Kind { api_version, kind } => self.resources.of_kind(api_version, kind).cloned(),
        }
    }

    fn conclude(&self, acted: Result<(), CallError>, resource: &Resource, name: &str) -> Outcome {
        match acted {
            Ok(()) => Outcome::Done,
            Err(error) if error.is_absent(resource.name.borrowed(), name) => Outcome::Vanished,
            Err(error) => error.into(),
        }
    }

    /// What an owner is, by the word of the server.
    async fn look_up(&self, namespace: &str, reference: &OwnerReference) -> Result<Owner, CallError> {
        let OwnerReference { api_version, kind, name, uid, .. } = reference;
        let Some(resource) = self.resources.of_kind(api_version, kind).filter(|resource| resource.can("get")) else {
            return Ok(Owner::Unresolvable);
        };
        let namespace = match resource.scope {
            Place::Cluster => "",
            Place::Namespace if namespace.is_empty() => return Ok(Owner::Misplaced),
            Place::Namespace => namespace,
        };
        let path = resource.object_path(namespace, name);
        if self.absences.has(&path, uid) {
            return Ok(Owner::Absent);
        }
        match self.find(resource, namespace, name).await? {
            Some(found) if found.metadata.uid == *uid => {
                let waits = found.metadata.is_deleting && found.metadata.has_finalizer(FINALIZER_FOREGROUND);
                Ok(if waits { Owner::Waiting } else { Owner::Solid })
            }
            Some(_) | None => {
                self.absences.add(&path, uid);
                Ok(Owner::Absent)
            }
        }
    }

    /// An object, by a live read; `None` only if the server says that this very object does not exist.
    async fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Seen>, CallError> {
        match self.client.get(&resource.object_path(namespace, name), METADATA_ONLY).await {
            Ok(answer) => serde_json::from_slice(&answer.body)
                .map(Some)
                .map_err(|error| CallError::Unreadable(format!("an object: {error}"))),
            Err(error) if error.is_absent(resource.name.borrowed(), name) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps those owner references of an object that `keep` wants, changed as it likes.
    async fn change_owners(
        &self,
        resource: &Resource,
        node: &Node,
        uid: &Uid,
        mut keep: impl FnMut(&mut Value) -> bool,
    ) -> Result<(), CallError> {
        let Some(mut live) = self.live(resource, node, uid).await? else { return Ok(()) };
        let Some(Value::Array(owners)) = live.get_mut("ownerReferences").map(Value::take) else { return Ok(()) };
        let before = owners.clone();
        let kept: Vec<Value> = owners.into_iter().filter_map(|mut owner| keep(&mut owner).then_some(owner)).collect();
        if kept == before {
            return Ok(());
        }
        self.patch(resource, node, &live, "ownerReferences", kept).await
    }

    async fn remove_finalizer(&self, uid: &Uid, node: &Node, finalizer: &str) -> Outcome {
        let Some(resource) = self.resource_of(&node.sort) else { return Outcome::Parked };
        let live = match self.live(&resource, node, uid).await {
            Ok(Some(live)) => live,
            Ok(None) => return Outcome::Vanished,
            Err(error) => return error.into(),
        };
        let finalizers = live["finalizers"].as_array().cloned().unwrap_or_default();
        let rest: Vec<Value> = finalizers.iter().filter(|each| **each != finalizer).cloned().collect();
        if rest.len() == finalizers.len() {
            return Outcome::Done;
        }
        let patched = self.patch(&resource, node, &live, "finalizers", rest).await;
        self.conclude(patched, &resource, &node.name)
    }

    /// The metadata of an object with this uid, by a live read.
    async fn live(&self, resource: &Resource, node: &Node, uid: &Uid) -> Result<Option<Value>, CallError> {
        let path = resource.object_path(&node.namespace, &node.name);
        let answer = match self.client.get(&path, METADATA_ONLY).await {
            Ok(answer) => answer,
            Err(error) if error.is_absent(resource.name.borrowed(), &node.name) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut object: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| CallError::Unreadable(format!("an object: {error}")))?;
        let metadata = object["metadata"].take();
        Ok((metadata["uid"] == **uid).then_some(metadata))
    }

    async fn patch(
        &self,
        resource: &Resource,
        node: &Node,
        live: &Value,
        field: &str,
        list: Vec<Value>,
    ) -> Result<(), CallError> {
        let mut metadata = json!({"uid": live["uid"], "resourceVersion": live["resourceVersion"]});
        // An empty list is written as none at all, as Go writes it.
        metadata[field] = if list.is_empty() { Value::Null } else { list.into() };
        let path = resource.object_path(&node.namespace, &node.name);
        self.client.merge(&path, &json!({"metadata": metadata})).await.map(drop)
    }
}

/// What says that a reference leads into another namespace.
pub(super) fn misplaced_event(
    dependent: &Node,
    uid: &Uid,
    owner: &OwnerReference,
    now: jiff::Timestamp,
) -> Option<(String, Value)> {
    let Sort::Resource(resource) = &dependent.sort else { return None };
    let GroupVersionResource { group, version, .. } = &resource.name;
    let api_version = api::GroupVersion { group: &**group, version: &**version }.to_string();
    let namespace = if dependent.namespace.is_empty() { "default" } else { &dependent.namespace };
    let OwnerReference { api_version: owner_version, kind, name, uid: owner_uid, .. } = owner;
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
