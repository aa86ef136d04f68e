//! Wakes the log tailer when the store may have changed.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use rustix::io::{Errno, read, write};

use crate::sqlite::config::ChangeDetection;

/// The event sources of the log tailer.
#[derive(Debug)]
pub(super) struct ChangeWaiter {
    local_wakeups: Arc<OwnedFd>,
    /// inotify on the revision file; `None`: writes of other processes are detected by polling.
    file_changes: Option<OwnedFd>,
    interval: Duration,
}

/// Wakes the log tailer of this process.
#[derive(Clone, Debug)]
pub(super) struct ChangeWaker(Arc<OwnedFd>);

/// The polling interval without inotify; one poll costs a few microseconds.
const POLL_INTERVAL_WITHOUT_INOTIFY: Duration = Duration::from_millis(5);

impl ChangeWaiter {
    pub(super) fn new(revision_file: &Path, wakeups: ChangeDetection, interval: Duration) -> io::Result<Self> {
        let pokes = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let writes = match wakeups {
            ChangeDetection::Notified => watch_file(revision_file),
            ChangeDetection::Polled => None,
        };
        let interval = match (&writes, wakeups) {
            (None, ChangeDetection::Notified) => interval.min(POLL_INTERVAL_WITHOUT_INOTIFY),
            (Some(_), _) | (None, ChangeDetection::Polled) => interval,
        };
        Ok(Self { local_wakeups: pokes, file_changes: writes, interval })
    }

    pub(super) fn waker(&self) -> ChangeWaker {
        ChangeWaker(self.local_wakeups.clone())
    }

    /// Blocks until there may be changes to read, at most for the polling interval.
    pub(super) fn wait(&self) -> io::Result<()> {
        let timeout = Timespec { tv_sec: self.interval.as_secs() as i64, tv_nsec: self.interval.subsec_nanos().into() };
        let mut sources = vec![PollFd::new(&self.local_wakeups, PollFlags::IN)];
        sources.extend(self.file_changes.as_ref().map(|writes| PollFd::new(writes, PollFlags::IN)));
        match poll(&mut sources, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Drained before the read, so that a change during the read wakes the tailer again.
        self.drain();
        Ok(())
    }

    fn drain(&self) {
        let mut count = [0; 8];
        let _ = read(&self.local_wakeups, &mut count);
        let mut events = [MaybeUninit::uninit(); 1024];
        if let Some(writes) = &self.file_changes {
            while matches!(read(writes, &mut events), Ok((read, _)) if !read.is_empty()) {}
        }
    }
}

impl ChangeWaker {
    pub(super) fn wake(&self) {
        // Fails only if the counter is full, when a wake-up is already pending.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }
}

fn watch_file(revision_file: &Path) -> Option<OwnedFd> {
    let watching = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).and_then(|watching| {
        inotify::add_watch(&watching, revision_file, inotify::WatchFlags::MODIFY).map(|_| watching)
    });
    watching
        .inspect_err(|error| {
            tracing::warn!(
                %error,
                "inotify is not available, polling for writes of other servers every {POLL_INTERVAL_WITHOUT_INOTIFY:?}; \
                 raise fs.inotify.max_user_instances"
            );
        })
        .ok()
}
