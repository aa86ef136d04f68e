//! One state of a shelf, read item by item: for responses that are made as the client takes them.

use std::ops::Bound;
use std::sync::Arc;

use store::{Key, Revision};

use crate::Registry;
use crate::cache::{Cached, Pin, Shelf, Snapshot};
use crate::read::{Freshness, ReadError, Span, refuse_undecodable};
use crate::watch::Expired;

/// A position in an immutable snapshot. It costs as much as the position: the snapshot is shared.
#[derive(Debug)]
pub struct SnapshotReader {
    pin: Pin,
    within: Key,
    /// The key of the last item that was returned.
    last: Option<Key>,
    revision: Revision,
}

impl Registry {
    /// A reader of the keys that begin with `within`, in one consistent state. [`Freshness::Exactly`] counts as at least.
    pub async fn read_snapshot(
        &self,
        shelf: &Arc<Shelf>,
        within: Key,
        freshness: Freshness,
    ) -> Result<SnapshotReader, ReadError> {
        let (snapshot, revision) = match self.cached_through(freshness).await? {
            Some(through) => {
                let snapshot = shelf.snapshot();
                let revision = through.max(snapshot.revision);
                (snapshot, revision)
            }
            None => self.stored_snapshot(shelf, &within).await?,
        };
        for (_, cached) in range(&snapshot, &within, None) {
            refuse_undecodable(cached)?;
        }
        Ok(SnapshotReader { pin: Pin::new(shelf.clone(), snapshot, revision), within, last: None, revision })
    }

    /// What the store holds, sharing with the cache every item that is the same there.
    async fn stored_snapshot(&self, shelf: &Shelf, within: &Key) -> Result<(Arc<Snapshot>, Revision), ReadError> {
        let span = Span { within: within.clone(), start: Key::new(), limit: None, wants: &|_| true };
        let listing = self.list_store(&span, None).await?;
        let cache = shelf.snapshot();
        let items = listing.items.into_iter().map(|item| {
            let same = cache.items.get(&item.key).filter(|cached| cached.revision == item.revision);
            (item.key.clone(), same.cloned().unwrap_or(item))
        });
        let snapshot = Snapshot { items: items.collect(), revision: listing.revision };
        Ok((Arc::new(snapshot), listing.revision))
    }
}

impl SnapshotReader {
    /// The state that is read.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The next item by ascending key; `None` at the end. [`Expired`] if the reader was so slow that the changes since its state
    /// are forgotten.
    pub fn next_item(&mut self) -> Result<Option<Arc<Cached>>, Expired> {
        let snapshot = self.pin.snapshot().ok_or(Expired { requested: self.revision })?;
        let next = range(&snapshot, &self.within, self.last.as_ref()).next();
        Ok(next.map(|(key, cached)| {
            self.last = Some(key.clone());
            cached.clone()
        }))
    }
}

fn range<'a>(
    snapshot: &'a Snapshot,
    within: &'a Key,
    after: Option<&Key>,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Cached>)> {
    let start = after.map_or_else(|| Bound::Included(within.clone()), |last| Bound::Excluded(last.clone()));
    snapshot.items.range((start, Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(within))
}
