//! One child process of a lab.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};

/// How much of a log is shown when a process exits.
const TAIL_BYTES: usize = 600;

/// A child process that has not been reaped yet.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Refers to this process only, even if its pid is reused.
    pidfd: OwnedFd,
}

impl Process {
    /// Starts the process. Call on the main thread (see [`crate::parent_death`]).
    pub(crate) fn start(mut command: Command) -> std::io::Result<(Self, Child)> {
        let child = command.spawn()?;
        let pid = child.id().ok_or_else(|| std::io::Error::other("the process exited at once"))?;
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let handle = pidfd_open(raw.expect("a pid is positive"), PidfdFlags::empty())?;
        Ok((Self { pid, pidfd: handle }, child))
    }

    /// Sends a signal. A process that has already exited is not an error: the waiting task reports the exit.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(&self.pidfd, signal) {
            tracing::debug!(pid = self.pid, %error, "failed to send signal");
        }
    }
}

/// Waits for the exit and describes it.
pub(crate) async fn wait_for_exit(mut child: Child) -> String {
    match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Returns the last whole lines of a log, at most `TAIL_BYTES`.
pub(crate) fn log_tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned();
    let whole = text.split_once('\n').filter(|_| bytes.len() > TAIL_BYTES).map_or(&*text, |(_, rest)| rest);
    whole.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tail_starts_at_a_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("x.log");
        assert_eq!(log_tail(&log), "");
        std::fs::write(&log, "one\ntwo\n").unwrap();
        assert_eq!(log_tail(&log), "one\ntwo");
        std::fs::write(&log, format!("{}\nlast\n", "x".repeat(1000))).unwrap();
        assert_eq!(log_tail(&log), "last");
    }
}
