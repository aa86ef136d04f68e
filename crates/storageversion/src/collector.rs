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

use crate::backoff;
use crate::edit::{self, Edit};
use crate::members::MemberSet;
use crate::metrics::Metrics;
use crate::ports::{
    MemberSource, MembersUnknown, StorageVersionClient, StorageVersionSnapshot, StorageVersionWriteError,
};

/// How long a member may take to report before it is said that it does not: a joining server needs less than a second.
const REPORT_GRACE: Duration = Duration::from_secs(2);
/// How long an object may be without entries: real servers create it first and fill it with a second request.
const EMPTY_GRACE: Duration = Duration::from_secs(10);

/// How long to let further changes come before they are looked at together.
const CHANGE_DEBOUNCE: Duration = Duration::from_millis(5);

/// The collector. Clones do the same work.
#[derive(Clone)]
pub(crate) struct StorageVersionCollector {
    pub(crate) client: Arc<dyn StorageVersionClient>,
    pub(crate) member_source: Arc<dyn MemberSource>,
    pub(crate) request_timeout: Duration,
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
    MembersUnknown(#[from] MembersUnknown),
}

/// What can wait, and since when: by the object's name, with what it waits for.
#[derive(Debug, Default)]
struct GracePeriods {
    since: BTreeMap<Arc<str>, (GraceReason, Instant)>,
}

/// Objects that were found to be as they should be, among these members.
#[derive(Debug, Default)]
struct UpToDateObjects {
    members: Option<Arc<MemberSet>>,
    objects: BTreeMap<Arc<str>, Arc<StorageVersion>>,
}

impl UpToDateObjects {
    fn reset_if_members_changed(&mut self, members: &Arc<MemberSet>) {
        if self.members.as_ref().is_none_or(|before| !Arc::ptr_eq(before, members)) {
            *self = Self { members: Some(members.clone()), objects: BTreeMap::new() };
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GraceReason {
    MissingReports,
    NoEntries,
}

impl StorageVersionCollector {
    /// Collects for as long as this server leads.
    pub(crate) async fn run_as_leader(self, term: Term) {
        let (mut snapshots, mut members) = (self.client.subscribe(), self.member_source.subscribe());
        let (mut backoff, mut patience, mut settled) =
            (backoff::AFTER_FAILURE, GracePeriods::default(), UpToDateObjects::default());
        let mut rng = Rng::with_seed(self.seed);
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let known = members.borrow_and_update().clone();
            let next_check = match &known {
                Some(known) if snapshot.revision > 0 => {
                    settled.reset_if_members_changed(known);
                    self.collect_all(&snapshot, known, &term, &mut patience, &mut settled).await
                }
                Some(_) | None => Ok(None),
            };
            match next_check {
                Ok(next_check) => {
                    backoff.reset();
                    wait_for_change(&mut snapshots, &mut members, next_check).await;
                    tokio::time::sleep(CHANGE_DEBOUNCE).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "storage versions cannot be collected; trying again");
                    tokio::time::sleep(backoff.next_jittered(&mut rng)).await;
                }
            }
        }
    }

    /// Looks at every object; gives when to look again although nothing changed.
    async fn collect_all(
        &self,
        snapshot: &StorageVersionSnapshot,
        members: &MemberSet,
        term: &Term,
        grace_periods: &mut GracePeriods,
        up_to_date: &mut UpToDateObjects,
    ) -> Result<Option<Instant>, CollectError> {
        grace_periods.since.retain(|name, _| snapshot.objects.contains_key(name));
        up_to_date.objects.retain(|name, _| snapshot.objects.contains_key(name));
        let mut next_look: Option<Instant> = None;
        for (name, object) in &snapshot.objects {
            if up_to_date.objects.get(name).is_some_and(|settled| Arc::ptr_eq(settled, object)) {
                continue;
            }
            let edit = edit::remove_stale_entries(object, members, self.now());
            if let Some(due) = grace_periods.defer_until(name, object, &edit) {
                next_look = Some(next_look.map_or(due, |look| look.min(due)));
                continue;
            }
            match edit {
                Edit::Keep => drop(up_to_date.objects.insert(name.clone(), object.clone())),
                Edit::Put(_) | Edit::Delete => self.apply_edit(object, term).await?,
            }
        }
        Ok(next_look)
    }

    /// Writes what becomes of an object, judged by who takes part now. If it was changed meanwhile, there will be another
    /// snapshot.
    async fn apply_edit(&self, object: &StorageVersion, term: &Term) -> Result<(), CollectError> {
        let asked = tokio::time::timeout(self.request_timeout, self.member_source.fetch_current()).await;
        let members = asked.map_err(|_| CollectError::TimedOut)??;
        if !term.is_current() {
            return Ok(());
        }
        let (written, entries_left) = match edit::remove_stale_entries(object, &members, self.now()) {
            Edit::Keep => return Ok(()),
            Edit::Put(next) => {
                let left = next.status.storage_versions.len();
                (self.write_with_timeout(self.client.put(*next)).await?, left)
            }
            Edit::Delete => {
                let deleted = self.write_with_timeout(self.client.delete(object)).await?;
                if deleted == CollectWriteOutcome::Written {
                    tracing::info!(name = object.metadata.name, "removed a storage version that no server reports");
                    self.metrics.collected.with_label_values(&["objects"]).inc();
                }
                (deleted, 0)
            }
        };
        let entries = object.status.storage_versions.len().saturating_sub(entries_left);
        if written == CollectWriteOutcome::Written {
            self.metrics.collected.with_label_values(&["entries"]).inc_by(entries as u64);
        }
        Ok(())
    }

    async fn write_with_timeout<T>(
        &self,
        request: impl Future<Output = Result<T, StorageVersionWriteError>>,
    ) -> Result<CollectWriteOutcome, CollectError> {
        let count = |result| self.metrics.writes.with_label_values(&[result]).inc();
        match tokio::time::timeout(self.request_timeout, request).await {
            Ok(Ok(_)) => {
                count("written");
                Ok(CollectWriteOutcome::Written)
            }
            Ok(Err(StorageVersionWriteError::Conflict(_))) => {
                count("conflict");
                Ok(CollectWriteOutcome::Conflict)
            }
            Ok(Err(StorageVersionWriteError::Unavailable { reason })) => {
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
enum CollectWriteOutcome {
    Written,
    Conflict,
}

impl GracePeriods {
    /// Until when an edit is to wait; `None` if it is not, or not any longer.
    fn defer_until(&mut self, name: &Arc<str>, object: &StorageVersion, edit: &Edit) -> Option<Instant> {
        let waiting = match edit {
            Edit::Put(next) if edit::only_marks_reports_missing(object, next) => {
                Some((GraceReason::MissingReports, REPORT_GRACE))
            }
            Edit::Delete if object.status.storage_versions.is_empty() => Some((GraceReason::NoEntries, EMPTY_GRACE)),
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

async fn wait_for_change(
    snapshots: &mut watch::Receiver<Arc<StorageVersionSnapshot>>,
    members: &mut watch::Receiver<Option<Arc<MemberSet>>>,
    next_check: Option<Instant>,
) {
    let look = async {
        match next_check {
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
