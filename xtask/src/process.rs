//! Child processes with a time limit.
//!
//! Invariants: no program starts without a limit; a program that exceeds it is killed with all its descendants; an
//! error shows the command line and the last lines of output.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Poll interval for a running program. Short, because most programs take milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long output is read after the program has exited: a background child may keep the pipe open.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// Number of output lines shown of a failed program.
const ERROR_LINES_MAX: usize = 15;

/// A program to run, with its time limit.
pub(crate) struct TimedCommand {
    command: Command,
    timeout: Duration,
}

/// The pipe that a line came from.
#[derive(Clone, Copy, PartialEq)]
enum Pipe {
    Stdout,
    Stderr,
}

impl TimedCommand {
    /// Creates the command with stdin closed, so that no program can wait for input.
    pub(crate) fn new(program: impl AsRef<OsStr>, timeout: Duration) -> TimedCommand {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        TimedCommand { command, timeout }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> TimedCommand {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> TimedCommand {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> TimedCommand {
        self.command.env(name, value);
        self
    }

    pub(crate) fn envs<S: AsRef<OsStr>, T: AsRef<OsStr>>(
        mut self,
        vars: impl IntoIterator<Item = (S, T)>,
    ) -> TimedCommand {
        self.command.envs(vars);
        self
    }

    pub(crate) fn env_remove(mut self, name: impl AsRef<OsStr>) -> TimedCommand {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn current_dir(mut self, folder: &Path) -> TimedCommand {
        self.command.current_dir(folder);
        self
    }

    /// Runs the program with its output on the terminal.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut child = self.spawn()?;
        let status = self.read_until_exit(&mut child, Vec::new(), &mut |_, _| ())?;
        self.expect_success(status, &[])
    }

    /// Runs the program and returns its stdout; stderr is shown only on failure.
    pub(crate) fn output_text(mut self) -> Result<String> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.spawn()?;
        let (mut output, mut errors) = (String::new(), Vec::new());
        let pipes = take_pipes(&mut child);
        let status = self.read_until_exit(&mut child, pipes, &mut |pipe, line| match pipe {
            Pipe::Stdout => output.push_str(line),
            Pipe::Stderr => errors.push(line.to_owned()),
        })?;
        if errors.is_empty() && !status.success() {
            errors = output.lines().map(|line| format!("{line}\n")).collect();
        }
        self.expect_success(status, &errors)?;
        Ok(output)
    }

    /// Runs the program with stderr on the terminal and returns its stdout.
    pub(crate) fn output_with_progress(mut self) -> Result<String> {
        self.command.stdout(Stdio::piped());
        let mut child = self.spawn()?;
        let mut output = String::new();
        let pipes = take_pipes(&mut child);
        let status = self.read_until_exit(&mut child, pipes, &mut |_, line| output.push_str(line))?;
        self.expect_success(status, &[])?;
        Ok(output)
    }

    /// Runs the program and calls `each` for every line of stdout and stderr, in the order written. The caller checks
    /// the status.
    pub(crate) fn stream_lines(mut self, each: &mut dyn FnMut(&str)) -> Result<ExitStatus> {
        let (reader, writer) = std::io::pipe().context("cannot create a pipe")?;
        self.command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = self.spawn()?;
        // The command holds our ends of the pipe; dropping them lets the reader see the end of the output.
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        self.read_until_exit(&mut child, vec![(Pipe::Stdout, Box::new(reader))], &mut |_, line| each(line))
    }

    fn spawn(&mut self) -> Result<Child> {
        self.command.spawn().with_context(|| format!("`{}` could not be started", self.command_line()))
    }

    /// Reads lines until the program has exited and its pipes are closed, or the limit has passed.
    fn read_until_exit(
        &self,
        child: &mut Child,
        pipes: Vec<LabelledPipe>,
        each: &mut dyn FnMut(Pipe, &str),
    ) -> Result<ExitStatus> {
        let started = Instant::now();
        let lines = read_pipes(pipes);
        let mut ended: Option<(ExitStatus, Instant)> = None;
        let mut open = true;
        loop {
            match lines.recv_timeout(POLL_INTERVAL) {
                Ok((pipe, line)) => each(pipe, &line),
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => {
                    open = false;
                    thread::sleep(POLL_INTERVAL);
                }
            }
            if ended.is_none() {
                ended = child.try_wait()?.map(|status| (status, Instant::now()));
            }
            match ended {
                Some((status, when)) if !open || when.elapsed() > DRAIN_GRACE => return Ok(status),
                None if started.elapsed() > self.timeout => {
                    kill_process_tree(child);
                    bail!("`{}` did not end within {} s and was stopped", self.command_line(), self.timeout.as_secs());
                }
                Some(_) | None => (),
            }
        }
    }

    fn expect_success(&self, status: ExitStatus, errors: &[String]) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        let shown = errors[errors.len().saturating_sub(ERROR_LINES_MAX)..].concat();
        let shown = shown.trim_end();
        if shown.is_empty() {
            bail!("`{}` failed ({status})", self.command_line());
        }
        bail!("`{}` failed ({status}):\n{shown}", self.command_line());
    }

    fn command_line(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }
}

type LabelledPipe = (Pipe, Box<dyn Read + Send>);

fn take_pipes(child: &mut Child) -> Vec<LabelledPipe> {
    let mut pipes: Vec<LabelledPipe> = Vec::new();
    if let Some(output) = child.stdout.take() {
        pipes.push((Pipe::Stdout, Box::new(output)));
    }
    if let Some(errors) = child.stderr.take() {
        pipes.push((Pipe::Stderr, Box::new(errors)));
    }
    pipes
}

/// Reads each pipe in its own thread, so that neither blocks the other; the channel closes when all are at their end.
fn read_pipes(pipes: Vec<LabelledPipe>) -> Receiver<(Pipe, String)> {
    let (sender, lines) = sync_channel(256);
    for (pipe, reader) in pipes {
        let sender = sender.clone();
        thread::spawn(move || read_lines(pipe, reader, &sender));
    }
    lines
}

fn read_lines(pipe: Pipe, reader: Box<dyn Read + Send>, lines: &SyncSender<(Pipe, String)>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        if lines.send((pipe, String::from_utf8_lossy(&line).into_owned())).is_err() {
            return;
        }
        line.clear();
    }
}

/// Kills a program with all its descendants: killing only cargo would leave tests and their servers behind.
fn kill_process_tree(child: &mut Child) {
    let pids: Vec<String> = descendants(child.id()).iter().map(u32::to_string).collect();
    // The shell's builtin `kill`: a small machine may have no other.
    let kill = Command::new("sh").arg("-c").arg(format!("kill -9 {} 2>/dev/null", pids.join(" "))).status();
    if kill.is_err() && child.kill().is_err() {
        eprintln!("process {} could not be stopped", child.id());
    }
    if let Err(error) = child.wait() {
        eprintln!("process {} could not be waited for: {error}", child.id());
    }
}

/// Pids of the process and all its descendants, from `/proc`.
fn descendants(root: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent_pid(pid)?))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|(pid, of)| *of == parent && !found.contains(pid))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        next += 1;
    }
    found
}

fn parent_pid(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself contain one; the fields after the last one are numbers.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Finds a program on `PATH`.
pub(crate) fn find_on_path(name: &str) -> Option<std::path::PathBuf> {
    crate::environment::path_folders().into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests;
