//! Deletion of an object: immediate, graceful or delayed by finalizers.
//!
//! An object is removed immediately unless it has finalizers or a grace period (pods on a node). Otherwise
//! `deletionTimestamp` and `deletionGracePeriodSeconds` are set, and the update that removes the last finalizer removes
//! the object ([`is_removed_by_update`]).

mod options;

use api::time::Time;
use jiff::SignedDuration;
use serde_json::{Map, Value};

use crate::rejection::{Rejection, RejectionSubject};
use crate::rules::{GarbageCollectionPolicy, GracePeriodRule, GraceSeconds, KindRules};
use crate::unstructured::{self, get, metadata_mut, metadata_string};

pub use options::{DeleteOptions, DeletionPropagation};

/// Finalizer that the garbage collector removes once no dependent references the object as owner.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// Finalizer that the garbage collector removes once the dependents are deleted.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// Effect of a delete request on an object.
#[derive(Clone, Debug, PartialEq)]
pub enum DeleteOutcome {
    /// Remove the object now; holds its last state.
    Remove(Map<String, Value>),
    /// Store this state with `deletionTimestamp` set. May equal the stored state if the object was already terminating.
    Mark(Map<String, Value>),
    /// The object is already terminating, and the request does not shorten its grace period; nothing is written.
    Pending,
}

/// Decides the effect of a delete request. `object` must carry its resourceVersion, for the preconditions.
pub fn decide_deletion(
    object: &Map<String, Value>,
    options: &DeleteOptions,
    rules: &KindRules,
    now: Time,
) -> Result<DeleteOutcome, Rejection> {
    check_preconditions(object, options)?;
    let mut marked = object.clone();
    let grace = match rules.grace_period {
        GracePeriodRule::None => GraceWait::None,
        GracePeriodRule::Graceful(grace_seconds) => mark_with_grace_period(&mut marked, options, now, grace_seconds),
    };
    if grace == GraceWait::Pending {
        return Ok(DeleteOutcome::Pending);
    }
    set_propagation_finalizer(&mut marked, options, rules.garbage_collection);
    let has_finalizers = !unstructured::list(&marked, &["metadata", "finalizers"]).is_empty();
    Ok(match grace {
        GraceWait::None if has_finalizers => {
            mark_for_finalizers(&mut marked, now);
            DeleteOutcome::Mark(marked)
        }
        GraceWait::Seconds(seconds) if has_finalizers || seconds > 0 => DeleteOutcome::Mark(marked),
        GraceWait::None | GraceWait::Seconds(_) | GraceWait::Pending => DeleteOutcome::Remove(marked),
    })
}

/// True if an update removes the object: it is terminating, its grace period is 0, and no finalizer is left.
pub fn is_removed_by_update(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    unstructured::list(new, &["metadata", "finalizers"]).is_empty()
        && get(old, &["metadata", "deletionTimestamp"]).is_some()
        && unstructured::integer(old, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default() == 0
}

/// Remaining wait of a graceful deletion for the kubelet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GraceWait {
    /// No grace period: the kind has none, or it is already 0.
    None,
    /// This request sets or shortens the grace period to so many seconds.
    Seconds(i64),
    /// The grace period of an earlier request still applies.
    Pending,
}

fn check_preconditions(object: &Map<String, Value>, options: &DeleteOptions) -> Result<(), Rejection> {
    let conflict = |reason: String| Err(Rejection::Conflict { subject: RejectionSubject::Kind, reason });
    let (uid, version) = (metadata_string(object, "uid"), metadata_string(object, "resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        ));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        return conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). \
             The object might have been modified"
        ));
    }
    Ok(())
}

