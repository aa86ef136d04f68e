//! The barrier: a resource may be written once this server has said in which version it writes, and for as long as that stands.
//!
//! A permit names the object that holds our entry and its revision. Whoever persists makes the write conditional on it, so that
//! a server that was paused between permit and write cannot write in a version that is no longer published: there is no moment
//! between check and write.

mod exemptions;

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

pub use exemptions::{IntentAuthor, WriteIntent, WriteOperation, is_exempt};

use crate::edit::has_exact_entry;
use crate::metrics::Metrics;
use crate::ports::{StorageVersionSnapshot, revision_of};
use crate::registration::{Registration, Registrations};

/// Says which resources may be written now. Clones share it.
#[derive(Clone)]
pub struct PublicationBarrier(Arc<BarrierInner>);

struct BarrierInner {
    server: Arc<str>,
    lease_duration: Duration,
    /// When our identity lease was last renewed. Set once, when there is one to keep.
    lease_renewals: OnceLock<watch::Receiver<Option<Instant>>>,
    resources: ArcSwap<RegisteredResources>,
    /// Changes whenever a resource was opened, closed or registered.
    changes: watch::Sender<u64>,
    metrics: Metrics,
}

/// By resource, then by group.
type RegisteredResources = HashMap<Arc<str>, Vec<(Arc<str>, Arc<RegisteredResource>)>>;

/// One registered resource.
#[derive(Debug)]
pub(crate) struct RegisteredResource {
    pub(crate) name: Arc<str>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) entry: ServerStorageVersion,
    state: Mutex<PublicationState>,
}

#[derive(Clone, Debug, Default)]
struct PublicationState {
    /// What we know of the object is of this revision.
    revision: u64,
    /// The object's own revision when it was last judged: what did not change need not be judged again.
    checked_revision: Option<u64>,
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
pub struct RegistrationPending {
    /// The resource.
    pub resource: GroupResource,
    /// What was last in the way; `None` if nothing but time.
    pub last_error: Option<String>,
}

impl fmt::Display for RegistrationPending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, last_error } = self;
        let last_error = last_error.as_deref().unwrap_or("<nil>");
        write!(
            f,
            "wait for storage version registration to complete for resource: {resource}, last seen error: {last_error}"
        )
    }
}

impl std::error::Error for RegistrationPending {}

impl PublicationBarrier {
    /// A barrier that is closed for all of these resources, and that nothing can open before [`PublicationBarrier::set_lease_renewals`].
    pub fn new(server: Arc<str>, lease_duration: Duration, registrations: &Registrations, metrics: Metrics) -> Self {
        let barrier = Self(Arc::new(BarrierInner {
            server,
            lease_duration,
            lease_renewals: OnceLock::new(),
            resources: ArcSwap::default(),
            changes: watch::Sender::new(0),
            metrics,
        }));
        for registration in registrations.values() {
            barrier.register(registration);
        }
        barrier
    }

    /// From now on our lease is kept; this tells when it was last renewed. Counts once.
    pub fn set_lease_renewals(&self, lease_renewals: watch::Receiver<Option<Instant>>) {
        let _ = self.0.lease_renewals.set(lease_renewals);
    }

    /// What a write depends on (nothing, for the exceptions), or why it must wait.
    pub fn permit(&self, write: &WriteIntent<'_>) -> Result<Option<Fence>, RegistrationPending> {
        let Some(slot) = self.resource_for(write) else { return Ok(None) };
        self.check_open(&slot).inspect_err(|_| self.0.metrics.held_writes.inc())
    }

    /// The object was found to be another than a permit said: this is what is there now, as of `as_of`. The next permit
    /// depends on it.
    pub fn handle_stale_permit(&self, write: &WriteIntent<'_>, current: Option<&StorageVersion>, as_of: u64) {
        if let Some(slot) = self.resource_for(write) {
            self.observe(&slot, current, as_of);
        }
    }

    /// Whether our lease was renewed so recently that nobody can have taken us for gone.
    pub fn check_lease(&self) -> Result<(), String> {
        let renewed = self.0.lease_renewals.get().and_then(|renewed| *renewed.borrow());
        let Some(renewed) = renewed else { return Err("the identity lease is not held yet".to_owned()) };
        let age = renewed.elapsed();
        if age < self.0.lease_duration {
            return Ok(());
        }
        Err(format!("the identity lease was last renewed {} s ago and has expired", age.as_secs()))
    }

    /// The names of registered resources that are closed.
    pub fn closed_resources(&self) -> Vec<Arc<str>> {
        self.unpublished().into_iter().map(|slot| slot.name.clone()).collect()
    }

    /// Waits until this is registered and open.
    pub(crate) async fn wait_until_open(&self, registration: &Registration) {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let slot = self.find_resource(registration.resource());
            if slot.is_some_and(|slot| *slot.registration == *registration && slot.state.lock().is_open) {
                return;
            }
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }

    /// Tells of every opening, closing and registration.
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(crate) fn server(&self) -> &Arc<str> {
        &self.0.server
    }

    /// What is to be published.
    pub(crate) fn unpublished(&self) -> Vec<Arc<RegisteredResource>> {
        let slots = self.0.resources.load();
        let mut pending: Vec<_> = slots.values().flatten().map(|(_, slot)| slot.clone()).collect();
        pending.retain(|slot| !slot.state.lock().is_open);
        pending.sort_by(|a, b| a.name.cmp(&b.name));
        pending
    }

