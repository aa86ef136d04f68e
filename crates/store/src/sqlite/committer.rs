//! The writer thread of a process, which commits all queued jobs together.
//!
//! Each job sees the state that the jobs before it left, and gets its response after COMMIT has returned and the
//! revision file is written. If any job fails, the whole commit fails and is rolled back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::sqlite::change_waiter::ChangeWaker;
use crate::sqlite::clock::Clock;
use crate::sqlite::config::{CommitHook, CommitStep};
use crate::sqlite::fault::SqliteFault;
use crate::sqlite::files::FileGuard;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::write_lock::{WriteLock, WriteLockGuard};
use crate::sqlite::write_queue::{CheckpointMode, WriteJob, WriteQueueReceiver, WriterMessage};
use crate::sqlite::write_transaction::WriteTransaction;
use crate::{Error, Revision};

/// How long a checkpoint waits for readers while writers wait for it.
const CHECKPOINT_BUSY_TIMEOUT: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Committer {
    pub(super) queue: WriteQueueReceiver,
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) file_guard: Arc<FileGuard>,
    pub(super) write_lock: WriteLock,
    /// For SQLite's own lock.
    pub(super) busy_timeout: Duration,
    pub(super) revision_file: Arc<RevisionFile>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) commit_hook: CommitHook,
    pub(super) tail_waker: ChangeWaker,
}

impl Committer {
    pub(super) fn run(mut self) {
        loop {
            match self.queue.next() {
                Some(WriterMessage::Job(first)) => self.commit_batch(first),
                // Dropping `done` is the response; the caller sees the effect in the WAL.
                Some(WriterMessage::Checkpoint(mode, _done)) => self.checkpoint(mode),
                Some(WriterMessage::Stop) | None => break,
            }
        }
        self.queue.close();
    }

    fn commit_batch(&mut self, first: Box<dyn WriteJob>) {
        let mut batch = self.queue.collect_batch(first);
        let result = match self.write_lock.acquire() {
            Ok(lock) => self.commit(&mut batch, lock),
            Err(error) => {
                // The queued jobs behind it have waited as long, so they fail too.
                batch.extend(std::iter::from_fn(|| self.queue.next_job()));
                Err(error)
            }
        };
        for work in batch {
            work.respond(result.clone());
        }
        self.commit_hook.call(CommitStep::ResponsesSent);
    }

    fn checkpoint(&self, mode: CheckpointMode) {
        let Ok(_turn) = self.write_lock.acquire() else { return };
        let sql = match mode {
            CheckpointMode::Restart => "PRAGMA wal_checkpoint(RESTART)",
            CheckpointMode::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
        };
        // A checkpoint waits for readers; a slow reader must not delay writers for long.
        let result = self.connection.busy_timeout(CHECKPOINT_BUSY_TIMEOUT);
        let result = result.and_then(|()| self.connection.query_row(sql, [], |_| Ok(())));
        if let Err(error) = result.and(self.connection.busy_timeout(self.busy_timeout)) {
            tracing::warn!(%error, "checkpoint failed, will retry");
        }
    }

    /// Runs the jobs in one SQLite transaction and publishes its revision.
    fn commit(&self, batch: &mut [Box<dyn WriteJob>], lock: WriteLockGuard<'_>) -> Result<(), Error> {
        self.file_guard.check_unreplaced()?;
        self.commit_hook.call(CommitStep::LockAcquired);
        let revision = match self.write(batch) {
            Ok(revision) => revision,
            Err(fault) => {
                self.roll_back();
                return Err(fault.into_error(&self.path));
            }
        };
        self.commit_hook.call(CommitStep::RowsWritten);
        if let Err(error) = self.execute("COMMIT") {
            self.roll_back();
            return Err(SqliteFault::from(error).into_commit_error(&self.path));
        }
        self.commit_hook.call(CommitStep::Committed);
        self.publish_revision(revision).map_err(|error| SqliteFault::File(error).into_commit_error(&self.path))?;
        drop(lock);
        self.tail_waker.wake();
        self.commit_hook.call(CommitStep::RevisionPublished);
        Ok(())
    }

    fn write(&self, batch: &mut [Box<dyn WriteJob>]) -> Result<Revision, SqliteFault> {
        self.execute("BEGIN IMMEDIATE")?;
        let mut write = WriteTransaction::new(&self.connection, self.clock.since_boot())?;
        for work in batch {
            work.run(&mut write)?;
        }
        Ok(write.newest_revision)
    }

    /// Writes the revision file, which also repairs it after a process died before writing it.
    fn publish_revision(&self, revision: Revision) -> std::io::Result<()> {
        match self.revision_file.read() {
            Ok(shown) if shown == revision => Ok(()),
            Ok(_) | Err(_) => self.revision_file.write(revision),
        }
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.raw_execute().map(drop)
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(%error, "failed to roll back a commit");
        }
    }
}
