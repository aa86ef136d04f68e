//! Deleting an object: at once, or marked and waited for.
//!
//! An object goes at once unless it has finalizers or, for a pod that a node runs, a grace period. Otherwise it is marked with
//! `deletionTimestamp` and `deletionGracePeriodSeconds`, and the write that removes the last finalizer removes the object
//! ([`is_removed_by_update`]).

mod options;

use api::time::Time;
use jiff::SignedDuration;
use serde_json::{Map, Value};

use crate::access::{self, get, metadata_mut, metadata_text};
use crate::refusal::{Refusal, Subject};
use crate::rules::{Dependents, Grace, KindRules};

pub use options::{DeleteOptions, Propagation};

/// The finalizer that keeps an object until its dependents no longer name it as owner.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer that keeps an object until its dependents are gone.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// The grace period of a pod that does not say: the default of `spec.terminationGracePeriodSeconds`.
const POD_GRACE_SECONDS: i64 = 30;

/// What a delete request does to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Deletion {
    /// It goes now; this is its last state.
    Remove(Map<String, Value>),
    /// It stays as this for now. Equal to what is stored if it was marked before.
    Mark(Map<String, Value>),
    /// It was marked before, and the request does not hasten it; nothing is written.
    Pending,
}

/// Decides what a delete request does to an object, which carries its resourceVersion.
pub fn decide(
    object: &Map<String, Value>,
    options: &DeleteOptions,
    rules: &KindRules,
    now: Time,
) -> Result<Deletion, Refusal> {
    match_preconditions(object, options)?;
    let mut marked = object.clone();
    let grace = match rules.grace {
        Grace::None => Waiting::None,
        Grace::Pod => mark_gracefully(&mut marked, options, now),
    };
    if grace == Waiting::Pending {
        return Ok(Deletion::Pending);
    }
    set_dependents_finalizer(&mut marked, options, rules.dependents);
    let has_finalizers = !access::list(&marked, &["metadata", "finalizers"]).is_empty();
    Ok(match grace {
        Waiting::None if has_finalizers => {
            mark_at_once(&mut marked, now);
            Deletion::Mark(marked)
        }
        Waiting::Seconds(seconds) if has_finalizers || seconds > 0 => Deletion::Mark(marked),
        Waiting::None | Waiting::Seconds(_) | Waiting::Pending => Deletion::Remove(marked),
    })
}

/// Whether an update removes the object: it was marked, its grace is over, and the last finalizer has gone.
pub fn is_removed_by_update(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    access::list(new, &["metadata", "finalizers"]).is_empty()
        && get(old, &["metadata", "deletionTimestamp"]).is_some()
        && access::integer(old, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default() == 0
}

/// How long a deletion waits for whoever runs the object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// Not at all, and it never did.
    None,
    /// From now on, so long.
    Seconds(i64),
    /// An earlier request is waited for.
    Pending,
}

