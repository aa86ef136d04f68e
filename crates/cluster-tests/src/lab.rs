//! A lab as its users run it: `unskew up`, and the other commands beside it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{CommandOutput, Process, run_command};
use crate::tools;

/// A lab is ready in about a second; beside a build it takes longer.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A lab in the foreground of a process of its own. Killed when dropped, and its servers with it.
#[derive(Debug)]
pub struct Lab {
    home: PathBuf,
    folder: PathBuf,
    process: Process,
    /// Drained, or the lab would wait for a reader.
    _lines: mpsc::Receiver<String>,
}

impl Lab {
    /// Starts a lab in `home/lab` and waits until it says that it is ready.
    #[track_caller]
    pub fn start(home: &Path, flags: &[&str]) -> Self {
        let folder = home.join("lab");
        let mut command = unskew_command(home);
        command.arg("up").args(flags).arg("--data-dir").arg(&folder);
        if flags.contains(&"--etcd") {
            let etcd = tools::required_path("UNSKEW_ETCD_NEW");
            command.env("PATH", etcd.parent().expect("it is in a folder"));
        }
        let log = home.join("up.log");
        let (process, lines) = Process::start(command, &log);
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) if line.contains("is ready at") => break,
                Ok(_) => {}
                Err(_) => panic!("the lab is not ready: {}", std::fs::read_to_string(&log).unwrap_or_default()),
            }
        }
        Self { home: home.to_owned(), folder, process, _lines: lines }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Runs another command on this lab.
    #[track_caller]
    pub fn run_command(&self, args: &[&str]) -> CommandOutput {
        let mut command = unskew_command(&self.home);
        command.args(args).arg("--data-dir").arg(&self.folder);
        run_command(command, COMMAND_TIMEOUT)
    }

    /// Runs kubectl through the front door.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> CommandOutput {
        tools::kubectl(&self.kubeconfig(), args)
    }

    /// What `unskew status -o json` says.
    #[track_caller]
    pub fn status(&self) -> Value {
        let text = self.run_command(&["status", "-o", "json"]).expect_success();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// One server of the status.
    #[track_caller]
    pub fn server_status(&self, name: &str) -> Value {
        let status = self.status();
        let servers = status["servers"].as_array().expect("there are servers");
        servers.iter().find(|server| server["name"] == name).cloned().unwrap_or_else(|| panic!("no {name}: {status}"))
    }

    /// The processes of its servers.
    #[track_caller]
    pub fn server_pids(&self) -> Vec<u32> {
        let status = self.status();
        let servers = status["servers"].as_array().expect("there are servers");
        servers.iter().filter_map(|server| server["pid"].as_u64()?.try_into().ok()).collect()
    }

    /// Every process that it started and that has not ended.
    pub fn child_pids(&self) -> Vec<u32> {
        let file = format!("/proc/{0}/task/{0}/children", self.process.id());
        let children = std::fs::read_to_string(file).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Asks it to stop as Ctrl-C does, and waits; its exit code.
    #[track_caller]
    pub fn interrupt(mut self) -> Option<i32> {
        self.process.signal(Signal::INT);
        self.process.wait(COMMAND_TIMEOUT)
    }

    /// Kills the lab's own process without a warning.
    #[track_caller]
    pub fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(COMMAND_TIMEOUT);
    }
}

/// The program, with everything that it might look for in a home of the test's own.
pub fn unskew_command(home: &Path) -> Command {
    let mut command = Command::new(tools::unskew_binary());
    command.env("HOME", home).env_remove("XDG_DATA_HOME").env_remove("KUBECONFIG");
    command
}

/// Runs a command of the program to its end.
#[track_caller]
pub fn run_unskew(home: &Path, args: &[&str]) -> CommandOutput {
    let mut command = unskew_command(home);
    command.args(args);
    run_command(command, COMMAND_TIMEOUT)
}

/// Whether a process is there; one that has ended and was not waited for is not.
pub fn is_running(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}
