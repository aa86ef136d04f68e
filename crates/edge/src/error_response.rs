//! The only match from failures to responses.

use api::Status;
use forward::UnsendableUser;
use http::header::{HeaderValue, RETRY_AFTER, WARNING};

use crate::Response;
use crate::response::json_response;

/// The failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request line does not parse.
    #[error("the request line is malformed: {0}")]
    Malformed(String),
    /// Authentication failed.
    #[error("unauthorized: {reason}")]
    Unauthorized {
        /// For the log only; the client gets 401 without it.
        reason: String,
    },
    /// The query asks for a timeout that is no duration.
    #[error("invalid timeout {0:?}")]
    InvalidTimeout(String),
    /// The user cannot be named to the server that should respond.
    #[error(transparent)]
    UnsendableUser(#[from] UnsendableUser),
    /// The gateway has no upstream to forward to.
    #[error("no upstream is ready")]
    NoUpstreamReady,
    /// The handler chose the Status.
    #[error("{}", .0.message)]
    Status(Box<Status>),
    /// The in-flight limit is reached.
    #[error("too many requests, please try again later")]
    Overloaded,
    /// The deadline is over. A write may have happened.
    #[error("the request did not complete within the allotted timeout")]
    TimedOut,
    /// The client disconnected before the response. Only the audit log records it.
    #[error("the client disconnected")]
    ClientDisconnected,
    /// The server is stopping.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// A handler panicked; the log has the details.
    #[error("this request caused a panic")]
    Panicked,
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// The Status of a failure.
pub fn error_status(error: Error) -> Status {
    match error {
        Error::Malformed(reason) => Status::bad_request(reason),
        Error::Unauthorized { .. } => Status::unauthorized("Unauthorized"),
        Error::InvalidTimeout(requested) => Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: invalid duration \"{requested}\""
        )),
        Error::UnsendableUser(_) => Status::service_unavailable(error.to_string()),
        Error::NoUpstreamReady => Status::service_unavailable(error.to_string()).with_retry_after(1),
        Error::Status(status) => *status,
        Error::Overloaded => Status::too_many_requests("too many requests, please try again later", 1),
        Error::TimedOut => Status::timeout("request did not complete within the allotted timeout", 0),
        // kube-apiserver records writes of clients that disconnect so.
        Error::ClientDisconnected => {
            Status::timeout("request did not complete within requested timeout - context canceled", 0)
        }
        Error::ShuttingDown => Status::service_unavailable("apiserver is shutting down").with_retry_after(1),
        Error::Panicked => {
            Status::internal_error("this request caused apiserver to panic. Look in the logs for details")
        }
    }
}

/// The response with a Status.
pub fn status_response(status: &Status) -> Response {
    let mut response = json_response(status.to_json());
    *response.status_mut() =
        http::StatusCode::from_u16(status.http_code()).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    with_warnings(response, &status.warnings)
}

/// Adds a `Warning` header per warning, unless the response has the same one.
pub fn with_warnings(mut response: Response, warnings: &[impl AsRef<str>]) -> Response {
    for warning in warnings {
        let text = warning.as_ref().replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{text}\""))
            && !response.headers().get_all(WARNING).iter().any(|known| known == value)
        {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}
