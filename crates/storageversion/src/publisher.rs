//! The publisher: puts this server's entry into the StorageVersion of every registered resource, and again whenever it
//! is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::StorageVersion;
use api::time::Time;
use fastrand::Rng;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff;
use crate::barrier::{PublicationBarrier, RegisteredResource};
use crate::edit::{self, Edit};
use crate::members::MemberSet;
use crate::metrics::Metrics;
use crate::ports::{
    MemberSource, MembersUnknown, StorageVersionClient, StorageVersionSnapshot, StorageVersionWriteError, revision_of,
};

/// Concurrent writes: enough to share commits, few enough that servers that start together conflict less often.
const CONCURRENT_WRITES: usize = 4;
/// Attempts per object and round. Each failed attempt means that another server succeeded, so a hundred servers need
/// about a hundred.
const ATTEMPTS_PER_ROUND: u32 = 200;

/// How long to wait for further object changes before checking for obsolete entries.
const CHANGE_DEBOUNCE: Duration = Duration::from_millis(50);

pub(crate) struct StorageVersionPublisher {
    pub(crate) barrier: PublicationBarrier,
    pub(crate) client: Arc<dyn StorageVersionClient>,
    pub(crate) member_source: Arc<dyn MemberSource>,
    pub(crate) lease_renewals: watch::Receiver<Option<Instant>>,
    /// True once all resources were published.
    pub(crate) first_publication: watch::Sender<bool>,
    pub(crate) request_timeout: Duration,
    pub(crate) clock: fn() -> Timestamp,
    pub(crate) seed: u64,
    pub(crate) metrics: Metrics,
}

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error("too many conflicting writes of the storage version")]
    Contended,
    #[error("{reason}")]
    Unavailable { reason: String },
    #[error("storage did not respond in time")]
    TimedOut,
    #[error(transparent)]
    MembersUnknown(#[from] MembersUnknown),
}

/// Objects from which this server withdrew its entry, with the revision that it saw, since snapshots may lag behind.
type WithdrawnRevisions = BTreeMap<Arc<str>, u64>;

