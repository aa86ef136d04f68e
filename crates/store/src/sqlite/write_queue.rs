//! What waits to be written, and how it is answered.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::Error;
use crate::sqlite::fault::SqliteFault;
use crate::sqlite::write_transaction::WriteTransaction;

/// How much may wait, in [`UNIT_BYTES`]s: some thousand small writes, or a few dozen of the largest.
const QUEUE_UNITS: usize = 32 * 1024;
const UNIT_BYTES: usize = 1024;

/// How much is committed at once. More would make the first wait for the last longer than for the disk.
const COMMIT_UNITS: u32 = 4 * 1024;
const COMMIT_JOBS_MAX: usize = 512;

/// What the threads of the store give their work to.
#[derive(Clone, Debug)]
pub(super) struct WriteQueue {
    queue: mpsc::UnboundedSender<WriterMessage>,
    /// What makes the queue bounded.
    capacity: Arc<Semaphore>,
}

impl WriteQueue {
    pub(super) fn new() -> (Self, WriteQueueReceiver) {
        let (queue, inbox) = mpsc::unbounded_channel();
        (
            Self { queue, capacity: Arc::new(Semaphore::new(QUEUE_UNITS)) },
            WriteQueueReceiver { queue: inbox, deferred: None },
        )
    }

    /// Does `work` in the next commit. `weight` is about how many bytes it writes.
    pub(super) async fn submit<T, F>(&self, approximate_bytes: usize, work: F) -> Result<T, Error>
    where
        F: FnOnce(&mut WriteTransaction<'_>) -> Result<T, SqliteFault> + Send + 'static,
        T: Send + 'static,
    {
        let units = (approximate_bytes / UNIT_BYTES + 1).min(QUEUE_UNITS) as u32;
        let permit = self.capacity.clone().acquire_many_owned(units).await.map_err(|_| closed_error())?;
        let answer = self.send(units, permit, work)?;
        answer.await.unwrap_or_else(|_| Err(writer_gone_error()))
    }

    /// Does `work` in the next commit, and waits for it on a thread of ours.
    pub(super) fn submit_blocking<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(&mut WriteTransaction<'_>) -> Result<T, SqliteFault> + Send + 'static,
        T: Send + 'static,
    {
        let permit = self
            .capacity
            .clone()
            .try_acquire_many_owned(1)
            .map_err(|_| Error::Unavailable { reason: "too many writes are waiting".to_owned() })?;
        self.send(1, permit, work)?.blocking_recv().unwrap_or_else(|_| Err(writer_gone_error()))
    }

    /// Does `work` in the next commit unless there is too much to do; then somebody else commits soon anyway.
    pub(super) fn try_submit(
        &self,
        work: impl FnOnce(&mut WriteTransaction<'_>) -> Result<(), SqliteFault> + Send + 'static,
    ) {
        if let Ok(permit) = self.capacity.clone().try_acquire_many_owned(1) {
            let _ = self.send(1, permit, work);
        }
    }

    /// Gives SQLite's write-ahead log back to be written from its start, in a turn and outside of any transaction.
    pub(super) fn checkpoint_blocking(&self, mode: CheckpointMode) {
        let (done, wait) = oneshot::channel();
        if self.queue.send(WriterMessage::Checkpoint(mode, done)).is_ok() {
            let _ = wait.blocking_recv();
        }
    }

    /// Takes no more work; what waits is still done.
    pub(super) fn close(&self) {
        self.capacity.close();
    }

    /// Ends the thread when it has done what waits.
    pub(super) fn stop(&self) {
        let _ = self.queue.send(WriterMessage::Stop);
    }

    fn send<T, F>(
        &self,
        units: u32,
        permit: OwnedSemaphorePermit,
        work: F,
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error>
    where
        F: FnOnce(&mut WriteTransaction<'_>) -> Result<T, SqliteFault> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let submitted = QueuedJob { units, _permit: permit, state: JobState::Waiting(work), response: answer };
        self.queue.send(WriterMessage::Job(Box::new(submitted))).map_err(|_| closed_error())?;
        Ok(answered)
    }
}

fn closed_error() -> Error {
    Error::Unavailable { reason: "the store is closed".to_owned() }
}

fn writer_gone_error() -> Error {
    Error::OutcomeUnknown { reason: "the writer ended before it could answer".to_owned() }
}

#[derive(Debug)]
pub(super) enum WriterMessage {
    Job(Box<dyn WriteJob>),
    Checkpoint(CheckpointMode, oneshot::Sender<()>),
    Stop,
}

/// How much a checkpoint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckpointMode {
    /// The next commit begins at the start of the log.
    Restart,
    /// The log is cut to nothing as well.
    Truncate,
}

/// The other end of a [`WriteQueue`].
#[derive(Debug)]
pub(super) struct WriteQueueReceiver {
    queue: mpsc::UnboundedReceiver<WriterMessage>,
    /// What was met while work was gathered.
    deferred: Option<WriterMessage>,
}

impl WriteQueueReceiver {
    pub(super) fn next(&mut self) -> Option<WriterMessage> {
        self.deferred.take().or_else(|| self.queue.blocking_recv())
    }

    /// Takes what waits behind `first`, as much as one commit may do.
    pub(super) fn collect_batch(&mut self, first: Box<dyn WriteJob>) -> Vec<Box<dyn WriteJob>> {
        let mut units = first.units();
        let mut batch = vec![first];
        while batch.len() < COMMIT_JOBS_MAX && units < COMMIT_UNITS {
            let Some(work) = self.next_job() else { break };
            units += work.units();
            batch.push(work);
        }
        batch
    }

    /// Refuses everything that is there and that comes.
    pub(super) fn close(&mut self) {
        self.queue.close();
        while let Ok(message) = self.queue.try_recv() {
            if let WriterMessage::Job(work) = message {
                work.respond(Err(closed_error()));
            }
        }
    }

    /// The next work, if it is there and nothing else comes before it.
    pub(super) fn next_job(&mut self) -> Option<Box<dyn WriteJob>> {
        if self.deferred.is_some() {
            return None;
        }
        match self.queue.try_recv().ok()? {
            WriterMessage::Job(work) => Some(work),
            other @ (WriterMessage::Checkpoint(..) | WriterMessage::Stop) => {
                self.deferred = Some(other);
                None
            }
        }
    }
}

/// A piece of work on its way through a commit.
pub(super) trait WriteJob: fmt::Debug + Send {
    fn units(&self) -> u32;
    fn run(&mut self, write: &mut WriteTransaction<'_>) -> Result<(), SqliteFault>;
    fn respond(self: Box<Self>, commit: Result<(), Error>);
}

struct QueuedJob<F, T> {
    units: u32,
    _permit: OwnedSemaphorePermit,
    state: JobState<F, T>,
    response: oneshot::Sender<Result<T, Error>>,
}

enum JobState<F, T> {
    Waiting(F),
    Done(T),
    /// Nobody waited for the answer any more when its time came, or it failed.
    Dropped,
}

impl<F, T> fmt::Debug for QueuedJob<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedJob").field("units", &self.units).finish_non_exhaustive()
    }
}

impl<F, T> WriteJob for QueuedJob<F, T>
where
    F: FnOnce(&mut WriteTransaction<'_>) -> Result<T, SqliteFault> + Send,
    T: Send,
{
    fn units(&self) -> u32 {
        self.units
    }

    fn run(&mut self, write: &mut WriteTransaction<'_>) -> Result<(), SqliteFault> {
        if let JobState::Waiting(work) = std::mem::replace(&mut self.state, JobState::Dropped)
            && !self.response.is_closed()
        {
            self.state = JobState::Done(work(write)?);
        }
        Ok(())
    }

    fn respond(self: Box<Self>, commit: Result<(), Error>) {
        let answer = match (commit, self.state) {
            (Ok(()), JobState::Done(answer)) => Ok(answer),
            (Ok(()), JobState::Waiting(_) | JobState::Dropped) => return,
            (Err(error), _) => Err(error),
        };
        let _ = self.response.send(answer);
    }
}
