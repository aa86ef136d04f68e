//! Processes that do not outlive their test.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A process that is killed on drop.
#[derive(Debug)]
pub struct SpawnedProcess {
    child: Child,
}

/// Result of a finished command.
#[derive(Debug)]
pub struct CommandOutput {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Returns stdout; fails unless the exit code is 0.
    #[track_caller]
    pub fn expect_success(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// Returns stderr; fails if the exit code is 0.
    #[track_caller]
    pub fn expect_failure(self) -> String {
        assert_ne!(self.code, Some(0), "stdout: {}", self.stdout);
        self.stderr
    }
}

/// Runs a command to its end; kills it and fails after `timeout`.
#[track_caller]
pub fn run_command(mut command: Command, timeout: Duration) -> CommandOutput {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let (stdout, stderr) = (read_pipe(child.stdout.take()), read_pipe(child.stderr.take()));
    let deadline = Instant::now() + timeout;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("it is our child");
            let output = stdout.recv().unwrap_or_default();
            panic!("{command:?} did not end within {timeout:?}\n{output}\n{}", stderr.recv().unwrap_or_default());
        }
        std::thread::park_timeout(Duration::from_millis(10));
    };
    CommandOutput {
        code: status.code(),
        stdout: stdout.recv().unwrap_or_default(),
        stderr: stderr.recv().unwrap_or_default(),
    }
}

fn read_pipe(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let mut pipe = pipe.expect("the output is piped");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

impl SpawnedProcess {
    /// Starts a process. Returns a channel with the lines of its stdout; stderr goes to `log`.
    #[track_caller]
    pub fn start(mut command: Command, log: &std::path::Path) -> (Self, mpsc::Receiver<String>) {
        let log = std::fs::File::create(log).expect("the test's folder can be written");
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The receiver may be dropped; the pipe must still be drained.
                let _ = sender.send(line);
            }
        });
        (Self { child }, lines)
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().map_or(0, |kilobytes| kilobytes * 1024)
    }

    /// Number of open files, including sockets.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).map_or(0, Iterator::count)
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is our child");
    }

    /// Waits for the exit and returns the code, `None` if a signal ended it. Fails after `timeout`.
    #[track_caller]
    pub fn wait(&mut self, timeout: Duration) -> Option<i32> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the process did not end within {timeout:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for SpawnedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
