//! Reading a whole prefix in pages at one revision, for tools that look at a store and never change it.

use std::sync::Arc;

use super::failure::{EtcdFailure, EtcdRejection};
use super::proto::RangeRequest;
use super::reads::{PageSizer, ZERO_KEY, range_request, response_revision, revision_to_wire};
use super::{EtcdClient, EtcdStore};
use crate::contract::{Error, Key, KeyRange, Revision, StoreEntry};

/// A read of all entries below a prefix, at the revision of its first page, in pages of a few megabytes.
#[derive(Debug)]
pub struct EtcdScan {
    client: Arc<EtcdClient>,
    request: RangeRequest,
    sizes: PageSizer,
    revision: Revision,
    total: u64,
    is_complete: bool,
}

impl EtcdStore {
    /// Prepares a scan of every key that begins with `prefix`. Nothing is read yet.
    pub fn scan(&self, prefix: impl Into<Key>) -> Result<EtcdScan, Error> {
        let request = range_request(&KeyRange::prefix(prefix)).map_err(|failure| failure.into_read_error())?;
        let (client, sizes) = (self.client.clone(), PageSizer::new());
        Ok(EtcdScan { client, request, sizes, revision: Revision(0), total: 0, is_complete: false })
    }
}

impl EtcdScan {
    /// The revision of the state that is read; 0 before the first page.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The number of entries below the prefix; 0 before the first page.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The next entries in the order of keys; `None` after the last. [`Error::Compacted`] if the revision was compacted
    /// meanwhile: scan again.
    pub async fn next_chunk(&mut self) -> Result<Option<Vec<StoreEntry>>, Error> {
        if self.is_complete {
            return Ok(None);
        }
        let response = loop {
            self.request.limit = self.sizes.next_limit(i64::MAX);
            match self.client.send_range(self.request.clone()).await {
                Err(EtcdFailure::Rejected(EtcdRejection::ResponseTooLarge)) if self.sizes.shrink() => {}
                Err(EtcdFailure::Rejected(EtcdRejection::Compacted)) => {
                    return Err(self.client.compacted_error(self.revision).await);
                }
                result => break result.map_err(|failure| failure.into_read_error())?,
            }
        };
        self.sizes.adapt_to(&response);
        let remaining = u64::try_from(response.count).unwrap_or(0);
        if self.revision == Revision(0) {
            self.revision = response_revision(&response);
            self.total = remaining;
            self.request.revision = revision_to_wire(self.revision);
        }
        let entries: Vec<StoreEntry> = response.kvs.into_iter().map(StoreEntry::from).collect();
        match entries.last() {
            Some(last) if remaining > entries.len() as u64 => self.request.key = [&last.key, ZERO_KEY].concat().into(),
            Some(_) | None => self.is_complete = true,
        }
        Ok(Some(entries))
    }
}
