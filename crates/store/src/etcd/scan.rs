//! Reading a whole prefix in pages at one revision, for tools that look at a store and never change it.
//!
//! etcd counts every key of a range for each page, also those beyond the limit. Open-ended pages over a million keys would
//! cost it a hundred million visits, so [`ScanCursor`] bounds each page to a part of the key space.

mod cursor;

use std::sync::Arc;

use self::cursor::ScanCursor;
use super::failure::{EtcdFailure, EtcdRejection};
use super::proto::RangeRequest;
use super::reads::{PageSizer, response_revision, revision_to_wire};
use super::{EtcdClient, EtcdStore};
use crate::contract::{Error, Key, Revision, StoreEntry};

/// A read of all entries below a prefix, at the revision of its first page, in pages of a few megabytes.
#[derive(Debug)]
pub struct EtcdScan {
    client: Arc<EtcdClient>,
    cursor: ScanCursor,
    sizes: PageSizer,
    revision: Revision,
    total: u64,
}

impl EtcdStore {
    /// Prepares a scan of every key that begins with `prefix`. Nothing is read yet.
    pub fn scan(&self, prefix: impl Into<Key>) -> EtcdScan {
        let (client, sizes) = (self.client.clone(), PageSizer::new());
        EtcdScan { client, cursor: ScanCursor::new(&prefix.into()), sizes, revision: Revision(0), total: 0 }
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

    /// The next entries in the order of keys, possibly none; `None` after the last. [`Error::Compacted`] if the revision
    /// was compacted meanwhile: scan again.
    pub async fn next_chunk(&mut self) -> Result<Option<Vec<StoreEntry>>, Error> {
        let Some((key, range_end)) = self.cursor.next_range() else { return Ok(None) };
        let mut request = RangeRequest { key, range_end, ..RangeRequest::default() };
        request.revision = revision_to_wire(self.revision);
        let response = loop {
            request.limit = self.sizes.next_limit(i64::MAX);
            match self.client.send_range(request.clone()).await {
                Err(EtcdFailure::Rejected(EtcdRejection::ResponseTooLarge)) if self.sizes.shrink() => {}
                Err(EtcdFailure::Rejected(EtcdRejection::Compacted)) => {
                    return Err(self.client.compacted_error(self.revision).await);
                }
                result => break result.map_err(|failure| failure.into_read_error())?,
            }
        };
        self.sizes.adapt_to(&response);
        let count = u64::try_from(response.count).unwrap_or(0);
        if self.revision == Revision(0) {
            self.revision = response_revision(&response);
            self.total = count;
        }
        let entries: Vec<StoreEntry> = response.kvs.into_iter().map(StoreEntry::from).collect();
        let keys = entries.first().zip(entries.last()).map(|(first, last)| (&first.key, &last.key));
        self.cursor.advance(keys, entries.len() as u64, count);
        Ok(Some(entries))
    }
}
