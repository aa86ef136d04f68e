//! Why a request was not answered by any candidate.

use std::sync::Arc;

use http::StatusCode;
use transport::peer::{DialError, PeerConnectionError};

use super::queue::QueueRejection;

/// Whether a server executed a request that failed on the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// It did not: the request was never sent, or was handed back.
    None,
    /// The request was sent, and it only reads.
    Harmless,
    /// The request was sent, and its outcome is unknown.
    Unknown,
}

/// Why there is no response. The text is for the log; the caller chooses the response.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No candidate was given.
    #[error("no capable peer has an address")]
    NoEndpoint,
    /// Only our certificate proves the user, and no candidate may be sent such requests.
    #[error("users are not vouched for to any capable peer")]
    NotVouched,
    /// All candidates failed, or one failed after it may have executed the request.
    #[error("no peer answered: {}", join_failures(failures))]
    Failed {
        /// The failed candidates, in the order of the attempts.
        failures: Vec<PeerFailure>,
        /// Whether the request may have been executed.
        execution: Execution,
    },
    /// The deadline passed.
    #[error("no peer answered in time")]
    TimedOut {
        /// Whether the request may have been executed.
        execution: Execution,
    },
    /// All candidates are at their in-flight limit, and the request was not queued or left the queue.
    #[error("every peer that could answer has as many requests as it may: {0}")]
    Overloaded(QueueRejection),
    /// The client disconnected while it sent the request, or sent a malformed body.
    #[error("the request body could not be read")]
    ClientAborted,
}

impl ForwardError {
    /// Whether the request may have been executed.
    pub fn execution(&self) -> Execution {
        match self {
            Self::NoEndpoint | Self::NotVouched | Self::Overloaded(_) => Execution::None,
            Self::Failed { execution, .. } | Self::TimedOut { execution } => *execution,
            // Part of the request was sent.
            Self::ClientAborted => Execution::Unknown,
        }
    }

    /// The number of attempts after the first.
    pub fn retries(&self) -> usize {
        match self {
            Self::Failed { failures, .. } => attempt_count(failures).saturating_sub(1),
            Self::NoEndpoint | Self::NotVouched | Self::TimedOut { .. } | Self::Overloaded(_) | Self::ClientAborted => {
                0
            }
        }
    }
}

/// A failed attempt.
#[derive(Debug)]
pub struct PeerFailure {
    /// The candidate that failed.
    pub id: Arc<str>,
    /// How it failed.
    pub error: PeerError,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// There is no kind of connection for this user: no passthrough connector, or vouching was withdrawn.
    #[error("there are no connections to it for this kind of user")]
    NoUsableConnection,
    /// No connection could be opened.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The peer is at its in-flight limit.
    #[error("it has as many forwarded requests as are allowed")]
    Busy,
    /// The connection ended, or carried something other than HTTP.
    #[error("{0}")]
    ConnectionBroken(#[source] PeerConnectionError),
    /// The peer answered neither the request nor a ping in time.
    #[error("it does not answer, not even a ping")]
    Unresponsive,
    /// The peer states that it executed nothing.
    #[error("it handed the request back")]
    NotExecuted,
    /// The peer redirects, which is never followed.
    #[error("it redirects ({0})")]
    Redirect(StatusCode),
    /// The peer rejects our certificate.
    #[error("it does not accept our certificate (401)")]
    Unauthorized,
    /// The peer does not serve the resource although it lists it.
    #[error("it does not serve the resource (404)")]
    NotServed,
    /// The peer switched protocols without being asked.
    #[error("it switched protocols unasked")]
    UnexpectedUpgrade,
}

impl PeerError {
    /// The label value for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoUsableConnection => "no_way",
            Self::Dial(error) => error.reason(),
            Self::Busy => "busy",
            Self::ConnectionBroken(error) if error.is_protocol_violation() => "garbage",
            Self::ConnectionBroken(_) => "broken",
            Self::Unresponsive => "no_answer",
            Self::NotExecuted => "handed_back",
            Self::Redirect(_) => "redirect",
            Self::Unauthorized => "unauthorized",
            Self::NotServed => "not_served",
            Self::UnexpectedUpgrade => "garbage",
        }
    }
}

/// The failures that were attempts: a busy peer is sent nothing.
pub(super) fn attempt_count(failures: &[PeerFailure]) -> usize {
    failures.iter().filter(|failure| !matches!(failure.error, PeerError::Busy)).count()
}

fn join_failures(failures: &[PeerFailure]) -> String {
    let each = failures.iter().map(|PeerFailure { id, error }| format!("{id}: {error}"));
    each.collect::<Vec<_>>().join("; ")
}
