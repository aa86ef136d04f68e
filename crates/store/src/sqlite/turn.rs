//! The turn to write: one process at a time, in line, and never waiting without end.
//!
//! SQLite has a lock of its own, but whoever finds it taken sleeps and tries again, so a process may lose every time. A
//! lock on a file of ours queues in the kernel. That wait cannot be cut short, so a thread does it, and the writer waits
//! for the thread for a bounded time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Error;
use crate::sqlite::files;

/// Between attempts while the kernel refuses the lock file itself, which no healthy file system does.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The writer's end. Not `Clone`: a process has one, and one turn at a time.
#[derive(Debug)]
pub(super) struct Turns {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    wait: Duration,
}

/// The turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    shared: &'a Shared,
}

#[derive(Debug)]
struct Shared {
    file: File,
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    /// The writer waits for the turn.
    is_wanted: bool,
    /// The thread is waiting in the kernel, and the lock must not be touched by anybody else.
    is_queued: bool,
    /// The thread got the turn for the writer.
    is_held: bool,
    is_closing: bool,
}

impl Turns {
    /// `wait` bounds how long [`Turns::take`] waits for other processes.
    pub(super) fn open(path: &Path, wait: Duration) -> io::Result<Self> {
        let file = files::open_or_create(path)?;
        let shared = Arc::new(Shared { file, line: Mutex::default(), changed: Condvar::new() });
        let queue = shared.clone();
        let thread = std::thread::Builder::new().name("sqlite turn".into()).spawn(move || queue.run())?;
        Ok(Self { shared, thread: Some(thread), wait })
    }

    /// Waits for the turn.
    pub(super) fn take(&self) -> Result<Turn<'_>, Error> {
        let mut line = self.shared.line.lock();
        if !line.is_queued && self.shared.try_lock()? {
            drop(line);
            self.shared.sign();
            return Ok(Turn { shared: &self.shared });
        }
        line.is_wanted = true;
        self.shared.changed.notify_all();
        let deadline = Instant::now() + self.wait;
        while !line.is_held {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                line.is_wanted = false;
                return Err(self.shared.too_long(self.wait));
            }
            self.shared.changed.wait_for(&mut line, left);
        }
        line.is_held = false;
        line.is_wanted = false;
        drop(line);
        self.shared.sign();
        Ok(Turn { shared: &self.shared })
    }
}

impl Drop for Turns {
    /// Joins the thread, unless it is in the kernel behind another process: that wait ends with that process's turn.
    fn drop(&mut self) {
        let mut line = self.shared.line.lock();
        line.is_closing = true;
        let is_queued = line.is_queued;
        self.shared.changed.notify_all();
        drop(line);
        if let Some(thread) = self.thread.take().filter(|_| !is_queued) {
            let _ = thread.join();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shared.unlock();
    }
}

impl Shared {
    /// The thread: waits in the kernel when the writer asks for it.
    fn run(&self) {
        loop {
            let mut line = self.line.lock();
            while !line.is_closing && (!line.is_wanted || line.is_held) {
                self.changed.wait(&mut line);
            }
            if line.is_closing {
                return;
            }
            line.is_queued = true;
            drop(line);
            let locked = self.lock();
            let mut line = self.line.lock();
            line.is_queued = false;
            if locked && line.is_wanted {
                line.is_held = true;
                self.changed.notify_all();
            } else if locked {
                self.unlock();
            }
        }
    }

    fn try_lock(&self) -> Result<bool, Error> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(error) => Err(Error::Unavailable { reason: format!("the lock file cannot be locked: {error}") }),
        }
    }

    fn lock(&self) -> bool {
        loop {
            match flock(&self.file, FlockOperation::LockExclusive) {
                Ok(()) => return true,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the lock file of the store cannot be locked");
                    std::thread::sleep(RETRY_PAUSE);
                    return false;
                }
            }
        }
    }

    fn unlock(&self) {
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            tracing::error!(%error, "the lock file of the store cannot be unlocked");
        }
    }

    /// Leaves our process id for whoever waits too long. Best effort.
    fn sign(&self) {
        let _ = self.file.write_at(&std::process::id().to_le_bytes(), 0);
    }

    fn too_long(&self, wait: Duration) -> Error {
        let mut holder = [0; 4];
        let holder = match self.file.read_exact_at(&mut holder, 0) {
            Ok(()) => format!("process {}", u32::from_le_bytes(holder)),
            Err(_) => "another process".to_owned(),
        };
        Error::Unavailable {
            reason: format!(
                "{holder} has kept its turn to write for {wait:?}; if it is stopped or hangs, continue or end it"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(folder: &Path, wait: Duration) -> Turns {
        Turns::open(&folder.join("x.lock"), wait).unwrap()
    }

    #[test]
    fn a_turn_that_another_keeps_is_refused_in_time_and_names_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let (holder, waiter) = (turns(folder.path(), Duration::ZERO), turns(folder.path(), Duration::from_millis(20)));
        let turn = holder.take().unwrap();
        let reason = waiter.take().unwrap_err().to_string();
        assert!(reason.contains(&format!("process {}", std::process::id())), "{reason}");
        drop(turn);
    }

    /// The abandoned wait still gets the lock one day; it must give it back, and not to a turn that has begun meanwhile.
    #[test]
    fn a_turn_can_be_taken_after_one_was_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (holder, waiter) = (turns(folder.path(), Duration::ZERO), turns(folder.path(), Duration::from_millis(1)));
        let turn = holder.take().unwrap();
        waiter.take().unwrap_err();
        drop(turn);
        let patient = Turns { wait: Duration::from_secs(60), shared: waiter.shared.clone(), thread: None };
        for _ in 0..100 {
            let _turn = patient.take().unwrap();
            assert!(!holder.shared.try_lock().unwrap(), "nobody else has the lock");
        }
    }

    #[test]
    fn turns_of_many_are_never_taken_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let turns = turns(folder.path(), Duration::from_secs(60));
                    for _ in 0..200 {
                        let _turn = turns.take().unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