impl StorageVersionPublisher {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.publish_forever() => {}
        }
    }

    async fn publish_forever(&mut self) {
        let mut snapshots = self.client.subscribe();
        // The entry of a server that is not a member would be collected. Senders end only with the server.
        if self.lease_renewals.wait_for(Option::is_some).await.is_err()
            || snapshots.wait_for(|snapshot| snapshot.revision > 0).await.is_err()
        {
            return std::future::pending().await;
        }
        let mut changes = self.barrier.subscribe_changes();
        let (mut backoff, mut withdrawn) = (backoff::AFTER_FAILURE, WithdrawnRevisions::new());
        let mut rng = Rng::with_seed(self.seed);
        loop {
            changes.mark_unchanged();
            let snapshot = snapshots.borrow_and_update().clone();
            match self.publish_pending(&snapshot, &mut withdrawn, &mut rng).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(%error, closed = ?self.barrier.closed_resources(), "failed to publish storage versions, will retry");
                    tokio::time::sleep(backoff.next_jittered(&mut rng)).await;
                    continue;
                }
            }
            if self.barrier.unpublished().is_empty() {
                self.first_publication.send_if_modified(|first| !std::mem::replace(first, true));
            }
            let others = async {
                // The sender ends only with the server.
                if snapshots.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(CHANGE_DEBOUNCE).await;
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = others => {}
            }
        }
    }

    /// Publishes all unpublished resources and withdraws obsolete entries.
    async fn publish_pending(
        &self,
        snapshot: &StorageVersionSnapshot,
        withdrawn: &mut WithdrawnRevisions,
        rng: &mut Rng,
    ) -> Result<(), PublishError> {
        let mut pending = self.barrier.unpublished();
        let obsolete = self.obsolete_objects(snapshot, withdrawn);
        if pending.is_empty() && obsolete.is_empty() {
            return Ok(());
        }
        let members = self.fetch_members().await.inspect_err(|error| {
            pending.iter().for_each(|slot| self.barrier.record_error(slot, &error.to_string()));
        })?;
        // Shuffled, so that servers that start together do not write the same objects at the same time.
        rng.shuffle(&mut pending);
        let publishing = pending.into_iter().map(|slot| (slot, rng.fork()));
        let results = stream::iter(publishing).map(async |(slot, mut rng)| {
            let published = self.publish(&slot, members.clone(), &mut rng).await;
            published.inspect_err(|error| self.barrier.record_error(&slot, &error.to_string()))
        });
        let results: Vec<_> = results.buffer_unordered(CONCURRENT_WRITES).collect().await;
        for object in obsolete {
            let (name, revision) = self.withdraw(&object, &members).await?;
            withdrawn.insert(name, revision);
        }
        results.into_iter().collect()
    }

    /// Puts this server's entry into an object, retrying on newer state after a conflict.
    async fn publish(
        &self,
        resource: &RegisteredResource,
        mut members: Arc<MemberSet>,
        rng: &mut Rng,
    ) -> Result<(), PublishError> {
        let snapshots = self.client.subscribe();
        let newest = || snapshots.borrow().objects.get(&resource.name).map(|object| StorageVersion::clone(object));
        let mut current = newest();
        for conflicts in 0..ATTEMPTS_PER_ROUND {
            if let Some(found) = current.as_ref().filter(|found| edit::has_exact_entry(found, &resource.entry)) {
                self.barrier.observe(resource, Some(found), revision_of(found));
                return Ok(());
            }
            // The server of an unknown entry may have joined after the members were read.
            if current.as_ref().is_some_and(|current| edit::has_entries_of_non_members(current, &members)) {
                members = self.fetch_members().await?;
            }
            let next = edit::add_entry(current.as_ref(), &resource.name, &resource.entry, &members, self.now());
            let began = Instant::now();
            match self.write_with_timeout(self.client.put(next)).await? {
                PublishAttempt::Done(put) => {
                    self.barrier.observe(resource, Some(&put), revision_of(&put));
                    return Ok(());
                }
                PublishAttempt::Conflict(found) => current = found.map(|found| *found),
            }
            tokio::time::sleep(backoff::after_conflict(conflicts, began.elapsed(), rng)).await;
            // The snapshot may be newer than the object of the conflict by now.
            let known = current.as_ref().map_or(0, revision_of);
            current = newest().filter(|newest| revision_of(newest) > known).or(current);
        }
        Err(PublishError::Contended)
    }

    /// Objects with an entry of this server for a resource that it does not register (any more).
    fn obsolete_objects(
        &self,
        snapshot: &StorageVersionSnapshot,
        withdrawn: &WithdrawnRevisions,
    ) -> Vec<Arc<StorageVersion>> {
        let server = self.barrier.server();
        let objects = snapshot.objects.iter().filter(|(name, object)| {
            !self.barrier.is_registered(name)
                && edit::has_entry_of(object, server)
                && withdrawn.get(*name).is_none_or(|revision| *revision < revision_of(object))
        });
        objects.map(|(_, object)| object.clone()).collect()
    }

    /// Removes this server's entry from an object. After a conflict the next snapshot triggers another attempt.
    async fn withdraw(&self, object: &StorageVersion, members: &MemberSet) -> Result<(Arc<str>, u64), PublishError> {
        let seen = revision_of(object);
        let members = match edit::has_entries_of_non_members(object, members) {
            true => &*self.fetch_members().await?,
            false => members,
        };
        match edit::remove_entry(object, self.barrier.server(), members, self.now()) {
            Edit::Keep => {}
            Edit::Put(next) => drop(self.write_with_timeout(self.client.put(*next)).await?),
            Edit::Delete => drop(self.write_with_timeout(self.client.delete(object)).await?),
        }
        Ok((object.metadata.name.as_str().into(), seen))
    }

    async fn write_with_timeout<T>(
        &self,
        request: impl Future<Output = Result<T, StorageVersionWriteError>>,
    ) -> Result<PublishAttempt<T>, PublishError> {
        let count = |result| self.metrics.writes.with_label_values(&[result]).inc();
        match tokio::time::timeout(self.request_timeout, request).await {
            Ok(Ok(done)) => {
                count("written");
                Ok(PublishAttempt::Done(done))
            }
            Ok(Err(StorageVersionWriteError::Conflict(found))) => {
                count("conflict");
                Ok(PublishAttempt::Conflict(found))
            }
            Ok(Err(StorageVersionWriteError::Unavailable { reason })) => {
                count("failed");
                Err(PublishError::Unavailable { reason })
            }
            Err(_) => {
                count("failed");
                Err(PublishError::TimedOut)
            }
        }
    }

    async fn fetch_members(&self) -> Result<Arc<MemberSet>, PublishError> {
        let asked = tokio::time::timeout(self.request_timeout, self.member_source.fetch_current()).await;
        Ok(asked.map_err(|_| PublishError::TimedOut)??)
    }

    fn now(&self) -> Time {
        (self.clock)().into()
    }
}

enum PublishAttempt<T> {
    Done(T),
    Conflict(Option<Box<StorageVersion>>),
}

#[cfg(test)]
mod tests;
