//! The graph of owners: every observed object, and every referenced owner.
//!
//! Pure: events go in, tasks come out. The graph decides nothing; an owner that is not in it must be looked up at the
//! server.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::decide::PropagationPolicy;
use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::informer::{ObservedMetadata, ObservedOwnerReference, Uid};
use crate::resources::{DiscoveredResource, ResourceScope};

#[derive(Debug, Default)]
pub(super) struct OwnerGraph {
    nodes: HashMap<Uid, ObjectNode>,
}

/// An observed object or a referenced owner.
#[derive(Clone, Debug)]
pub(super) struct ObjectNode {
    pub(super) object_type: ObjectType,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) state: NodeState,
    pub(super) owners: Vec<ObservedOwnerReference>,
    dependents: BTreeSet<Uid>,
}

/// The resource or kind of an object.
#[derive(Clone, Debug)]
pub(super) enum ObjectType {
    /// The resource that an informer follows.
    Resource(Arc<DiscoveredResource>),
    /// As in an owner reference.
    Kind { api_version: Arc<str>, kind: Arc<str> },
}

/// How an object is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    /// Referenced as owner but not observed yet.
    Virtual,
    /// Exists; `policy` is what its finalizers request for a deletion.
    Observed { resource_version: Box<str>, deletion: DeletionState, policy: PropagationPolicy },
    /// Was observed and is gone; kept while other objects refer to it.
    Deleted,
}

/// The progress of an object's deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletionState {
    NotDeleting,
    /// Waits for finalizers of other controllers.
    Terminating,
    /// Waits until its dependents no longer refer to it.
    Orphaning,
    /// Waits until its dependents are deleted.
    Foreground,
}

/// A unit of work of the garbage collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum GarbageTask {
    /// Decide whether the object may stay.
    Examine(Uid),
    /// Remove the object from the owner references of its dependents.
    Orphan(Uid),
    /// Create an Event about a reference into another namespace.
    ReportMisplacedOwner { dependent: Uid, owner: ObservedOwnerReference },
}

