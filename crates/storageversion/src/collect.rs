//! Garbage collection: entries of servers that hold no lease go, and objects without entries; the agreement follows.
//!
//! One server does it, elected by a Lease. Everything it writes is conditional on what it read, and before it takes anybody for
//! gone it asks storage again: a server is a member before it publishes, so whoever has an entry in an object that we read has,
//! if it is there at all, a lease that we find when we ask after reading.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::StorageVersion;
use api::time::Time;
use election::Term;
use fastrand::Rng;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::edit::{self, Edit};
use crate::members::Members;
use crate::metrics::Metrics;
use crate::pace;
use crate::ports::{Membership, NotKnown, Snapshot, StorageVersions, WriteError};

/// How long a member may take to report before it is said that it does not: a joining server needs less than a second.
const REPORT_GRACE: Duration = Duration::from_secs(2);
/// How long an object may be without entries: real servers create it first and fill it with a second request.
const EMPTY_GRACE: Duration = Duration::from_secs(10);

/// How long to let further changes come before they are looked at together.
const LULL: Duration = Duration::from_millis(5);

/// The collector. Clones do the same work.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) objects: Arc<dyn StorageVersions>,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) call_timeout: Duration,
    pub(crate) clock: fn() -> Timestamp,
    pub(crate) seed: u64,
    pub(crate) metrics: Metrics,
}

#[derive(Clone, Debug, thiserror::Error)]
enum CollectError {
    #[error("{reason}")]
    Unavailable { reason: String },
    #[error("storage did not answer in time")]
    TimedOut,
    #[error(transparent)]
    NotKnown(#[from] NotKnown),
}

/// What can wait, and since when: by the object's name, with what it waits for.
#[derive(Debug, Default)]
struct Patience {
    since: BTreeMap<Arc<str>, (Waiting, Instant)>,
}

/// Objects that were found to be as they should be, among these members.
#[derive(Debug, Default)]
struct Settled {
    members: Option<Arc<Members>>,
    objects: BTreeMap<Arc<str>, Arc<StorageVersion>>,
}

impl Settled {
    fn begin(&mut self, members: &Arc<Members>) {
        if self.members.as_ref().is_none_or(|before| !Arc::ptr_eq(before, members)) {
            *self = Self { members: Some(members.clone()), objects: BTreeMap::new() };
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    ForReports,
    ForEntries,
}

impl Collector {
    /// Collects for as long as this server leads.
    pub(crate) async fn lead(self, term: Term) {
        let (mut snapshots, mut members) = (self.objects.follow(), self.membership.follow());
        let (mut backoff, mut patience, mut settled) = (pace::AFTER_FAILURE, Patience::default(), Settled::default());
        let mut rng = Rng::with_seed(self.seed);
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let known = members.borrow_and_update().clone();
            let next_look = match &known {
                Some(known) if snapshot.through > 0 => {
                    settled.begin(known);
                    self.round(&snapshot, known, &term, &mut patience, &mut settled).await
                }
                Some(_) | None => Ok(None),
            };
            match next_look {
                Ok(next_look) => {
                    backoff.reset();
                    something_new(&mut snapshots, &mut members, next_look).await;
                    tokio::time::sleep(LULL).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "storage versions cannot be collected; trying again");
                    tokio::time::sleep(backoff.next_jittered(&mut rng)).await;
                }
            }
        }
    }

    /// Looks at every object; gives when to look again although nothing changed.
    async fn round(
        &self,
        snapshot: &Snapshot,
        known: &Members,
        term: &Term,
        patience: &mut Patience,
        settled: &mut Settled,
    ) -> Result<Option<Instant>, CollectError> {
        patience.since.retain(|name, _| snapshot.objects.contains_key(name));
        settled.objects.retain(|name, _| snapshot.objects.contains_key(name));
        let mut next_look: Option<Instant> = None;
        for (name, object) in &snapshot.objects {
            if settled.objects.get(name).is_some_and(|settled| Arc::ptr_eq(settled, object)) {
                continue;
            }
            let edit = edit::collect(object, known, self.now());
            if let Some(due) = patience.until(name, object, &edit) {
                next_look = Some(next_look.map_or(due, |look| look.min(due)));
                continue;
            }
            match edit {
                Edit::Keep => drop(settled.objects.insert(name.clone(), object.clone())),
                Edit::Put(_) | Edit::Delete => self.write(object, term).await?,
            }
        }
        Ok(next_look)
    }

