//! Get, range, and the probe for the current revision.

use bytes::Bytes;

use super::EtcdClient;
use super::failure::{EtcdFailure, EtcdRejection};
use super::probe_connection::ProbeConnection;
use super::proto::{KeyValue, RangeRequest, RangeResponse};
use crate::contract::{Error, Key, KeyRange, RangePage, Revision, StoreEntry, prefix_end};

/// Entries in the first page of a range: few, so that large values do not make a large page.
const PAGE_ENTRIES_MIN: i64 = 500;

/// The largest number of entries per page, as in kube-apiserver.
const PAGE_ENTRIES_MAX: i64 = 10_000;

/// The intended size of a page: far below [`PAGE_BYTES_MAX`](super::proto::PAGE_BYTES_MAX), large enough to outweigh
/// the cost of a request.
const PAGE_BYTES_TARGET: usize = 4 << 20;

/// How often a read of the current state restarts because its revision was compacted meanwhile.
const RESTARTS_MAX: u32 = 3;

/// etcd's encoding of "no upper bound", and its smallest key.
pub(super) const ZERO_KEY: &[u8] = b"\0";

impl EtcdClient {
    pub(super) async fn get(&self, key: Key) -> Result<(Option<StoreEntry>, Revision), Error> {
        if key.is_empty() {
            return Err(Error::Malformed { reason: "an empty key".to_owned() });
        }
        let request = RangeRequest { key, limit: 1, ..RangeRequest::default() };
        let mut response = self.send_range(request).await.map_err(|failure| failure.into_read_error())?;
        Ok((response.kvs.pop().map(StoreEntry::from), response_revision(&response)))
    }

    pub(super) async fn range(&self, range: KeyRange) -> Result<RangePage, Error> {
        let mut restarts = 0;
        loop {
            match self.range_once(&range).await {
                // A client compacts to the current revision; the regular compaction keeps minutes of history.
                Err(EtcdFailure::Rejected(EtcdRejection::Compacted))
                    if range.at_revision.is_none() && restarts < RESTARTS_MAX =>
                {
                    restarts += 1;
                }
                Err(EtcdFailure::Rejected(EtcdRejection::Compacted)) if range.at_revision.is_some() => {
                    return Err(self.compacted_error(range.at_revision.unwrap_or_default()).await);
                }
                Err(EtcdFailure::Rejected(EtcdRejection::FutureRevision)) => {
                    return Err(self.future_revision_error(range.at_revision.unwrap_or_default()).await);
                }
                Err(failure) => return Err(failure.into_read_error()),
                Ok(page) => return Ok(page),
            }
        }
    }

    /// Reads page after page at the revision of the first page.
    async fn range_once(&self, range: &KeyRange) -> Result<RangePage, EtcdFailure> {
        let mut request = range_request(range)?;
        let mut sizes = PageSizer::new();
        let mut left = range.limit.map_or(i64::MAX, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let mut page = RangePage { entries: Vec::new(), count: 0, revision: range.at_revision.unwrap_or_default() };
        loop {
            request.limit = sizes.next_limit(left);
            let response = match self.send_range(request.clone()).await {
                Err(EtcdFailure::Rejected(EtcdRejection::ResponseTooLarge)) if sizes.shrink() => continue,
                result => result?,
            };
            sizes.adapt_to(&response);
            if page.entries.is_empty() {
                page.count = u64::try_from(response.count).unwrap_or(0);
                page.revision = range.at_revision.unwrap_or(response_revision(&response));
            }
            left -= i64::try_from(response.kvs.len()).unwrap_or(i64::MAX);
            let last = response.kvs.last().map(|kv| kv.key.clone());
            page.entries.extend(response.kvs.into_iter().map(StoreEntry::from));
            let is_complete = page.entries.len() as u64 >= page.count || left <= 0;
            let (Some(last), false) = (last, is_complete) else { return Ok(page) };
            request.revision = revision_to_wire(page.revision);
            request.key = [&last, ZERO_KEY].concat().into();
        }
    }

    /// Asks etcd for the current revision, on the probe connection if it is open, otherwise on the general path.
    pub(super) async fn probe_on(
        &self,
        probe_connection: &tokio::sync::Mutex<ProbeConnection>,
    ) -> Result<Revision, Error> {
        let target = || self.members.probe_target();
        match probe_connection.lock().await.probe(target, self.members.dialer()).await {
            Some(revision) => Ok(revision),
            None => self.probe().await,
        }
    }

    /// Asks etcd for the current revision on the general path.
    pub(super) async fn probe(&self) -> Result<Revision, Error> {
        let response = self.send_range(probe_request()).await.map_err(|failure| failure.into_read_error())?;
        Ok(response_revision(&response))
    }

    pub(super) async fn send_range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdFailure> {
        self.members.send(request, self.members.deadline()).await
    }

    /// The error for a compacted revision, with the oldest readable one.
    pub(super) async fn compacted_error(&self, requested: Revision) -> Error {
        let oldest = self.oldest_revision().await.unwrap_or(requested.next());
        Error::Compacted { requested, oldest: oldest.max(requested.next()) }
    }

    pub(super) async fn future_revision_error(&self, requested: Revision) -> Error {
        match self.probe().await {
            Ok(current) => Error::FutureRevision { requested, current },
            Err(error) => error,
        }
    }
}

/// Adapts the number of entries per page to their size.
#[derive(Debug)]
pub(super) struct PageSizer {
    entries: i64,
}

impl PageSizer {
    pub(super) fn new() -> Self {
        Self { entries: PAGE_ENTRIES_MIN }
    }

