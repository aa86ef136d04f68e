//! The thread that reads every change once, for all watches of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::sqlite::fault::Fault;
use crate::sqlite::history;
use crate::sqlite::hub::Hub;
use crate::sqlite::pool::Reader;
use crate::sqlite::snapshot::Snapshot;
use crate::sqlite::wake::Alarm;
use crate::sqlite::writer::Writer;
use crate::{Error, Key};

#[derive(Debug)]
pub(super) struct Tail {
    pub(super) reader: Reader,
    pub(super) alarm: Alarm,
    pub(super) hub: Arc<Hub>,
    pub(super) writer: Writer,
    pub(super) is_stopping: Arc<AtomicBool>,
    /// How often to compare the database with the revision file.
    pub(super) interval: Duration,
}

impl Tail {
    pub(super) fn run(self) {
        let mut compared = Instant::now();
        let mut told = None;
        while !self.is_stopping.load(Ordering::Acquire) {
            let failure = self.follow().err().map(|fault| fault.told(&self.reader.path));
            if let Some(error) = &failure {
                self.hub.fail(error);
            }
            // Once: it is tried again several times a second.
            if let Some(error) = failure.as_ref().filter(|_| failure != told) {
                tracing::error!(%error, "watches end because the store cannot be read");
            }
            told = failure;
            if compared.elapsed() >= self.interval {
                compared = Instant::now();
                self.compare();
            }
            if let Err(error) = self.alarm.wait() {
                tracing::error!(%error, "the tail of the store cannot sleep");
                break;
            }
        }
        self.hub.close();
    }

    /// Gives out everything that may be shown.
    fn follow(&self) -> Result<(), Fault> {
        while self.hub.through() < self.reader.revisions.read()? {
            let next = self.hub.through().next();
            match history::read(&self.reader, &Key::new(), next) {
                Ok(batch) => self.hub.deliver(&batch.events, batch.through),
                // We slept through a whole compaction.
                Err(Fault::Told(Error::Compacted { oldest, .. })) => self.hub.skip_to(oldest),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// If a process died between COMMIT and the revision file, a turn of ours writes the file. If a file was replaced, the
    /// next read says so.
    fn compare(&self) {
        if let Err(error) = self.reader.opened.check() {
            self.hub.fail(&error);
            return;
        }
        let is_behind = Snapshot::open(&self.reader).is_ok_and(|snapshot| snapshot.revision < snapshot.newest);
        if is_behind {
            self.writer.submit_and_forget(|_| Ok(()));
        }
    }
}
