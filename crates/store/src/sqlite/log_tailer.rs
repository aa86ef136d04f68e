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
        let mut last_logged = None;
        while !self.is_stopping.load(Ordering::Acquire) {
            let failure = self.deliver_new_changes().err().map(|fault| fault.into_error(&self.reader.path));
            if let Some(error) = &failure {
                self.watch_hub.end_all_with(error);
            }
            // Logged once per failure, which recurs several times a second.
            if let Some(error) = failure.as_ref().filter(|_| failure != last_logged) {
                tracing::error!(%error, "ending all watches: failed to read the store");
            }
            last_logged = failure;
            if compared.elapsed() >= self.interval {
                compared = Instant::now();
                self.check_revision_file();
            }
            if let Err(error) = self.change_waiter.wait() {
                tracing::error!(%error, "failed to wait for store changes");
                break;
            }
        }
        self.watch_hub.close();
    }

    /// Delivers all visible changes to the hub.
    fn deliver_new_changes(&self) -> Result<(), SqliteFault> {
        while self.watch_hub.delivered_through() < self.reader.revision_file.read()? {
            let next = self.watch_hub.delivered_through().next();
            match history::read_batch(&self.reader, &Key::new(), next) {
                Ok(batch) => self.watch_hub.deliver(&batch.events, batch.complete_through),
                // A whole compaction passed since the last read.
                Err(SqliteFault::Store(Error::Compacted { oldest, .. })) => self.watch_hub.end_watches_before(oldest),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Repairs the revision file if a process died between COMMIT and writing it, by an empty commit. Ends all watches
    /// if a file was replaced.
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
