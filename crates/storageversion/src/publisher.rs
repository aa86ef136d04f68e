//! The publisher: puts this server's entry into the StorageVersion of every registered resource, and again whenever it
//! is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::StorageVersion;
use api::time::Time;
use fastrand::Rng;
use futures_util::stream::{self, FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff;
use crate::barrier::{PublicationBarrier, PublicationClaim, RegisteredResource, ResourceClass};
use crate::edit::{self, Edit};
use crate::members::MemberSet;
use crate::metrics::Metrics;
use crate::ports::{
    MemberSource, MembersUnknown, StorageVersionClient, StorageVersionSnapshot, StorageVersionWriteError, revision_of,
};

/// Concurrent writes of a class: enough to share commits, few enough that servers that start together conflict less
/// often.
const CONCURRENT_WRITES: usize = 4;
/// Of custom resources there may be thousands.
const CONCURRENT_CUSTOM_WRITES: usize = 8;
/// How long the members are used for further writes. Older ones are read again, also when an entry of an unknown server
/// is found.
const MEMBERS_AGE_MAX: Duration = Duration::from_millis(200);
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
    /// True once all built-in resources were published.
    pub(crate) first_publication: watch::Sender<bool>,
    pub(crate) request_timeout: Duration,
    pub(crate) clock: fn() -> Timestamp,
    pub(crate) seed: u64,
    pub(crate) metrics: Metrics,
    /// The members and when they were read. The lock is held while they are read.
    pub(crate) recent_members: tokio::sync::Mutex<Option<(Instant, Arc<MemberSet>)>>,
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
        let publishing = async {
            let mut snapshots = self.client.subscribe();
            // The entry of a server that is not a member would be collected. Senders end only with the server.
            if self.lease_renewals.wait_for(Option::is_some).await.is_err()
                || snapshots.wait_for(|snapshot| snapshot.revision > 0).await.is_err()
            {
                return std::future::pending().await;
            }
            let mut rng = Rng::with_seed(self.seed);
            let (built_in, custom, obsolete) = (rng.fork(), rng.fork(), rng.fork());
            tokio::join!(
                self.publish_class(ResourceClass::BuiltIn, CONCURRENT_WRITES, built_in),
                self.publish_class(ResourceClass::Custom, CONCURRENT_CUSTOM_WRITES, custom),
                self.withdraw_obsolete(snapshots, obsolete),
            );
        };
        stop.run_until_cancelled(publishing).await;
    }

    /// Publishes the resources of a class whenever they are unpublished: those with waiting writes first.
    async fn publish_class(&self, class: ResourceClass, concurrent_writes: usize, mut rng: Rng) {
        let mut changes = self.barrier.subscribe_changes(class);
        let mut writes = FuturesUnordered::new();
        let mut queue = Vec::new();
        loop {
            changes.mark_unchanged();
            let mut retry_at = None;
            if queue.is_empty() {
                let unpublished = self.barrier.unpublished(class);
                if unpublished.is_empty() && class == ResourceClass::BuiltIn {
                    self.first_publication.send_if_modified(|first| !std::mem::replace(first, true));
                }
                retry_at = unpublished.iter().filter_map(|slot| slot.retry_at()).min();
                queue = unpublished;
                // Shuffled, so that servers that start together do not write the same objects at the same time.
                rng.shuffle(&mut queue);
            }
            queue.extend(self.barrier.take_waiting(class));
            while writes.len() < concurrent_writes
                && let Some(next) = queue.pop()
            {
                writes.extend(next.claim().map(|claim| self.publish_claimed(claim, rng.fork())));
            }
            let retry = async {
                match retry_at {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(()) = writes.next() => {}
                _ = changes.changed() => {}
                () = retry => {}
            }
        }
    }

    /// Publishes one resource. After a failure its next attempt is delayed, not those of other resources.
    async fn publish_claimed(&self, claim: PublicationClaim, mut rng: Rng) {
        let resource = &claim.0;
        match self.publish(resource, &mut rng).await {
            Ok(()) => resource.record_success(),
            Err(error) => {
                let is_first = resource.record_failure(&error.to_string(), &mut rng);
                if is_first {
                    tracing::warn!(name = %resource.name, %error, "failed to publish storage version, will retry");
                }
            }
        }
    }

    /// Withdraws obsolete entries of this server whenever there are any.
    async fn withdraw_obsolete(&self, mut snapshots: watch::Receiver<Arc<StorageVersionSnapshot>>, mut rng: Rng) {
        self.barrier.wait_until_complete().await;
        let mut changes = self.barrier.subscribe_changes(ResourceClass::Custom);
        let (mut backoff, mut withdrawn) = (backoff::AFTER_FAILURE, WithdrawnRevisions::new());
        loop {
            changes.mark_unchanged();
            let snapshot = snapshots.borrow_and_update().clone();
            if let Err(error) = self.withdraw_all(&snapshot, &mut withdrawn).await {
                tracing::warn!(%error, "failed to withdraw storage versions, will retry");
                tokio::time::sleep(backoff.next_jittered(&mut rng)).await;
                continue;
            }
            backoff.reset();
            tokio::select! {
                changed = snapshots.changed() => if changed.is_err() {
                    // The sender ends only with the server.
                    std::future::pending::<()>().await;
                },
                _ = changes.changed() => {}
            }
            tokio::time::sleep(CHANGE_DEBOUNCE).await;
        }
    }

    async fn withdraw_all(
        &self,
        snapshot: &StorageVersionSnapshot,
        withdrawn: &mut WithdrawnRevisions,
    ) -> Result<(), PublishError> {
        withdrawn.retain(|name, _| snapshot.objects.contains_key(name));
        let obsolete = self.obsolete_objects(snapshot, withdrawn);
        if obsolete.is_empty() {
            return Ok(());
        }
        let members = self.fetch_members().await?;
        let results = stream::iter(obsolete).map(async |object| self.withdraw(&object, &members).await);
        let results: Vec<_> = results.buffer_unordered(CONCURRENT_CUSTOM_WRITES).collect().await;
        for result in results {
            let (name, revision) = result?;
            withdrawn.insert(name, revision);
        }
        Ok(())
    }

    /// Puts this server's entry into an object, retrying on newer state after a conflict.
    async fn publish(&self, resource: &RegisteredResource, rng: &mut Rng) -> Result<(), PublishError> {
        let snapshots = self.client.subscribe();
        let newest = || snapshots.borrow().objects.get(&resource.name).map(|object| StorageVersion::clone(object));
        let mut current = newest();
        let mut known_members: Option<Arc<MemberSet>> = None;
        for conflicts in 0..ATTEMPTS_PER_ROUND {
            // A later registration of the resource has another entry, which this one must not replace.
            if !self.barrier.is_current(resource) {
                return Ok(());
            }
            if let Some(found) = current.as_ref().filter(|found| edit::has_exact_entry(found, &resource.entry)) {
                self.barrier.observe(resource, Some(found), revision_of(found));
                return Ok(());
            }
            let mut members = match known_members.take() {
                Some(members) => members,
                None => self.recent_members().await?,
            };
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
            known_members = Some(members);
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

    /// The members, read within [`MEMBERS_AGE_MAX`]. Concurrent writes share one read.
    async fn recent_members(&self) -> Result<Arc<MemberSet>, PublishError> {
        let mut recent = self.recent_members.lock().await;
        if let Some((read_at, members)) = &*recent
            && read_at.elapsed() < MEMBERS_AGE_MAX
        {
            return Ok(members.clone());
        }
        let read_at = Instant::now();
        let members = self.fetch_members().await?;
        *recent = Some((read_at, members.clone()));
        Ok(members)
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
