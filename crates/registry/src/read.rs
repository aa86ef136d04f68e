//! Reads, consistent by default: from the cache once it has caught up with the store.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object::{StoredObject, StoredObjectError};
use store::{Error, Key, KeyRange, Revision, StoreEntry};

use crate::Registry;
use crate::cache::{CachedEntry, CachedValue, ResourceCache, ResourceSnapshot, ValueFormat};

/// How long a read waits for the cache to catch up; kube-apiserver's limit.
pub const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);
/// Entries per range request when a list reads the store itself.
const PAGE_SIZE: usize = 1_000;

/// The required freshness of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadConsistency {
    /// Sees every write that any server acknowledged before the read began.
    Latest,
    /// Sees every write up to this revision, possibly more.
    NotOlderThan(Revision),
    /// Reads the current snapshot without asking the store, once the cache has synced.
    Any,
    /// Reads exactly the state of this revision.
    Exact(Revision),
}

/// The part of a resource cache to list.
pub struct ListSelection<'a> {
    /// Only keys that begin with this: the prefix of the resource cache, or of a namespace in it.
    pub prefix: Key,
    /// The first key, from a continue token; empty: the first of the prefix.
    pub start_key: Key,
    /// The maximum number of entries; `None`: all.
    pub limit: Option<usize>,
    /// Selects objects. Not called for undecodable entries, which fail the list.
    pub filter: &'a (dyn Fn(&StoredObject) -> bool + Sync),
}

/// The result of a list.
#[derive(Debug)]
pub struct ListPage {
    /// In ascending order of keys.
    pub entries: Vec<Arc<CachedEntry>>,
    /// The revision of the state that was read.
    pub revision: Revision,
    /// Where the next page starts; `None` if this is the last.
    pub continuation: Option<Continuation>,
}

/// The rest of a list that the limit cut off.
#[derive(Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The first key of the next page.
    pub start_key: Key,
    /// The number of keys that follow, whether they match the filter or not.
    pub remaining: u64,
}

