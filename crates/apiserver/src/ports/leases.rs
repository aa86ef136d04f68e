//! The identity leases: Leases in kube-system, written through the registry like everybody's.

use std::sync::Arc;

use api::objects::{Lease, from_json, to_stored_json};
use api::{GroupResource, PortError};
use bytes::Bytes;
use object::Stored;
use peering::ServerId;
use peering::identity::{IdentityLease, NAMESPACE};
use peering::ports::{Feed, Leases, Pending};
use registry::read::Freshness;
use registry::{Cached, Decision, Item, Registry, Shelf, WriteError, Written};
use store::Key;
use tokio::sync::watch;

use super::feed::ShelfFeed;
use super::unavailable;
use crate::rest;

const RESOURCE: GroupResource<&str> = GroupResource { group: "coordination.k8s.io", resource: "leases" };

/// The identity leases of a cluster. Clones share them.
#[derive(Clone, Debug)]
pub struct IdentityLeases {
    pub(super) registry: Registry,
    pub(super) shelf: Arc<Shelf>,
}

impl IdentityLeases {
    fn namespace(&self) -> Key {
        Key::from([self.shelf.prefix().as_ref(), NAMESPACE.as_bytes(), b"/"].concat())
    }

    fn key(&self, name: &str) -> Key {
        Key::from([&*self.namespace(), name.as_bytes()].concat())
    }

    pub(super) async fn read(&self, name: &str) -> Result<Option<Lease>, PortError> {
        let found = self.registry.get(&self.shelf, &self.key(name), Freshness::Latest).await.map_err(unavailable)?;
        let Some(cached) = found else { return Ok(None) };
        let Item::Object(stored) = &cached.item else { return Err(unavailable("the lease cannot be read")) };
        from_json(&stored.body).map(Some).map_err(unavailable)
    }

    async fn write(
        &self,
        name: &str,
        decide: impl FnMut(Option<&Stored>) -> Result<Decision, PortError>,
    ) -> Result<Written, PortError> {
        let written = self.registry.write(RESOURCE, &self.shelf, &self.key(name), decide).await;
        written.map_err(|error| match error {
            WriteError::Refused(error) => error,
            WriteError::Held(held) => unavailable(held),
            WriteError::Read(error) => unavailable(error),
            WriteError::Store(error) => unavailable(error),
            WriteError::Moved | WriteError::Busy => PortError::Conflict,
        })
    }

    async fn put(
        &self,
        lease: &Lease,
        mut check: impl FnMut(Option<&Stored>) -> Result<(), PortError>,
    ) -> Result<Lease, PortError> {
        let value = storage_form(lease);
        let decide = |current: Option<&Stored>| {
            check(current)?;
            Ok(Decision::Put { value: value.clone(), ttl: None })
        };
        match self.write(&lease.metadata.name, decide).await? {
            Written::Put(stored) => from_json(&stored.body).map_err(unavailable),
            Written::Deleted(_) | Written::Kept => Err(unavailable("the lease was not written")),
        }
    }
}

impl Leases for IdentityLeases {
    /// They come with everything that the cache follows.
    fn failures(&self) -> Option<watch::Receiver<u64>> {
        Some(self.registry.cache().failures())
    }

    fn follow(&self) -> Box<dyn Feed<Arc<Lease>>> {
        Box::new(ShelfFeed::new(&self.registry, &self.shelf, self.namespace(), read_cached))
    }

    fn get(&self, server: &ServerId) -> Pending<'_, Option<Lease>> {
        let server = server.clone();
        Box::pin(async move { self.read(server.as_str()).await })
    }

    fn create(&self, mut lease: Lease) -> Pending<'_, Lease> {
        Box::pin(async move {
            lease.metadata.uid = rest::new_uid();
            lease.metadata.creation_timestamp = Some(rest::now());
            let is_free = |current: Option<&Stored>| current.map_or(Ok(()), |_| Err(PortError::Conflict));
            self.put(&lease, is_free).await
        })
    }

    fn update(&self, lease: Lease) -> Pending<'_, Lease> {
        Box::pin(async move {
            let seen = (&*lease.metadata.uid, &*lease.metadata.resource_version);
            self.put(&lease, |current| is_as_seen(current, seen)).await
        })
    }

    fn delete(&self, seen: &IdentityLease) -> Pending<'_, ()> {
        let seen = seen.clone();
        Box::pin(async move {
            let decide = |current: Option<&Stored>| {
                is_as_seen(current, (&seen.uid, &seen.resource_version))?;
                Ok(Decision::Delete)
            };
            self.write(seen.server.as_str(), decide).await.map(drop)
        })
    }
}

fn is_as_seen(current: Option<&Stored>, (uid, resource_version): (&str, &str)) -> Result<(), PortError> {
    let current = current.ok_or(PortError::NotFound)?;
    let is_same = &*current.uid == uid && current.revision.to_string() == resource_version;
    if is_same { Ok(()) } else { Err(PortError::Conflict) }
}

fn storage_form(lease: &Lease) -> Bytes {
    let mut lease = lease.clone();
    lease.metadata.resource_version.clear();
    to_stored_json(&lease).into()
}

/// What is no Lease makes no member.
fn read_cached(cached: &Cached) -> Option<Arc<Lease>> {
    match &cached.item {
        Item::Object(stored) => from_json(&stored.body).ok().map(Arc::new),
        Item::Raw(_) | Item::Undecodable(_) => None,
    }
}
