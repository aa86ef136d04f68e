//! State of the server processes, and which actions it permits. Pure.

use tokio::time::Instant;

use crate::data_dir::state::{LabState, ServerSpec};
use crate::status::Phase;

/// All servers of a lab at one instant.
#[derive(Clone, Debug)]
pub struct ProcessTable {
    /// Servers in order of their names.
    pub servers: Vec<ServerProcess>,
    /// Releases before the last rollout.
    pub previous_releases: Option<Vec<String>>,
}

/// State of one server process.
#[derive(Clone, Debug)]
pub struct ServerProcess {
    /// Name, release and port.
    pub server: ServerSpec,
    /// Number of starts so far; 0 before the first.
    pub generation: u64,
    /// Lifecycle phase.
    pub phase: Phase,
    /// When `phase` changed last.
    pub phase_since: Instant,
    /// Pid, if the process runs.
    pub pid: Option<u32>,
    /// Reason why the server failed or is not ready; empty if there is none.
    pub problem: String,
}

/// An action on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAction {
    /// Start it with its current release.
    Start,
    /// Start it with another release, such as `1.36`.
    StartAs(String),
    /// Send SIGTERM and wait for the exit.
    Stop,
    /// Send SIGKILL.
    Kill,
    /// Suspend it with SIGSTOP.
    Pause,
    /// Continue it with SIGCONT.
    Resume,
}

impl ServerAction {
    fn verb(&self) -> &'static str {
        match self {
            Self::Start | Self::StartAs(_) => "start",
            Self::Stop => "stop",
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }
}

/// Why an action was not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// No server has this name.
    #[error("there is no server {name}: there are {known}")]
    UnknownServer {
        /// The requested name.
        name: String,
        /// Names of all servers.
        known: String,
    },
    /// The current phase does not permit the action.
    #[error("server {name} is {phase}: cannot {verb} it now")]
    WrongPhase {
        /// Name of the server.
        name: String,
        /// Its current phase.
        phase: &'static str,
        /// The action.
        verb: &'static str,
    },
    /// The action failed.
    #[error("server {name}: {reason}")]
    Failed {
        /// Name of the server.
        name: String,
        /// The cause.
        reason: String,
    },
    /// The lab is shutting down.
    #[error("the lab is stopping")]
    Stopping,
}

impl ProcessTable {
    /// Creates the table with all servers stopped.
    pub fn new(state: &LabState, now: Instant) -> Self {
        let process = |server: &ServerSpec| ServerProcess {
            server: server.clone(),
            generation: 0,
            phase: Phase::Stopped,
            phase_since: now,
            pid: None,
            problem: String::new(),
        };
        Self {
            servers: state.servers.iter().map(process).collect(),
            previous_releases: state.previous_releases.clone(),
        }
    }

