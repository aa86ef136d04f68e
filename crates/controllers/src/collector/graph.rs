//! Who owns whom: every object that was seen, and every owner that was named.
//!
//! Pure: changes come in, and what there is to do about them comes out. Nothing is decided here; that an owner is not in the
//! graph means that it should be looked for.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::judge::Policy;
use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::follow::{Metadata, OwnerReference, Uid};
use crate::resources::{Place, Resource};

/// Objects and their owners.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
}

/// One object, or one that somebody named as owner.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) sort: Sort,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) sight: Sight,
    pub(super) owners: Vec<OwnerReference>,
    dependents: BTreeSet<Uid>,
}

/// What kind of object it is.
#[derive(Clone, Debug)]
pub(super) enum Sort {
    /// Of a resource that is followed.
    Resource(Arc<Resource>),
    /// As a reference says.
    Kind { api_version: Arc<str>, kind: Arc<str> },
}

/// How we know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// It was named as owner and not seen yet.
    Named,
    /// It is there; `policy` is what its finalizers ask for, should it be deleted.
    Seen { version: Box<str>, deletion: Deletion, policy: Policy },
    /// It was there. It is remembered for as long as others name it.
    Gone,
}

/// How far an object's deletion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    /// It is not being deleted.
    No,
    /// It goes when its finalizers, which are not ours, are gone.
    Going,
    /// It goes when its dependents do not name it any more.
    Orphaning,
    /// It goes when its dependents are gone.
    Foreground,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// See whether it may stay.
    Examine(Uid),
    /// Take it out of its dependents' owners.
    Orphan(Uid),
    /// Say that a reference leads into another namespace.
    Report { dependent: Uid, owner: OwnerReference },
}

