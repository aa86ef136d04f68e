//! The common encoding version and the conditions that follow from the entries of an object.
//!
//! Pure and deterministic, so servers that see the same entries and members write the same status.

use std::collections::BTreeSet;

use api::objects::{ServerStorageVersion, StorageVersionCondition, StorageVersionStatus, common_encoding_version};
use api::time::Time;

use crate::members::MemberSet;

/// The condition that all entries have the same encoding version.
pub const ALL_ENCODING_VERSIONS_EQUAL: &str = "AllEncodingVersionsEqual";
/// The condition that every member of the component that stores the resource has an entry. Not in Kubernetes, where a server that does not report goes unnoticed.
pub const ALL_SERVERS_REPORTING: &str = "AllServersReporting";

/// Servers named in the message of the condition; the rest is counted.
const SERVERS_NAMED_MAX: usize = 10;

/// Updates the common version and the conditions from the entries. Conditions of other types stay unchanged.
pub fn update_agreement(status: &mut StorageVersionStatus, generation: i64, members: &MemberSet, now: Time) {
    let common = common_encoding_version(&status.storage_versions).map(str::to_owned);
    let common_version_changed = common.is_some() && status.common_encoding_version.is_some() && {
        // The condition stays True when one common version replaces another, but its transition time must change.
        common != status.common_encoding_version
    };
    let mut equal = match common {
        Some(_) => new_condition(
            ALL_ENCODING_VERSIONS_EQUAL,
            "True",
            "CommonEncodingVersionSet",
            "Common encoding version set",
        ),
        None => new_condition(
            ALL_ENCODING_VERSIONS_EQUAL,
            "False",
            "CommonEncodingVersionUnset",
            "Common encoding version unset",
        ),
    };
    let mut reporting = reporting_condition(&status.storage_versions, members);
    for condition in [&mut equal, &mut reporting] {
        condition.observed_generation = generation;
        condition.last_transition_time = Some(now);
    }
    status.common_encoding_version = common;
    set_condition(&mut status.conditions, equal, common_version_changed);
    set_condition(&mut status.conditions, reporting, false);
}

fn reporting_condition(entries: &[ServerStorageVersion], members: &MemberSet) -> StorageVersionCondition {
    let reporting_servers: BTreeSet<&str> = entries.iter().map(|entry| &*entry.api_server_id).collect();
    let participants = members.participants(&reporting_servers).map(|member| &**member);
    let missing: Vec<&str> = participants.filter(|member| !reporting_servers.contains(member)).collect();
    if missing.is_empty() {
        return new_condition(
            ALL_SERVERS_REPORTING,
            "True",
            "EntriesComplete",
            "Every server of the cluster has an entry",
        );
    }
    let mut message = format!("No entry of {}", missing[..missing.len().min(SERVERS_NAMED_MAX)].join(", "));
    if missing.len() > SERVERS_NAMED_MAX {
        message.push_str(&format!(" and {} more", missing.len() - SERVERS_NAMED_MAX));
    }
    new_condition(ALL_SERVERS_REPORTING, "False", "EntriesMissing", &message)
}

fn new_condition(condition_type: &str, status: &str, reason: &str, message: &str) -> StorageVersionCondition {
    StorageVersionCondition {
        condition_type: condition_type.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..StorageVersionCondition::default()
    }
}

/// Replaces the condition of the same type. Keeps its transition time if the status is unchanged, unless
/// `is_transition`.
fn set_condition(
    conditions: &mut Vec<StorageVersionCondition>,
    mut next: StorageVersionCondition,
    is_transition: bool,
) {
    let position = conditions.iter().position(|known| known.condition_type == next.condition_type);
    let Some(position) = position else { return conditions.push(next) };
    let known = &mut conditions[position];
    if known.status == next.status && !is_transition && known.last_transition_time.is_some() {
        next.last_transition_time = known.last_transition_time;
    }
    next.extra = std::mem::take(&mut known.extra);
    *known = next;
}

#[cfg(test)]
mod tests;
