//! What becomes of an object: pure, from what was read to what is written.

use api::objects::{ServerStorageVersion, StorageVersion};
use api::time::Time;

use crate::agreement::{ALL_SERVERS_REPORTING, agree};
use crate::members::Members;

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Nothing.
    Keep,
    /// Replace it.
    Put(Box<StorageVersion>),
    /// Remove it: nobody has an entry.
    Delete,
}

/// Whether a server's entry is there, once, and says exactly this.
pub fn has_entry(object: &StorageVersion, entry: &ServerStorageVersion) -> bool {
    let mut own = object.status.storage_versions.iter().filter(|other| other.api_server_id == entry.api_server_id);
    own.next() == Some(entry) && own.next().is_none()
}

/// Whether this server has an entry, whatever it says.
pub fn names(object: &StorageVersion, server: &str) -> bool {
    object.status.storage_versions.iter().any(|entry| entry.api_server_id == server)
}

/// Whether somebody has an entry who does not take part.
pub fn has_strangers(object: &StorageVersion, members: &Members) -> bool {
    object.status.storage_versions.iter().any(|entry| !members.contains(&entry.api_server_id))
}

/// The object with a server's entry, without those of servers that no longer take part (KEP-2339, "Updating StorageVersion").
pub fn register(
    current: Option<&StorageVersion>,
    name: &str,
    entry: &ServerStorageVersion,
    members: &Members,
    now: Time,
) -> StorageVersion {
    let mut object = current.cloned().unwrap_or_default();
    name.clone_into(&mut object.metadata.name);
    let entries = &mut object.status.storage_versions;
    let own = |other: &ServerStorageVersion| other.api_server_id == entry.api_server_id;
    match entries.iter().position(own) {
        Some(position) => entries[position] = entry.clone(),
        None => entries.push(entry.clone()),
    }
    let mut stays = keep_once();
    entries.retain(|other| (own(other) || members.contains(&other.api_server_id)) && stays(other));
    agree(&mut object.status, object.metadata.generation, members, now);
    object
}

/// The object without entries of servers that no longer take part, and with the agreement that follows.
pub fn collect(current: &StorageVersion, members: &Members, now: Time) -> Edit {
    retain(current, |entry| members.contains(&entry.api_server_id), members, now)
}

/// The object without one server's entry, and without those of servers that no longer take part.
pub fn withdraw(current: &StorageVersion, server: &str, members: &Members, now: Time) -> Edit {
    retain(current, |entry| entry.api_server_id != server && members.contains(&entry.api_server_id), members, now)
}

/// Whether an edit says no more than that somebody does not report. That can wait for a moment: a server that joins is a
/// member first, reports next, and writes only then.
pub fn only_misses_reports(current: &StorageVersion, next: &StorageVersion) -> bool {
    let without_reports = |object: &StorageVersion| {
        let mut status = object.status.clone();
        status.conditions.retain(|condition| condition.condition_type != ALL_SERVERS_REPORTING);
        status
    };
    let misses = |object: &StorageVersion| {
        let mut conditions = object.status.conditions.iter();
        conditions.any(|condition| condition.condition_type == ALL_SERVERS_REPORTING && condition.status == "False")
    };
    misses(next) && without_reports(current) == without_reports(next)
}

fn retain(
    current: &StorageVersion,
    stays: impl Fn(&ServerStorageVersion) -> bool,
    members: &Members,
    now: Time,
) -> Edit {
    let mut object = current.clone();
    let mut once = keep_once();
    object.status.storage_versions.retain(|entry| stays(entry) && once(entry));
    // A finalizer holds an object here as anywhere.
    if object.status.storage_versions.is_empty() && object.metadata.finalizers.is_empty() {
        return Edit::Delete;
    }
    agree(&mut object.status, object.metadata.generation, members, now);
    if object == *current { Edit::Keep } else { Edit::Put(Box::new(object)) }
}

/// Lets the first entry of each server pass.
fn keep_once() -> impl FnMut(&ServerStorageVersion) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    move |entry| seen.insert(entry.api_server_id.clone())
}

#[cfg(test)]
mod tests;