    pub(super) fn next_limit(&self, left: i64) -> i64 {
        self.entries.min(left)
    }

    /// Sets the size of the next page, aiming at [`PAGE_BYTES_TARGET`] bytes.
    pub(super) fn adapt_to(&mut self, response: &RangeResponse) {
        let bytes: usize = response.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
        let entries = response.kvs.len();
        let each = bytes / entries.max(1) + 1;
        let aim = i64::try_from(PAGE_BYTES_TARGET / each).unwrap_or(PAGE_ENTRIES_MAX);
        // Grow slowly: the next entries may be larger than those just seen.
        self.entries = aim.clamp(1, PAGE_ENTRIES_MAX).min(self.entries.saturating_mul(4));
    }

    /// Halves the page after a response larger than the limit; `false` if the page already has a single entry.
    pub(super) fn shrink(&mut self) -> bool {
        let can = self.entries > 1;
        self.entries = (self.entries / 2).max(1);
        can
    }
}

fn range_request(range: &KeyRange) -> Result<RangeRequest, EtcdFailure> {
    let first = range.first_key().clone();
    if range.at_revision == Some(Revision(0)) {
        // etcd takes 0 for the current revision.
        return Err(EtcdFailure::Rejected(EtcdRejection::Compacted));
    }
    Ok(RangeRequest {
        key: if first.is_empty() { ZERO_KEY.into() } else { first },
        range_end: range_end(&range.prefix),
        limit: 0,
        revision: range.at_revision.map_or(0, revision_to_wire),
        count_only: range.limit == Some(0),
    })
}

/// The end of a prefix in etcd's encoding.
pub(super) fn range_end(prefix: &[u8]) -> Bytes {
    prefix_end(prefix).unwrap_or(Bytes::from_static(ZERO_KEY))
}

/// The start of a prefix in etcd's encoding, which has no empty key.
pub(super) fn range_begin(prefix: &Key) -> Bytes {
    if prefix.is_empty() { Bytes::from_static(ZERO_KEY) } else { prefix.clone() }
}

/// The request of a probe: it counts a key that does not exist, since only the revision in the response header matters.
pub(super) fn probe_request() -> RangeRequest {
    RangeRequest { key: ZERO_KEY.into(), count_only: true, ..RangeRequest::default() }
}

pub(super) fn response_revision(response: &RangeResponse) -> Revision {
    revision_from_wire(response.header.unwrap_or_default().revision)
}

/// Converts etcd's signed revision, which is never negative.
pub(super) fn revision_from_wire(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

pub(super) fn revision_to_wire(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

impl From<KeyValue> for StoreEntry {
    fn from(kv: KeyValue) -> Self {
        Self { key: kv.key, value: kv.value, revision: revision_from_wire(kv.mod_revision) }
    }
}
