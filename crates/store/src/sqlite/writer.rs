//! The one thread of a process that writes. What waits for it is committed together.
//!
//! Each piece of work gets the state that the ones before it left, and its answer once COMMIT has returned and the
//! revision file says so. If anything fails, everything in the commit fails, and none of it has happened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::sqlite::clock::Clock;
use crate::sqlite::config::{Step, StepHook};
use crate::sqlite::fault::Fault;
use crate::sqlite::files::Opened;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::schema::BUSY_WAIT;
use crate::sqlite::turn::{Turn, Turns};
use crate::sqlite::wake::Poke;
use crate::sqlite::write::Write;
use crate::{Error, Revision};

/// How much may wait, in [`UNIT`]s: some thousand small writes, or a few dozen of the largest.
const QUEUE_UNITS: usize = 32 * 1024;
const UNIT: usize = 1024;

/// How much is committed at once. More would make the first wait for the last longer than for the disk.
const COMMIT_UNITS: u32 = 4 * 1024;
const COMMIT_WORK_MAX: usize = 512;

/// How long a checkpoint holds up writers for the sake of a reader.
const CHECKPOINT_WAIT: Duration = Duration::from_millis(20);

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
enum Message {
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
    fn next(&mut self) -> Option<Message> {
        self.put_back.take().or_else(|| self.queue.blocking_recv())
    }

    /// Takes what waits behind `first`, as much as one commit may do.
    fn gather(&mut self, first: Box<dyn Work>) -> Vec<Box<dyn Work>> {
        let mut units = first.units();
        let mut batch = vec![first];
        while batch.len() < COMMIT_WORK_MAX && units < COMMIT_UNITS {
            let Some(work) = self.next_work() else { break };
            units += work.units();
            batch.push(work);
        }
        batch
    }

    /// The next work, if it is there and nothing else comes before it.
    fn next_work(&mut self) -> Option<Box<dyn Work>> {
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
trait Work: fmt::Debug + Send {
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

/// The thread.
#[derive(Debug)]
pub(super) struct Commits {
    pub(super) inbox: Inbox,
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) opened: Arc<Opened>,
    pub(super) turns: Turns,
    pub(super) revisions: Arc<RevisionFile>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) steps: StepHook,
    pub(super) tail: Poke,
}

impl Commits {
    pub(super) fn run(mut self) {
        loop {
            match self.inbox.next() {
                Some(Message::Work(first)) => self.serve(first),
                // Dropping `done` is the answer: whether it helped is seen in the log.
                Some(Message::Checkpoint(mode, _done)) => self.checkpoint(mode),
                Some(Message::Stop) | None => break,
            }
        }
        self.inbox.queue.close();
        while let Some(work) = self.inbox.next_work() {
            work.answer(Err(closed()));
        }
    }

    fn serve(&mut self, first: Box<dyn Work>) {
        let mut batch = self.inbox.gather(first);
        let result = match self.turns.take() {
            Ok(turn) => self.commit(&mut batch, turn),
            Err(error) => {
                // Whoever waits behind it has waited long enough, too.
                batch.extend(std::iter::from_fn(|| self.inbox.next_work()));
                Err(error)
            }
        };
        for work in batch {
            work.answer(result.clone());
        }
        self.steps.at(Step::Answered);
    }

    fn checkpoint(&self, mode: Checkpoint) {
        let Ok(_turn) = self.turns.take() else { return };
        let sql = match mode {
            Checkpoint::Restart => "PRAGMA wal_checkpoint(RESTART)",
            Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
        };
        // It waits for readers, and they are quick; whoever is not must not make writers wait.
        let checkpoint = || {
            self.connection.busy_timeout(CHECKPOINT_WAIT)?;
            self.connection.query_row(sql, [], |_| Ok(()))?;
            self.connection.busy_timeout(BUSY_WAIT)
        };
        if let Err(error) = checkpoint() {
            tracing::warn!(%error, "a checkpoint failed; it will be tried again");
        }
    }

    fn commit(&self, batch: &mut [Box<dyn Work>], turn: Turn<'_>) -> Result<(), Error> {
        self.opened.check()?;
        self.steps.at(Step::TurnTaken);
        let revision = match self.write(batch) {
            Ok(revision) => revision,
            Err(fault) => {
                self.roll_back();
                return Err(fault.told(&self.path));
            }
        };
        self.steps.at(Step::RowsWritten);
        if let Err(error) = self.execute("COMMIT") {
            self.roll_back();
            return Err(Fault::from(error).told_of_commit(&self.path));
        }
        self.steps.at(Step::Committed);
        self.show(revision).map_err(|error| Fault::File(error).told_of_commit(&self.path))?;
        drop(turn);
        self.tail.poke();
        self.steps.at(Step::Shown);
        Ok(())
    }

    fn write(&self, batch: &mut [Box<dyn Work>]) -> Result<Revision, Fault> {
        self.execute("BEGIN IMMEDIATE")?;
        let mut write = Write::new(&self.connection, self.clock.since_boot())?;
        for work in batch {
            work.run(&mut write)?;
        }
        Ok(write.newest)
    }

    /// Also repairs the file where a process died before it could write it.
    fn show(&self, revision: Revision) -> std::io::Result<()> {
        match self.revisions.read() {
            Ok(shown) if shown == revision => Ok(()),
            Ok(_) | Err(_) => self.revisions.write(revision),
        }
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.raw_execute().map(drop)
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(%error, "a failed commit could not be rolled back");
        }
    }
}
