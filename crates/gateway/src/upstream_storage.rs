//! The upstreams as peering sees them: leases, endpoint records and documents, as if they stood in storage.
//!
//! An upstream has a lease as long as it counts, and a record as long as it is ready. So peering finds it live while it is
//! ready, suspect while it is not, and gone once it was away for too long, by the same rules as in a server. It does not linger
//! then: it had its time.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use api::objects::{Endpoints, Lease};
use bytes::Bytes;
use futures_util::FutureExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use peering::identity::{IdentityLease, IdentityLeaseTemplate};
use peering::ports::{DocumentStorage, EntryVersion, Feed, LeaseStorage, PortFuture, RecordStorage};
use peering::{Address, HolderIdentity, ServerId};
use tokio::time::Instant;

use crate::versioned_table::{TableFeed, VersionedTable};
use crate::{StateDir, Upstream};

/// Whether an upstream counts is decided here and not by a clock.
const LEASE_DURATION: Duration = Duration::from_secs(i32::MAX as u64);

/// What is shown of the upstreams. Clones share it.
#[derive(Clone, Debug)]
pub struct UpstreamStorage {
    leases: Arc<VersionedTable<Arc<Lease>>>,
    records: Arc<VersionedTable<Arc<Endpoints>>>,
    documents: Arc<VersionedTable<Bytes>>,
    /// Documents that go by themselves, and when.
    expiring_documents: Arc<Mutex<Vec<(Instant, ServerId, EntryVersion)>>>,
    state_dir: StateDir,
}

impl UpstreamStorage {
    /// A board without upstreams, over what was kept of them.
    pub fn new(state_dir: StateDir) -> Self {
        Self {
            leases: Arc::default(),
            records: Arc::default(),
            documents: Arc::default(),
            expiring_documents: Arc::default(),
            state_dir,
        }
    }

    /// From now on an upstream counts; what was kept of it is known again.
    pub(crate) fn add_upstream(&self, upstream: &Upstream) {
        let server = &upstream.server;
        if self.leases.get(server).is_some() {
            return;
        }
        if self.documents.get(server).is_none()
            && let Some(document) = self.state_dir.read(server)
        {
            self.documents.put(server, document);
        }
        let template = IdentityLeaseTemplate {
            server: server.clone(),
            holder: upstream_holder(server),
            hostname: upstream.address.host().to_owned(),
            address: None,
            duration: LEASE_DURATION,
        };
        self.leases.put(server, Arc::new(template.new_lease(Timestamp::now().into())));
    }

    /// It is no upstream any more. What it served lingers, as that of any server that leaves.
    pub(crate) fn remove_upstream(&self, server: &ServerId) {
        self.records.remove(server);
        self.leases.remove(server);
    }

    /// It was away for too long: neither does it count any more, nor what it served.
    pub(crate) async fn remove_upstream_and_document(&self, server: &ServerId) {
        self.remove_upstream(server);
        if let Some((version, _)) = self.documents.get(server) {
            // If it was replaced meanwhile, the upstream is back.
            let _ = DocumentStorage::delete(self, server, version).await;
        }
    }

    /// Requests may go to it.
    pub(crate) fn put_record(&self, server: &ServerId, address: &Address) {
        if self.records.get(server).is_none() {
            self.records.put(server, Arc::new(address.to_record(server, 1)));
        }
    }

    /// They may not.
    pub(crate) fn remove_record(&self, server: &ServerId) {
        self.records.remove(server);
    }

    /// The document of an upstream, and what to compare with when it is replaced.
    pub(crate) fn document(&self, server: &ServerId) -> Option<(EntryVersion, Bytes)> {
        self.documents.get(server)
    }

    /// Whether an upstream counts, and whether requests may go to it.
    #[cfg(test)]
    pub(crate) fn has_lease_and_record(&self, server: &ServerId) -> [bool; 2] {
        [self.leases.get(server).is_some(), self.records.get(server).is_some()]
    }

