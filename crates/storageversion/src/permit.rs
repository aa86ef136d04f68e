//! The barrier: a resource may be written once this server has said in which version it writes, and for as long as that stands.
//!
//! A permit names the object that holds our entry and its revision. Whoever persists makes the write conditional on it, so that
//! a server that was paused between permit and write cannot write in a version that is no longer published: there is no moment
//! between check and write.

mod exceptions;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::GroupResource;
use api::objects::{ServerStorageVersion, StorageVersion};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

pub use exceptions::{Author, Novelty, Write, is_exempt};

use crate::edit::has_entry;
use crate::metrics::Metrics;
use crate::ports::{Snapshot, revision_of};
use crate::registration::{Registration, Registrations};

/// Says which resources may be written now. Clones share it.
#[derive(Clone)]
pub struct Barrier(Arc<Inner>);

struct Inner {
    server: Arc<str>,
    lease_duration: Duration,
    /// When our identity lease was last renewed. Set once, when there is one to keep.
    renewed: OnceLock<watch::Receiver<Option<Instant>>>,
    slots: ArcSwap<Slots>,
    /// Changes whenever a resource was opened, closed or registered.
    changes: watch::Sender<u64>,
    metrics: Metrics,
}

/// By resource, then by group.
type Slots = HashMap<Arc<str>, Vec<(Arc<str>, Arc<Slot>)>>;

/// One registered resource.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: Arc<str>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) entry: ServerStorageVersion,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// What we know of the object is of this revision.
    revision: u64,
    /// The object's own revision when it was last judged: what did not change need not be judged again.
    judged: Option<u64>,
    is_open: bool,
    last_error: Option<String>,
}

/// What a write depends on: this object must be of this revision when the write happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The name of the StorageVersion.
    pub name: Arc<str>,
    /// Its revision.
    pub revision: u64,
}

/// Why a write must wait. Nothing was executed. In kube-apiserver's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The resource.
    pub resource: GroupResource,
    /// What was last in the way; `None` if nothing but time.
    pub last_error: Option<String>,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, last_error } = self;
        let last_error = last_error.as_deref().unwrap_or("<nil>");
        write!(
            f,
            "wait for storage version registration to complete for resource: {resource}, last seen error: {last_error}"
        )
    }
}

impl std::error::Error for Closed {}

impl Barrier {
    /// A barrier that is closed for all of these resources, and that nothing can open before [`Barrier::keep_lease`].
    pub fn new(server: Arc<str>, lease_duration: Duration, registrations: &Registrations, metrics: Metrics) -> Self {
        let barrier = Self(Arc::new(Inner {
            server,
            lease_duration,
            renewed: OnceLock::new(),
            slots: ArcSwap::default(),
            changes: watch::Sender::new(0),
            metrics,
        }));
        for registration in registrations.values() {
            barrier.require(registration);
        }
        barrier
    }

    /// From now on our lease is kept; this tells when it was last renewed. Counts once.
    pub fn keep_lease(&self, renewed: watch::Receiver<Option<Instant>>) {
        let _ = self.0.renewed.set(renewed);
    }

    /// What a write depends on (nothing, for the exceptions), or why it must wait.
    pub fn permit(&self, write: &Write<'_>) -> Result<Option<Fence>, Closed> {
        let Some(slot) = self.slot_for(write) else { return Ok(None) };
        self.judge(&slot).inspect_err(|_| self.0.metrics.held.inc())
    }

    /// The object was found to be another than a permit said: this is what is there now, as of `as_of`. The next permit
    /// depends on it.
    pub fn correct(&self, write: &Write<'_>, found: Option<&StorageVersion>, as_of: u64) {
        if let Some(slot) = self.slot_for(write) {
            self.see(&slot, found, as_of);
        }
    }

    /// Whether our lease was renewed so recently that nobody can have taken us for gone.
    pub fn is_lease_current(&self) -> Result<(), String> {
        let renewed = self.0.renewed.get().and_then(|renewed| *renewed.borrow());
        let Some(renewed) = renewed else { return Err("the identity lease is not held yet".to_owned()) };
        let age = renewed.elapsed();
        if age < self.0.lease_duration {
            return Ok(());
        }
        Err(format!("the identity lease was last renewed {} s ago and has expired", age.as_secs()))
    }

    /// The names of registered resources that are closed.
    pub fn closed(&self) -> Vec<Arc<str>> {
        self.pending().into_iter().map(|slot| slot.name.clone()).collect()
    }

    /// Waits until this is registered and open.
    pub(crate) async fn opened(&self, registration: &Registration) {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let slot = self.find(registration.resource());
            if slot.is_some_and(|slot| *slot.registration == *registration && slot.state.lock().is_open) {
                return;
            }
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }

