//! The thread that reads every change once, for all watches of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::sqlite::change_waiter::ChangeWaiter;
use crate::sqlite::fault::SqliteFault;
use crate::sqlite::history;
use crate::sqlite::reader_pool::SqliteReader;
use crate::sqlite::snapshot::ReadSnapshot;
use crate::sqlite::watch_hub::WatchHub;
use crate::sqlite::write_queue::WriteQueue;
use crate::{Error, Key};

#[derive(Debug)]
pub(super) struct LogTailer {
    pub(super) reader: SqliteReader,
    pub(super) change_waiter: ChangeWaiter,
    pub(super) watch_hub: Arc<WatchHub>,
    pub(super) write_queue: WriteQueue,
    pub(super) is_stopping: Arc<AtomicBool>,
    /// How often to compare the database with the revision file.
    pub(super) interval: Duration,
}

impl LogTailer {
    pub(super) fn run(self) {
        let mut compared = Instant::now();
        let mut told = None;
        while !self.is_stopping.load(Ordering::Acquire) {
            let failure = self.deliver_new_changes().err().map(|fault| fault.into_error(&self.reader.path));
            if let Some(error) = &failure {
                self.watch_hub.end_all_with(error);
            }
            // Once: it is tried again several times a second.
            if let Some(error) = failure.as_ref().filter(|_| failure != told) {
                tracing::error!(%error, "watches end because the store cannot be read");
            }
            told = failure;
            if compared.elapsed() >= self.interval {
                compared = Instant::now();
                self.check_revision_file();
            }
            if let Err(error) = self.change_waiter.wait() {
                tracing::error!(%error, "the tail of the store cannot sleep");
                break;
            }
        }
        self.watch_hub.close();
    }

    /// Gives out everything that may be shown.
    fn deliver_new_changes(&self) -> Result<(), SqliteFault> {
        while self.watch_hub.delivered_through() < self.reader.revision_file.read()? {
            let next = self.watch_hub.delivered_through().next();
            match history::read_batch(&self.reader, &Key::new(), next) {
                Ok(batch) => self.watch_hub.deliver(&batch.events, batch.complete_through),
                // We slept through a whole compaction.
                Err(SqliteFault::Store(Error::Compacted { oldest, .. })) => self.watch_hub.end_watches_before(oldest),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// If a process died between COMMIT and the revision file, a turn of ours writes the file. If a file was replaced, the
    /// next read says so.
    fn check_revision_file(&self) {
        if let Err(error) = self.reader.file_guard.check_unreplaced() {
            self.watch_hub.end_all_with(&error);
            return;
        }
        let is_behind = ReadSnapshot::open(&self.reader)
            .is_ok_and(|snapshot| snapshot.visible_revision < snapshot.committed_revision);
        if is_behind {
            self.write_queue.try_submit(|_| Ok(()));
        }
    }
}
