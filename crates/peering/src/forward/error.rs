//! Why a request was not answered by any peer.

use http::StatusCode;
use transport::peer::DialError;

use crate::identity::ServerId;
use crate::metrics::ProxyError;
use crate::status::Execution;

/// Why there is no answer. The text is for the log; clients get [`crate::status::proxy_failed`].
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No capable peer has an address.
    #[error("no capable peer has an address")]
    NoEndpoint,
    /// The candidates failed, or one did in a way that forbids to try the next.
    #[error("no peer answered: {}", listed(failures))]
    Failed {
        /// Each of them, in the order they were tried.
        failures: Vec<Failure>,
        /// What may have happened.
        execution: Execution,
    },
    /// The time was over.
    #[error("no peer answered in time")]
    TimedOut {
        /// What may have happened.
        execution: Execution,
    },
    /// The client broke off in the middle of its request.
    #[error("the client did not finish its request")]
    ClientGone,
}

impl ForwardError {
    /// Whether the request was executed.
    pub fn execution(&self) -> Execution {
        match self {
            Self::NoEndpoint => Execution::None,
            Self::Failed { execution, .. } | Self::TimedOut { execution } => *execution,
            // Nobody is left to be told; and part of it was sent.
            Self::ClientGone => Execution::Unknown,
        }
    }

    /// How kube-apiserver's metric names it.
    pub fn metric(&self) -> ProxyError {
        match self {
            Self::NoEndpoint => ProxyError::EndpointResolution,
            Self::Failed { .. } | Self::TimedOut { .. } | Self::ClientGone => ProxyError::ProxyTransport,
        }
    }
}

/// How one peer failed.
#[derive(Debug)]
pub struct Failure {
    /// Who.
    pub server: ServerId,
    /// How.
    pub fault: Fault,
}

/// What a peer can do wrong.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Users with credentials of their own are not sent on.
    #[error("there is no way to it without our certificate")]
    NoWay,
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// It is sent as many requests as it may be.
    #[error("it has as many forwarded requests as are allowed")]
    Busy,
    /// The connection ended, or what came over it was not HTTP.
    #[error("{0}")]
    Broken(#[source] hyper::Error),
    /// Neither an answer nor one to a ping.
    #[error("it does not answer, not even a ping")]
    Deaf,
    /// It executed nothing and says so.
    #[error("it handed the request back")]
    HandedBack,
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
    UnaskedUpgrade,
}

impl Fault {
    /// A word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoWay => "no_way",
            Self::Dial(error) => error.reason(),
            Self::Busy => "busy",
            Self::Broken(error) if error.is_parse() => "garbage",
            Self::Broken(_) => "broken",
            Self::Deaf => "no_answer",
            Self::HandedBack => "handed_back",
            Self::Redirect(_) => "redirect",
            Self::Unauthorized => "unauthorized",
            Self::NotServed => "not_served",
            Self::UnaskedUpgrade => "garbage",
        }
    }
}

fn listed(failures: &[Failure]) -> String {
    let each = failures.iter().map(|Failure { server, fault }| format!("{}: {fault}", server.as_str()));
    each.collect::<Vec<_>>().join("; ")
}
