//! The barrier: a resource may be written while this server's entry in its StorageVersion is published and unchanged.
//!
//! A permit is a [`Fence`]: the object that holds this server's entry, with its revision. The write is made conditional
//! on it in the same transaction, so a server that is paused between permit and write cannot write in a version that is
//! no longer published.

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

/// Decides which resources may be written now. Clones share it.
#[derive(Clone)]
pub struct PublicationBarrier(Arc<BarrierInner>);

struct BarrierInner {
    server: Arc<str>,
    lease_duration: Duration,
    /// The time of the last renewal of the identity lease. Set once.
    lease_renewals: OnceLock<watch::Receiver<Option<Instant>>>,
    resources: ArcSwap<RegisteredResources>,
    /// Incremented whenever a resource is opened, closed or registered.
    changes: watch::Sender<u64>,
    metrics: Metrics,
}

/// By resource name, then by group.
type RegisteredResources = HashMap<Arc<str>, Vec<(Arc<str>, Arc<RegisteredResource>)>>;

#[derive(Debug)]
pub(crate) struct RegisteredResource {
    pub(crate) name: Arc<str>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) entry: ServerStorageVersion,
    state: Mutex<PublicationState>,
}

#[derive(Clone, Debug, Default)]
struct PublicationState {
    /// While open, the object's own revision, for fences; while closed, the revision of the last observation.
    revision: u64,
    /// The object's own revision at the last check; an unchanged object is not checked again.
    checked_revision: Option<u64>,
    is_open: bool,
    last_error: Option<String>,
}

/// The condition of a write: the object must still be at this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The name of the StorageVersion.
    pub name: Arc<str>,
    /// The revision of the StorageVersion.
    pub revision: u64,
}

/// A write that must wait; nothing was written. Displays kube-apiserver's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationPending {
    /// The resource of the write.
    pub resource: GroupResource,
    /// The last error of the publisher; `None` if there was none.
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
    /// Creates a barrier that is closed for all `registrations`. It cannot open before
    /// [`PublicationBarrier::set_lease_renewals`].
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

    /// Sets the channel with the time of the last lease renewal. Only the first call counts.
    pub fn set_lease_renewals(&self, lease_renewals: watch::Receiver<Option<Instant>>) {
        let _ = self.0.lease_renewals.set(lease_renewals);
    }

    /// Returns the condition of a write, `None` for exempt and unregistered resources, or the reason for which it must
    /// wait.
    pub fn permit(&self, write: &WriteIntent<'_>) -> Result<Option<Fence>, RegistrationPending> {
        let Some(slot) = self.resource_for(write) else { return Ok(None) };
        self.check_open(&slot).inspect_err(|_| self.0.metrics.held_writes.inc())
    }

    /// Reports that the object of a fence has changed. The next permit uses `current`, the object at revision `as_of`.
    pub fn handle_stale_permit(&self, write: &WriteIntent<'_>, current: Option<&StorageVersion>, as_of: u64) {
        if let Some(slot) = self.resource_for(write) {
            self.observe(&slot, current, as_of);
        }
    }

    /// Checks that the identity lease was renewed within its duration, so that no other server can regard this one as
    /// gone.
    pub fn check_lease(&self) -> Result<(), String> {
        let renewed = self.0.lease_renewals.get().and_then(|renewed| *renewed.borrow());
        let Some(renewed) = renewed else { return Err("the identity lease is not held yet".to_owned()) };
        let age = renewed.elapsed();
        if age < self.0.lease_duration {
            return Ok(());
        }
        Err(format!("the identity lease was last renewed {} s ago and has expired", age.as_secs()))
    }

    /// The StorageVersion names of all closed resources.
    pub fn closed_resources(&self) -> Vec<Arc<str>> {
        self.unpublished().into_iter().map(|slot| slot.name.clone()).collect()
    }

    /// Waits until exactly this registration is published.
    pub(crate) async fn wait_until_open(&self, registration: &Registration) {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let slot = self.find_resource(registration.resource());
            if slot.is_some_and(|slot| *slot.registration == *registration && slot.state.lock().is_open) {
                return;
            }
            // `self` keeps the sender alive.
            let _ = changes.changed().await;
        }
    }

    /// A channel that changes whenever a resource is opened, closed or registered.
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(crate) fn server(&self) -> &Arc<str> {
        &self.0.server
    }

    /// The closed resources, in order of names.
    pub(crate) fn unpublished(&self) -> Vec<Arc<RegisteredResource>> {
        let slots = self.0.resources.load();
        let mut pending: Vec<_> = slots.values().flatten().map(|(_, slot)| slot.clone()).collect();
        pending.retain(|slot| !slot.state.lock().is_open);
        pending.sort_by(|a, b| a.name.cmp(&b.name));
        pending
    }

    /// True if the resource of the StorageVersion `name` is registered.
    pub(crate) fn is_registered(&self, name: &str) -> bool {
        crate::names::parse_storage_version_name(name).is_some_and(|resource| self.find_resource(resource).is_some())
    }

    /// Registers a resource and closes it until it is published. An equal registration changes nothing.
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

    pub(crate) fn unregister(&self, resource: GroupResource<&str>) {
        self.set_resource(resource, None);
    }

    /// Updates all resources from a snapshot.
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

    /// Updates the resources whose objects differ between two snapshots, since many servers that start together change
    /// one object at a time.
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

    /// Updates a resource from its object, or from its absence, at revision `as_of`. Older observations are ignored.
    ///
    /// `as_of` may be later than the object's own revision if the object did not change in between; a fence needs the
    /// object's own.
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
            tracing::warn!(name = %resource.name, "storage version entry was removed or changed, holding writes until it is republished");
        }
        if was_open != is_open {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Records the last error of the publisher, for the error of held writes.
    pub(crate) fn record_error(&self, resource: &RegisteredResource, error: &str) {
        resource.state.lock().last_error = Some(error.to_owned());
    }

    /// Returns the fence of an open resource if the identity lease is current.
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