impl OwnerGraph {
    /// Records the current state of an object; returns the tasks that follow.
    pub(super) fn observe(
        &mut self,
        resource: &Arc<DiscoveredResource>,
        metadata: &ObservedMetadata,
    ) -> Vec<GarbageTask> {
        let uid = &metadata.uid;
        let deletion = DeletionState::from_metadata(metadata);
        let observed = NodeState::Observed {
            resource_version: metadata.resource_version.clone(),
            deletion,
            policy: PropagationPolicy::from_finalizers(metadata),
        };
        let node = self.nodes.entry(uid.clone()).or_insert_with(|| ObjectNode {
            object_type: ObjectType::Resource(resource.clone()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            state: NodeState::Virtual,
            owners: Vec::new(),
            dependents: BTreeSet::new(),
        });
        node.object_type = ObjectType::Resource(resource.clone());
        node.namespace = metadata.namespace.clone();
        node.name = metadata.name.clone();
        let before = std::mem::replace(&mut node.state, observed);
        let owners = std::mem::replace(&mut node.owners, metadata.owner_references.clone());
        let dependents: Vec<Uid> = node.dependents.iter().cloned().collect();
        let mut tasks = Vec::new();
        if !matches!(before, NodeState::Observed { .. }) {
            self.check_references_to(uid, &dependents, &mut tasks);
        }
        self.update_owners(uid, &owners, &metadata.owner_references, &mut tasks);
        if before.deletion() != deletion {
            match deletion {
                DeletionState::NotDeleting | DeletionState::Terminating => {}
                DeletionState::Orphaning => tasks.push(GarbageTask::Orphan(uid.clone())),
                DeletionState::Foreground => {
                    tasks.extend(dependents.into_iter().map(GarbageTask::Examine));
                    tasks.push(GarbageTask::Examine(uid.clone()));
                }
            }
        }
        tasks
    }

    /// Records that an object is gone; returns the tasks that follow.
    pub(super) fn remove(&mut self, uid: &Uid) -> Vec<GarbageTask> {
        let Some(node) = self.nodes.get_mut(uid) else { return Vec::new() };
        node.state = NodeState::Deleted;
        let owners = std::mem::take(&mut node.owners);
        let dependents: Vec<Uid> = node.dependents.iter().cloned().collect();
        if dependents.is_empty() {
            self.nodes.remove(uid);
        }
        let mut tasks: Vec<GarbageTask> = dependents.into_iter().map(GarbageTask::Examine).collect();
        for owner in &owners {
            self.remove_dependent(uid, &owner.uid, &mut tasks);
        }
        tasks
    }

    /// The observed objects of a resource that are not in `listed`.
    pub(super) fn unlisted_objects(&self, resource: &DiscoveredResource, listed: &HashSet<Uid>) -> Vec<Uid> {
        let is_missing = |(uid, node): &(&Uid, &ObjectNode)| {
            matches!(node.state, NodeState::Observed { .. })
                && matches!(&node.object_type, ObjectType::Resource(own) if own.group_resource() == resource.group_resource())
                && !listed.contains(*uid)
        };
        self.nodes.iter().filter(is_missing).map(|(uid, _)| uid.clone()).collect()
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<&ObjectNode> {
        self.nodes.get(uid)
    }

    /// The objects that refer to `uid` as an owner.
    pub(super) fn dependents(&self, uid: &Uid) -> impl Iterator<Item = (&Uid, &ObjectNode)> {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|node| &node.dependents);
        dependents.filter_map(|uid| self.nodes.get_key_value(uid))
    }

    /// The dependents that must be gone before a foreground deletion can finish.
    pub(super) fn blocking_dependents(&self, uid: &Uid) -> impl Iterator<Item = (&Uid, &ObjectNode)> {
        self.dependents(uid).filter(move |(_, node)| {
            node.owners.iter().any(|owner| owner.uid == *uid && owner.block_owner_deletion == Some(true))
        })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Checks the references to an owner that was observed for the first time, since they may not match it.
    fn check_references_to(&self, uid: &Uid, dependents: &[Uid], tasks: &mut Vec<GarbageTask>) {
        let Some(owner) = self.nodes.get(uid) else { return };
        for dependent in dependents {
            let Some(node) = self.nodes.get(dependent) else { continue };
            for reference in node.owners.iter().filter(|reference| reference.uid == *uid) {
                check_reference(dependent, node, reference, owner, tasks);
            }
        }
    }

    fn update_owners(
        &mut self,
        uid: &Uid,
        before: &[ObservedOwnerReference],
        now: &[ObservedOwnerReference],
        tasks: &mut Vec<GarbageTask>,
    ) {
        let blocks = |list: &[ObservedOwnerReference], owner: &Uid| {
            list.iter().any(|each| each.uid == *owner && each.block_owner_deletion == Some(true))
        };
        for reference in before {
            let owner = &reference.uid;
            if !now.iter().any(|each| each.uid == *owner) {
                self.remove_dependent(uid, owner, tasks);
            } else if blocks(before, owner) && !blocks(now, owner) {
                self.enqueue_waiting_owner(owner, tasks);
            }
        }
        for reference in now.iter().filter(|reference| !before.contains(reference)) {
            self.add_dependent(uid, reference, tasks);
        }
    }

    /// Links a dependent to its owner, adding a virtual node for an unknown owner.
    fn add_dependent(&mut self, dependent: &Uid, reference: &ObservedOwnerReference, tasks: &mut Vec<GarbageTask>) {
        let namespace = self.nodes.get(dependent).map(|node| node.namespace.clone()).unwrap_or_default();
        if let Some(owner) = self.nodes.get_mut(&reference.uid) {
            owner.dependents.insert(dependent.clone());
            let (owner, node) = (&self.nodes[&reference.uid], &self.nodes[dependent]);
            match &owner.state {
                NodeState::Virtual => {}
                NodeState::Deleted => tasks.push(GarbageTask::Examine(dependent.clone())),
                NodeState::Observed { deletion: DeletionState::Foreground, .. } => {
                    tasks.push(GarbageTask::Examine(dependent.clone()))
                }
                NodeState::Observed { .. } => check_reference(dependent, node, reference, owner, tasks),
            }
            return;
        }
        let ObservedOwnerReference { api_version, kind, name, .. } = reference.clone();
        let owner = ObjectNode {
            object_type: ObjectType::Kind { api_version, kind },
            namespace,
            name,
            state: NodeState::Virtual,
            owners: Vec::new(),
            dependents: BTreeSet::from([dependent.clone()]),
        };
        self.nodes.insert(reference.uid.clone(), owner);
        tasks.push(GarbageTask::Examine(reference.uid.clone()));
    }

    /// Unlinks a dependent; removes an owner that is neither observed nor referenced.
    fn remove_dependent(&mut self, dependent: &Uid, owner: &Uid, tasks: &mut Vec<GarbageTask>) {
        let Some(node) = self.nodes.get_mut(owner) else { return };
        node.dependents.remove(dependent);
        if node.dependents.is_empty() && !matches!(node.state, NodeState::Observed { .. }) {
            self.nodes.remove(owner);
            return;
        }
        self.enqueue_waiting_owner(owner, tasks);
    }

    /// Enqueues an owner in foreground deletion after it lost a dependent.
    fn enqueue_waiting_owner(&self, owner: &Uid, tasks: &mut Vec<GarbageTask>) {
        if self.nodes.get(owner).is_some_and(|node| node.state.deletion() == DeletionState::Foreground) {
            tasks.push(GarbageTask::Examine(owner.clone()));
        }
    }
}

/// Enqueues the dependent if its reference does not match the object with that uid; a live read then decides.
fn check_reference(
    uid: &Uid,
    node: &ObjectNode,
    reference: &ObservedOwnerReference,
    owner: &ObjectNode,
    tasks: &mut Vec<GarbageTask>,
) {
    let ObjectType::Resource(resource) = &owner.object_type else { return };
    let is_elsewhere = resource.scope == ResourceScope::Namespace && node.namespace != owner.namespace;
    if is_elsewhere {
        tasks.push(GarbageTask::ReportMisplacedOwner { dependent: uid.clone(), owner: reference.clone() });
    }
    if is_elsewhere || reference.name != owner.name || reference.kind != resource.kind {
        tasks.push(GarbageTask::Examine(uid.clone()));
    }
}

impl NodeState {
    pub(super) fn deletion(&self) -> DeletionState {
        match self {
            Self::Observed { deletion, .. } => *deletion,
            Self::Virtual | Self::Deleted => DeletionState::NotDeleting,
        }
    }
}

impl DeletionState {
    pub(super) fn from_metadata(metadata: &ObservedMetadata) -> Self {
        match metadata.is_deleting {
            false => Self::NotDeleting,
            true if metadata.has_finalizer(FINALIZER_ORPHAN) => Self::Orphaning,
            true if metadata.has_finalizer(FINALIZER_FOREGROUND) => Self::Foreground,
            true => Self::Terminating,
        }
    }
}

#[cfg(test)]
mod tests;
