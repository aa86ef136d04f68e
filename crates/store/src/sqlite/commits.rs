//! The one thread of a process that writes. What waits for it is committed together.
//!
//! Each piece of work gets the state that the ones before it left, and its answer once COMMIT has returned and the
//! revision file says so. If anything fails, everything in the commit fails, and none of it has happened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::sqlite::clock::Clock;
use crate::sqlite::config::{Step, StepHook};
use crate::sqlite::fault::Fault;
use crate::sqlite::files::Opened;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::turn::{Turn, Turns};
use crate::sqlite::wake::Poke;
use crate::sqlite::write::Write;
use crate::sqlite::writer::{Checkpoint, Inbox, Message, Work};
use crate::{Error, Revision};

/// How long a checkpoint holds up writers for the sake of a reader.
const CHECKPOINT_WAIT: Duration = Duration::from_millis(20);

/// The thread.
#[derive(Debug)]
pub(super) struct Commits {
    pub(super) inbox: Inbox,
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) opened: Arc<Opened>,
    pub(super) turns: Turns,
    /// For SQLite's own lock.
    pub(super) wait: Duration,
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
        self.inbox.close();
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
        self.steps.call(Step::Answered);
    }

    fn checkpoint(&self, mode: Checkpoint) {
        let Ok(_turn) = self.turns.take() else { return };
        let sql = match mode {
            Checkpoint::Restart => "PRAGMA wal_checkpoint(RESTART)",
            Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
        };
        // It waits for readers, and they are quick; whoever is not must not make writers wait.
        let result = self.connection.busy_timeout(CHECKPOINT_WAIT);
        let result = result.and_then(|()| self.connection.query_row(sql, [], |_| Ok(())));
        if let Err(error) = result.and(self.connection.busy_timeout(self.wait)) {
            tracing::warn!(%error, "a checkpoint failed; it is tried again");
        }
    }

    fn commit(&self, batch: &mut [Box<dyn Work>], turn: Turn<'_>) -> Result<(), Error> {
        self.opened.check()?;
        self.steps.call(Step::TurnTaken);
        let revision = match self.write(batch) {
            Ok(revision) => revision,
            Err(fault) => {
                self.roll_back();
                return Err(fault.told(&self.path));
            }
        };
        self.steps.call(Step::RowsWritten);
        if let Err(error) = self.execute("COMMIT") {
            self.roll_back();
            return Err(Fault::from(error).told_of_commit(&self.path));
        }
        self.steps.call(Step::Committed);
        self.show(revision).map_err(|error| Fault::File(error).told_of_commit(&self.path))?;
        drop(turn);
        self.tail.poke();
        self.steps.call(Step::Shown);
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