    /// Lets documents go whose time is over.
    pub(crate) fn expire_documents(&self, now: Instant) {
        let mut expiring = self.expiring_documents.lock();
        for (_, server, version) in expiring.extract_if(.., |(end, _, _)| *end <= now) {
            // What was replaced meanwhile stays.
            let _ = self.documents.remove_if(&server, version);
        }
    }

    async fn persist_document(&self, server: ServerId, document: Option<Bytes>) {
        let state_dir = self.state_dir.clone();
        let name = server.clone();
        let persisting = tokio::task::spawn_blocking(move || match document {
            Some(document) => state_dir.write(&server, &document),
            None => state_dir.remove(&server),
        });
        if let Ok(Err(error)) = persisting.await {
            tracing::warn!(server = %name, %error, "--state-dir: what an upstream serves cannot be kept");
        }
    }
}

/// An upstream is one to us, whatever processes it has been: its document is asked for anew before it is live again.
pub(crate) fn upstream_holder(server: &ServerId) -> HolderIdentity {
    HolderIdentity::from_text(&format!("{server}_upstream"))
}

/// Upstreams are the gateway's to name; nobody else writes here.
fn no_storage<T: Send + 'static>() -> PortFuture<'static, T> {
    let error = PortError::Unavailable { reason: "a gateway has no storage".to_owned() };
    async move { Err(error) }.boxed()
}

impl LeaseStorage for UpstreamStorage {
    fn watch(&self) -> Box<dyn Feed<Arc<Lease>>> {
        Box::new(TableFeed::new(&self.leases, |_, lease| lease.clone()))
    }

    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Lease>> {
        let lease = self.leases.get(server).map(|(_, lease)| Arc::unwrap_or_clone(lease));
        async move { Ok(lease) }.boxed()
    }

    fn create(&self, _lease: Lease) -> PortFuture<'_, Lease> {
        no_storage()
    }

    fn update(&self, _lease: Lease) -> PortFuture<'_, Lease> {
        no_storage()
    }

    fn delete(&self, expected: &IdentityLease) -> PortFuture<'_, ()> {
        self.leases.remove(&expected.server);
        async { Ok(()) }.boxed()
    }
}

impl RecordStorage for UpstreamStorage {
    fn watch(&self) -> Box<dyn Feed<Arc<Endpoints>>> {
        Box::new(TableFeed::new(&self.records, |_, record| record.clone()))
    }

    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Endpoints>> {
        let record = self.records.get(server).map(|(_, record)| Arc::unwrap_or_clone(record));
        async move { Ok(record) }.boxed()
    }

    fn put(&self, _server: &ServerId, _record: Endpoints, _ttl: Duration) -> PortFuture<'_, EntryVersion> {
        no_storage()
    }

    fn delete(&self, _server: &ServerId, _put: EntryVersion) -> PortFuture<'_, ()> {
        no_storage()
    }
}

impl DocumentStorage for UpstreamStorage {
    fn watch(&self) -> Box<dyn Feed<(EntryVersion, Bytes)>> {
        Box::new(TableFeed::new(&self.documents, |version, document| (version, document.clone())))
    }

    fn put(
        &self,
        server: &ServerId,
        document: Bytes,
        expected: Option<EntryVersion>,
        ttl: Option<Duration>,
    ) -> PortFuture<'_, EntryVersion> {
        let result = self.documents.replace_if(server, document.clone(), expected);
        let server = server.clone();
        if let (Ok(version), Some(ttl)) = (&result, ttl) {
            let end = (Instant::now() + ttl, server.clone(), *version);
            self.expiring_documents.lock().push(end);
        }
        async move {
            // What is about to go is not worth keeping.
            if result.is_ok() && ttl.is_none() {
                self.persist_document(server, Some(document)).await;
            }
            result
        }
        .boxed()
    }

    fn delete(&self, server: &ServerId, expected: EntryVersion) -> PortFuture<'_, ()> {
        let deleted = self.documents.remove_if(server, expected);
        let server = server.clone();
        async move {
            if deleted.is_ok() {
                self.persist_document(server, None).await;
            }
            deleted
        }
        .boxed()
    }
}