/// Sets the deletion fields with a grace period. A later request can only shorten it.
fn mark_with_grace_period(
    object: &mut Map<String, Value>,
    options: &DeleteOptions,
    now: Time,
    grace_seconds: GraceSeconds,
) -> GraceWait {
    let requested = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if let Ok(deadline) = metadata_string(object, "deletionTimestamp").parse::<Time>() {
        let granted = unstructured::integer(object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default();
        let granted = if granted < 0 { 1 } else { granted };
        return match requested {
            _ if granted == 0 => GraceWait::None,
            Some(seconds) if seconds < granted => shorten_grace_period(object, deadline, granted, seconds, now),
            Some(_) | None => GraceWait::Pending,
        };
    }
    let seconds = grace_seconds(object, requested);
    bump_generation(object);
    set_deletion_fields(object, add_seconds(now, seconds), seconds);
    GraceWait::Seconds(seconds)
}

fn shorten_grace_period(
    object: &mut Map<String, Value>,
    deadline: Time,
    granted: i64,
    seconds: i64,
    now: Time,
) -> GraceWait {
    let begun = add_seconds(deadline, granted.saturating_neg());
    let earlier = add_seconds(begun, seconds);
    if earlier >= now {
        set_deletion_fields(object, earlier, seconds);
        return GraceWait::Seconds(seconds);
    }
    // The shortened period has already passed; a grace period of one second lets the kubelet finish.
    let seconds = seconds.min(1);
    set_deletion_fields(object, now, seconds);
    GraceWait::Seconds(seconds)
}

/// Sets the deletion fields of an object that only finalizers keep, with a grace period of 0.
fn mark_for_finalizers(object: &mut Map<String, Value>, now: Time) {
    let deadline = metadata_string(object, "deletionTimestamp").parse::<Time>();
    if deadline.is_err() {
        bump_generation(object);
    }
    set_deletion_fields(object, deadline.map_or(now, |deadline| deadline.min(now)), 0);
}

fn set_deletion_fields(object: &mut Map<String, Value>, deadline: Time, seconds: i64) {
    let metadata = metadata_mut(object);
    metadata.insert("deletionTimestamp".to_owned(), deadline.to_string().into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
}

/// Increments `metadata.generation` if the object has one: deletion changes the desired state.
fn bump_generation(object: &mut Map<String, Value>) {
    if let Some(generation @ 1..) = unstructured::integer(object, &["metadata", "generation"]) {
        metadata_mut(object).insert("generation".to_owned(), generation.saturating_add(1).into());
    }
}

/// Adds seconds, which may be negative, and saturates at the range of timestamps.
fn add_seconds(instant: Time, seconds: i64) -> Time {
    let moved = instant.timestamp().checked_add(SignedDuration::from_secs(seconds));
    Time::from(moved.unwrap_or(if seconds < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX }))
}

/// Adds the finalizer of the propagation policy and removes the other one.
fn set_propagation_finalizer(
    object: &mut Map<String, Value>,
    options: &DeleteOptions,
    default: GarbageCollectionPolicy,
) {
    let present: Vec<&str> = unstructured::texts(object, &["metadata", "finalizers"]).collect();
    let wanted = propagation_finalizer(&present, options, default);
    let is_ours = |finalizer: &str| finalizer == FINALIZER_ORPHAN || finalizer == FINALIZER_FOREGROUND;
    let ours_now: Vec<&str> = present.iter().copied().filter(|finalizer| is_ours(finalizer)).collect();
    if ours_now == wanted.iter().copied().collect::<Vec<_>>() {
        return;
    }
    let others = present.iter().copied().filter(|finalizer| !is_ours(finalizer));
    let finalizers: Vec<Value> = others.chain(wanted).map(Value::from).collect();
    let finalizers = (!finalizers.is_empty()).then_some(Value::Array(finalizers));
    unstructured::set_or_remove(metadata_mut(object), "finalizers", finalizers);
}

/// Finalizer to set, by precedence: the request's policy, a finalizer already present, the default of the kind.
fn propagation_finalizer(
    present: &[&str],
    options: &DeleteOptions,
    default: GarbageCollectionPolicy,
) -> Option<&'static str> {
    if default == GarbageCollectionPolicy::Unsupported {
        return None;
    }
    match options.effective_propagation() {
        Some(DeletionPropagation::Orphan) => return Some(FINALIZER_ORPHAN),
        Some(DeletionPropagation::Foreground) => return Some(FINALIZER_FOREGROUND),
        Some(DeletionPropagation::Background) => return None,
        None => {}
    }
    let known = [FINALIZER_ORPHAN, FINALIZER_FOREGROUND];
    let first = present.iter().find_map(|finalizer| known.into_iter().find(|known| known == finalizer));
    first.or((default == GarbageCollectionPolicy::OrphanDependents).then_some(FINALIZER_ORPHAN))
}

#[cfg(test)]
mod tests;