    /// Index of the server in `servers`.
    pub fn index_of(&self, name: &str) -> Result<usize, ActionError> {
        self.servers.iter().position(|process| process.server.name == name).ok_or_else(|| {
            let known: Vec<_> = self.servers.iter().map(|process| &*process.server.name).collect();
            ActionError::UnknownServer { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// True if at least one server runs and all running servers are ready.
    pub fn is_ready(&self) -> bool {
        let mut running = self.servers.iter().filter(|process| process.phase != Phase::Stopped).peekable();
        running.peek().is_some() && running.all(|process| process.phase == Phase::Ready)
    }
}

impl ServerProcess {
    /// Checks that the current phase permits the action.
    pub fn check_permitted(&self, action: &ServerAction) -> Result<(), ActionError> {
        let is_fine = match action {
            ServerAction::Start | ServerAction::StartAs(_) => !self.phase.is_running(),
            ServerAction::Stop => {
                matches!(self.phase, Phase::Starting | Phase::Ready | Phase::NotReady | Phase::Paused)
            }
            ServerAction::Kill => self.phase.is_running(),
            ServerAction::Pause => matches!(self.phase, Phase::Starting | Phase::Ready | Phase::NotReady),
            ServerAction::Resume => self.phase == Phase::Paused,
        };
        if is_fine {
            return Ok(());
        }
        let name = self.server.name.clone();
        Err(ActionError::WrongPhase { name, phase: self.phase.as_str(), verb: action.verb() })
    }

    /// Applies the result of a readiness poll.
    pub fn apply_readiness(&mut self, health: Readiness, now: Instant) {
        let next = match (self.phase, &health) {
            (Phase::Starting | Phase::NotReady, Readiness::Ready) => Phase::Ready,
            (Phase::Ready, Readiness::NotReady(_)) => Phase::NotReady,
            (phase, _) => phase,
        };
        match health {
            Readiness::Ready if next == Phase::Ready => self.problem.clear(),
            Readiness::NotReady(why) if next == Phase::NotReady => self.problem = why,
            Readiness::Ready | Readiness::NotReady(_) => {}
        }
        self.set_phase(next, now);
    }

    /// Applies the exit of the process: a failure unless it was told to stop.
    pub fn apply_exit(&mut self, exit_status: &str, now: Instant) {
        let was_requested = matches!(self.phase, Phase::Stopping | Phase::Stopped);
        if !was_requested {
            self.problem = exit_status.to_owned();
        }
        self.pid = None;
        self.set_phase(if was_requested { Phase::Stopped } else { Phase::Failed }, now);
    }

    /// Sets the phase, and its time if it changed.
    pub fn set_phase(&mut self, phase: Phase, now: Instant) {
        if self.phase != phase {
            self.phase = phase;
            self.phase_since = now;
        }
    }
}

/// Result of one readiness poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// `/readyz` succeeded.
    Ready,
    /// `/readyz` failed, with the reason.
    NotReady(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::state::tests::test_lab_state;

    fn test_process(phase: Phase) -> ServerProcess {
        let mut process_table = ProcessTable::new(&test_lab_state("a=1.33:7001"), Instant::now());
        let mut process = process_table.servers.remove(0);
        process.phase = phase;
        process
    }

    /// Checks which actions a phase permits, one letter each: (s)tart, s(t)op, (k)ill, (p)ause, (r)esume.
    #[track_caller]
    fn check_permits(phase: Phase, expected: &str) {
        let acts = [
            (ServerAction::Start, 's'),
            (ServerAction::Stop, 't'),
            (ServerAction::Kill, 'k'),
            (ServerAction::Pause, 'p'),
            (ServerAction::Resume, 'r'),
        ];
        let permitted = acts.iter().filter(|(act, _)| test_process(phase).check_permitted(act).is_ok());
        assert_eq!(permitted.map(|(_, letter)| letter).collect::<String>(), expected, "{phase:?}");
    }

    #[test]
    fn each_phase_permits_its_actions() {
        check_permits(Phase::Stopped, "s");
        check_permits(Phase::Failed, "s");
        check_permits(Phase::Starting, "tkp");
        check_permits(Phase::Ready, "tkp");
        check_permits(Phase::NotReady, "tkp");
        check_permits(Phase::Paused, "tkr");
        check_permits(Phase::Stopping, "k");
        let refused = test_process(Phase::Ready).check_permitted(&ServerAction::Start).unwrap_err();
        assert_eq!(refused.to_string(), "server a is ready: cannot start it now");
    }

    #[track_caller]
    fn check_health(before: Phase, health: Readiness, after: Phase, trouble: &str) {
        let mut process = test_process(before);
        process.apply_readiness(health, Instant::now());
        assert_eq!((process.phase, &*process.problem), (after, trouble));
    }

    #[test]
    fn readiness_changes_only_running_phases() {
        let sick = || Readiness::NotReady("no response".to_owned());
        check_health(Phase::Starting, Readiness::Ready, Phase::Ready, "");
        check_health(Phase::Starting, sick(), Phase::Starting, "");
        check_health(Phase::Ready, sick(), Phase::NotReady, "no response");
        check_health(Phase::NotReady, Readiness::Ready, Phase::Ready, "");
        check_health(Phase::Paused, sick(), Phase::Paused, "");
        check_health(Phase::Paused, Readiness::Ready, Phase::Paused, "");
        check_health(Phase::Stopping, sick(), Phase::Stopping, "");
    }

    #[test]
    fn unrequested_exit_is_a_failure() {
        for (before, after) in [(Phase::Stopping, Phase::Stopped), (Phase::Ready, Phase::Failed)] {
            let mut process = test_process(before);
            process.apply_exit("exit code 69", Instant::now());
            assert_eq!(process.phase, after);
        }
    }

    #[test]
    fn process_table_is_ready_when_all_running_servers_are() {
        let process_table = |phases: &[Phase]| ProcessTable {
            servers: phases.iter().map(|phase| test_process(*phase)).collect(),
            previous_releases: None,
        };
        assert!(process_table(&[Phase::Ready, Phase::Stopped]).is_ready());
        assert!(!process_table(&[Phase::Ready, Phase::Starting]).is_ready());
        assert!(!process_table(&[Phase::Stopped]).is_ready());
        assert_eq!(
            process_table(&[Phase::Ready]).index_of("z").unwrap_err().to_string(),
            "there is no server z: there are a"
        );
    }
}