    /// Tells of every opening, closing and registration.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(crate) fn server(&self) -> &Arc<str> {
        &self.0.server
    }

    /// What is to be published.
    pub(crate) fn pending(&self) -> Vec<Arc<Slot>> {
        let slots = self.0.slots.load();
        let mut pending: Vec<_> = slots.values().flatten().map(|(_, slot)| slot.clone()).collect();
        pending.retain(|slot| !slot.state.lock().is_open);
        pending.sort_by(|a, b| a.name.cmp(&b.name));
        pending
    }

    /// Whether the resource of an object of this name is registered.
    pub(crate) fn is_registered(&self, name: &str) -> bool {
        crate::names::resource_of(name).is_some_and(|resource| self.find(resource).is_some())
    }

    /// Closes a resource until this was published.
    pub(crate) fn require(&self, registration: &Arc<Registration>) {
        let resource = registration.resource();
        let slot = Arc::new(Slot {
            name: registration.name(),
            registration: registration.clone(),
            entry: registration.entry(&self.0.server),
            state: Mutex::default(),
        });
        let before = self.find(resource);
        if before.as_ref().is_some_and(|before| before.registration == *registration) {
            return;
        }
        slot.state.lock().revision = before.map_or(0, |before| before.state.lock().revision);
        self.replace(resource, Some(&slot));
    }

    /// Forgets a resource.
    pub(crate) fn release(&self, resource: GroupResource<&str>) {
        self.replace(resource, None);
    }

    /// Takes notice of all objects.
    pub(crate) fn see_all(&self, snapshot: &Snapshot) {
        if snapshot.through == 0 {
            return;
        }
        let slots = self.0.slots.load();
        for (_, slot) in slots.values().flatten() {
            let object = snapshot.objects.get(&slot.name);
            self.see(slot, object.map(|object| &**object), snapshot.through);
        }
    }

    /// Takes notice of what changed between two snapshots: in a crowd of servers that start, one object at a time.
    pub(crate) fn see_changes(&self, before: &Snapshot, snapshot: &Snapshot) {
        let has_same_names = before.objects.keys().eq(snapshot.objects.keys());
        if before.through == 0 || !has_same_names {
            return self.see_all(snapshot);
        }
        for ((name, object), known) in snapshot.objects.iter().zip(before.objects.values()) {
            let is_new = !Arc::ptr_eq(object, known);
            let resource = crate::names::resource_of(name).filter(|_| is_new);
            if let Some(slot) = resource.and_then(|resource| self.find(resource)) {
                self.see(&slot, Some(object), snapshot.through);
            }
        }
    }

    /// Takes notice of an object, or of its absence, as of a revision. What is older than what we know is no news.
    ///
    /// `as_of` later than the object's own revision means that it did not change in between; a fence needs its own.
    pub(crate) fn see(&self, slot: &Slot, object: Option<&StorageVersion>, as_of: u64) {
        let mut state = slot.state.lock();
        if as_of < state.revision {
            return;
        }
        let own_revision = object.map(revision_of);
        if own_revision.is_some() && own_revision == state.judged {
            return;
        }
        let is_open = object.is_some_and(|object| has_entry(object, &slot.entry));
        state.judged = own_revision;
        let was_open = std::mem::replace(&mut state.is_open, is_open);
        state.revision = own_revision.filter(|_| is_open).unwrap_or(as_of);
        if is_open {
            state.last_error = None;
        }
        drop(state);
        if was_open && !is_open {
            tracing::warn!(name = %slot.name, "our entry is gone or was changed; writes wait until it is published again");
        }
        if was_open != is_open {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Remembers what is in the way of a publication, for those who wait for it.
    pub(crate) fn blame(&self, slot: &Slot, error: &str) {
        slot.state.lock().last_error = Some(error.to_owned());
    }

    fn judge(&self, slot: &Slot) -> Result<Option<Fence>, Closed> {
        let closed = |last_error| Closed { resource: slot.registration.resource().owned(), last_error };
        let state = slot.state.lock();
        if !state.is_open {
            return Err(closed(state.last_error.clone()));
        }
        self.is_lease_current().map_err(|lapse| closed(Some(lapse)))?;
        Ok(Some(Fence { name: slot.name.clone(), revision: state.revision }))
    }

    fn slot_for(&self, write: &Write<'_>) -> Option<Arc<Slot>> {
        if is_exempt(write) { None } else { self.find(write.resource) }
    }

    fn find(&self, resource: GroupResource<&str>) -> Option<Arc<Slot>> {
        let slots = self.0.slots.load();
        let (_, slot) = slots.get(resource.resource)?.iter().find(|(group, _)| **group == *resource.group)?;
        Some(slot.clone())
    }

    fn replace(&self, resource: GroupResource<&str>, slot: Option<&Arc<Slot>>) {
        self.0.slots.rcu(|slots| {
            let mut slots = Slots::clone(slots);
            let groups = slots.entry(resource.resource.into()).or_default();
            groups.retain(|(group, _)| **group != *resource.group);
            groups.extend(slot.map(|slot| (resource.group.into(), slot.clone())));
            slots
        });
        self.0.changes.send_modify(|changes| *changes += 1);
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("server", &self.0.server).field("closed", &self.closed()).finish()
    }
}

#[cfg(test)]
mod tests;
