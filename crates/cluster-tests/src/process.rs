//! Processes that do not outlive the test.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A process that is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

/// How a command ended.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// What it printed, provided that it succeeded.
    #[track_caller]
    pub fn expect_success(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// What it complained of, provided that it failed.
    #[track_caller]
    pub fn expect_failure(self) -> String {
        assert_ne!(self.code, Some(0), "stdout: {}", self.stdout);
        self.stderr
    }
}

/// Runs a command to its end, or kills it after `timeout`.
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
    let mut pipe = pipe.expect("it was asked for");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

impl Process {
    /// Starts a process and hands out the lines of its standard output. Its standard error goes to a file.
    #[track_caller]
    pub fn start(mut command: Command, log: &std::path::Path) -> (Self, mpsc::Receiver<String>) {
        let log = std::fs::File::create(log).expect("the test's folder can be written");
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The reader may have seen enough; the pipe must be drained all the same.
                let _ = sender.send(line);
            }
        });
        (Self { child }, lines)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How much of its memory is resident, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().map_or(0, |kilobytes| kilobytes * 1024)
    }

    /// How many files, sockets among them, it has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).map_or(0, Iterator::count)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is our child");
    }

    /// Waits for its end; the exit code, or `None` if a signal ended it.
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

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
