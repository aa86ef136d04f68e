//! Membership feeds of the upstreams, written by their inspectors.
//!
//! An upstream has a presence entry until it is removed or forgotten, and an address only while it is ready. Membership
//! therefore treats a ready upstream as live, one that is not ready as suspect, and a forgotten one as gone.

use std::sync::Arc;

use api::Address;
use bytes::Bytes;
use membership::documents::StoredDocument;
use membership::members::{DocumentContent, MemberPresence, MemberTimeouts, ObservedDocument};
use membership::ports::{EntryVersion, MemberFeeds};
use membership::{HolderIdentity, ServerId};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::StateDir;
use crate::versioned_table::{TableFeed, VersionedTable};

/// Presence, addresses and discovery documents of the upstreams. Clones share the tables.
#[derive(Clone, Debug)]
pub struct UpstreamMembers {
    presence: Arc<VersionedTable<MemberPresence>>,
    addresses: Arc<VersionedTable<Address>>,
    documents: Arc<VersionedTable<StoredDocument>>,
    /// Documents of removed upstreams or former processes, with the time of their removal.
    expiring_documents: Arc<Mutex<Vec<(Instant, ServerId, EntryVersion)>>>,
    state_dir: StateDir,
}

impl UpstreamMembers {
    /// Starts without upstreams; `state_dir` persists their documents across restarts of the gateway.
    pub fn new(state_dir: StateDir) -> Self {
        Self {
            presence: Arc::default(),
            addresses: Arc::default(),
            documents: Arc::default(),
            expiring_documents: Arc::default(),
            state_dir,
        }
    }

    /// Feeds of the three tables for membership. The `failures` feed never changes.
    pub fn feeds(&self) -> MemberFeeds {
        let observed = |version, stored: &StoredDocument| ObservedDocument {
            version,
            content: DocumentContent::Document(stored.clone()),
        };
        MemberFeeds {
            presence: Box::new(TableFeed::new(&self.presence, |_, presence| presence.clone())),
            addresses: Box::new(TableFeed::new(&self.addresses, |_, address| address.clone())),
            documents: Box::new(TableFeed::new(&self.documents, observed)),
            failures: watch::Sender::new(0).subscribe(),
        }
    }

    /// Adds an upstream as a member, with the document persisted by an earlier run if there is one. No-op for a member.
    pub(crate) fn add_upstream(&self, server: &ServerId) {
        if self.presence.get(server).is_some() {
            return;
        }
        self.expiring_documents.lock().retain(|(_, expiring, _)| expiring != server);
        if self.documents.get(server).is_none()
            && let Some(document) = self.read_kept_document(server)
        {
            self.documents.put(server, document);
        }
        self.presence.put(server, MemberPresence::Inspected(upstream_holder(server)));
    }

    /// Removes an upstream that is no longer configured or discovered. Its document is kept for
    /// [`MemberTimeouts::LINGER`].
    pub(crate) fn remove_upstream(&self, server: &ServerId) {
        self.addresses.remove(server);
        self.presence.remove(server);
        if let Some((version, _)) = self.documents.get(server) {
            self.expire_document_later(server, version);
        }
    }

    /// Removes an upstream that failed for longer than the forget timeout, and deletes its document also from the state
    /// directory.
    pub(crate) async fn forget_upstream(&self, server: &ServerId) {
        self.addresses.remove(server);
        self.presence.remove(server);
        self.documents.remove(server);
        self.persist_document(server.clone(), None).await;
    }

    /// Publishes the address of an upstream that passed its inspection: membership then treats it as live. An unchanged
    /// address is not put again, because that would be a new version.
    pub(crate) fn set_ready(&self, server: &ServerId, address: &Address) {
        if self.addresses.get(server).is_none() {
            self.addresses.put(server, address.clone());
        }
    }

