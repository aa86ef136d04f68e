//! The accepted names of groups, as of the revisions of their guard keys.

use std::collections::HashMap;
use std::sync::Arc;

use apiextensions::Definition;
use apiextensions::definition::ResourceNames;
use apiextensions::naming::GroupNames;
use store::Revision;

use super::{CustomResources, LiveDefinition};

/// The groups in which this server accepts names, during one pass over all definitions.
#[derive(Debug, Default)]
pub(super) struct GuardedNames {
    groups: HashMap<String, GuardedGroup>,
}

/// The definitions of a group and their accepted names, complete as long as the guard key has this revision.
#[derive(Debug)]
pub(super) struct GuardedGroup {
    /// `None` if no name of the group was accepted yet.
    revision: Option<Revision>,
    pub(super) names: GroupNames,
    definitions: HashMap<String, Arc<LiveDefinition>>,
}

impl GuardedNames {
    pub(super) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Takes a group from a snapshot that is at least as new as the revision of the guard key.
    pub(super) fn insert_group(&mut self, group: &str, revision: Option<Revision>, snapshot: &CustomResources) {
        let definitions = snapshot.group(group);
        let names = GroupNames::new(definitions.iter().map(|live| &*live.definition));
        let definitions = definitions.into_iter().map(|live| (live.definition.metadata.name.clone(), live)).collect();
        self.groups.insert(group.to_owned(), GuardedGroup { revision, names, definitions });
    }

    /// A definition that was not yet decided about, and its group.
    pub(super) fn definition(&self, group: &str, name: &str) -> Option<(Arc<LiveDefinition>, &GuardedGroup)> {
        let guarded = self.groups.get(group)?;
        Some((guarded.definitions.get(name)?.clone(), guarded))
    }

    /// Takes names that this server is about to accept. True if names may be free afterwards: nothing more can then be
    /// decided before the group is read again.
    pub(super) fn accept(&mut self, definition: &Definition, accepted: Option<&ResourceNames>) -> bool {
        if let Some(guarded) = self.groups.get_mut(&definition.spec.group) {
            guarded.definitions.remove(&definition.metadata.name);
            accepted.into_iter().for_each(|names| guarded.names.insert(names));
        }
        frees_names(definition, accepted)
    }

    /// Records that the names of a definition were accepted at `revision`, by a write that also wrote the guard key.
    pub(super) fn complete(&mut self, definition: &Definition, accepted: Option<&ResourceNames>, revision: Revision) {
        if frees_names(definition, accepted) {
            self.groups.remove(&definition.spec.group);
        } else if let Some(guarded) = self.groups.get_mut(&definition.spec.group) {
            guarded.revision = Some(revision);
        }
    }

    /// The revision of the guard key of a group.
    pub(super) fn revision(&self, group: &str) -> Option<Revision> {
        self.groups.get(group).and_then(|guarded| guarded.revision)
    }
}

/// True if some of the former names of a definition may be free once others are accepted.
fn frees_names(definition: &Definition, accepted: Option<&ResourceNames>) -> bool {
    accepted.is_some() && definition.status.accepted_names != ResourceNames::default()
}