fn match_preconditions(object: &Map<String, Value>, options: &DeleteOptions) -> Result<(), Refusal> {
    let conflict = |reason: String| Err(Refusal::Conflict { subject: Subject::Kind, reason });
    let (uid, version) = (metadata_text(object, "uid"), metadata_text(object, "resourceVersion"));
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

/// Marks a pod with its grace period. A period once given can only be shortened.
fn mark_gracefully(pod: &mut Map<String, Value>, options: &DeleteOptions, now: Time) -> Waiting {
    let requested = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if let Ok(deadline) = metadata_text(pod, "deletionTimestamp").parse::<Time>() {
        let granted = access::integer(pod, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default();
        let granted = if granted < 0 { 1 } else { granted };
        return match requested {
            _ if granted == 0 => Waiting::None,
            Some(seconds) if seconds < granted => shorten(pod, deadline, granted, seconds, now),
            Some(_) | None => Waiting::Pending,
        };
    }
    let seconds = pod_grace(pod, requested);
    bump_generation(pod);
    mark(pod, after(now, seconds), seconds);
    Waiting::Seconds(seconds)
}

fn pod_grace(pod: &Map<String, Value>, requested: Option<i64>) -> i64 {
    let is_scheduled = !access::text(pod, &["spec", "nodeName"]).is_empty();
    let is_over = matches!(access::text(pod, &["status", "phase"]), "Failed" | "Succeeded");
    if !is_scheduled || is_over {
        return 0;
    }
    let own = || access::integer(pod, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(POD_GRACE_SECONDS);
    let seconds = requested.unwrap_or_else(own);
    if seconds < 0 { 1 } else { seconds }
}

fn shorten(pod: &mut Map<String, Value>, deadline: Time, granted: i64, seconds: i64, now: Time) -> Waiting {
    let begun = after(deadline, granted.saturating_neg());
    let earlier = after(begun, seconds);
    if earlier >= now {
        mark(pod, earlier, seconds);
        return Waiting::Seconds(seconds);
    }
    // The new period is over already; one second tells whoever runs the pod that it is still theirs to finish.
    let seconds = seconds.min(1);
    mark(pod, now, seconds);
    Waiting::Seconds(seconds)
}

/// Marks an object that only its finalizers keep.
fn mark_at_once(object: &mut Map<String, Value>, now: Time) {
    let deadline = metadata_text(object, "deletionTimestamp").parse::<Time>();
    if deadline.is_err() {
        bump_generation(object);
    }
    mark(object, deadline.map_or(now, |deadline| deadline.min(now)), 0);
}

fn mark(object: &mut Map<String, Value>, deadline: Time, seconds: i64) {
    let metadata = metadata_mut(object);
    metadata.insert("deletionTimestamp".to_owned(), deadline.to_string().into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
}

/// That an object is being deleted is a change of the desired state, where those are counted.
fn bump_generation(object: &mut Map<String, Value>) {
    if let Some(generation @ 1..) = access::integer(object, &["metadata", "generation"]) {
        metadata_mut(object).insert("generation".to_owned(), generation.saturating_add(1).into());
    }
}

/// An instant some seconds later, or the last one there is.
fn after(instant: Time, seconds: i64) -> Time {
    let moved = instant.timestamp().checked_add(SignedDuration::from_secs(seconds));
    Time::from(moved.unwrap_or(if seconds < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX }))
}

/// Puts the finalizer that the propagation policy asks for, and takes the other away.
fn set_dependents_finalizer(object: &mut Map<String, Value>, options: &DeleteOptions, default: Dependents) {
    let present: Vec<&str> = access::texts(object, &["metadata", "finalizers"]).collect();
    let wanted = dependents_finalizer(&present, options, default);
    let is_ours = |finalizer: &str| finalizer == FINALIZER_ORPHAN || finalizer == FINALIZER_FOREGROUND;
    let ours_now: Vec<&str> = present.iter().copied().filter(|finalizer| is_ours(finalizer)).collect();
    if ours_now == wanted.iter().copied().collect::<Vec<_>>() {
        return;
    }
    let others = present.iter().copied().filter(|finalizer| !is_ours(finalizer));
    let finalizers: Vec<Value> = others.chain(wanted).map(Value::from).collect();
    let finalizers = (!finalizers.is_empty()).then_some(Value::Array(finalizers));
    access::set(metadata_mut(object), "finalizers", finalizers);
}

/// The request decides; if it does not, a finalizer that is there; if there is none, the kind.
fn dependents_finalizer(present: &[&str], options: &DeleteOptions, default: Dependents) -> Option<&'static str> {
    if default == Dependents::Ignore {
        return None;
    }
    match options.propagation() {
        Some(Propagation::Orphan) => return Some(FINALIZER_ORPHAN),
        Some(Propagation::Foreground) => return Some(FINALIZER_FOREGROUND),
        Some(Propagation::Background) => return None,
        None => {}
    }
    let known = [FINALIZER_ORPHAN, FINALIZER_FOREGROUND];
    let first = present.iter().find_map(|finalizer| known.into_iter().find(|known| known == finalizer));
    first.or((default == Dependents::Orphan).then_some(FINALIZER_ORPHAN))
}

#[cfg(test)]
mod tests;