impl Graph {
    /// An object as it is now.
    pub(super) fn observe(&mut self, resource: &Arc<Resource>, metadata: &Metadata) -> Vec<Task> {
        let uid = &metadata.uid;
        let deletion = Deletion::of(metadata);
        let sight = Sight::Seen { version: metadata.resource_version.clone(), deletion, policy: Policy::of(metadata) };
        let node = self.nodes.entry(uid.clone()).or_insert_with(|| Node {
            sort: Sort::Resource(resource.clone()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            sight: Sight::Named,
            owners: Vec::new(),
            dependents: BTreeSet::new(),
        });
        node.sort = Sort::Resource(resource.clone());
        node.namespace = metadata.namespace.clone();
        node.name = metadata.name.clone();
        let before = std::mem::replace(&mut node.sight, sight);
        let owners = std::mem::replace(&mut node.owners, metadata.owner_references.clone());
        let dependents: Vec<Uid> = node.dependents.iter().cloned().collect();
        let mut tasks = Vec::new();
        if !matches!(before, Sight::Seen { .. }) {
            self.check_references_to(uid, &dependents, &mut tasks);
        }
        self.follow_owners(uid, &owners, &metadata.owner_references, &mut tasks);
        if before.deletion() != deletion {
            match deletion {
                Deletion::No | Deletion::Going => {}
                Deletion::Orphaning => tasks.push(Task::Orphan(uid.clone())),
                Deletion::Foreground => {
                    tasks.extend(dependents.into_iter().map(Task::Examine));
                    tasks.push(Task::Examine(uid.clone()));
                }
            }
        }
        tasks
    }

    /// An object that is not there any more.
    pub(super) fn forget(&mut self, uid: &Uid) -> Vec<Task> {
        let Some(node) = self.nodes.get_mut(uid) else { return Vec::new() };
        node.sight = Sight::Gone;
        let owners = std::mem::take(&mut node.owners);
        let dependents: Vec<Uid> = node.dependents.iter().cloned().collect();
        if dependents.is_empty() {
            self.nodes.remove(uid);
        }
        let mut tasks: Vec<Task> = dependents.into_iter().map(Task::Examine).collect();
        for owner in &owners {
            self.detach(uid, &owner.uid, &mut tasks);
        }
        tasks
    }

    /// The objects of a resource that are seen, and not among these.
    pub(super) fn missing(&self, resource: &Resource, listed: &HashSet<Uid>) -> Vec<Uid> {
        let is_missing = |(uid, node): &(&Uid, &Node)| {
            matches!(node.sight, Sight::Seen { .. })
                && matches!(&node.sort, Sort::Resource(own) if own.group_resource() == resource.group_resource())
                && !listed.contains(*uid)
        };
        self.nodes.iter().filter(is_missing).map(|(uid, _)| uid.clone()).collect()
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Those that name it as their owner.
    pub(super) fn dependents(&self, uid: &Uid) -> impl Iterator<Item = (&Uid, &Node)> {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|node| &node.dependents);
        dependents.filter_map(|uid| self.nodes.get_key_value(uid))
    }

    /// Those that must be gone before it may go.
    pub(super) fn blocking(&self, uid: &Uid) -> impl Iterator<Item = (&Uid, &Node)> {
        self.dependents(uid).filter(move |(_, node)| {
            node.owners.iter().any(|owner| owner.uid == *uid && owner.block_owner_deletion == Some(true))
        })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Somebody who was only named is seen: those who named it may have named somebody else.
    fn check_references_to(&self, uid: &Uid, dependents: &[Uid], tasks: &mut Vec<Task>) {
        let Some(owner) = self.nodes.get(uid) else { return };
        for dependent in dependents {
            let Some(node) = self.nodes.get(dependent) else { continue };
            for reference in node.owners.iter().filter(|reference| reference.uid == *uid) {
                check_reference(dependent, node, reference, owner, tasks);
            }
        }
    }

    fn follow_owners(&mut self, uid: &Uid, before: &[OwnerReference], now: &[OwnerReference], tasks: &mut Vec<Task>) {
        let blocks = |list: &[OwnerReference], owner: &Uid| {
            list.iter().any(|each| each.uid == *owner && each.block_owner_deletion == Some(true))
        };
        for reference in before {
            let owner = &reference.uid;
            if !now.iter().any(|each| each.uid == *owner) {
                self.detach(uid, owner, tasks);
            } else if blocks(before, owner) && !blocks(now, owner) {
                self.wake_waiting(owner, tasks);
            }
        }
        for reference in now.iter().filter(|reference| !before.contains(reference)) {
            self.attach(uid, reference, tasks);
        }
    }

    fn attach(&mut self, dependent: &Uid, reference: &OwnerReference, tasks: &mut Vec<Task>) {
        let namespace = self.nodes.get(dependent).map(|node| node.namespace.clone()).unwrap_or_default();
        if let Some(owner) = self.nodes.get_mut(&reference.uid) {
            owner.dependents.insert(dependent.clone());
            let (owner, node) = (&self.nodes[&reference.uid], &self.nodes[dependent]);
            match &owner.sight {
                Sight::Named => {}
                Sight::Gone => tasks.push(Task::Examine(dependent.clone())),
                Sight::Seen { deletion: Deletion::Foreground, .. } => tasks.push(Task::Examine(dependent.clone())),
                Sight::Seen { .. } => check_reference(dependent, node, reference, owner, tasks),
            }
            return;
        }
        let OwnerReference { api_version, kind, name, .. } = reference.clone();
        let owner = Node {
            sort: Sort::Kind { api_version, kind },
            namespace,
            name,
            sight: Sight::Named,
            owners: Vec::new(),
            dependents: BTreeSet::from([dependent.clone()]),
        };
        self.nodes.insert(reference.uid.clone(), owner);
        tasks.push(Task::Examine(reference.uid.clone()));
    }

    fn detach(&mut self, dependent: &Uid, owner: &Uid, tasks: &mut Vec<Task>) {
        let Some(node) = self.nodes.get_mut(owner) else { return };
        node.dependents.remove(dependent);
        if node.dependents.is_empty() && !matches!(node.sight, Sight::Seen { .. }) {
            self.nodes.remove(owner);
            return;
        }
        self.wake_waiting(owner, tasks);
    }

    /// An owner that waits for its dependents has one less to wait for.
    fn wake_waiting(&self, owner: &Uid, tasks: &mut Vec<Task>) {
        if self.nodes.get(owner).is_some_and(|node| node.sight.deletion() == Deletion::Foreground) {
            tasks.push(Task::Examine(owner.clone()));
        }
    }
}

/// A reference that does not fit the object with its uid is as good as one to nobody; that is for a look at the server to say.
fn check_reference(uid: &Uid, node: &Node, reference: &OwnerReference, owner: &Node, tasks: &mut Vec<Task>) {
    let Sort::Resource(resource) = &owner.sort else { return };
    let is_elsewhere = resource.scope == Place::Namespace && node.namespace != owner.namespace;
    if is_elsewhere {
        tasks.push(Task::Report { dependent: uid.clone(), owner: reference.clone() });
    }
    if is_elsewhere || reference.name != owner.name || reference.kind != resource.kind {
        tasks.push(Task::Examine(uid.clone()));
    }
}

impl Sight {
    pub(super) fn deletion(&self) -> Deletion {
        match self {
            Self::Seen { deletion, .. } => *deletion,
            Self::Named | Self::Gone => Deletion::No,
        }
    }
}

impl Deletion {
    pub(super) fn of(metadata: &Metadata) -> Self {
        match metadata.is_deleting {
            false => Self::No,
            true if metadata.has_finalizer(FINALIZER_ORPHAN) => Self::Orphaning,
            true if metadata.has_finalizer(FINALIZER_FOREGROUND) => Self::Foreground,
            true => Self::Going,
        }
    }
}

#[cfg(test)]
mod tests;
