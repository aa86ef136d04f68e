//! Other programs, each with a time limit.
//!
//! Invariants: no program is started without a limit; one that exceeds it is ended together with all it started; an error
//! names the command line and shows the last lines it wrote.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a running program is looked at. Short, because most programs here take milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long output may keep coming after the program itself has ended: a process it left behind may hold the pipe.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// Enough of a failed program's last words to see the reason, not so many that the reason is buried.
const ERROR_LINES_MAX: usize = 15;

/// A program about to be run.
pub(crate) struct TimedCommand {
    command: Command,
    timeout: Duration,
}

/// Which of its two pipes a line came from.
#[derive(Clone, Copy, PartialEq)]
enum Pipe {
    Stdout,
    Stderr,
}

impl TimedCommand {
    /// Reads nothing from the terminal, so that no program can stop to ask a question.
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

    /// Runs it with the terminal as its output.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut child = self.spawn()?;
        let status = self.read_until_exit(&mut child, Vec::new(), &mut |_, _| ())?;
        self.expect_success(status, &[])
    }

    /// Runs it and returns what it wrote to stdout; what it wrote to stderr is shown only if it fails.
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

    /// Runs it with stderr on the terminal and returns what it wrote to stdout.
    pub(crate) fn output_with_progress(mut self) -> Result<String> {
        self.command.stdout(Stdio::piped());
        let mut child = self.spawn()?;
        let mut output = String::new();
        let pipes = take_pipes(&mut child);
        let status = self.read_until_exit(&mut child, pipes, &mut |_, line| output.push_str(line))?;
        self.expect_success(status, &[])?;
        Ok(output)
    }

    /// Runs it and hands over every line of stdout and stderr, in the order written. The caller judges the status.
    pub(crate) fn stream_lines(mut self, each: &mut dyn FnMut(&str)) -> Result<ExitStatus> {
        let (reader, writer) = std::io::pipe().context("no pipe could be made")?;
        self.command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = self.spawn()?;
        // The command keeps our ends of the pipe open; without them the reader sees the end of the output.
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        self.read_until_exit(&mut child, vec![(Pipe::Stdout, Box::new(reader))], &mut |_, line| each(line))
    }

    fn spawn(&mut self) -> Result<Child> {
        self.command.spawn().with_context(|| format!("`{}` could not be started", self.command_line()))
    }

    /// Takes lines until the program has ended and its pipes are closed, or the limit has passed.
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

/// One thread per pipe, so that neither blocks the other; the receiver disconnects when all are at their end.
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

/// Ends a program and all it started: a stopped cargo would otherwise leave its tests, and they their servers, behind.
fn kill_process_tree(child: &mut Child) {
    let pids: Vec<String> = descendants(child.id()).iter().map(u32::to_string).collect();
    // The shell's own `kill`: a small machine has no other.
    let kill = Command::new("sh").arg("-c").arg(format!("kill -9 {} 2>/dev/null", pids.join(" "))).status();
    if kill.is_err() && child.kill().is_err() {
        eprintln!("process {} could not be stopped", child.id());
    }
    if let Err(error) = child.wait() {
        eprintln!("process {} could not be waited for: {error}", child.id());
    }
}

/// The process and every process below it, by `/proc`.
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
    // The name in parentheses may hold anything, a parenthesis too; what follows the last one is numbers.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Where a program is on `PATH`.
pub(crate) fn find_on_path(name: &str) -> Option<std::path::PathBuf> {
    crate::environment::path_folders().into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests;
