//! Identity leases: Leases in kube-system, written through the registry like those of clients.

use std::sync::Arc;

use api::objects::{Lease, from_json, to_stored_json};
use api::{GroupResource, PortError};
use bytes::Bytes;
use membership::ServerId;
use membership::identity::{IDENTITY_LABEL, IDENTITY_LABEL_VALUE, IDENTITY_LEASE_NAMESPACE, IdentityLease};
use membership::ports::{Feed, LeaseStorage, PortFuture};
use object::StoredObject;
use registry::read::ReadConsistency;
use registry::{
    CachedEntry, CachedValue, ListSelection, Registry, ResourceCache, WriteDecision, WriteError, WriteOutcome,
};
use store::Key;
use tokio::sync::watch;

use super::resource_feed::ResourceFeed;
use super::unavailable;
use crate::rest;

const LEASE_RESOURCE: GroupResource<&str> = GroupResource { group: "coordination.k8s.io", resource: "leases" };

/// The identity leases of the cluster. Clones share the cache.
#[derive(Clone, Debug)]
pub struct IdentityLeases {
    pub(super) registry: Registry,
    pub(super) resource_cache: Arc<ResourceCache>,
}

impl IdentityLeases {
    fn namespace_prefix(&self) -> Key {
        Key::from([self.resource_cache.prefix().as_ref(), IDENTITY_LEASE_NAMESPACE.as_bytes(), b"/"].concat())
    }

    fn lease_key(&self, name: &str) -> Key {
        Key::from([&*self.namespace_prefix(), name.as_bytes()].concat())
    }

    pub(super) async fn read_lease(&self, name: &str) -> Result<Option<Lease>, PortError> {
        let cached_entry = self
            .registry
            .get(&self.resource_cache, &self.lease_key(name), ReadConsistency::Latest)
            .await
            .map_err(unavailable)?;
        let Some(cached) = cached_entry else { return Ok(None) };
        let CachedValue::Object(stored) = &cached.value else { return Err(unavailable("the lease is undecodable")) };
        from_json(&stored.body).map(Some).map_err(unavailable)
    }

    /// The identity leases of extension servers: those of other components than the API server's.
    pub async fn list_of_extension_servers(&self, consistency: ReadConsistency) -> Result<Vec<Arc<Lease>>, PortError> {
        let is_one = |stored: &StoredObject| {
            let label = stored.labels.iter().find(|(name, _)| **name == *IDENTITY_LABEL);
            label.is_some_and(|(_, component)| **component != *IDENTITY_LABEL_VALUE)
        };
        let prefix = self.namespace_prefix();
        let selection = ListSelection { start_key: Key::default(), prefix, limit: None, filter: &is_one };
        let page = self.registry.list(&self.resource_cache, &selection, consistency).await.map_err(unavailable)?;
        Ok(page.entries.iter().filter_map(|entry| decode_cached(entry)).collect())
    }

    async fn write_lease(
        &self,
        name: &str,
        decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, PortError>,
    ) -> Result<WriteOutcome, PortError> {
        let written = self.registry.write(LEASE_RESOURCE, &self.resource_cache, &self.lease_key(name), decide).await;
        written.map_err(|error| match error {
            WriteError::Refused(error) => error,
            WriteError::BarrierClosed(held) => unavailable(held),
            WriteError::Read(error) => unavailable(error),
            WriteError::Store(error) => unavailable(error),
            WriteError::ConditionChanged { .. }
            | WriteError::CompanionChanged { .. }
            | WriteError::ComputationRefused
            | WriteError::TooManyConflicts => PortError::Conflict,
        })
    }

    async fn put_lease(
        &self,
        lease: &Lease,
        mut check: impl FnMut(Option<&StoredObject>) -> Result<(), PortError>,
    ) -> Result<Lease, PortError> {
        let value = encode_for_storage(lease);
        let decide = |current: Option<&StoredObject>| {
            check(current)?;
            Ok(WriteDecision::Put { value: value.clone(), ttl: None })
        };
        match self.write_lease(&lease.metadata.name, decide).await? {
            WriteOutcome::Put(stored) => from_json(&stored.body).map_err(unavailable),
            WriteOutcome::Deleted(_) | WriteOutcome::Unchanged => Err(unavailable("the lease was not written")),
        }
    }
}

impl LeaseStorage for IdentityLeases {
    /// The failure count of the whole cache: leases have no watch of their own.
    fn failures(&self) -> Option<watch::Receiver<u64>> {
        Some(self.registry.cache().failure_count())
    }

    fn watch(&self) -> Box<dyn Feed<Arc<Lease>>> {
        Box::new(ResourceFeed::new(&self.registry, &self.resource_cache, self.namespace_prefix(), decode_cached))
    }

    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Lease>> {
        let server = server.clone();
        Box::pin(async move { self.read_lease(server.as_str()).await })
    }

    fn create(&self, mut lease: Lease) -> PortFuture<'_, Lease> {
        Box::pin(async move {
            lease.metadata.uid = rest::new_uid();
            lease.metadata.creation_timestamp = Some(rest::current_time());
            let is_absent = |current: Option<&StoredObject>| current.map_or(Ok(()), |_| Err(PortError::Conflict));
            self.put_lease(&lease, is_absent).await
        })
    }

    fn update(&self, lease: Lease) -> PortFuture<'_, Lease> {
        Box::pin(async move {
            let observed = (&*lease.metadata.uid, &*lease.metadata.resource_version);
            self.put_lease(&lease, |current| check_unchanged(current, observed)).await
        })
    }

    fn delete(&self, observed: &IdentityLease) -> PortFuture<'_, ()> {
        let seen = observed.clone();
        Box::pin(async move {
            let decide = |current: Option<&StoredObject>| {
                check_unchanged(current, (&seen.uid, &seen.resource_version))?;
                Ok(WriteDecision::Delete)
            };
            self.write_lease(seen.server.as_str(), decide).await.map(drop)
        })
    }
}

fn check_unchanged(current: Option<&StoredObject>, (uid, resource_version): (&str, &str)) -> Result<(), PortError> {
    let current = current.ok_or(PortError::NotFound)?;
    let is_same = &*current.uid == uid && current.revision.to_string() == resource_version;
    if is_same { Ok(()) } else { Err(PortError::Conflict) }
}

fn encode_for_storage(lease: &Lease) -> Bytes {
    let mut lease = lease.clone();
    lease.metadata.resource_version.clear();
    to_stored_json(&lease).into()
}

/// `None` for an undecodable Lease: its server is not counted as a member.
fn decode_cached(cached: &CachedEntry) -> Option<Arc<Lease>> {
    match &cached.value {
        CachedValue::Object(stored) => from_json(&stored.body).ok().map(Arc::new),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
    }
}
