//! Other processes for the tests of SQLite: this test binary once more, running one function.
//!
//! A test that is meant to run as a child begins with [`Role::of_this_process`] and does nothing where it has none. The
//! two sides talk in lines: the child's begin with `@`, because the test harness writes to the same stream.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use store::{Watch, WatchBatch};

/// Marks a process as a child, and holds what it is told.
const ROLE_VARIABLE: &str = "UNSKEW_TEST_ROLE";

/// Sizes a test up to what is asked of a release.
const SOAK_VARIABLE: &str = "UNSKEW_SOAK";

/// Longer than anything takes that happens at all, also on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// `small` in every test run, `full` where the environment asks for a soak.
pub(crate) fn scaled(small: usize, full: usize) -> usize {
    if std::env::var_os(SOAK_VARIABLE).is_some() { full } else { small }
}

/// What must come at all, but whose time depends on the machine.
pub(crate) async fn with_timeout<T>(awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, awaited).await.expect("it comes at all")
}

/// The next batch of a watch that must go on.
pub(crate) async fn next_batch(watch: &mut Watch) -> WatchBatch {
    with_timeout(watch.next_batch()).await.expect("the watch goes on").expect("no error")
}

/// What a child is told: names and values.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildRole(HashMap<String, String>);

impl ChildRole {
    pub(crate) fn with(mut self, name: &str, value: &dyn fmt::Display) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// `None` in the ordinary run of all tests.
    pub(crate) fn from_env() -> Option<Self> {
        let role = std::env::var_os(ROLE_VARIABLE)?.into_string().expect("roles are text");
        let pairs = role.split('\n').filter_map(|line| line.split_once('='));
        Some(Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    pub(crate) fn get<T: FromStr>(&self, name: &str) -> T {
        let value = self.0.get(name).unwrap_or_else(|| panic!("the child is not told its {name}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
    }

    fn encode(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.join("\n")
    }
}

/// A running child, killed when dropped.
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
        let input = child.stdin.take().expect("it has an input");
        let output = BufReader::new(child.stdout.take().expect("it has an output"));
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
            // The harness writes the name of the test before, and without an end of line.
            if let Some((_, told)) = line.trim_end().split_once('@') {
                return Some(told.to_owned());
            }
        }
    }

    /// The next line, which must come.
    pub(crate) fn expect_line(&mut self) -> String {
        self.read_line().expect("the child goes on")
    }

    pub(crate) fn write_line(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the child listens");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        // That it has already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end of a child that must have succeeded.
    pub(crate) fn finish(mut self) {
        while self.read_line().is_some() {}
        let status = self.child.wait().expect("it can be waited for");
        assert!(status.success(), "the child failed: {status}");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Tells the parent something.
pub(crate) fn write_to_parent(line: impl fmt::Display) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "@{line}").and_then(|()| output.flush()).expect("the parent listens");
}

/// Waits for the parent to say something; ends the process when it is gone.
pub(crate) fn read_from_parent() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(1);
    }
    line.trim_end().to_owned()
}
