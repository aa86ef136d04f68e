//! The registered resources of a server, and what is known about the publication of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::GroupResource;
use api::objects::ServerStorageVersion;
use fastrand::Rng;
use parking_lot::Mutex;
use tasks::Backoff;
use tokio::time::Instant;

use crate::backoff;
use crate::registration::Registration;

/// Which publication a resource belongs to. The classes do not wait for each other, and only built-in resources count
/// for readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceClass {
    /// Known at start and fixed.
    BuiltIn,
    /// Registered at run time. Writes wait for their publication.
    Custom,
}

/// By resource name, then by group.
pub(super) type RegisteredResources = HashMap<Arc<str>, Vec<(Arc<str>, Arc<RegisteredResource>)>>;

#[derive(Debug)]
pub(crate) struct RegisteredResource {
    pub(crate) name: Arc<str>,
    pub(crate) class: ResourceClass,
    pub(crate) registration: Arc<Registration>,
    pub(crate) entry: ServerStorageVersion,
    pub(super) state: Mutex<PublicationState>,
    /// True while the publisher works on it.
    is_claimed: AtomicBool,
}

#[derive(Clone, Debug)]
pub(super) struct PublicationState {
    /// While open, the object's own revision, for fences; while closed, the revision of the last observation.
    pub(super) revision: u64,
    /// The object's own revision at the last check; an unchanged object is not checked again.
    pub(super) checked_revision: Option<u64>,
    pub(super) is_open: bool,
    pub(super) last_error: Option<String>,
    backoff: Backoff,
    /// The publisher does not try before.
    retry_at: Option<Instant>,
}

impl RegisteredResource {
    /// A closed resource. `revision` is that of the last observation of its object.
    pub(super) fn new(registration: &Arc<Registration>, class: ResourceClass, server: &str, revision: u64) -> Self {
        let state = PublicationState {
            revision,
            checked_revision: None,
            is_open: false,
            last_error: None,
            backoff: backoff::AFTER_FAILURE,
            retry_at: None,
        };
        Self {
            name: registration.name(),
            class,
            registration: registration.clone(),
            entry: registration.entry(server),
            state: Mutex::new(state),
            is_claimed: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// Claims an unpublished resource for one attempt to publish it; `None` if it is published, claimed, or not due.
    pub(crate) fn claim(self: &Arc<Self>) -> Option<PublicationClaim> {
        let is_due = {
            let state = self.state.lock();
            !state.is_open && state.retry_at.is_none_or(|retry_at| retry_at <= Instant::now())
        };
        if !is_due || self.is_claimed.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(PublicationClaim(self.clone()))
    }

    /// When the publisher may try again after a failure; `None` without one, and during the next attempt.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        if self.is_claimed.load(Ordering::Acquire) { None } else { self.state.lock().retry_at }
    }

    /// Records a failure of the publisher, for the error of held writes, and delays the next attempt. True for the first
    /// failure in a row.
    pub(crate) fn record_failure(&self, error: &str, rng: &mut Rng) -> bool {
        let mut state = self.state.lock();
        state.last_error = Some(error.to_owned());
        let wait = state.backoff.next_jittered(rng);
        state.retry_at.replace(Instant::now() + wait).is_none()
    }

    pub(crate) fn record_success(&self) {
        let mut state = self.state.lock();
        state.backoff.reset();
        state.retry_at = None;
    }
}

/// The right of one publication attempt to work on a resource; ends when dropped.
#[derive(Debug)]
pub(crate) struct PublicationClaim(pub(crate) Arc<RegisteredResource>);

impl Drop for PublicationClaim {
    fn drop(&mut self) {
        self.0.is_claimed.store(false, Ordering::Release);
    }
}

/// The registered resource of this name.
pub(super) fn find<'r>(
    resources: &'r RegisteredResources,
    resource: GroupResource<&str>,
) -> Option<&'r Arc<RegisteredResource>> {
    let (_, slot) = resources.get(resource.resource)?.iter().find(|(group, _)| **group == *resource.group)?;
    Some(slot)
}

/// Adds or replaces a resource.
pub(super) fn insert(resources: &mut RegisteredResources, slot: Arc<RegisteredResource>) {
    let resource = slot.registration.resource();
    let (group, resource): (Arc<str>, Arc<str>) = (resource.group.into(), resource.resource.into());
    let groups = resources.entry(resource).or_default();
    groups.retain(|(known, _)| *known != group);
    groups.push((group, slot));
}
