//! The only place where a failure becomes a response.

use api::Status;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};

use crate::{Body, Response};

/// Why a request was not answered with what it asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request line does not parse.
    #[error("the request line is malformed: {0}")]
    Malformed(String),
    /// Nobody we know.
    #[error("unauthorized: {reason}")]
    Unauthorized {
        /// For the log; the client learns no more than that.
        reason: String,
    },
    /// The handler knows what to say.
    #[error("{}", .0.message)]
    Status(Box<Status>),
    /// There are already as many requests under way as we take.
    #[error("too many requests, please try again later")]
    Overloaded,
    /// It took too long. What it was doing may have happened.
    #[error("the request did not complete within the allotted timeout")]
    TimedOut,
    /// The server stops and takes no more requests.
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

/// What the client is told.
pub fn error_status(error: Error) -> Status {
    match error {
        Error::Malformed(reason) => Status::bad_request(reason),
        Error::Unauthorized { .. } => Status::unauthorized("Unauthorized"),
        Error::Status(status) => *status,
        Error::Overloaded => Status::too_many_requests("too many requests, please try again later", 1),
        Error::TimedOut => Status::timeout("request did not complete within the allotted timeout", 0),
        Error::ShuttingDown => Status::service_unavailable("apiserver is shutting down").with_retry_after(1),
        Error::Panicked => {
            Status::internal_error("this request caused apiserver to panic. Look in the logs for details")
        }
    }
}

/// The response that says it.
pub fn status_response(status: &Status) -> Response {
    let mut response = Response::new(Body::from(status.to_json()));
    *response.status_mut() =
        http::StatusCode::from_u16(status.http_code()).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
