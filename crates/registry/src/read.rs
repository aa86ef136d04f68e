//! Reads, consistent by default: from memory once it has caught up with the store.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object::{Stored, Undecodable};
use store::{Entry, Error, Key, Range, Revision};

use crate::Registry;
use crate::cache::{Cached, Form, Item, Shelf, Snapshot};

/// How long a read waits for the cache to catch up; kube-apiserver's own limit.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// How much is read from the store at once while a page of the past is gathered.
const PAGE_SIZE: usize = 1_000;

/// How recent a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Everything acknowledged before the read began, by whichever server.
    Latest,
    /// Everything up to this revision, possibly more.
    AtLeast(Revision),
    /// Whatever is at hand.
    Any,
    /// Exactly the state of this revision.
    Exactly(Revision),
}

/// Which part of a shelf to list.
pub struct Span<'a> {
    /// Only keys that begin so: the shelf's prefix, or a namespace of it.
    pub within: Key,
    /// Begin at this key; empty: at the first.
    pub start: Key,
    /// At most so many.
    pub limit: Option<usize>,
    /// Only what this wants. Undecodable items are not asked about: they fail the read.
    pub wants: &'a (dyn Fn(&Stored) -> bool + Sync),
}

/// What a list found.
#[derive(Debug)]
pub struct Listing {
    /// By ascending key.
    pub items: Vec<Arc<Cached>>,
    /// The state that was read.
    pub revision: Revision,
    /// Where the rest begins, if the limit left something out.
    pub rest: Option<Rest>,
}

/// What a limit left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Rest {
    /// The key to begin at.
    pub start: Key,
    /// How many keys follow, wanted or not.
    pub remaining: u64,
}

