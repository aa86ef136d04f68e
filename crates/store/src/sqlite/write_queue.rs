//! The queue of the writer thread, and the responses to its jobs.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::Error;
use crate::sqlite::fault::SqliteFault;
use crate::sqlite::write_transaction::WriteTransaction;

/// The capacity of the queue in units of [`UNIT_BYTES`]: tens of thousands of small writes, or some twenty of the
/// largest.
const QUEUE_UNITS: usize = 32 * 1024;
const UNIT_BYTES: usize = 1024;

/// Limits of one commit. In a larger one the first job would wait longer for the last than for the disk.
const COMMIT_UNITS: u32 = 4 * 1024;
const COMMIT_JOBS_MAX: usize = 512;

#[derive(Clone, Debug)]
pub(super) struct WriteQueue {
    queue: mpsc::UnboundedSender<WriterMessage>,
    /// Bounds the queue.
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

    /// Runs `work` in the next commit and awaits the result. `approximate_bytes` is the amount that it writes.
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

    /// Runs `work` in the next commit and blocks the calling thread; fails at once if the queue is full.
    pub(super) fn submit_blocking<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(&mut WriteTransaction<'_>) -> Result<T, SqliteFault> + Send + 'static,
        T: Send + 'static,
    {
        let permit = self
            .capacity
            .clone()
            .try_acquire_many_owned(1)
            .map_err(|_| Error::Unavailable { reason: "the write queue is full".to_owned() })?;
        self.send(1, permit, work)?.blocking_recv().unwrap_or_else(|_| Err(writer_gone_error()))
    }

    /// Runs `work` in the next commit, or drops it if the queue is full, since another commit then follows anyway.
    pub(super) fn try_submit(
        &self,
        work: impl FnOnce(&mut WriteTransaction<'_>) -> Result<(), SqliteFault> + Send + 'static,
    ) {
        if let Ok(permit) = self.capacity.clone().try_acquire_many_owned(1) {
            let _ = self.send(1, permit, work);
        }
    }

    /// Has the writer thread checkpoint the WAL under the write lock, and waits for it.
    pub(super) fn checkpoint_blocking(&self, mode: CheckpointMode) {
        let (done, wait) = oneshot::channel();
        if self.queue.send(WriterMessage::Checkpoint(mode, done)).is_ok() {
            let _ = wait.blocking_recv();
        }
    }

    /// Rejects new jobs; queued ones still run.
    pub(super) fn close(&self) {
        self.capacity.close();
    }

    /// Ends the writer thread after the queued jobs.
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
    Error::OutcomeUnknown { reason: "the writer thread ended before it responded".to_owned() }
}

#[derive(Debug)]
pub(super) enum WriterMessage {
    Job(Box<dyn WriteJob>),
    Checkpoint(CheckpointMode, oneshot::Sender<()>),
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckpointMode {
    /// The next commit writes from the start of the WAL.
    Restart,
    /// Also truncates the WAL file to zero bytes.
    Truncate,
}

#[derive(Debug)]
pub(super) struct WriteQueueReceiver {
    queue: mpsc::UnboundedReceiver<WriterMessage>,
    /// A message other than a job, found while a batch was collected.
    deferred: Option<WriterMessage>,
}

impl WriteQueueReceiver {
    pub(super) fn next(&mut self) -> Option<WriterMessage> {
        self.deferred.take().or_else(|| self.queue.blocking_recv())
    }

    /// Collects queued jobs behind `first`, up to the limits of one commit.
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

    /// Rejects all queued and all later messages.
    pub(super) fn close(&mut self) {
        self.queue.close();
        while let Ok(message) = self.queue.try_recv() {
            if let WriterMessage::Job(work) = message {
                work.respond(Err(closed_error()));
            }
        }
    }

    /// The next job, if one is queued and no other message comes before it.
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

/// A job on its way through a commit.
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
    /// The caller was gone when the job's turn came, or the job failed.
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
