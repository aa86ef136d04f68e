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
use peering::identity::{IdentityLease, LeaseForm};
use peering::ports::{Documents, Feed, Leases, Pending, Records, Version};
use peering::{Address, HolderIdentity, ServerId};
use tokio::time::Instant;

use crate::shelf::{Shelf, ShelfFeed};
use crate::{StateDir, Upstream};

/// Whether an upstream counts is decided here and not by a clock.
const FOR_EVER: Duration = Duration::from_secs(i32::MAX as u64);

/// What is shown of the upstreams. Clones share it.
#[derive(Clone, Debug)]
pub struct Board {
    leases: Arc<Shelf<Arc<Lease>>>,
    records: Arc<Shelf<Arc<Endpoints>>>,
    documents: Arc<Shelf<Bytes>>,
    /// Documents that go by themselves, and when.
    leaving: Arc<Mutex<Vec<(Instant, ServerId, Version)>>>,
    kept: StateDir,
}

impl Board {
    /// A board without upstreams, over what was kept of them.
    pub fn new(kept: StateDir) -> Self {
        Self {
            leases: Arc::default(),
            records: Arc::default(),
            documents: Arc::default(),
            leaving: Arc::default(),
            kept,
        }
    }

    /// From now on an upstream counts; what was kept of it is known again.
    pub(crate) fn admit(&self, upstream: &Upstream) {
        let server = &upstream.server;
        if self.leases.get(server).is_some() {
            return;
        }
        if self.documents.get(server).is_none()
            && let Some(document) = self.kept.read(server)
        {
            self.documents.put(server, document);
        }
        let form = LeaseForm {
            server: server.clone(),
            holder: holder_of(server),
            hostname: upstream.address.host().to_owned(),
            address: None,
            duration: FOR_EVER,
        };
        self.leases.put(server, Arc::new(form.new_lease(Timestamp::now().into())));
    }

    /// It is no upstream any more. What it served lingers, as that of any server that leaves.
    pub(crate) fn forget(&self, server: &ServerId) {
        self.records.remove(server);
        self.leases.remove(server);
    }

    /// It was away for too long: neither does it count any more, nor what it served.
    pub(crate) async fn give_up(&self, server: &ServerId) {
        self.forget(server);
        if let Some((version, _)) = self.documents.get(server) {
            // If it was replaced meanwhile, the upstream is back.
            let _ = Documents::delete(self, server, version).await;
        }
    }

    /// Requests may go to it.
    pub(crate) fn open(&self, server: &ServerId, address: &Address) {
        if self.records.get(server).is_none() {
            self.records.put(server, Arc::new(address.to_record(server, 1)));
        }
    }

    /// They may not.
    pub(crate) fn close(&self, server: &ServerId) {
        self.records.remove(server);
    }

    /// The document of an upstream, and what to compare with when it is replaced.
    pub(crate) fn document(&self, server: &ServerId) -> Option<(Version, Bytes)> {
        self.documents.get(server)
    }

    /// Whether an upstream counts, and whether requests may go to it.
    #[cfg(test)]
    pub(crate) fn has(&self, server: &ServerId) -> [bool; 2] {
        [self.leases.get(server).is_some(), self.records.get(server).is_some()]
    }

    /// Lets documents go whose time is over.
    pub(crate) fn expire(&self, now: Instant) {
        let mut leaving = self.leaving.lock();
        for (_, server, version) in leaving.extract_if(.., |(end, _, _)| *end <= now) {
            // What was replaced meanwhile stays.
            let _ = self.documents.remove_seen(&server, version);
        }
    }

    async fn keep(&self, server: ServerId, document: Option<Bytes>) {
        let kept = self.kept.clone();
        let name = server.clone();
        let keeping = tokio::task::spawn_blocking(move || match document {
            Some(document) => kept.write(&server, &document),
            None => kept.remove(&server),
        });
        if let Ok(Err(error)) = keeping.await {
            tracing::warn!(server = %name, %error, "--state-dir: what an upstream serves cannot be kept");
        }
    }
}

/// An upstream is one to us, whatever processes it has been: its document is asked for anew before it is live again.
pub(crate) fn holder_of(server: &ServerId) -> HolderIdentity {
    HolderIdentity::from_text(&format!("{server}_upstream"))
}

/// Upstreams are the gateway's to name; nobody else writes here.
fn not_here<T: Send + 'static>() -> Pending<'static, T> {
    let error = PortError::Unavailable { reason: "a gateway has no storage".to_owned() };
    async move { Err(error) }.boxed()
}

impl Leases for Board {
    fn follow(&self) -> Box<dyn Feed<Arc<Lease>>> {
        Box::new(ShelfFeed::new(&self.leases, |_, lease| lease.clone()))
    }

    fn get(&self, server: &ServerId) -> Pending<'_, Option<Lease>> {
        let lease = self.leases.get(server).map(|(_, lease)| Arc::unwrap_or_clone(lease));
        async move { Ok(lease) }.boxed()
    }

    fn create(&self, _lease: Lease) -> Pending<'_, Lease> {
        not_here()
    }

    fn update(&self, _lease: Lease) -> Pending<'_, Lease> {
        not_here()
    }

    fn delete(&self, seen: &IdentityLease) -> Pending<'_, ()> {
        self.leases.remove(&seen.server);
        async { Ok(()) }.boxed()
    }
}

impl Records for Board {
    fn follow(&self) -> Box<dyn Feed<Arc<Endpoints>>> {
        Box::new(ShelfFeed::new(&self.records, |_, record| record.clone()))
    }

    fn get(&self, server: &ServerId) -> Pending<'_, Option<Endpoints>> {
        let record = self.records.get(server).map(|(_, record)| Arc::unwrap_or_clone(record));
        async move { Ok(record) }.boxed()
    }

    fn put(&self, _server: &ServerId, _record: Endpoints, _ttl: Duration) -> Pending<'_, Version> {
        not_here()
    }

    fn delete(&self, _server: &ServerId, _put: Version) -> Pending<'_, ()> {
        not_here()
    }
}

impl Documents for Board {
    fn follow(&self) -> Box<dyn Feed<(Version, Bytes)>> {
        Box::new(ShelfFeed::new(&self.documents, |version, document| (version, document.clone())))
    }

    fn put(
        &self,
        server: &ServerId,
        document: Bytes,
        seen: Option<Version>,
        ttl: Option<Duration>,
    ) -> Pending<'_, Version> {
        let put = self.documents.replace(server, document.clone(), seen);
        let server = server.clone();
        if let (Ok(version), Some(ttl)) = (&put, ttl) {
            let end = (Instant::now() + ttl, server.clone(), *version);
            self.leaving.lock().push(end);
        }
        async move {
            // What is about to go is not worth keeping.
            if put.is_ok() && ttl.is_none() {
                self.keep(server, Some(document)).await;
            }
            put
        }
        .boxed()
    }

    fn delete(&self, server: &ServerId, seen: Version) -> Pending<'_, ()> {
        let deleted = self.documents.remove_seen(server, seen);
        let server = server.clone();
        async move {
            if deleted.is_ok() {
                self.keep(server, None).await;
            }
            deleted
        }
        .boxed()
    }
}
