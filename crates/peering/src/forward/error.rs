//! Why a request was not answered by any peer.

use api::Status;
use http::StatusCode;
use transport::peer::{DialError, PeerConnectionError};

use super::queue::QueueRejection;
use crate::identity::ServerId;
use crate::metrics::ProxyError;
use crate::status::{self, Execution};

/// Soon: whoever has no room now answers others meanwhile.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Why there is no answer. The text is for the log; clients get [`ForwardError::status`].
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No capable peer has an address.
    #[error("no capable peer has an address")]
    NoEndpoint,
    /// The user is known by our certificate alone, and no capable peer may be sent such requests.
    #[error("users are not vouched for to any capable peer")]
    NotVouched,
    /// The candidates failed, or one did in a way that forbids to try the next.
    #[error("no peer answered: {}", join_failures(failures))]
    Failed {
        /// Each of them, in the order they were tried.
        failures: Vec<PeerFailure>,
        /// What may have happened.
        execution: Execution,
    },
    /// The time was over.
    #[error("no peer answered in time")]
    TimedOut {
        /// What may have happened.
        execution: Execution,
    },
    /// All that could answer have as many requests as they may, and this one does not wait for them, or not any longer.
    #[error("every peer that could answer has as many requests as it may: {0}")]
    Overloaded(QueueRejection),
    /// The client broke off in the middle of its request.
    #[error("the client did not finish its request")]
    ClientAborted,
}

impl ForwardError {
    /// What the client is told.
    pub fn status(&self) -> Status {
        match self {
            Self::Overloaded(rejection) => Status::too_many_requests(
                format!("every API server that can serve the request has as many as it may: {rejection}"),
                RETRY_AFTER_SECONDS,
            ),
            Self::NotVouched => status::not_vouched_status(),
            Self::NoEndpoint | Self::Failed { .. } | Self::TimedOut { .. } | Self::ClientAborted => {
                status::proxy_failed_status(self.execution())
            }
        }
    }

    /// Whether the request was executed.
    pub fn execution(&self) -> Execution {
        match self {
            Self::NoEndpoint | Self::NotVouched | Self::Overloaded(_) => Execution::None,
            Self::Failed { execution, .. } | Self::TimedOut { execution } => *execution,
            // Nobody is left to be told; and part of it was sent.
            Self::ClientAborted => Execution::Unknown,
        }
    }

    /// How many more peers were tried after the first.
    pub fn retries(&self) -> usize {
        match self {
            Self::Failed { failures, .. } => attempt_count(failures).saturating_sub(1),
            Self::NoEndpoint | Self::NotVouched | Self::TimedOut { .. } | Self::Overloaded(_) | Self::ClientAborted => {
                0
            }
        }
    }

    /// How kube-apiserver's metric names it.
    pub fn proxy_error(&self) -> ProxyError {
        match self {
            Self::NoEndpoint | Self::NotVouched => ProxyError::EndpointResolution,
            Self::Failed { .. } | Self::TimedOut { .. } | Self::Overloaded(_) | Self::ClientAborted => {
                ProxyError::ProxyTransport
            }
        }
    }
}

/// How one peer failed.
#[derive(Debug)]
pub struct PeerFailure {
    /// Who.
    pub server: ServerId,
    /// How.
    pub error: PeerError,
}

/// What a peer can do wrong.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Users with credentials of their own are not sent on, or we do not vouch for users to it any more.
    #[error("there are no connections to it for this kind of user")]
    NoUsableConnection,
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// It is sent as many requests as it may be.
    #[error("it has as many forwarded requests as are allowed")]
    Busy,
    /// The connection ended, or what came over it was not HTTP.
    #[error("{0}")]
    ConnectionBroken(#[source] PeerConnectionError),
    /// Neither an answer nor one to a ping.
    #[error("it does not answer, not even a ping")]
    Unresponsive,
    /// It executed nothing and says so.
    #[error("it handed the request back")]
    NotExecuted,
    /// It wants us to go elsewhere.
    #[error("it redirects ({0})")]
    Redirect(StatusCode),
    /// It does not trust us.
    #[error("it does not accept our certificate (401)")]
    Unauthorized,
    /// It does not serve what it lists.
    #[error("it does not serve the resource (404)")]
    NotServed,
    /// It switched protocols and was not asked to.
    #[error("it switched protocols unasked")]
    UnexpectedUpgrade,
}

impl PeerError {
    /// A word for metrics.
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

/// How many of them were sent something. Who had no room was not tried.
pub(super) fn attempt_count(failures: &[PeerFailure]) -> usize {
    failures.iter().filter(|failure| !matches!(failure.error, PeerError::Busy)).count()
}

fn join_failures(failures: &[PeerFailure]) -> String {
    let each = failures.iter().map(|PeerFailure { server, error }| format!("{}: {error}", server.as_str()));
    each.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[test]
    fn overloaded_is_429_with_retry_after() {
        let check = |rejection: QueueRejection, expected: Expect| {
            let status = ForwardError::Overloaded(rejection).status();
            assert_eq!((status.http_code(), status.retry_after()), (429, Some(1)));
            expected.assert_eq(&status.message);
        };
        check(
            QueueRejection::UserQueueFull,
            expect![
                "every API server that can serve the request has as many as it may: too many requests of this user wait already"
            ],
        );
        check(
            QueueRejection::QueueFull,
            expect![
                "every API server that can serve the request has as many as it may: too many requests wait already"
            ],
        );
        check(
            QueueRejection::Evicted,
            expect![
                "every API server that can serve the request has as many as it may: it waited behind others of its user, and made room for a user who has fewer"
            ],
        );
        check(
            QueueRejection::TimedOut,
            expect![
                "every API server that can serve the request has as many as it may: it waited for as long as it may"
            ],
        );
        assert_eq!(ForwardError::NoEndpoint.status(), status::proxy_failed_status(Execution::None));
        assert_eq!(ForwardError::ClientAborted.status(), status::proxy_failed_status(Execution::Unknown));
    }
}
