//! Observes members through what they keep in storage: identity leases, endpoint records and documents.

use std::sync::Arc;

use api::Address;
use api::objects::{Endpoints, Lease};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::documents::StoredDocument;
use crate::endpoint_record::record_address;
use crate::identity::{IdentityLease, ServerId};
use crate::members::{DocumentContent, MemberPresence, ObservedDocument};
use crate::ports::{DocumentStorage, EntryVersion, Feed, FeedUpdate, LeaseStorage, MemberFeeds, RecordStorage};

/// The feeds of a server.
pub(crate) fn storage_feeds(
    leases: &dyn LeaseStorage,
    records: &dyn RecordStorage,
    documents: &dyn DocumentStorage,
) -> MemberFeeds {
    MemberFeeds {
        presence: Box::new(DecodedFeed { stored: leases.watch(), decode: decode_lease }),
        addresses: Box::new(DecodedFeed { stored: records.watch(), decode: decode_record }),
        documents: Box::new(DecodedFeed { stored: documents.watch(), decode: decode_document }),
        failures: leases.failures().unwrap_or_else(|| watch::channel(0).1),
    }
}

/// A feed of stored values, decoded. A value that decodes to `None` counts as absent.
struct DecodedFeed<S, T> {
    stored: Box<dyn Feed<S>>,
    decode: fn(&ServerId, &S) -> Option<T>,
}

impl<S, T> Feed<T> for DecodedFeed<S, T> {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        self.stored.ready()
    }

    fn take_update(&mut self) -> FeedUpdate<T> {
        let decode = self.decode;
        match self.stored.take_update() {
            FeedUpdate::All(all) => {
                let decoded =
                    all.into_iter().filter_map(|(server, value)| Some((server.clone(), decode(&server, &value)?)));
                FeedUpdate::All(decoded.collect())
            }
            FeedUpdate::Changes(changes) => {
                let decoded = changes.into_iter().map(|(server, value)| {
                    let value = value.and_then(|value| decode(&server, &value));
                    (server, value)
                });
                FeedUpdate::Changes(decoded.collect())
            }
        }
    }
}

pub(crate) fn decode_lease(_server: &ServerId, lease: &Arc<Lease>) -> Option<MemberPresence> {
    match IdentityLease::from_lease(lease) {
        Ok(lease) => Some(MemberPresence::Leased(lease)),
        Err(reason) => {
            tracing::debug!(lease = lease.metadata.name, %reason, "lease ignored: not an identity lease");
            None
        }
    }
}

fn decode_record(server: &ServerId, record: &Arc<Endpoints>) -> Option<Address> {
    record_address(server, record)
        .inspect_err(|reason| tracing::warn!(%server, %reason, "endpoint record ignored"))
        .ok()
}

/// A document that cannot be decoded makes its server unknown, so that it is fetched.
fn decode_document(server: &ServerId, (version, bytes): &(EntryVersion, Bytes)) -> Option<ObservedDocument> {
    let content = match StoredDocument::decode(bytes) {
        Ok(stored) => DocumentContent::Document(stored),
        Err(error) => {
            tracing::warn!(%server, %error, "stored document ignored");
            if error.is_newer_format() { DocumentContent::NewerFormat } else { DocumentContent::Unreadable }
        }
    };
    Some(ObservedDocument { version: *version, content })
}
