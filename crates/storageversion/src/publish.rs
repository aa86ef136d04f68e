//! Publication: our entry in every object of what we keep, before anything of it is written; and again whenever it is gone.

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

use crate::edit::{self, Edit};
use crate::members::Members;
use crate::metrics::Metrics;
use crate::pace;
use crate::permit::{Barrier, Slot};
use crate::ports::{Membership, NotKnown, Snapshot, StorageVersions, WriteError, revision_of};

/// So many objects are written at once: enough to share commits, few enough that servers that start together meet less often.
const AT_ONCE: usize = 4;
/// So often an object is tried at once before the others get their turn. Every try but the last was lost to another server's
/// success, so that a hundred servers need about a hundred.
const TRIES_AT_ONCE: u32 = 200;

/// How long to let further changes of the objects come before they are looked at for what is not kept any more.
const LULL: Duration = Duration::from_millis(50);

/// The task that publishes.
pub(crate) struct Publisher {
    pub(crate) barrier: Barrier,
    pub(crate) objects: Arc<dyn StorageVersions>,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) renewed: watch::Receiver<Option<Instant>>,
    /// Whether everything was published once.
    pub(crate) first: watch::Sender<bool>,
    pub(crate) call_timeout: Duration,
    pub(crate) clock: fn() -> Timestamp,
    pub(crate) seed: u64,
    pub(crate) metrics: Metrics,
}

/// Why an object was not written.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error("others changed it too often")]
    Contended,
    #[error("{reason}")]
    Unavailable { reason: String },
    #[error("storage did not answer in time")]
    TimedOut,
    #[error(transparent)]
    NotKnown(#[from] NotKnown),
}

/// Objects that we do not keep any more and have taken our entry out of, as of a revision: the snapshots may lag behind.
type Withdrawn = BTreeMap<Arc<str>, u64>;

