//! The barrier: a resource may be written while this server's entry in its StorageVersion is published and unchanged.
//!
//! A permit is a [`Fence`]: the object that holds this server's entry, with its revision. The write is made conditional
//! on it in the same transaction, so a server that is paused between permit and write cannot write in a version that is
//! no longer published.

mod exemptions;
mod resources;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::GroupResource;
use api::objects::StorageVersion;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

pub use exemptions::{IntentAuthor, WriteIntent, WriteOperation, is_exempt};
use resources::RegisteredResources;
pub(crate) use resources::{PublicationClaim, RegisteredResource, ResourceClass};

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
    built_in_changes: watch::Sender<u64>,
    custom_changes: watch::Sender<u64>,
    /// Custom resources for which writes wait, until the publisher takes them.
    waiting: Mutex<Vec<Arc<RegisteredResource>>>,
    /// False while the custom resources are not known yet: an entry without a registration may then be that of one.
    is_complete: watch::Sender<bool>,
    metrics: Metrics,
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
            built_in_changes: watch::Sender::new(0),
            custom_changes: watch::Sender::new(0),
            waiting: Mutex::default(),
            is_complete: watch::Sender::new(true),
            metrics,
        }));
        let mut resources = RegisteredResources::new();
        for registration in registrations.values() {
            let slot = RegisteredResource::new(registration, ResourceClass::BuiltIn, &barrier.0.server, 0);
            resources::insert(&mut resources, Arc::new(slot));
        }
        barrier.0.resources.store(Arc::new(resources));
        barrier
    }

    /// Announces that custom resources will follow. Until the first [`Self::replace_custom_registrations`] no entry of
    /// an earlier process is withdrawn.
    pub fn expect_custom_registrations(&self) {
        self.0.is_complete.send_replace(false);
    }

    /// Replaces the registrations of all custom resources. Those that are new or changed are closed until they are
    /// published; entries of those that are missing are withdrawn. A resource that is built in stays so.
    ///
    /// A server calls this before it serves objects in the registered versions: then a write in the version of an
    /// earlier registration can only happen under an earlier state of its definition, which the write compares.
    pub fn replace_custom_registrations(&self, registrations: &[Arc<Registration>]) {
        let known = self.0.resources.load_full();
        let is_custom = |slot: &RegisteredResource| slot.class == ResourceClass::Custom;
        let customs = known.values().flatten().filter(|(_, slot)| is_custom(slot)).count();
        let kept = |registration: &Arc<Registration>| {
            let slot = resources::find(&known, registration.resource())?;
            let is_same = Arc::ptr_eq(&slot.registration, registration) || slot.registration == *registration;
            (is_same && is_custom(slot)).then(|| slot.clone())
        };
        let slots: Vec<_> = registrations.iter().map(kept).collect();
        if slots.len() != customs || slots.iter().any(Option::is_none) {
            let mut next = RegisteredResources::new();
            let built_in = known.values().flatten().filter(|(_, slot)| !is_custom(slot));
            built_in.for_each(|(_, slot)| resources::insert(&mut next, slot.clone()));
            for (registration, kept) in registrations.iter().zip(slots) {
                let before = resources::find(&known, registration.resource());
                let slot = match (kept, before) {
                    (Some(kept), _) => kept,
                    (None, Some(before)) if !is_custom(before) => continue,
                    (None, before) => {
                        let revision = before.map_or(0, |before| before.state.lock().revision);
                        let class = ResourceClass::Custom;
                        Arc::new(RegisteredResource::new(registration, class, &self.0.server, revision))
                    }
                };
                resources::insert(&mut next, slot);
            }
            self.0.resources.store(Arc::new(next));
            self.notify_change(ResourceClass::Custom);
        }
        self.0.is_complete.send_if_modified(|complete| !std::mem::replace(complete, true));
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

    /// The StorageVersion names of the closed built-in resources.
    pub fn closed_built_in_resources(&self) -> Vec<Arc<str>> {
        let mut closed: Vec<_> =
            self.unpublished(ResourceClass::BuiltIn).into_iter().map(|slot| slot.name.clone()).collect();
        closed.sort();
        closed
    }

    /// Waits until writes of a resource are permitted. The publisher prefers resources for which a write waits. Callers
    /// bound the wait, and request a permit afterwards: it may have been lost again.
    pub async fn wait_until_permitted(&self, resource: GroupResource<&str>) {
        let mut announced: Option<Arc<RegisteredResource>> = None;
        loop {
            let Some(slot) = self.find_resource(resource) else { return };
            let mut changes = self.subscribe_changes(slot.class);
            changes.mark_unchanged();
            if self.check_open(&slot).is_ok() {
                return;
            }
            if announced.as_ref().is_none_or(|announced| !Arc::ptr_eq(announced, &slot)) {
                self.0.waiting.lock().push(slot.clone());
                self.notify_change(slot.class);
                changes.mark_unchanged();
            }
            if slot.is_open() {
                self.wait_for_renewal().await;
            } else {
                // `self` keeps the sender alive.
                let _ = changes.changed().await;
            }
            announced = Some(slot);
        }
    }

    /// Waits for the next renewal of the identity lease.
    async fn wait_for_renewal(&self) {
        let Some(mut renewals) = self.0.lease_renewals.get().cloned() else { return std::future::pending().await };
        renewals.mark_unchanged();
        if self.check_lease().is_err() && renewals.changed().await.is_err() {
            // The sender ends with the server.
            std::future::pending::<()>().await;
        }
    }

    /// A channel that changes whenever a resource of the class is opened, closed or registered, or a write of it begins
    /// to wait.
    pub(crate) fn subscribe_changes(&self, class: ResourceClass) -> watch::Receiver<u64> {
        self.changes_of(class).subscribe()
    }

    fn changes_of(&self, class: ResourceClass) -> &watch::Sender<u64> {
        match class {
            ResourceClass::BuiltIn => &self.0.built_in_changes,
            ResourceClass::Custom => &self.0.custom_changes,
        }
    }

    /// The resources of a class for which writes began to wait since the last call.
    pub(crate) fn take_waiting(&self, class: ResourceClass) -> Vec<Arc<RegisteredResource>> {
        let mut waiting = self.0.waiting.lock();
        waiting.extract_if(.., |slot| slot.class == class).collect()
    }

    /// Waits until all registrations are known, so that other entries of this server are obsolete.
    pub(crate) async fn wait_until_complete(&self) {
        // `self` keeps the sender alive.
        let _ = self.0.is_complete.subscribe().wait_for(|complete| *complete).await;
    }

    pub(crate) fn server(&self) -> &Arc<str> {
        &self.0.server
    }

    /// The closed resources of a class, in no order.
    pub(crate) fn unpublished(&self, class: ResourceClass) -> Vec<Arc<RegisteredResource>> {
        let slots = self.0.resources.load();
        let slots = slots.values().flatten().map(|(_, slot)| slot);
        slots.filter(|slot| slot.class == class && !slot.is_open()).cloned().collect()
    }

    /// True if the resource of the StorageVersion `name` is registered.
    pub(crate) fn is_registered(&self, name: &str) -> bool {
        crate::names::parse_storage_version_name(name).is_some_and(|resource| self.find_resource(resource).is_some())
    }

    /// True if this is the last registration of its resource.
    pub(crate) fn is_current(&self, resource: &RegisteredResource) -> bool {
        let current = self.find_resource(resource.registration.resource());
        current.is_some_and(|current| std::ptr::eq(&*current, resource))
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
            self.notify_change(resource.class);
        }
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
        resources::find(&self.0.resources.load(), resource).cloned()
    }

    fn notify_change(&self, class: ResourceClass) {
        self.changes_of(class).send_modify(|changes| *changes += 1);
    }
}

impl fmt::Debug for PublicationBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicationBarrier")
            .field("server", &self.0.server)
            .field("closed", &self.closed_built_in_resources())
            .finish()
    }
}

#[cfg(test)]
mod tests;
