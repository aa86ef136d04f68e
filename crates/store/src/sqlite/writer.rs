//! What waits to be written, and how it is answered.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::Error;
use crate::sqlite::fault::Fault;
use crate::sqlite::write::Write;

/// How much may wait, in [`UNIT`]s: some thousand small writes, or a few dozen of the largest.
const QUEUE_UNITS: usize = 32 * 1024;
const UNIT: usize = 1024;

/// How much is committed at once. More would make the first wait for the last longer than for the disk.
const COMMIT_UNITS: u32 = 4 * 1024;
const COMMIT_WORK_MAX: usize = 512;

/// What the threads of the store give their work to.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    queue: mpsc::UnboundedSender<Message>,
    /// What makes the queue bounded.
    room: Arc<Semaphore>,
}

impl Writer {
    pub(super) fn new() -> (Self, Inbox) {
        let (queue, inbox) = mpsc::unbounded_channel();
        (Self { queue, room: Arc::new(Semaphore::new(QUEUE_UNITS)) }, Inbox { queue: inbox, put_back: None })
    }

    /// Does `work` in the next commit. `weight` is about how many bytes it writes.
    pub(super) async fn submit<T, F>(&self, weight: usize, work: F) -> Result<T, Error>
    where
        F: FnOnce(&mut Write<'_>) -> Result<T, Fault> + Send + 'static,
        T: Send + 'static,
    {
        let units = (weight / UNIT + 1).min(QUEUE_UNITS) as u32;
        let permit = self.room.clone().acquire_many_owned(units).await.map_err(|_| closed())?;
        let answer = self.send(units, permit, work)?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Does `work` in the next commit, and waits for it on a thread of ours.
    pub(super) fn submit_blocking<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(&mut Write<'_>) -> Result<T, Fault> + Send + 'static,
        T: Send + 'static,
    {
        let permit = self
            .room
            .clone()
            .try_acquire_many_owned(1)
            .map_err(|_| Error::Unavailable { reason: "too many writes are waiting".to_owned() })?;
        self.send(1, permit, work)?.blocking_recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Does `work` in the next commit unless there is too much to do; then somebody else commits soon anyway.
    pub(super) fn submit_and_forget(&self, work: impl FnOnce(&mut Write<'_>) -> Result<(), Fault> + Send + 'static) {
        if let Ok(permit) = self.room.clone().try_acquire_many_owned(1) {
            let _ = self.send(1, permit, work);
        }
    }

    /// Gives SQLite's write-ahead log back to be written from its start, in a turn and outside of any transaction.
    pub(super) fn checkpoint_blocking(&self, mode: Checkpoint) {
        let (done, wait) = oneshot::channel();
        if self.queue.send(Message::Checkpoint(mode, done)).is_ok() {
            let _ = wait.blocking_recv();
        }
    }

    /// Takes no more work; what waits is still done.
    pub(super) fn refuse(&self) {
        self.room.close();
    }

    /// Ends the thread when it has done what waits.
    pub(super) fn stop(&self) {
        let _ = self.queue.send(Message::Stop);
    }

    fn send<T, F>(
        &self,
        units: u32,
        permit: OwnedSemaphorePermit,
        work: F,
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error>
    where
        F: FnOnce(&mut Write<'_>) -> Result<T, Fault> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let submitted = Submitted { units, _permit: permit, state: State::Waiting(work), answer };
        self.queue.send(Message::Work(Box::new(submitted))).map_err(|_| closed())?;
        Ok(answered)
    }
}

fn closed() -> Error {
    Error::Unavailable { reason: "the store is closed".to_owned() }
}

fn gone() -> Error {
    Error::Unresolved { reason: "the writer ended before it could answer".to_owned() }
}

#[derive(Debug)]
pub(super) enum Message {
    Work(Box<dyn Work>),
    Checkpoint(Checkpoint, oneshot::Sender<()>),
    Stop,
}

/// How much a checkpoint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checkpoint {
    /// The next commit begins at the start of the log.
    Restart,
    /// The log is cut to nothing as well.
    Truncate,
}

/// The other end of a [`Writer`].
#[derive(Debug)]
pub(super) struct Inbox {
    queue: mpsc::UnboundedReceiver<Message>,
    /// What was met while work was gathered.
    put_back: Option<Message>,
}

impl Inbox {
    pub(super) fn next(&mut self) -> Option<Message> {
        self.put_back.take().or_else(|| self.queue.blocking_recv())
    }

    /// Takes what waits behind `first`, as much as one commit may do.
    pub(super) fn gather(&mut self, first: Box<dyn Work>) -> Vec<Box<dyn Work>> {
        let mut units = first.units();
        let mut batch = vec![first];
        while batch.len() < COMMIT_WORK_MAX && units < COMMIT_UNITS {
            let Some(work) = self.next_work() else { break };
            units += work.units();
            batch.push(work);
        }
        batch
    }

    /// Refuses everything that is there and that comes.
    pub(super) fn close(&mut self) {
        self.queue.close();
        while let Ok(message) = self.queue.try_recv() {
            if let Message::Work(work) = message {
                work.answer(Err(closed()));
            }
        }
    }

    /// The next work, if it is there and nothing else comes before it.
    pub(super) fn next_work(&mut self) -> Option<Box<dyn Work>> {
        if self.put_back.is_some() {
            return None;
        }
        match self.queue.try_recv().ok()? {
            Message::Work(work) => Some(work),
            other @ (Message::Checkpoint(..) | Message::Stop) => {
                self.put_back = Some(other);
                None
            }
        }
    }
}

/// A piece of work on its way through a commit.
pub(super) trait Work: fmt::Debug + Send {
    fn units(&self) -> u32;
    fn run(&mut self, write: &mut Write<'_>) -> Result<(), Fault>;
    fn answer(self: Box<Self>, commit: Result<(), Error>);
}

struct Submitted<F, T> {
    units: u32,
    _permit: OwnedSemaphorePermit,
    state: State<F, T>,
    answer: oneshot::Sender<Result<T, Error>>,
}

enum State<F, T> {
    Waiting(F),
    Done(T),
    /// Nobody waited for the answer any more when its time came, or it failed.
    Dropped,
}

impl<F, T> fmt::Debug for Submitted<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").field("units", &self.units).finish_non_exhaustive()
    }
}

impl<F, T> Work for Submitted<F, T>
where
    F: FnOnce(&mut Write<'_>) -> Result<T, Fault> + Send,
    T: Send,
{
    fn units(&self) -> u32 {
        self.units
    }

    fn run(&mut self, write: &mut Write<'_>) -> Result<(), Fault> {
        if let State::Waiting(work) = std::mem::replace(&mut self.state, State::Dropped)
            && !self.answer.is_closed()
        {
            self.state = State::Done(work(write)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, commit: Result<(), Error>) {
        let answer = match (commit, self.state) {
            (Ok(()), State::Done(answer)) => Ok(answer),
            (Ok(()), State::Waiting(_) | State::Dropped) => return,
            (Err(error), _) => Err(error),
        };
        let _ = self.answer.send(answer);
    }
}
