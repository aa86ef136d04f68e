//! Pure edits of StorageVersion objects.

use api::objects::{ServerStorageVersion, StorageVersion};
use api::time::Time;

use crate::agreement::{ALL_SERVERS_REPORTING, update_agreement};
use crate::members::MemberSet;

/// The write that an edit results in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The object is already as it should be.
    Keep,
    /// Replace the object.
    Put(Box<StorageVersion>),
    /// Delete the object, which has no entries left.
    Delete,
}

/// True if the object has exactly one entry of the server, equal to `entry`.
pub fn has_exact_entry(object: &StorageVersion, entry: &ServerStorageVersion) -> bool {
    let mut own = object.status.storage_versions.iter().filter(|other| other.api_server_id == entry.api_server_id);
    own.next() == Some(entry) && own.next().is_none()
}

/// True if `server` has an entry, of any version.
pub fn has_entry_of(object: &StorageVersion, server: &str) -> bool {
    object.status.storage_versions.iter().any(|entry| entry.api_server_id == server)
}

/// True if any entry belongs to a server that is not a member.
pub fn has_entries_of_non_members(object: &StorageVersion, members: &MemberSet) -> bool {
    object.status.storage_versions.iter().any(|entry| !members.contains(&entry.api_server_id))
}

/// Adds or replaces a server's entry and drops the entries of non-members (KEP-2339, "Updating StorageVersion").
pub fn add_entry(
    current: Option<&StorageVersion>,
    name: &str,
    entry: &ServerStorageVersion,
    members: &MemberSet,
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
    let mut stays = first_entry_per_server();
    entries.retain(|other| (own(other) || members.contains(&other.api_server_id)) && stays(other));
    update_agreement(&mut object.status, object.metadata.generation, members, now);
    object
}

/// Drops the entries of non-members and updates the agreement.
pub fn remove_stale_entries(current: &StorageVersion, members: &MemberSet, now: Time) -> Edit {
    retain_entries(current, |entry| members.contains(&entry.api_server_id), members, now)
}

/// Drops the entry of one server and those of non-members.
pub fn remove_entry(current: &StorageVersion, server: &str, members: &MemberSet, now: Time) -> Edit {
    retain_entries(
        current,
        |entry| entry.api_server_id != server && members.contains(&entry.api_server_id),
        members,
        now,
    )
}

/// True if the edit only marks members as not reporting. Such an edit can wait: a joining server is a member first,
/// publishes next, and writes only then.
pub fn only_marks_reports_missing(current: &StorageVersion, next: &StorageVersion) -> bool {
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

fn retain_entries(
    current: &StorageVersion,
    keep: impl Fn(&ServerStorageVersion) -> bool,
    members: &MemberSet,
    now: Time,
) -> Edit {
    let mut object = current.clone();
    let mut once = first_entry_per_server();
    object.status.storage_versions.retain(|entry| keep(entry) && once(entry));
    // A finalizer keeps the object, as everywhere.
    if object.status.storage_versions.is_empty() && object.metadata.finalizers.is_empty() {
        return Edit::Delete;
    }
    update_agreement(&mut object.status, object.metadata.generation, members, now);
    if object == *current { Edit::Keep } else { Edit::Put(Box::new(object)) }
}

/// Accepts the first entry of each server.
fn first_entry_per_server() -> impl FnMut(&ServerStorageVersion) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    move |entry| seen.insert(entry.api_server_id.clone())
}

#[cfg(test)]
mod tests;