    /// Withdraws the address of an upstream, so that it receives no requests.
    pub(crate) fn set_not_ready(&self, server: &ServerId) {
        self.addresses.remove(server);
    }

    /// Last discovery document fetched from an upstream.
    pub(crate) fn document(&self, server: &ServerId) -> Option<StoredDocument> {
        self.documents.get(server).map(|(_, document)| document)
    }

    /// Replaces the document of an upstream in memory and in the state directory.
    pub(crate) async fn put_document(&self, server: &ServerId, document: StoredDocument) {
        let encoded = document.encode();
        self.documents.put(server, document);
        self.persist_document(server.clone(), Some(encoded)).await;
    }

    /// Stores the document of an upstream's former process for [`MemberTimeouts::LINGER`].
    pub(crate) fn put_lingering(&self, server: &ServerId, document: StoredDocument) {
        let version = self.documents.put(server, document);
        self.expire_document_later(server, version);
    }

    /// Whether the upstream is a member, and whether it is ready.
    #[cfg(test)]
    pub(crate) fn is_member_and_ready(&self, server: &ServerId) -> [bool; 2] {
        [self.presence.get(server).is_some(), self.addresses.get(server).is_some()]
    }

    /// Removes documents whose linger is over.
    pub(crate) fn expire_documents(&self, now: Instant) {
        let mut expiring = self.expiring_documents.lock();
        for (_, server, version) in expiring.extract_if(.., |(end, _, _)| *end <= now) {
            self.documents.remove_if(&server, version);
        }
    }

    fn expire_document_later(&self, server: &ServerId, version: EntryVersion) {
        self.expiring_documents.lock().push((Instant::now() + MemberTimeouts::LINGER, server.clone(), version));
    }

    fn read_kept_document(&self, server: &ServerId) -> Option<StoredDocument> {
        StoredDocument::decode(&self.state_dir.read(server)?)
            .inspect_err(|error| tracing::warn!(%server, %error, "--state-dir: document ignored"))
            .ok()
    }

    async fn persist_document(&self, server: ServerId, document: Option<Bytes>) {
        let state_dir = self.state_dir.clone();
        let name = server.clone();
        let persisting = tokio::task::spawn_blocking(move || match document {
            Some(document) => state_dir.write(&server, &document),
            None => state_dir.remove(&server),
        });
        if let Ok(Err(error)) = persisting.await {
            tracing::warn!(server = %name, %error, "--state-dir: failed to write or remove document");
        }
    }
}

/// Holder identity of an upstream. It stays the same across restarts of the upstream, because the inspector fetches the
/// document before it marks the upstream ready again.
pub(crate) fn upstream_holder(server: &ServerId) -> HolderIdentity {
    HolderIdentity::from_text(&format!("{server}_upstream"))
}

#[cfg(test)]
mod tests {
    use membership::ServerDocument;
    use membership::documents::{DocumentSource, Retention};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn document_of_removed_upstream_lingers_unless_it_returns() {
        let members = UpstreamMembers::new(StateDir::none());
        let server = ServerId::from_name("apiserver-a").unwrap();
        let document = StoredDocument {
            holder: upstream_holder(&server),
            source: DocumentSource::Published,
            retention: Retention::UntilReplaced,
            document: Arc::new(ServerDocument::from_all_groups(&Arc::new(discovery::GroupDiscoveryList::new(
                Vec::new(),
            )))),
        };
        members.add_upstream(&server);
        members.put_document(&server, document).await;
        let known_after = async |time| {
            tokio::time::sleep(time).await;
            members.expire_documents(Instant::now());
            members.document(&server).is_some()
        };
        members.remove_upstream(&server);
        assert!(known_after(MemberTimeouts::LINGER / 2).await, "lingers");
        members.add_upstream(&server);
        assert!(known_after(MemberTimeouts::LINGER).await, "came back");
        members.remove_upstream(&server);
        assert!(!known_after(MemberTimeouts::LINGER).await, "gone");
    }
}
