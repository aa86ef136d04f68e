//! What the processes of a lab are doing, and what may be asked of them. Pure.

use tokio::time::Instant;

use crate::folder::state::{Remembered, State};
use crate::status::Phase;

/// All servers of a lab, at one instant.
#[derive(Clone, Debug)]
pub struct Board {
    /// In the order of their names.
    pub servers: Vec<Standing>,
    /// The releases before the last rollout.
    pub before: Option<Vec<String>>,
}

/// How one server stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its name, release and port.
    pub server: Remembered,
    /// Which start of it this is; 0 before the first.
    pub generation: u64,
    /// What its process does.
    pub phase: Phase,
    /// Since when.
    pub since: Instant,
    /// Its process.
    pub pid: Option<u32>,
    /// Why it is not well; empty if it is.
    pub trouble: String,
}

/// What can be asked of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
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

impl Act {
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
pub enum OrderError {
    /// Nobody is called so.
    #[error("there is no server {name}: there are {known}")]
    Nobody {
        /// As it was asked for.
        name: String,
        /// Who there is.
        known: String,
    },
    /// It does not go with what the server is doing.
    #[error("server {name} is {phase}: it cannot {verb} now")]
    NotNow {
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

impl Board {
    /// Before anything was started.
    pub fn new(state: &State, now: Instant) -> Self {
        let standing = |server: &Remembered| Standing {
            server: server.clone(),
            generation: 0,
            phase: Phase::Stopped,
            since: now,
            pid: None,
            trouble: String::new(),
        };
        Self { servers: state.servers.iter().map(standing).collect(), before: state.before.clone() }
    }

    /// Where the server of this name is.
    pub fn find(&self, name: &str) -> Result<usize, OrderError> {
        self.servers.iter().position(|standing| standing.server.name == name).ok_or_else(|| {
            let known: Vec<_> = self.servers.iter().map(|standing| &*standing.server.name).collect();
            OrderError::Nobody { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// Whether all that run are ready, and at least one does.
    pub fn is_ready(&self) -> bool {
        let mut running = self.servers.iter().filter(|standing| standing.phase != Phase::Stopped).peekable();
        running.peek().is_some() && running.all(|standing| standing.phase == Phase::Ready)
    }
}

impl Standing {
    /// Whether this may be asked of it now.
    pub fn permits(&self, act: &Act) -> Result<(), OrderError> {
        let is_fine = match act {
            Act::Start | Act::StartAs(_) => !self.phase.is_running(),
            Act::Stop => matches!(self.phase, Phase::Starting | Phase::Ready | Phase::NotReady | Phase::Paused),
            Act::Kill => self.phase.is_running(),
            Act::Pause => matches!(self.phase, Phase::Starting | Phase::Ready | Phase::NotReady),
            Act::Resume => self.phase == Phase::Paused,
        };
        if is_fine {
            return Ok(());
        }
        let name = self.server.name.clone();
        Err(OrderError::NotNow { name, phase: self.phase.as_str(), verb: act.verb() })
    }

    /// Its health was looked at.
    pub fn hear(&mut self, health: Health, now: Instant) {
        let next = match (self.phase, &health) {
            (Phase::Starting | Phase::NotReady, Health::Ready) => Phase::Ready,
            (Phase::Ready, Health::Not(_)) => Phase::NotReady,
            (phase, _) => phase,
        };
        match health {
            Health::Ready if next == Phase::Ready => self.trouble.clear(),
            Health::Not(why) if next == Phase::NotReady => self.trouble = why,
            Health::Ready | Health::Not(_) => {}
        }
        self.enter(next, now);
    }

    /// Its process is gone.
    pub fn end(&mut self, how: &str, now: Instant) {
        let asked = matches!(self.phase, Phase::Stopping | Phase::Stopped);
        if !asked {
            self.trouble = how.to_owned();
        }
        self.pid = None;
        self.enter(if asked { Phase::Stopped } else { Phase::Failed }, now);
    }

    /// Changes phase.
    pub fn enter(&mut self, phase: Phase, now: Instant) {
        if self.phase != phase {
            self.phase = phase;
            self.since = now;
        }
    }
}

/// What a look at a server's health gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It says that it is ready.
    Ready,
    /// It is not, and why.
    Not(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::state::tests::state;

    fn standing(phase: Phase) -> Standing {
        let mut board = Board::new(&state("a=1.33:7001"), Instant::now());
        let mut standing = board.servers.remove(0);
        standing.phase = phase;
        standing
    }

    /// What each phase permits, one letter each: (s)tart, s(t)op, (k)ill, (p)ause, (r)esume.
    #[track_caller]
    fn check_permits(phase: Phase, expected: &str) {
        let acts = [(Act::Start, 's'), (Act::Stop, 't'), (Act::Kill, 'k'), (Act::Pause, 'p'), (Act::Resume, 'r')];
        let permitted = acts.iter().filter(|(act, _)| standing(phase).permits(act).is_ok());
        assert_eq!(permitted.map(|(_, letter)| letter).collect::<String>(), expected, "{phase:?}");
    }

    #[test]
    fn what_may_be_asked_follows_from_what_a_server_does() {
        check_permits(Phase::Stopped, "s");
        check_permits(Phase::Failed, "s");
        check_permits(Phase::Starting, "tkp");
        check_permits(Phase::Ready, "tkp");
        check_permits(Phase::NotReady, "tkp");
        check_permits(Phase::Paused, "tkr");
        check_permits(Phase::Stopping, "k");
        let refused = standing(Phase::Ready).permits(&Act::Start).unwrap_err();
        assert_eq!(refused.to_string(), "server a is ready: it cannot start now");
    }

    #[track_caller]
    fn check_health(before: Phase, health: Health, after: Phase, trouble: &str) {
        let mut standing = standing(before);
        standing.hear(health, Instant::now());
        assert_eq!((standing.phase, &*standing.trouble), (after, trouble));
    }

    #[test]
    fn health_counts_only_for_those_that_run_freely() {
        let sick = || Health::Not("no answer".to_owned());
        check_health(Phase::Starting, Health::Ready, Phase::Ready, "");
        check_health(Phase::Starting, sick(), Phase::Starting, "");
        check_health(Phase::Ready, sick(), Phase::NotReady, "no answer");
        check_health(Phase::NotReady, Health::Ready, Phase::Ready, "");
        check_health(Phase::Paused, sick(), Phase::Paused, "");
        check_health(Phase::Paused, Health::Ready, Phase::Paused, "");
        check_health(Phase::Stopping, sick(), Phase::Stopping, "");
    }

    #[test]
    fn an_end_that_nobody_asked_for_is_a_failure() {
        for (before, after) in [(Phase::Stopping, Phase::Stopped), (Phase::Ready, Phase::Failed)] {
            let mut standing = standing(before);
            standing.end("exit code 69", Instant::now());
            assert_eq!(standing.phase, after);
        }
    }

    #[test]
    fn a_lab_is_ready_when_all_that_run_are() {
        let board =
            |phases: &[Phase]| Board { servers: phases.iter().map(|phase| standing(*phase)).collect(), before: None };
        assert!(board(&[Phase::Ready, Phase::Stopped]).is_ready());
        assert!(!board(&[Phase::Ready, Phase::Starting]).is_ready());
        assert!(!board(&[Phase::Stopped]).is_ready());
        assert_eq!(board(&[Phase::Ready]).find("z").unwrap_err().to_string(), "there is no server z: there are a");
    }
}
