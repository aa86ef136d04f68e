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
pub(super) struct WriteLock {
    shared: Arc<WriteLockShared>,
    thread: Option<JoinHandle<()>>,
    timeout: Duration,
}

/// The turn, until it is dropped.
#[derive(Debug)]
pub(super) struct WriteLockGuard<'a> {
    shared: &'a WriteLockShared,
}

#[derive(Debug)]
struct WriteLockShared {
    file: File,
    state: Mutex<WriteLockState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WriteLockState {
    /// The writer waits for the turn.
    is_requested: bool,
    /// The thread is waiting in the kernel, and the lock must not be touched by anybody else.
    is_waiting_in_kernel: bool,
    /// The thread got the turn for the writer.
    is_granted: bool,
    is_closing: bool,
}

impl WriteLock {
    /// `wait` bounds how long [`WriteLock::acquire`] waits for other processes.
    pub(super) fn open(path: &Path, timeout: Duration) -> io::Result<Self> {
        let file = files::open_or_create(path)?;
        let shared = Arc::new(WriteLockShared { file, state: Mutex::default(), changed: Condvar::new() });
        let queue = shared.clone();
        let thread = std::thread::Builder::new().name("sqlite turn".into()).spawn(move || queue.run())?;
        Ok(Self { shared, thread: Some(thread), timeout })
    }

    /// Waits for the turn.
    pub(super) fn acquire(&self) -> Result<WriteLockGuard<'_>, Error> {
        let mut line = self.shared.state.lock();
        if !line.is_waiting_in_kernel && self.shared.try_lock()? {
            drop(line);
            self.shared.record_holder();
            return Ok(WriteLockGuard { shared: &self.shared });
        }
        line.is_requested = true;
        self.shared.changed.notify_all();
        let deadline = Instant::now() + self.timeout;
        while !line.is_granted {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                line.is_requested = false;
                return Err(self.shared.timeout_error(self.timeout));
            }
            self.shared.changed.wait_for(&mut line, left);
        }
        line.is_granted = false;
        line.is_requested = false;
        drop(line);
        self.shared.record_holder();
        Ok(WriteLockGuard { shared: &self.shared })
    }
}

impl Drop for WriteLock {
    /// Joins the thread, unless it is in the kernel behind another process: that wait ends with that process's turn.
    fn drop(&mut self) {
        let mut line = self.shared.state.lock();
        line.is_closing = true;
        let is_queued = line.is_waiting_in_kernel;
        self.shared.changed.notify_all();
        drop(line);
        if let Some(thread) = self.thread.take().filter(|_| !is_queued) {
            let _ = thread.join();
        }
    }
}

impl Drop for WriteLockGuard<'_> {
    fn drop(&mut self) {
        self.shared.unlock();
    }
}

impl WriteLockShared {
    /// The thread: waits in the kernel when the writer asks for it.
    fn run(&self) {
        loop {
            let mut line = self.state.lock();
            while !line.is_closing && (!line.is_requested || line.is_granted) {
                self.changed.wait(&mut line);
            }
            if line.is_closing {
                return;
            }
            line.is_waiting_in_kernel = true;
            drop(line);
            let locked = self.lock();
            let mut line = self.state.lock();
            line.is_waiting_in_kernel = false;
            if locked && line.is_requested {
                line.is_granted = true;
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
    fn record_holder(&self) {
        let _ = self.file.write_at(&std::process::id().to_le_bytes(), 0);
    }

    fn timeout_error(&self, timeout: Duration) -> Error {
        let mut holder = [0; 4];
        let holder = match self.file.read_exact_at(&mut holder, 0) {
            Ok(()) => format!("process {}", u32::from_le_bytes(holder)),
            Err(_) => "another process".to_owned(),
        };
        Error::Unavailable {
            reason: format!(
                "{holder} has kept its turn to write for {timeout:?}; if it is stopped or hangs, continue or end it"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_write_lock(folder: &Path, wait: Duration) -> WriteLock {
        WriteLock::open(&folder.join("x.lock"), wait).unwrap()
    }

    #[test]
    fn write_lock_timeout_names_the_holding_process() {
        let folder = tempfile::tempdir().unwrap();
        let (holder, waiter) =
            (open_write_lock(folder.path(), Duration::ZERO), open_write_lock(folder.path(), Duration::from_millis(20)));
        let turn = holder.acquire().unwrap();
        let reason = waiter.acquire().unwrap_err().to_string();
        assert!(reason.contains(&format!("process {}", std::process::id())), "{reason}");
        drop(turn);
    }

    /// The abandoned wait still gets the lock one day; it must give it back, and not to a turn that has begun meanwhile.
    #[test]
    fn write_lock_can_be_acquired_after_a_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let (holder, waiter) =
            (open_write_lock(folder.path(), Duration::ZERO), open_write_lock(folder.path(), Duration::from_millis(1)));
        let turn = holder.acquire().unwrap();
        waiter.acquire().unwrap_err();
        drop(turn);
        let patient = WriteLock { timeout: Duration::from_secs(60), shared: waiter.shared.clone(), thread: None };
        for _ in 0..100 {
            let _turn = patient.acquire().unwrap();
            assert!(!holder.shared.try_lock().unwrap(), "nobody else has the lock");
        }
    }

    #[test]
    fn write_lock_is_exclusive_among_many_writers() {
        let folder = tempfile::tempdir().unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let turns = open_write_lock(folder.path(), Duration::from_secs(60));
                    for _ in 0..200 {
                        let _turn = turns.acquire().unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
