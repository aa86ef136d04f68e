//! The garbage collector: removes entries of servers without a lease and objects without entries, and updates the
//! agreement.
//!
//! One elected server runs it. Every write is conditional on the object that was read, and before it removes an entry
//! it reads the members from storage again: a server is a member before it publishes, so a live server with an entry in
//! the object has a lease that this later read finds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::StorageVersion;
use api::time::Time;
use election::Term;
use fastrand::Rng;
use futures_util::stream::{self, StreamExt as _};
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

/// How long a member may lack an entry before it is marked as not reporting: a joining server needs less than a second.
const REPORT_GRACE: Duration = Duration::from_secs(2);
/// How long an object may have no entries: kube-apiserver creates it first and adds the entry with a second request.
const EMPTY_GRACE: Duration = Duration::from_secs(10);

/// Objects that are edited concurrently: with each server that leaves, all of them.
const CONCURRENT_EDITS: usize = 8;

/// How long to wait for further changes, to handle them together.
const CHANGE_DEBOUNCE: Duration = Duration::from_millis(5);

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
    #[error("storage did not respond in time")]
    TimedOut,
    #[error(transparent)]
    MembersUnknown(#[from] MembersUnknown),
}

/// Edits that can wait: by object name, the reason and the start of the wait.
#[derive(Debug, Default)]
struct GracePeriods {
    since: BTreeMap<Arc<str>, (GraceReason, Instant)>,
}

/// Objects that need no edit, given these members; they are skipped until they change.
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
                    tracing::warn!(%error, "failed to collect storage versions, will retry");
                    tokio::time::sleep(backoff.next_jittered(&mut rng)).await;
                }
            }
        }
    }

    /// Edits every object that needs it; returns when to check again without a change.
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
        let (mut next_look, mut due): (Option<Instant>, Vec<&StorageVersion>) = (None, Vec::new());
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
                Edit::Put(_) | Edit::Delete => due.push(object),
            }
        }
        let edits: Vec<_> = due.into_iter().map(|object| self.apply_edit(object, term)).collect();
        let results: Vec<_> = stream::iter(edits).buffer_unordered(CONCURRENT_EDITS).collect().await;
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(next_look)
    }

    /// Edits an object by the current members of the cluster. After a conflict the next snapshot triggers another pass.
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
                    tracing::info!(name = object.metadata.name, "removed storage version without entries");
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
    /// The time until which an edit can wait; `None` if it is due.
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
    // Senders end only with the server, and the task is then stopped from outside.
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