/// A failed read. No variant means that the object is absent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store cannot be read.
    #[error("storage cannot be read: {0}")]
    Store(#[from] Error),
    /// The cache did not catch up within [`CATCH_UP_TIMEOUT`].
    #[error("the watch cache is at revision {applied} and did not reach {requested} in time")]
    CacheBehind {
        /// The revision that the read waited for.
        requested: Revision,
        /// The revision that the cache had reached.
        applied: Revision,
    },
    /// The requested revision is not written yet.
    #[error("Too large resource version: {requested}, current: {current}")]
    RevisionTooLarge {
        /// The revision that was requested.
        requested: Revision,
        /// The newest revision of the store.
        current: Revision,
    },
    /// A stored value is not a decodable object.
    #[error("the object at {key} cannot be read: {reason}")]
    Undecodable {
        /// The key of the value.
        key: Box<str>,
        /// Why decoding failed.
        reason: StoredObjectError,
    },
    /// The server is shutting down.
    #[error(transparent)]
    Stopped(#[from] crate::cache::CacheStopped),
}

impl Registry {
    /// Reads one object; `None` if it is absent.
    pub async fn get(
        &self,
        resource_cache: &ResourceCache,
        key: &Key,
        consistency: ReadConsistency,
    ) -> Result<Option<Arc<CachedEntry>>, ReadError> {
        let found = match self.catch_up(consistency).await? {
            ReadSource::Cache(_) => resource_cache.get(key),
            ReadSource::Store => {
                let (entry, _) = self.store.get(key.clone()).await?;
                entry.map(|entry| Arc::new(decode_entry(entry)))
            }
        };
        if let Some(cached) = &found {
            check_decodable(cached)?;
        }
        Ok(found)
    }

    /// Lists a part of a resource cache in one consistent state.
    pub async fn list(
        &self,
        resource_cache: &ResourceCache,
        selection: &ListSelection<'_>,
        consistency: ReadConsistency,
    ) -> Result<ListPage, ReadError> {
        let source = self.catch_up(consistency).await?;
        let snapshot = resource_cache.snapshot();
        match (consistency, source) {
            // The resource has not changed since that revision, so the current snapshot shows its state.
            (ReadConsistency::Exact(revision), ReadSource::Cache(_)) if snapshot.revision <= revision => {
                self.ensure_not_compacted(&selection.prefix, revision).await?;
                list_snapshot(&snapshot, selection, revision)
            }
            (ReadConsistency::Exact(revision), _) => self.list_store(selection, Some(revision)).await,
            (_, ReadSource::Store) => self.list_store(selection, None).await,
            (_, ReadSource::Cache(through)) => list_snapshot(&snapshot, selection, through.max(snapshot.revision)),
        }
    }

    /// Fails with [`Error::Compacted`] if the store no longer has the state of a revision. A client must not get pages of
    /// such a state from one server, which has it in its cache, and an error from the next.
    async fn ensure_not_compacted(&self, prefix: &Key, revision: Revision) -> Result<(), ReadError> {
        // No key has a zero byte after the prefix: the range is empty.
        let nothing = next_possible_key(prefix);
        self.store.range(KeyRange::prefix(nothing).limit(1).at_revision(revision)).await?;
        Ok(())
    }

    /// Reads a key from the store itself, with the revision as of which it was read.
    pub async fn read_raw(&self, key: &Key) -> Result<(Option<StoreEntry>, Revision), ReadError> {
        Ok(self.store.get(key.clone()).await?)
    }

    /// Waits until the cache has every write acknowledged before this call; `false` after [`CATCH_UP_TIMEOUT`].
    pub async fn catch_up_with_store(&self) -> Result<bool, ReadError> {
        let newest = self.store.revision().await?;
        Ok(self.cache.wait_for_revision(newest, CATCH_UP_TIMEOUT).await?)
    }

    /// Waits until the cache satisfies `consistency`. The returned revision is one that the cache has certainly
    /// reached.
    async fn catch_up(&self, consistency: ReadConsistency) -> Result<ReadSource, ReadError> {
        let requested = match consistency {
            ReadConsistency::Any => {
                self.cache.wait_for_sync().await?;
                return Ok(ReadSource::Cache(self.cache.applied_revision()));
            }
            ReadConsistency::NotOlderThan(revision) | ReadConsistency::Exact(revision) => revision,
            ReadConsistency::Latest => self.store.revision().await?,
        };
        if self.cache.has_synced() && self.cache.applied_revision() >= requested {
            return Ok(ReadSource::Cache(self.cache.applied_revision()));
        }
        if consistency == ReadConsistency::Latest && !self.store.supports_progress_requests() {
            return Ok(ReadSource::Store);
        }
        if self.cache.wait_for_revision(requested, CATCH_UP_TIMEOUT).await? {
            return Ok(ReadSource::Cache(self.cache.applied_revision()));
        }
        let current = self.store.revision().await?;
        if requested > current {
            return Err(ReadError::RevisionTooLarge { requested, current });
        }
        Err(ReadError::CacheBehind { requested, applied: self.cache.applied_revision() })
    }

    /// Like `catch_up`: the revision that the cache has reached, or `None` if the store itself must be read.
    pub(crate) async fn catch_up_cache(&self, freshness: ReadConsistency) -> Result<Option<Revision>, ReadError> {
        Ok(match self.catch_up(freshness).await? {
            ReadSource::Cache(through) => Some(through),
            ReadSource::Store => None,
        })
    }

    /// Lists from the store itself: for past revisions, and if the store cannot report progress.
    pub(crate) async fn list_store(
        &self,
        selection: &ListSelection<'_>,
        at: Option<Revision>,
    ) -> Result<ListPage, ReadError> {
        let mut range = KeyRange {
            prefix: selection.prefix.clone(),
            start: selection.start_key.clone(),
            limit: Some(PAGE_SIZE),
            at_revision: at,
        };
        let mut items = Vec::new();
        loop {
            let page = self.store.range(range.clone()).await?;
            // All pages show the state of the first.
            let revision = range.at_revision.unwrap_or(page.revision);
            let count = page.count;
            let page_len = page.entries.len();
            for (index, entry) in page.entries.into_iter().enumerate() {
                let after = next_possible_key(&entry.key);
                let cached = Arc::new(decode_entry(entry));
                if matches_filter(&cached, selection)? {
                    items.push(cached);
                }
                let remaining = count - index as u64 - 1;
                if Some(items.len()) == selection.limit && remaining > 0 {
                    return Ok(ListPage {
                        entries: items,
                        revision,
                        continuation: Some(Continuation { start_key: after, remaining }),
                    });
                }
                range.start = after;
            }
            if count <= page_len as u64 {
                return Ok(ListPage { entries: items, revision, continuation: None });
            }
            range.at_revision = Some(revision);
        }
    }
}

enum ReadSource {
    Cache(Revision),
    Store,
}

fn list_snapshot(
    snapshot: &ResourceSnapshot,
    selection: &ListSelection<'_>,
    revision: Revision,
) -> Result<ListPage, ReadError> {
    let start = if selection.start_key.is_empty() { selection.prefix.clone() } else { selection.start_key.clone() };
    let range = (Bound::Included(start), Bound::Unbounded);
    let mut below = snapshot.entries.range(range).take_while(|(key, _)| key.starts_with(&selection.prefix));
    let mut items = Vec::new();
    while let Some((key, cached)) = below.next() {
        if matches_filter(cached, selection)? {
            items.push(cached.clone());
        }
        if Some(items.len()) == selection.limit {
            let start = next_possible_key(key);
            let remaining = below.count() as u64;
            let rest = (remaining > 0).then_some(Continuation { start_key: start, remaining });
            return Ok(ListPage { entries: items, revision, continuation: rest });
        }
    }
    Ok(ListPage { entries: items, revision, continuation: None })
}

fn matches_filter(cached: &CachedEntry, selection: &ListSelection<'_>) -> Result<bool, ReadError> {
    check_decodable(cached)?;
    Ok(match &cached.value {
        CachedValue::Object(stored) => (selection.filter)(stored),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => true,
    })
}

pub(crate) fn check_decodable(cached: &CachedEntry) -> Result<(), ReadError> {
    match &cached.value {
        CachedValue::Undecodable(reason) => {
            Err(ReadError::Undecodable { key: cached.key.escape_ascii().to_string().into(), reason: reason.clone() })
        }
        CachedValue::Object(_) | CachedValue::Raw(_) => Ok(()),
    }
}

fn next_possible_key(key: &Key) -> Key {
    Bytes::from([key.as_ref(), b"\0"].concat())
}

/// Decodes an entry that was read from the store directly, always as an object.
pub(crate) fn decode_entry(entry: StoreEntry) -> CachedEntry {
    CachedEntry::new(entry, ValueFormat::Objects)
}
