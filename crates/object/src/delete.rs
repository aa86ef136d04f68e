//! Deleting an object: at once, or marked and waited for.
//!
//! An object goes at once unless it has finalizers or, for a pod that a node runs, a grace period. Otherwise it is marked with
//! `deletionTimestamp` and `deletionGracePeriodSeconds`, and the write that removes the last finalizer removes the object
//! ([`is_removed_by_update`]).

mod options;

use api::time::Time;
use jiff::SignedDuration;
use serde_json::{Map, Value};

use crate::rejection::{Rejection, RejectionSubject};
use crate::rules::{GarbageCollectionPolicy, GracePeriodRule, GraceSeconds, KindRules};
use crate::unstructured::{self, get, metadata_mut, metadata_string};

pub use options::{DeleteOptions, DeletionPropagation};

/// The finalizer that keeps an object until its dependents no longer name it as owner.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer that keeps an object until its dependents are gone.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// What a delete request does to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum DeleteOutcome {
    /// It goes now; this is its last state.
    Remove(Map<String, Value>),
    /// It stays as this for now. Equal to what is stored if it was marked before.
    Mark(Map<String, Value>),
    /// It was marked before, and the request does not hasten it; nothing is written.
    Pending,
}

/// Decides what a delete request does to an object, which carries its resourceVersion.
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

/// Whether an update removes the object: it was marked, its grace is over, and the last finalizer has gone.
pub fn is_removed_by_update(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    unstructured::list(new, &["metadata", "finalizers"]).is_empty()
        && get(old, &["metadata", "deletionTimestamp"]).is_some()
        && unstructured::integer(old, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default() == 0
}

/// How long a deletion waits for the kubelet that runs the object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GraceWait {
    /// Not at all, and it never did.
    None,
    /// From now on, so long.
    Seconds(i64),
    /// An earlier request is waited for.
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

/// Marks an object with its grace period. A period once given can only be shortened.
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
    // The new period is over already; one second leaves the kubelet time to finish.
    let seconds = seconds.min(1);
    set_deletion_fields(object, now, seconds);
    GraceWait::Seconds(seconds)
}

/// Marks an object that only its finalizers keep.
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

/// That an object is being deleted is a change of the desired state, where those are counted.
fn bump_generation(object: &mut Map<String, Value>) {
    if let Some(generation @ 1..) = unstructured::integer(object, &["metadata", "generation"]) {
        metadata_mut(object).insert("generation".to_owned(), generation.saturating_add(1).into());
    }
}

/// An instant some seconds later, or the last one there is.
fn add_seconds(instant: Time, seconds: i64) -> Time {
    let moved = instant.timestamp().checked_add(SignedDuration::from_secs(seconds));
    Time::from(moved.unwrap_or(if seconds < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX }))
}

/// Puts the finalizer that the propagation policy asks for, and takes the other away.
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

/// The request decides; if it does not, a finalizer that is there; if there is none, the kind.
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
