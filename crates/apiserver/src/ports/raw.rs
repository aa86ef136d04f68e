//! Endpoint records and stored documents: bytes below keys that no REST path reaches.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use api::objects::{Endpoints, from_json, to_stored_json};
use bytes::Bytes;
use peering::ServerId;
use peering::ports::{Documents, Feed, Pending, Records, Version};
use registry::{Cached, Item, Registry, Shelf};
use store::{Compare, Key, Op, Outcome, Revision, Store, Transaction};

use super::feed::ShelfFeed;
use super::unavailable;

/// The endpoint records of a cluster. Clones share them.
#[derive(Clone, Debug)]
pub struct EndpointRecords {
    pub(super) registry: Registry,
    pub(super) store: Arc<dyn Store>,
    pub(super) shelf: Arc<Shelf>,
}

/// The stored documents of a cluster. Clones share them.
#[derive(Clone, Debug)]
pub struct StoredDocuments {
    pub(super) registry: Registry,
    pub(super) store: Arc<dyn Store>,
    pub(super) shelf: Arc<Shelf>,
}

impl Records for EndpointRecords {
    fn follow(&self) -> Box<dyn Feed<Arc<Endpoints>>> {
        Box::new(ShelfFeed::new(&self.registry, &self.shelf, self.shelf.prefix().clone(), read_record))
    }

    fn get(&self, server: &ServerId) -> Pending<'_, Option<Endpoints>> {
        let key = key_of(&self.shelf, server);
        Box::pin(async move {
            let (entry, _) = self.store.get(key).await.map_err(unavailable)?;
            Ok(entry.and_then(|entry| from_json(&entry.value).ok()))
        })
    }

    fn put(&self, server: &ServerId, record: Endpoints, ttl: Duration) -> Pending<'_, Version> {
        let value = to_stored_json(&record).into();
        let op = Op::Put { key: key_of(&self.shelf, server), value, ttl: Some(ttl) };
        Box::pin(commit(&*self.store, Transaction { compares: Vec::new(), ops: vec![op] }))
    }

    fn delete(&self, server: &ServerId, put: Version) -> Pending<'_, ()> {
        Box::pin(delete(&*self.store, key_of(&self.shelf, server), put))
    }
}

impl Documents for StoredDocuments {
    fn follow(&self) -> Box<dyn Feed<(Version, Bytes)>> {
        Box::new(ShelfFeed::new(&self.registry, &self.shelf, self.shelf.prefix().clone(), read_document))
    }

    fn put(
        &self,
        server: &ServerId,
        document: Bytes,
        seen: Option<Version>,
        ttl: Option<Duration>,
    ) -> Pending<'_, Version> {
        let key = key_of(&self.shelf, server);
        let compare = Compare { key: key.clone(), revision: seen.map(revision) };
        let op = Op::Put { key, value: document, ttl };
        Box::pin(commit(&*self.store, Transaction { compares: vec![compare], ops: vec![op] }))
    }

    fn delete(&self, server: &ServerId, seen: Version) -> Pending<'_, ()> {
        Box::pin(delete(&*self.store, key_of(&self.shelf, server), seen))
    }
}

fn key_of(shelf: &Shelf, server: &ServerId) -> Key {
    Key::from([shelf.prefix().as_ref(), server.as_str().as_bytes()].concat())
}

fn revision(version: Version) -> Revision {
    Revision(version.0)
}

async fn commit(store: &dyn Store, transaction: Transaction) -> Result<Version, PortError> {
    match store.commit(transaction).await.map_err(unavailable)? {
        Outcome::Committed(revision) => Ok(Version(revision.0)),
        Outcome::Conflict { .. } => Err(PortError::Conflict),
    }
}

async fn delete(store: &dyn Store, key: Key, seen: Version) -> Result<(), PortError> {
    match store.commit(Transaction::delete(key, revision(seen))).await.map_err(unavailable)? {
        Outcome::Committed(_) => Ok(()),
        Outcome::Conflict { current, .. } => Err(match current.into_iter().flatten().next() {
            Some(_) => PortError::Conflict,
            None => PortError::NotFound,
        }),
    }
}

/// What is no record gives no address.
fn read_record(cached: &Cached) -> Option<Arc<Endpoints>> {
    from_json(raw(cached)?).ok().map(Arc::new)
}

fn read_document(cached: &Cached) -> Option<(Version, Bytes)> {
    Some((Version(cached.revision.0), raw(cached)?.clone()))
}

fn raw(cached: &Cached) -> Option<&Bytes> {
    match &cached.item {
        Item::Raw(bytes) => Some(bytes),
        Item::Object(_) | Item::Undecodable(_) => None,
    }
}
