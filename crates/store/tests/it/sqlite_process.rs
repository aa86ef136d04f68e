//! Child processes for the SQLite tests: this test binary again, running one function.
//!
//! A test that runs as a child begins with [`ChildRole::from_env`] and does nothing without a role. Parent and child
//! exchange lines: those of the child begin with `@`, because the test harness writes to the same stream.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use store::{Watch, WatchBatch};

/// Marks a process as a child, and holds its parameters.
const ROLE_VARIABLE: &str = "UNSKEW_TEST_ROLE";

/// Makes tests as large as for a release.
const SOAK_VARIABLE: &str = "UNSKEW_SOAK";

/// Longer than any step takes, even on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// `small` in normal runs, `full` with `UNSKEW_SOAK`.
pub(crate) fn scaled(small: usize, full: usize) -> usize {
    if std::env::var_os(SOAK_VARIABLE).is_some() { full } else { small }
}

/// Awaits a future, panicking after [`TEST_TIMEOUT`].
pub(crate) async fn with_timeout<T>(awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, awaited).await.expect("the result comes in time")
}

/// Awaits the next batch of a watch that must continue.
pub(crate) async fn next_batch(watch: &mut Watch) -> WatchBatch {
    with_timeout(watch.next_batch()).await.expect("the watch goes on").expect("no error")
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ChildRole(HashMap<String, String>);

impl ChildRole {
    pub(crate) fn with(mut self, name: &str, value: &dyn fmt::Display) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// `None` in a normal test run.
    pub(crate) fn from_env() -> Option<Self> {
        let role = std::env::var_os(ROLE_VARIABLE)?.into_string().expect("roles are text");
        let pairs = role.split('\n').filter_map(|line| line.split_once('='));
        Some(Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    pub(crate) fn get<T: FromStr>(&self, name: &str) -> T {
        let value = self.0.get(name).unwrap_or_else(|| panic!("the child has no parameter {name}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
    }

    fn encode(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.join("\n")
    }
}

#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ChildProcess {
    /// Runs the test `function` of this binary as a child.
    pub(crate) fn start(function: &str, role: &ChildRole, variables: &[(&str, PathBuf)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this test binary"));
        command.args(["--exact", function, "--nocapture", "--test-threads=1"]).env(ROLE_VARIABLE, role.encode());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this test binary starts");
        let input = child.stdin.take().expect("the child has an input");
        let output = BufReader::new(child.stdout.take().expect("the child has an output"));
        Self { child, input, output }
    }

    /// The next line of the child; `None` when it has ended.
    pub(crate) fn read_line(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).expect("the child's output is text");
            if read == 0 || !line.ends_with('\n') {
                return None;
            }
            // The harness writes the name of the test before it, without a newline.
            if let Some((_, told)) = line.trim_end().split_once('@') {
                return Some(told.to_owned());
            }
        }
    }

    /// The next line of a child that must continue.
    pub(crate) fn expect_line(&mut self) -> String {
        self.read_line().expect("the child goes on")
    }

    pub(crate) fn write_line(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the child reads its input");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn finish(mut self) {
        while self.read_line().is_some() {}
        let status = self.child.wait().expect("wait succeeds");
        assert!(status.success(), "the child failed: {status}");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn write_to_parent(line: impl fmt::Display) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "@{line}").and_then(|()| output.flush()).expect("the parent reads the output");
}

/// Waits for a line from the parent; ends the process when the parent is gone.
pub(crate) fn read_from_parent() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(1);
    }
    line.trim_end().to_owned()
}