    /// Whether the resource of an object of this name is registered.
    pub(crate) fn is_registered(&self, name: &str) -> bool {
        crate::names::parse_storage_version_name(name).is_some_and(|resource| self.find_resource(resource).is_some())
    }

    /// Closes a resource until this was published.
    pub(crate) fn register(&self, registration: &Arc<Registration>) {
        let resource = registration.resource();
        let slot = Arc::new(RegisteredResource {
            name: registration.name(),
            registration: registration.clone(),
            entry: registration.entry(&self.0.server),
            state: Mutex::default(),
        });
        let before = self.find_resource(resource);
        if before.as_ref().is_some_and(|before| before.registration == *registration) {
            return;
        }
        slot.state.lock().revision = before.map_or(0, |before| before.state.lock().revision);
        self.set_resource(resource, Some(&slot));
    }

    /// Forgets a resource.
    pub(crate) fn unregister(&self, resource: GroupResource<&str>) {
        self.set_resource(resource, None);
    }

    /// Takes notice of all objects.
    pub(crate) fn observe_all(&self, snapshot: &StorageVersionSnapshot) {
        if snapshot.revision == 0 {
            return;
        }
        let slots = self.0.resources.load();
        for (_, slot) in slots.values().flatten() {
            let object = snapshot.objects.get(&slot.name);
            self.observe(slot, object.map(|object| &**object), snapshot.revision);
        }
    }

    /// Takes notice of what changed between two snapshots: in a crowd of servers that start, one object at a time.
    pub(crate) fn observe_changes(&self, before: &StorageVersionSnapshot, snapshot: &StorageVersionSnapshot) {
        let has_same_names = before.objects.keys().eq(snapshot.objects.keys());
        if before.revision == 0 || !has_same_names {
            return self.observe_all(snapshot);
        }
        for ((name, object), known) in snapshot.objects.iter().zip(before.objects.values()) {
            let is_new = !Arc::ptr_eq(object, known);
            let resource = crate::names::parse_storage_version_name(name).filter(|_| is_new);
            if let Some(slot) = resource.and_then(|resource| self.find_resource(resource)) {
                self.observe(&slot, Some(object), snapshot.revision);
            }
        }
    }

    /// Takes notice of an object, or of its absence, as of a revision. What is older than what we know is no news.
    ///
    /// `as_of` later than the object's own revision means that it did not change in between; a fence needs its own.
    pub(crate) fn observe(&self, resource: &RegisteredResource, object: Option<&StorageVersion>, as_of: u64) {
        let mut state = resource.state.lock();
        if as_of < state.revision {
            return;
        }
        let own_revision = object.map(revision_of);
        if own_revision.is_some() && own_revision == state.checked_revision {
            return;
        }
        let is_open = object.is_some_and(|object| has_exact_entry(object, &resource.entry));
        state.checked_revision = own_revision;
        let was_open = std::mem::replace(&mut state.is_open, is_open);
        state.revision = own_revision.filter(|_| is_open).unwrap_or(as_of);
        if is_open {
            state.last_error = None;
        }
        drop(state);
        if was_open && !is_open {
            tracing::warn!(name = %resource.name, "our entry is gone or was changed; writes wait until it is published again");
        }
        if was_open != is_open {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Remembers what is in the way of a publication, for those who wait for it.
    pub(crate) fn record_error(&self, resource: &RegisteredResource, error: &str) {
        resource.state.lock().last_error = Some(error.to_owned());
    }

    fn check_open(&self, resource: &RegisteredResource) -> Result<Option<Fence>, RegistrationPending> {
        let closed =
            |last_error| RegistrationPending { resource: resource.registration.resource().owned(), last_error };
        let state = resource.state.lock();
        if !state.is_open {
            return Err(closed(state.last_error.clone()));
        }
        self.check_lease().map_err(|lapse| closed(Some(lapse)))?;
        Ok(Some(Fence { name: resource.name.clone(), revision: state.revision }))
    }

    fn resource_for(&self, write: &WriteIntent<'_>) -> Option<Arc<RegisteredResource>> {
        if is_exempt(write) { None } else { self.find_resource(write.resource) }
    }

    fn find_resource(&self, resource: GroupResource<&str>) -> Option<Arc<RegisteredResource>> {
        let slots = self.0.resources.load();
        let (_, slot) = slots.get(resource.resource)?.iter().find(|(group, _)| **group == *resource.group)?;
        Some(slot.clone())
    }

    fn set_resource(&self, resource: GroupResource<&str>, slot: Option<&Arc<RegisteredResource>>) {
        self.0.resources.rcu(|slots| {
            let mut slots = RegisteredResources::clone(slots);
            let groups = slots.entry(resource.resource.into()).or_default();
            groups.retain(|(group, _)| **group != *resource.group);
            groups.extend(slot.map(|slot| (resource.group.into(), slot.clone())));
            slots
        });
        self.0.changes.send_modify(|changes| *changes += 1);
    }
}

impl fmt::Debug for PublicationBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicationBarrier")
            .field("server", &self.0.server)
            .field("closed", &self.closed_resources())
            .finish()
    }
}

#[cfg(test)]
mod tests;