/// Why a read has no answer. None of these is an absence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store cannot be asked.
    #[error("storage cannot be read: {0}")]
    Store(#[from] Error),
    /// The cache has not caught up in time.
    #[error("the watch cache is at revision {through} and did not reach {wanted} in time")]
    Behind {
        /// What was waited for.
        wanted: Revision,
        /// How far it came.
        through: Revision,
    },
    /// A revision that does not exist yet.
    #[error("Too large resource version: {wanted}, current: {current}")]
    TooLarge {
        /// What was asked for.
        wanted: Revision,
        /// The newest there is.
        current: Revision,
    },
    /// Something there cannot be read as an object.
    #[error("the object at {key} cannot be read: {reason}")]
    Undecodable {
        /// Where it lies.
        key: Box<str>,
        /// What is wrong with it.
        reason: Undecodable,
    },
    /// The server stops.
    #[error(transparent)]
    Stopped(#[from] crate::cache::Stopped),
}

impl Registry {
    /// One object, and the revision of the state that was read.
    pub async fn get(&self, shelf: &Shelf, key: &Key, freshness: Freshness) -> Result<Option<Arc<Cached>>, ReadError> {
        let found = match self.catch_up(freshness).await? {
            Source::Cache(_) => shelf.get(key),
            Source::Store => {
                let (entry, _) = self.store.get(key.clone()).await?;
                entry.map(|entry| Arc::new(read_through(entry)))
            }
        };
        if let Some(cached) = &found {
            refuse_undecodable(cached)?;
        }
        Ok(found)
    }

    /// Part of a shelf in one consistent state.
    pub async fn list(&self, shelf: &Shelf, span: &Span<'_>, freshness: Freshness) -> Result<Listing, ReadError> {
        let source = self.catch_up(freshness).await?;
        let snapshot = shelf.snapshot();
        match (freshness, source) {
            // Nothing changed on this shelf since, so that the past is the present.
            (Freshness::Exactly(revision), Source::Cache(_)) if snapshot.revision <= revision => {
                list_snapshot(&snapshot, span, revision)
            }
            (Freshness::Exactly(revision), _) => self.list_store(span, Some(revision)).await,
            (_, Source::Store) => self.list_store(span, None).await,
            (_, Source::Cache(through)) => list_snapshot(&snapshot, span, through.max(snapshot.revision)),
        }
    }

    /// Waits until the cache has every change that was acknowledged before this call. `false`: it has not, in time.
    pub async fn catch_up_with_store(&self) -> Result<bool, ReadError> {
        let newest = self.store.revision().await?;
        Ok(self.cache.reached(newest, PATIENCE).await?)
    }

    /// Waits until the cache is as recent as wanted. The revision returned is one that it certainly has reached.
    async fn catch_up(&self, freshness: Freshness) -> Result<Source, ReadError> {
        let wanted = match freshness {
            Freshness::Any => {
                self.cache.filled().await?;
                return Ok(Source::Cache(self.cache.through()));
            }
            Freshness::AtLeast(revision) | Freshness::Exactly(revision) => revision,
            Freshness::Latest => self.store.revision().await?,
        };
        if self.cache.is_filled() && self.cache.through() >= wanted {
            return Ok(Source::Cache(self.cache.through()));
        }
        if freshness == Freshness::Latest && !self.store.answers_progress() {
            return Ok(Source::Store);
        }
        if self.cache.reached(wanted, PATIENCE).await? {
            return Ok(Source::Cache(self.cache.through()));
        }
        let current = self.store.revision().await?;
        if wanted > current {
            return Err(ReadError::TooLarge { wanted, current });
        }
        Err(ReadError::Behind { wanted, through: self.cache.through() })
    }

    /// Like `catch_up`: the revision that the cache has reached, or `None` if the store itself must be read.
    pub(crate) async fn cached_through(&self, freshness: Freshness) -> Result<Option<Revision>, ReadError> {
        Ok(match self.catch_up(freshness).await? {
            Source::Cache(through) => Some(through),
            Source::Store => None,
        })
    }

    pub(crate) async fn list_store(&self, span: &Span<'_>, at: Option<Revision>) -> Result<Listing, ReadError> {
        let mut range = Range { prefix: span.within.clone(), start: span.start.clone(), limit: Some(PAGE_SIZE), at };
        let mut items = Vec::new();
        loop {
            let page = self.store.range(range.clone()).await?;
            // Every further page shows the same state as the first.
            let revision = range.at.unwrap_or(page.revision);
            let count = page.count;
            let page_len = page.entries.len();
            for (index, entry) in page.entries.into_iter().enumerate() {
                let after = after_key(&entry.key);
                let cached = Arc::new(read_through(entry));
                if is_wanted(&cached, span)? {
                    items.push(cached);
                }
                let remaining = count - index as u64 - 1;
                if Some(items.len()) == span.limit && remaining > 0 {
                    return Ok(Listing { items, revision, rest: Some(Rest { start: after, remaining }) });
                }
                range.start = after;
            }
            if count <= page_len as u64 {
                return Ok(Listing { items, revision, rest: None });
            }
            range.at = Some(revision);
        }
    }
}

enum Source {
    Cache(Revision),
    Store,
}

fn list_snapshot(snapshot: &Snapshot, span: &Span<'_>, revision: Revision) -> Result<Listing, ReadError> {
    let start = if span.start.is_empty() { span.within.clone() } else { span.start.clone() };
    let range = (Bound::Included(start), Bound::Unbounded);
    let mut below = snapshot.items.range(range).take_while(|(key, _)| key.starts_with(&span.within));
    let mut items = Vec::new();
    while let Some((key, cached)) = below.next() {
        if is_wanted(cached, span)? {
            items.push(cached.clone());
        }
        if Some(items.len()) == span.limit {
            let start = after_key(key);
            let remaining = below.count() as u64;
            let rest = (remaining > 0).then_some(Rest { start, remaining });
            return Ok(Listing { items, revision, rest });
        }
    }
    Ok(Listing { items, revision, rest: None })
}

fn is_wanted(cached: &Cached, span: &Span<'_>) -> Result<bool, ReadError> {
    refuse_undecodable(cached)?;
    Ok(match &cached.item {
        Item::Object(stored) => (span.wants)(stored),
        Item::Raw(_) | Item::Undecodable(_) => true,
    })
}

pub(crate) fn refuse_undecodable(cached: &Cached) -> Result<(), ReadError> {
    match &cached.item {
        Item::Undecodable(reason) => {
            Err(ReadError::Undecodable { key: cached.key.escape_ascii().to_string().into(), reason: reason.clone() })
        }
        Item::Object(_) | Item::Raw(_) => Ok(()),
    }
}

/// The smallest key after this one.
fn after_key(key: &Key) -> Key {
    Bytes::from([key.as_ref(), b"\0"].concat())
}

/// An entry that came from the store and not by the watch.
pub(crate) fn read_through(entry: Entry) -> Cached {
    Cached::new(entry, Form::Objects)
}
