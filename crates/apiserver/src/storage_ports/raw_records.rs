//! Endpoint records and discovery documents: raw values below keys that no REST path reaches.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use api::objects::{Endpoints, from_json, to_stored_json};
use bytes::Bytes;
use membership::ServerId;
use membership::ports::{DocumentStorage, EntryVersion, Feed, PortFuture, RecordStorage};
use registry::{CachedEntry, CachedValue, Registry, ResourceCache};
use store::{Compare, Key, Op, Revision, Store, Transaction, TransactionOutcome};

use super::resource_feed::ResourceFeed;
use super::unavailable;

/// The endpoint records of the members. Clones share the store and cache.
#[derive(Clone, Debug)]
pub struct EndpointRecords {
    pub(super) registry: Registry,
    pub(super) store: Arc<dyn Store>,
    pub(super) resource_cache: Arc<ResourceCache>,
}

/// The discovery documents that members publish in storage. Clones share the store and cache.
#[derive(Clone, Debug)]
pub struct StoredDocuments {
    pub(super) registry: Registry,
    pub(super) store: Arc<dyn Store>,
    pub(super) resource_cache: Arc<ResourceCache>,
}

impl RecordStorage for EndpointRecords {
    fn watch(&self) -> Box<dyn Feed<Arc<Endpoints>>> {
        Box::new(ResourceFeed::new(
            &self.registry,
            &self.resource_cache,
            self.resource_cache.prefix().clone(),
            decode_record,
        ))
    }

    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Endpoints>> {
        let key = server_key(&self.resource_cache, server);
        Box::pin(async move {
            let (entry, _) = self.store.get(key).await.map_err(unavailable)?;
            Ok(entry.and_then(|entry| from_json(&entry.value).ok()))
        })
    }

    fn put(&self, server: &ServerId, record: Endpoints, ttl: Duration) -> PortFuture<'_, EntryVersion> {
        let value = to_stored_json(&record).into();
        let op = Op::Put { key: server_key(&self.resource_cache, server), value, ttl: Some(ttl) };
        Box::pin(commit_transaction(&*self.store, Transaction { compares: Vec::new(), ops: vec![op] }))
    }

    fn delete(&self, server: &ServerId, put: EntryVersion) -> PortFuture<'_, ()> {
        Box::pin(delete(&*self.store, server_key(&self.resource_cache, server), put))
    }
}

impl DocumentStorage for StoredDocuments {
    fn watch(&self) -> Box<dyn Feed<(EntryVersion, Bytes)>> {
        Box::new(ResourceFeed::new(
            &self.registry,
            &self.resource_cache,
            self.resource_cache.prefix().clone(),
            decode_document,
        ))
    }

    fn put(
        &self,
        server: &ServerId,
        document: Bytes,
        expected_version: Option<EntryVersion>,
        ttl: Option<Duration>,
    ) -> PortFuture<'_, EntryVersion> {
        let key = server_key(&self.resource_cache, server);
        let compare = Compare { key: key.clone(), revision: expected_version.map(to_revision) };
        let op = Op::Put { key, value: document, ttl };
        Box::pin(commit_transaction(&*self.store, Transaction { compares: vec![compare], ops: vec![op] }))
    }

    fn delete(&self, server: &ServerId, expected_version: EntryVersion) -> PortFuture<'_, ()> {
        Box::pin(delete(&*self.store, server_key(&self.resource_cache, server), expected_version))
    }
}

fn server_key(resource_cache: &ResourceCache, server: &ServerId) -> Key {
    Key::from([resource_cache.prefix().as_ref(), server.as_str().as_bytes()].concat())
}

fn to_revision(version: EntryVersion) -> Revision {
    Revision(version.0)
}

async fn commit_transaction(store: &dyn Store, transaction: Transaction) -> Result<EntryVersion, PortError> {
    match store.commit(transaction).await.map_err(unavailable)? {
        TransactionOutcome::Committed(revision) => Ok(EntryVersion(revision.0)),
        TransactionOutcome::Conflict { .. } => Err(PortError::Conflict),
    }
}

async fn delete(store: &dyn Store, key: Key, expected_version: EntryVersion) -> Result<(), PortError> {
    match store.commit(Transaction::delete(key, to_revision(expected_version))).await.map_err(unavailable)? {
        TransactionOutcome::Committed(_) => Ok(()),
        TransactionOutcome::Conflict { current, .. } => Err(match current.into_iter().flatten().next() {
            Some(_) => PortError::Conflict,
            None => PortError::NotFound,
        }),
    }
}

/// `None` for an undecodable record: its server then has no address.
fn decode_record(cached: &CachedEntry) -> Option<Arc<Endpoints>> {
    from_json(raw_bytes(cached)?).ok().map(Arc::new)
}

fn decode_document(cached: &CachedEntry) -> Option<(EntryVersion, Bytes)> {
    Some((EntryVersion(cached.revision.0), raw_bytes(cached)?.clone()))
}

fn raw_bytes(cached: &CachedEntry) -> Option<&Bytes> {
    match &cached.value {
        CachedValue::Raw(bytes) => Some(bytes),
        CachedValue::Object(_) | CachedValue::Undecodable(_) => None,
    }
}