impl Publisher {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.publish_for_ever() => {}
        }
    }

    async fn publish_for_ever(&mut self) {
        let mut snapshots = self.objects.follow();
        // Whoever is no member yet would be collected. Senders that are gone have ended with the server.
        if self.renewed.wait_for(Option::is_some).await.is_err()
            || snapshots.wait_for(|snapshot| snapshot.through > 0).await.is_err()
        {
            return std::future::pending().await;
        }
        let mut changes = self.barrier.changes();
        let (mut backoff, mut withdrawn) = (pace::AFTER_FAILURE, Withdrawn::new());
        let mut rng = Rng::with_seed(self.seed);
        loop {
            changes.mark_unchanged();
            let snapshot = snapshots.borrow_and_update().clone();
            match self.round(&snapshot, &mut withdrawn, &mut rng).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(%error, closed = ?self.barrier.closed(), "storage versions cannot be published; trying again");
                    tokio::time::sleep(backoff.next_jittered(&mut rng)).await;
                    continue;
                }
            }
            if self.barrier.pending().is_empty() {
                self.first.send_if_modified(|first| !std::mem::replace(first, true));
            }
            let others = async {
                // A sender that is gone has ended with the server.
                if snapshots.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(LULL).await;
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = others => {}
            }
        }
    }

    /// Writes everything that is to be written.
    async fn round(&self, snapshot: &Snapshot, withdrawn: &mut Withdrawn, rng: &mut Rng) -> Result<(), PublishError> {
        let mut pending = self.barrier.pending();
        let obsolete = self.obsolete(snapshot, withdrawn);
        if pending.is_empty() && obsolete.is_empty() {
            return Ok(());
        }
        let members = self.members().await.inspect_err(|error| {
            pending.iter().for_each(|slot| self.barrier.blame(slot, &error.to_string()));
        })?;
        // Servers that start together should not go through the objects side by side.
        rng.shuffle(&mut pending);
        let publishing = pending.into_iter().map(|slot| (slot, rng.fork()));
        let results = stream::iter(publishing).map(async |(slot, mut rng)| {
            let published = self.publish(&slot, members.clone(), &mut rng).await;
            published.inspect_err(|error| self.barrier.blame(&slot, &error.to_string()))
        });
        let results: Vec<_> = results.buffer_unordered(AT_ONCE).collect().await;
        for object in obsolete {
            let (name, revision) = self.withdraw(&object, &members).await?;
            withdrawn.insert(name, revision);
        }
        results.into_iter().collect()
    }

    /// Puts our entry, again on newer state as long as others are quicker.
    async fn publish(&self, slot: &Slot, mut members: Arc<Members>, rng: &mut Rng) -> Result<(), PublishError> {
        let snapshots = self.objects.follow();
        let newest = || snapshots.borrow().objects.get(&slot.name).map(|object| StorageVersion::clone(object));
        let mut current = newest();
        for conflicts in 0..TRIES_AT_ONCE {
            if let Some(found) = current.as_ref().filter(|found| edit::has_entry(found, &slot.entry)) {
                self.barrier.see(slot, Some(found), revision_of(found));
                return Ok(());
            }
            // Somebody may have joined after we looked and before the object was written.
            if current.as_ref().is_some_and(|current| edit::has_strangers(current, &members)) {
                members = self.members().await?;
            }
            let next = edit::register(current.as_ref(), &slot.name, &slot.entry, &members, self.now());
            let began = Instant::now();
            match self.write(self.objects.put(next)).await? {
                Attempt::Done(put) => {
                    self.barrier.see(slot, Some(&put), revision_of(&put));
                    return Ok(());
                }
                Attempt::Changed(found) => current = found.map(|found| *found),
            }
            tokio::time::sleep(pace::after_conflict(conflicts, began.elapsed(), rng)).await;
            // What was found is old by now, if others went on.
            let known = current.as_ref().map_or(0, revision_of);
            current = newest().filter(|newest| revision_of(newest) > known).or(current);
        }
        Err(PublishError::Contended)
    }

    /// Objects that hold an entry of ours, of a former process or of a resource that went, and that we do not keep.
    fn obsolete(&self, snapshot: &Snapshot, withdrawn: &Withdrawn) -> Vec<Arc<StorageVersion>> {
        let server = self.barrier.server();
        let objects = snapshot.objects.iter().filter(|(name, object)| {
            !self.barrier.is_registered(name)
                && edit::names(object, server)
                && withdrawn.get(*name).is_none_or(|revision| *revision < revision_of(object))
        });
        objects.map(|(_, object)| object.clone()).collect()
    }

    /// Takes our entry out of an object, if it is as it was seen; if not, there will be another snapshot.
    async fn withdraw(&self, object: &StorageVersion, members: &Members) -> Result<(Arc<str>, u64), PublishError> {
        let seen = revision_of(object);
        let members = match edit::has_strangers(object, members) {
            true => &*self.members().await?,
            false => members,
        };
        match edit::withdraw(object, self.barrier.server(), members, self.now()) {
            Edit::Keep => {}
            Edit::Put(next) => drop(self.write(self.objects.put(*next)).await?),
            Edit::Delete => drop(self.write(self.objects.delete(object)).await?),
        }
        Ok((object.metadata.name.as_str().into(), seen))
    }

    async fn write<T>(&self, call: impl Future<Output = Result<T, WriteError>>) -> Result<Attempt<T>, PublishError> {
        let count = |result| self.metrics.writes.with_label_values(&[result]).inc();
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(Ok(done)) => {
                count("written");
                Ok(Attempt::Done(done))
            }
            Ok(Err(WriteError::Changed(found))) => {
                count("conflict");
                Ok(Attempt::Changed(found))
            }
            Ok(Err(WriteError::Unavailable { reason })) => {
                count("failed");
                Err(PublishError::Unavailable { reason })
            }
            Err(_) => {
                count("failed");
                Err(PublishError::TimedOut)
            }
        }
    }

    async fn members(&self) -> Result<Arc<Members>, PublishError> {
        let asked = tokio::time::timeout(self.call_timeout, self.membership.now()).await;
        Ok(asked.map_err(|_| PublishError::TimedOut)??)
    }

    fn now(&self) -> Time {
        (self.clock)().into()
    }
}

enum Attempt<T> {
    Done(T),
    Changed(Option<Box<StorageVersion>>),
}

#[cfg(test)]
mod tests;
