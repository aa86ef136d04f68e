//! The write lock between processes: fair, and with a bounded wait.
//!
//! SQLite's own lock makes waiters sleep and retry, so that a process may lose every time. `flock` on a separate file
//! queues in the kernel. That wait cannot be cancelled, so a thread performs it, and the writer waits for the thread up
//! to a timeout.

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

/// The pause between attempts while `flock` itself fails, which no healthy file system causes.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The lock of this process. Not `Clone`: a process has one, used by one writer.
#[derive(Debug)]
pub(super) struct WriteLock {
    shared: Arc<WriteLockShared>,
    thread: Option<JoinHandle<()>>,
    timeout: Duration,
}

/// The held lock; dropping it releases the lock.
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
    /// The writer waits for the lock.
    is_requested: bool,
    /// The thread waits in `flock`, so no other thread may touch the lock.
    is_waiting_in_kernel: bool,
    /// The thread holds the lock on behalf of the writer.
    is_granted: bool,
    is_closing: bool,
}

impl WriteLock {
    /// Opens the lock file; [`WriteLock::acquire`] waits up to `timeout` for other processes.
    pub(super) fn open(path: &Path, timeout: Duration) -> io::Result<Self> {
        let file = files::open_or_create(path)?;
        let shared = Arc::new(WriteLockShared { file, state: Mutex::default(), changed: Condvar::new() });
        let queue = shared.clone();
        let thread = std::thread::Builder::new().name("sqlite lock".into()).spawn(move || queue.run())?;
        Ok(Self { shared, thread: Some(thread), timeout })
    }

    /// Waits for the lock. The error after the timeout names the process that holds it.
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
    /// Joins the thread, unless it waits in `flock` for another process: that wait ends when the other process releases
    /// the lock.
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
    /// The loop of the thread, which waits in `flock` on behalf of the writer.
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
                    tracing::error!(%error, "failed to lock the store's lock file");
                    std::thread::sleep(RETRY_PAUSE);
                    return false;
                }
            }
        }
    }

    fn unlock(&self) {
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            tracing::error!(%error, "failed to unlock the store's lock file");
        }
    }

    /// Writes the process id into the lock file for the error texts of other processes. Best effort.
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
                "{holder} has held the write lock for {timeout:?}; if it is stopped or hangs, resume or kill it"
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
        let lock = holder.acquire().unwrap();
        let reason = waiter.acquire().unwrap_err().to_string();
        assert!(reason.contains(&format!("process {}", std::process::id())), "{reason}");
        drop(lock);
    }

    /// The abandoned wait in the kernel still gets the lock later; it must release it, but not while a later
    /// acquisition holds it.
    #[test]
    fn write_lock_can_be_acquired_after_a_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let (holder, waiter) =
            (open_write_lock(folder.path(), Duration::ZERO), open_write_lock(folder.path(), Duration::from_millis(1)));
        let lock = holder.acquire().unwrap();
        waiter.acquire().unwrap_err();
        drop(lock);
        let patient = WriteLock { timeout: Duration::from_secs(60), shared: waiter.shared.clone(), thread: None };
        for _ in 0..100 {
            let _turn = patient.acquire().unwrap();
            assert!(!holder.shared.try_lock().unwrap(), "another process holds the lock as well");
        }
    }

    #[test]
    fn write_lock_is_exclusive_among_many_writers() {
        let folder = tempfile::tempdir().unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let write_lock = open_write_lock(folder.path(), Duration::from_secs(60));
                    for _ in 0..200 {
                        let _turn = write_lock.acquire().unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
