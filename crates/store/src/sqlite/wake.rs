//! How the tail learns that there is something to read.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use rustix::io::{Errno, read, write};

use crate::sqlite::config::Wakeups;

/// What the tail sleeps on.
#[derive(Debug)]
pub(super) struct Alarm {
    pokes: Arc<OwnedFd>,
    /// `None`: other processes are only noticed by the poll.
    writes: Option<OwnedFd>,
    interval: Duration,
}

/// Wakes the tail of this process.
#[derive(Clone, Debug)]
pub(super) struct Poke(Arc<OwnedFd>);

/// Where the kernel cannot tell us about writes, looking is all that is left; it costs a few microseconds each time.
const INTERVAL_WITHOUT_NOTICE: Duration = Duration::from_millis(5);

impl Alarm {
    pub(super) fn new(revision_file: &Path, wakeups: Wakeups, interval: Duration) -> io::Result<Self> {
        let pokes = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let writes = match wakeups {
            Wakeups::Announced => watch(revision_file),
            Wakeups::Polled => None,
        };
        let interval = match (&writes, wakeups) {
            (None, Wakeups::Announced) => interval.min(INTERVAL_WITHOUT_NOTICE),
            (Some(_), _) | (None, Wakeups::Polled) => interval,
        };
        Ok(Self { pokes, writes, interval })
    }

    pub(super) fn poke(&self) -> Poke {
        Poke(self.pokes.clone())
    }

    /// Sleeps until there may be something to read.
    pub(super) fn wait(&self) -> io::Result<()> {
        let timeout = Timespec { tv_sec: self.interval.as_secs() as i64, tv_nsec: self.interval.subsec_nanos().into() };
        let mut sources = vec![PollFd::new(&self.pokes, PollFlags::IN)];
        sources.extend(self.writes.as_ref().map(|writes| PollFd::new(writes, PollFlags::IN)));
        match poll(&mut sources, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Emptied before anything is read, so that what comes while we read wakes us again.
        self.empty();
        Ok(())
    }

    fn empty(&self) {
        let mut count = [0; 8];
        let _ = read(&self.pokes, &mut count);
        let mut events = [MaybeUninit::uninit(); 1024];
        if let Some(writes) = &self.writes {
            while matches!(read(writes, &mut events), Ok((read, _)) if !read.is_empty()) {}
        }
    }
}

impl Poke {
    pub(super) fn poke(&self) {
        // The only error is a counter that is full, and then a wake-up is already waiting.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }
}

fn watch(revision_file: &Path) -> Option<OwnedFd> {
    let watching = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).and_then(|watching| {
        inotify::add_watch(&watching, revision_file, inotify::WatchFlags::MODIFY).map(|_| watching)
    });
    watching
        .inspect_err(|error| {
            tracing::warn!(
                %error,
                "inotify is not available, so writes of other servers are looked for every {INTERVAL_WITHOUT_NOTICE:?}; \
                 raise fs.inotify.max_user_instances"
            );
        })
        .ok()
}
