//! What the processes of a lab are doing, and what may be asked of them. Pure.

use tokio::time::Instant;

use crate::data_dir::state::{LabState, ServerSpec};
use crate::status::Phase;

/// All servers of a lab, at one instant.
#[derive(Clone, Debug)]
pub struct ProcessTable {
    /// In the order of their names.
    pub servers: Vec<ServerProcess>,
    /// The releases before the last rollout.
    pub previous_releases: Option<Vec<String>>,
}

/// How one server stands.
#[derive(Clone, Debug)]
pub struct ServerProcess {
    /// Its name, release and port.
    pub server: ServerSpec,
    /// Which start of it this is; 0 before the first.
    pub generation: u64,
    /// What its process does.
    pub phase: Phase,
    /// Since when.
    pub phase_since: Instant,
    /// Its process.
    pub pid: Option<u32>,
    /// Why it is not well; empty if it is.
    pub problem: String,
}

/// What can be asked of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAction {
    /// Start it.
    Start,
    /// Start it as another release.
    StartAs(String),
    /// Tell it to stop, and wait.
    Stop,
    /// End it without a warning.
    Kill,
    /// Let it exist and do nothing.
    Pause,
    /// Let it go on.
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

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// Nobody is called so.
    #[error("there is no server {name}: there are {known}")]
    UnknownServer {
        /// As it was asked for.
        name: String,
        /// Who there is.
        known: String,
    },
    /// It does not go with what the server is doing.
    #[error("server {name} is {phase}: it cannot {verb} now")]
    WrongPhase {
        /// Which server.
        name: String,
        /// What it does.
        phase: &'static str,
        /// What was asked.
        verb: &'static str,
    },
    /// It was tried.
    #[error("server {name}: {reason}")]
    Failed {
        /// Which server.
        name: String,
        /// What went wrong.
        reason: String,
    },
    /// The lab stops.
    #[error("the lab is stopping")]
    Stopping,
}

impl ProcessTable {
    /// Before anything was started.
    pub fn new(state: &LabState, now: Instant) -> Self {
        let standing = |server: &ServerSpec| ServerProcess {
            server: server.clone(),
            generation: 0,
            phase: Phase::Stopped,
            phase_since: now,
            pid: None,
            problem: String::new(),
        };
        Self {
            servers: state.servers.iter().map(standing).collect(),
            previous_releases: state.previous_releases.clone(),
        }
    }

    /// Where the server of this name is.
    pub fn index_of(&self, name: &str) -> Result<usize, ActionError> {
        self.servers.iter().position(|standing| standing.server.name == name).ok_or_else(|| {
            let known: Vec<_> = self.servers.iter().map(|standing| &*standing.server.name).collect();
            ActionError::UnknownServer { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// Whether all that run are ready, and at least one does.
    pub fn is_ready(&self) -> bool {
        let mut running = self.servers.iter().filter(|standing| standing.phase != Phase::Stopped).peekable();
        running.peek().is_some() && running.all(|standing| standing.phase == Phase::Ready)
    }
}

impl ServerProcess {
    /// Whether this may be asked of it now.
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

    /// Its health was looked at.
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

    /// Its process is gone.
    pub fn apply_exit(&mut self, exit_status: &str, now: Instant) {
        let was_requested = matches!(self.phase, Phase::Stopping | Phase::Stopped);
        if !was_requested {
            self.problem = exit_status.to_owned();
        }
        self.pid = None;
        self.set_phase(if was_requested { Phase::Stopped } else { Phase::Failed }, now);
    }

    /// Changes phase.
    pub fn set_phase(&mut self, phase: Phase, now: Instant) {
        if self.phase != phase {
            self.phase = phase;
            self.phase_since = now;
        }
    }
}

/// What a look at a server's health gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It says that it is ready.
    Ready,
    /// It is not, and why.
    NotReady(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::state::tests::test_lab_state;

    fn test_process(phase: Phase) -> ServerProcess {
        let mut board = ProcessTable::new(&test_lab_state("a=1.33:7001"), Instant::now());
        let mut standing = board.servers.remove(0);
        standing.phase = phase;
        standing
    }

    /// What each phase permits, one letter each: (s)tart, s(t)op, (k)ill, (p)ause, (r)esume.
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
        assert_eq!(refused.to_string(), "server a is ready: it cannot start now");
    }

    #[track_caller]
    fn check_health(before: Phase, health: Readiness, after: Phase, trouble: &str) {
        let mut standing = test_process(before);
        standing.apply_readiness(health, Instant::now());
        assert_eq!((standing.phase, &*standing.problem), (after, trouble));
    }

    #[test]
    fn readiness_changes_only_running_phases() {
        let sick = || Readiness::NotReady("no answer".to_owned());
        check_health(Phase::Starting, Readiness::Ready, Phase::Ready, "");
        check_health(Phase::Starting, sick(), Phase::Starting, "");
        check_health(Phase::Ready, sick(), Phase::NotReady, "no answer");
        check_health(Phase::NotReady, Readiness::Ready, Phase::Ready, "");
        check_health(Phase::Paused, sick(), Phase::Paused, "");
        check_health(Phase::Paused, Readiness::Ready, Phase::Paused, "");
        check_health(Phase::Stopping, sick(), Phase::Stopping, "");
    }

    #[test]
    fn unrequested_exit_is_a_failure() {
        for (before, after) in [(Phase::Stopping, Phase::Stopped), (Phase::Ready, Phase::Failed)] {
            let mut standing = test_process(before);
            standing.apply_exit("exit code 69", Instant::now());
            assert_eq!(standing.phase, after);
        }
    }

    #[test]
    fn process_table_is_ready_when_all_running_servers_are() {
        let board = |phases: &[Phase]| ProcessTable {
            servers: phases.iter().map(|phase| test_process(*phase)).collect(),
            previous_releases: None,
        };
        assert!(board(&[Phase::Ready, Phase::Stopped]).is_ready());
        assert!(!board(&[Phase::Ready, Phase::Starting]).is_ready());
        assert!(!board(&[Phase::Stopped]).is_ready());
        assert_eq!(board(&[Phase::Ready]).index_of("z").unwrap_err().to_string(), "there is no server z: there are a");
    }
}
