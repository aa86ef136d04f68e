//! Get, range, and the probe for the current revision.

use bytes::Bytes;

use super::Client;
use super::failure::{Failure, Refusal};
use super::lane::Lane;
use super::proto::{KeyValue, RangeRequest, RangeResponse};
use crate::contract::{Entry, Error, Key, Page, Range, Revision, prefix_end};

/// Entries of the first page of a range: few enough that large values do not make a large page.
const PAGE_ENTRIES_MIN: i64 = 500;

/// Entries of a page at most, as many as kube-apiserver asks for.
const PAGE_ENTRIES_MAX: i64 = 10_000;

/// What a page should weigh: much less than we would read, much more than the cost of asking.
const PAGE_BYTES_AIM: usize = 4 << 20;

/// How often a range of the present begins anew because its revision was compacted under it.
const RESTARTS_MAX: u32 = 3;

/// etcd's way to say "no upper bound".
const UNBOUNDED: &[u8] = b"\0";

impl Client {
    pub(super) async fn get(&self, key: Key) -> Result<(Option<Entry>, Revision), Error> {
        if key.is_empty() {
            return Err(Error::Malformed { reason: "an empty key".to_owned() });
        }
        let request = RangeRequest { key, limit: 1, ..RangeRequest::default() };
        let mut response = self.ask(request).await.map_err(|failure| failure.into_read_error())?;
        Ok((response.kvs.pop().map(Entry::from), current(&response)))
    }

    pub(super) async fn range(&self, range: Range) -> Result<Page, Error> {
        let mut restarts = 0;
        loop {
            match self.range_once(&range).await {
                // Somebody compacts to the present. Everybody else leaves minutes of history.
                Err(Failure::Refused(Refusal::Compacted)) if range.at.is_none() && restarts < RESTARTS_MAX => {
                    restarts += 1;
                }
                Err(Failure::Refused(Refusal::Compacted)) if range.at.is_some() => {
                    return Err(self.compacted(range.at.unwrap_or_default()).await);
                }
                Err(Failure::Refused(Refusal::Future)) => return Err(self.future(range.at.unwrap_or_default()).await),
                Err(failure) => return Err(failure.into_read_error()),
                Ok(page) => return Ok(page),
            }
        }
    }

    /// Reads page after page at the revision of the first.
    async fn range_once(&self, range: &Range) -> Result<Page, Failure> {
        let mut request = range_request(range)?;
        let mut sizes = PageSizes::new();
        let mut left = range.limit.map_or(i64::MAX, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let mut page = Page { entries: Vec::new(), count: 0, revision: range.at.unwrap_or_default() };
        loop {
            request.limit = sizes.next(left);
            let response = match self.ask(request.clone()).await {
                Err(Failure::Refused(Refusal::AnswerTooLarge)) if sizes.shrink() => continue,
                result => result?,
            };
            sizes.saw(&response);
            if page.entries.is_empty() {
                page.count = u64::try_from(response.count).unwrap_or(0);
                page.revision = range.at.unwrap_or(current(&response));
            }
            left -= i64::try_from(response.kvs.len()).unwrap_or(i64::MAX);
            let last = response.kvs.last().map(|kv| kv.key.clone());
            page.entries.extend(response.kvs.into_iter().map(Entry::from));
            let is_complete = page.entries.len() as u64 >= page.count || left <= 0;
            let (Some(last), false) = (last, is_complete) else { return Ok(page) };
            request.revision = to_wire(page.revision);
            request.key = [&last, UNBOUNDED].concat().into();
        }
    }

    /// The current revision, asked of etcd now: in the lane if that is open, and otherwise as everything is asked.
    pub(super) async fn probe_in(&self, lane: &tokio::sync::Mutex<Lane>) -> Result<Revision, Error> {
        let target = || self.members.probed();
        match lane.lock().await.probe(target, self.members.dialer()).await {
            Some(revision) => Ok(revision),
            None => self.probe().await,
        }
    }

    /// The current revision, asked of etcd now.
    pub(super) async fn probe(&self) -> Result<Revision, Error> {
        let response = self.ask(probe_request()).await.map_err(|failure| failure.into_read_error())?;
        Ok(current(&response))
    }

    async fn ask(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        self.members.call(request, self.members.deadline()).await
    }

    /// The error for a revision that is compacted, with the oldest that is not.
    pub(super) async fn compacted(&self, requested: Revision) -> Error {
        let oldest = self.oldest().await.unwrap_or(requested.next());
        Error::Compacted { requested, oldest: oldest.max(requested.next()) }
    }

    pub(super) async fn future(&self, requested: Revision) -> Error {
        match self.probe().await {
            Ok(current) => Error::Future { requested, current },
            Err(error) => error,
        }
    }
}

/// How many entries the next page is asked for.
#[derive(Debug)]
struct PageSizes {
    entries: i64,
}

impl PageSizes {
    fn new() -> Self {
        Self { entries: PAGE_ENTRIES_MIN }
    }

    fn next(&self, left: i64) -> i64 {
        self.entries.min(left)
    }

    /// Aims at pages of equal weight.
    fn saw(&mut self, response: &RangeResponse) {
        let bytes: usize = response.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
        let entries = response.kvs.len();
        let each = bytes / entries.max(1) + 1;
        let aim = i64::try_from(PAGE_BYTES_AIM / each).unwrap_or(PAGE_ENTRIES_MAX);
        // Never many more at once than have just been seen to be small.
        self.entries = aim.clamp(1, PAGE_ENTRIES_MAX).min(self.entries.saturating_mul(4));
    }

    /// Halves a page that came out larger than we read; `false` if one entry alone is.
    fn shrink(&mut self) -> bool {
        let can = self.entries > 1;
        self.entries = (self.entries / 2).max(1);
        can
    }
}

fn range_request(range: &Range) -> Result<RangeRequest, Failure> {
    let first = range.first().clone();
    if range.at == Some(Revision(0)) {
        // etcd reads 0 as "now".
        return Err(Failure::Refused(Refusal::Compacted));
    }
    Ok(RangeRequest {
        key: if first.is_empty() { UNBOUNDED.into() } else { first },
        range_end: range_end(&range.prefix),
        limit: 0,
        revision: range.at.map_or(0, to_wire),
        count_only: range.limit == Some(0),
    })
}

/// The end of a prefix as etcd wants it.
pub(super) fn range_end(prefix: &[u8]) -> Bytes {
    prefix_end(prefix).unwrap_or(Bytes::from_static(UNBOUNDED))
}

/// The beginning of a prefix as etcd wants it: an empty key is none.
pub(super) fn range_begin(prefix: &Key) -> Bytes {
    if prefix.is_empty() { Bytes::from_static(UNBOUNDED) } else { prefix.clone() }
}

/// What a probe asks for. No key begins with a zero byte in our layout; it need not exist for the answer to tell the revision.
pub(super) fn probe_request() -> RangeRequest {
    RangeRequest { key: UNBOUNDED.into(), count_only: true, ..RangeRequest::default() }
}

pub(super) fn current(response: &RangeResponse) -> Revision {
    from_wire(response.header.unwrap_or_default().revision)
}

/// etcd counts revisions in signed numbers and never reaches the negative ones.
pub(super) fn from_wire(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

pub(super) fn to_wire(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

impl From<KeyValue> for Entry {
    fn from(kv: KeyValue) -> Self {
        Self { key: kv.key, value: kv.value, revision: from_wire(kv.mod_revision) }
    }
}
