//! A lab started with `unskew up`, and the other commands applied to it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{CommandOutput, SpawnedProcess, run_command};
use crate::tools;

/// A lab is ready in about a second; during a build it takes longer.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A lab in its own foreground process. Killed on drop, and its servers with it.
#[derive(Debug)]
pub struct RunningLab {
    home: PathBuf,
    folder: PathBuf,
    process: SpawnedProcess,
    /// Keeps draining stdout; a full pipe would block the lab.
    _lines: mpsc::Receiver<String>,
}

impl RunningLab {
    /// Starts a lab in `home/lab` and waits until it prints that it is ready.
    #[track_caller]
    pub fn start(home: &Path, flags: &[&str]) -> Self {
        let folder = home.join("lab");
        let mut command = unskew_command(home);
        command.arg("up").args(flags).arg("--data-dir").arg(&folder);
        if flags.contains(&"--etcd") {
            let etcd = tools::required_path("UNSKEW_ETCD_NEW");
            command.env("PATH", etcd.parent().expect("the etcd binary is in a folder"));
        }
        let log = home.join("up.log");
        let (process, lines) = SpawnedProcess::start(command, &log);
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

    /// Data directory of the lab.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Administrator's kubeconfig for the load balancer.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Runs another `unskew` command on this lab.
    #[track_caller]
    pub fn run_command(&self, args: &[&str]) -> CommandOutput {
        let mut command = unskew_command(&self.home);
        command.args(args).arg("--data-dir").arg(&self.folder);
        run_command(command, COMMAND_TIMEOUT)
    }

    /// Runs kubectl through the load balancer.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> CommandOutput {
        tools::kubectl(&self.kubeconfig(), args)
    }

    /// Parses the output of `unskew status -o json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        let text = self.run_command(&["status", "-o", "json"]).expect_success();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Entry of one server in the status.
    #[track_caller]
    pub fn server_status(&self, name: &str) -> Value {
        let status = self.status();
        let servers = status["servers"].as_array().expect("there are servers");
        servers.iter().find(|server| server["name"] == name).cloned().unwrap_or_else(|| panic!("no {name}: {status}"))
    }

    /// Pids of its servers.
    #[track_caller]
    pub fn server_pids(&self) -> Vec<u32> {
        let status = self.status();
        let servers = status["servers"].as_array().expect("there are servers");
        servers.iter().filter_map(|server| server["pid"].as_u64()?.try_into().ok()).collect()
    }

    /// Pids of all child processes that have not been reaped.
    pub fn child_pids(&self) -> Vec<u32> {
        let file = format!("/proc/{0}/task/{0}/children", self.process.id());
        let children = std::fs::read_to_string(file).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Sends SIGINT, as Ctrl-C does, and returns the exit code.
    #[track_caller]
    pub fn interrupt(mut self) -> Option<i32> {
        self.process.signal(Signal::INT);
        self.process.wait(COMMAND_TIMEOUT)
    }

    /// Kills the lab's own process with SIGKILL.
    #[track_caller]
    pub fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(COMMAND_TIMEOUT);
    }
}

/// Command that runs `unskew` with `home` as home directory.
pub fn unskew_command(home: &Path) -> Command {
    let mut command = Command::new(tools::unskew_binary());
    command.env("HOME", home).env_remove("XDG_DATA_HOME").env_remove("KUBECONFIG");
    command
}

/// Runs an `unskew` command to its end.
#[track_caller]
pub fn run_unskew(home: &Path, args: &[&str]) -> CommandOutput {
    let mut command = unskew_command(home);
    command.args(args);
    run_command(command, COMMAND_TIMEOUT)
}

/// True if a process exists and is not a zombie.
pub fn is_running(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}