    /// Writes what becomes of an object, judged by who takes part now. If it was changed meanwhile, there will be another
    /// snapshot.
    async fn write(&self, object: &StorageVersion, term: &Term) -> Result<(), CollectError> {
        let asked = tokio::time::timeout(self.call_timeout, self.membership.now()).await;
        let members = asked.map_err(|_| CollectError::TimedOut)??;
        if !term.is_current() {
            return Ok(());
        }
        let (written, entries_left) = match edit::collect(object, &members, self.now()) {
            Edit::Keep => return Ok(()),
            Edit::Put(next) => {
                let left = next.status.storage_versions.len();
                (self.within(self.objects.put(*next)).await?, left)
            }
            Edit::Delete => {
                let deleted = self.within(self.objects.delete(object)).await?;
                if deleted == Outcome::Written {
                    tracing::info!(name = object.metadata.name, "removed a storage version that no server reports");
                    self.metrics.collected.with_label_values(&["objects"]).inc();
                }
                (deleted, 0)
            }
        };
        let entries = object.status.storage_versions.len().saturating_sub(entries_left);
        if written == Outcome::Written {
            self.metrics.collected.with_label_values(&["entries"]).inc_by(entries as u64);
        }
        Ok(())
    }

    async fn within<T>(&self, call: impl Future<Output = Result<T, WriteError>>) -> Result<Outcome, CollectError> {
        let count = |result| self.metrics.writes.with_label_values(&[result]).inc();
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(Ok(_)) => {
                count("written");
                Ok(Outcome::Written)
            }
            Ok(Err(WriteError::Changed(_))) => {
                count("conflict");
                Ok(Outcome::Changed)
            }
            Ok(Err(WriteError::Unavailable { reason })) => {
                count("failed");
                Err(CollectError::Unavailable { reason })
            }
            Err(_) => {
                count("failed");
                Err(CollectError::TimedOut)
            }
        }
    }

    fn now(&self) -> Time {
        (self.clock)().into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    Changed,
}

impl Patience {
    /// Until when an edit is to wait; `None` if it is not, or not any longer.
    fn until(&mut self, name: &Arc<str>, object: &StorageVersion, edit: &Edit) -> Option<Instant> {
        let waiting = match edit {
            Edit::Put(next) if edit::only_misses_reports(object, next) => Some((Waiting::ForReports, REPORT_GRACE)),
            Edit::Delete if object.status.storage_versions.is_empty() => Some((Waiting::ForEntries, EMPTY_GRACE)),
            Edit::Put(_) | Edit::Delete | Edit::Keep => None,
        };
        let Some((waiting, grace)) = waiting else {
            self.since.remove(name);
            return None;
        };
        let now = Instant::now();
        let since = self.since.entry(name.clone()).or_insert((waiting, now));
        if since.0 != waiting {
            *since = (waiting, now);
        }
        Some(since.1 + grace).filter(|due| *due > now)
    }
}

async fn something_new(
    snapshots: &mut watch::Receiver<Arc<Snapshot>>,
    members: &mut watch::Receiver<Option<Arc<Members>>>,
    next_look: Option<Instant>,
) {
    let look = async {
        match next_look {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    };
    // Senders that are gone end with the server: then there is nothing new, and the task is stopped from outside.
    let changed = async {
        tokio::select! {
            Ok(()) = snapshots.changed() => {}
            Ok(()) = members.changed() => {}
            else => std::future::pending().await,
        }
    };
    tokio::select! {
        () = look => {}
        () = changed => {}
    }
}

#[cfg(test)]
mod tests;
