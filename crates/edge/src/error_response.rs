//! The only match from failures to responses.

use api::Status;
use api::duration::DurationError;
use api::media::{Encoding, ObjectOffer, negotiate};
use api::protobuf::encode_status;
use forward::UnsendableUser;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};

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
    #[error("invalid timeout specified in the request URL - {0}")]
    InvalidTimeout(DurationError),
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
        Error::InvalidTimeout(_) => Status::bad_request(error.to_string()),
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

/// The response with a Status, in protobuf if the client prefers it. JSON stay those on which a server tries the next peer,
/// because it reads no other encoding.
pub fn status_response(status: &Status, accept: &str) -> Response {
    let is_protobuf = accept.contains(Encoding::Protobuf.media_type())
        && !status.was_not_executed()
        && negotiate(accept, ObjectOffer::OBJECT_ONLY).is_ok_and(|accepted| accepted.encoding == Encoding::Protobuf);
    let mut response = json_response(if is_protobuf { encode_status(status) } else { status.to_json() });
    if is_protobuf {
        let media_type = HeaderValue::from_static(Encoding::Protobuf.media_type());
        response.headers_mut().insert(CONTENT_TYPE, media_type);
    }
    *response.status_mut() =
        http::StatusCode::from_u16(status.http_code()).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    with_warnings(response, &status.warnings)
}

/// Characters of all warnings of a response above which they are shortened, and then left out, as in kube-apiserver. Clients and
/// servers refuse responses with long headers.
const WARNINGS_LENGTH_MAX: usize = 4 * 1024;
/// Characters of a shortened warning.
const SHORTENED_LENGTH_MAX: usize = 256;

/// Adds a `Warning` header per warning, each text once.
pub fn with_warnings(mut response: Response, warnings: &[impl AsRef<str>]) -> Response {
    if warnings.is_empty() {
        return response;
    }
    let present = response.headers().get_all(WARNING);
    let mut texts: Vec<String> = present.iter().filter_map(warning_text).collect();
    // Those of an extension API server.
    let foreign: Vec<HeaderValue> = present.iter().filter(|value| warning_text(value).is_none()).cloned().collect();
    let mut length: usize = texts.iter().map(|text| text.chars().count()).sum();
    let mut is_shortened = false;
    for warning in warnings.iter().map(AsRef::as_ref).filter(|warning| !warning.is_empty()) {
        if length >= WARNINGS_LENGTH_MAX && is_shortened {
            break;
        }
        if texts.iter().any(|known| known == warning) || warning_header(warning).is_none() {
            continue;
        }
        texts.push(warning.to_owned());
        length += warning.chars().count();
        if length > WARNINGS_LENGTH_MAX {
            is_shortened = true;
            texts.iter_mut().for_each(|text| *text = text.chars().take(SHORTENED_LENGTH_MAX).collect());
            length = texts.iter().map(|text| text.chars().count()).sum();
        }
    }
    let headers = response.headers_mut();
    headers.remove(WARNING);
    let values = foreign.into_iter().chain(texts.iter().filter_map(|text| warning_header(text)));
    values.for_each(|value| _ = headers.append(WARNING, value));
    response
}

/// The header of a warning; `None` if its text has characters that no header can have.
fn warning_header(text: &str) -> Option<HeaderValue> {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::try_from(format!("299 - \"{text}\"")).ok()
}

/// The text of a header that [`warning_header`] made.
fn warning_text(header: &HeaderValue) -> Option<String> {
    let text = std::str::from_utf8(header.as_bytes()).ok()?.strip_prefix("299 - \"")?.strip_suffix('"')?;
    Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;

    fn texts(response: &Response) -> Vec<String> {
        response.headers().get_all(WARNING).iter().map(|value| warning_text(value).expect("a warning")).collect()
    }

    #[test]
    fn status_is_protobuf_if_the_client_prefers_it_without_a_transform() {
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
        let is_protobuf = |status: &Status, accept: &str| {
            let response = status_response(status, accept);
            let Body::Full(body) = response.body() else { panic!("the body is whole") };
            let is_protobuf = body.starts_with(b"k8s\0");
            assert_eq!(response.headers()[CONTENT_TYPE] == PROTOBUF, is_protobuf, "{accept}");
            is_protobuf
        };
        let status = Status::bad_request("no");
        assert!(is_protobuf(&status, PROTOBUF));
        assert!(is_protobuf(&status, &format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{PROTOBUF},application/json")));
        assert!(!is_protobuf(&status, &format!("application/json,{PROTOBUF}")));
        assert!(!is_protobuf(&status, &format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io")));
        assert!(!is_protobuf(&status, ""));
        let not_ready = Status::service_unavailable("no").with_cause(api::status::CAUSE_PEER_NOT_READY, "");
        assert!(!is_protobuf(&not_ready, PROTOBUF), "the forwarder reads JSON");
    }

    #[test]
    fn warnings_are_added_once_each() {
        let response = with_warnings(Response::default(), &["a \"b\" \\", "a \"b\" \\", "", "c\nd"]);
        let mut response = with_warnings(response, &["e", "a \"b\" \\"]);
        assert_eq!(texts(&response), ["a \"b\" \\", "e"]);
        response.headers_mut().insert(WARNING, HeaderValue::from_static("299 other \"x\""));
        assert_eq!(with_warnings(response, &["y"]).headers().get_all(WARNING).iter().count(), 2);
    }

    #[test]
    fn long_warnings_are_shortened_and_many_left_out() {
        let long = "x".repeat(3 << 20);
        let response = with_warnings(Response::default(), &["short", &long]);
        assert_eq!(texts(&response), ["short".to_owned(), "x".repeat(SHORTENED_LENGTH_MAX)]);
        let many: Vec<String> = (0..1000).map(|number| format!("{number:0300}")).collect();
        let found = texts(&with_warnings(Response::default(), &many));
        let length: usize = found.iter().map(String::len).sum();
        assert!(found.iter().all(|text| text.len() == SHORTENED_LENGTH_MAX), "{found:?}");
        assert!((WARNINGS_LENGTH_MAX..WARNINGS_LENGTH_MAX + SHORTENED_LENGTH_MAX).contains(&length), "{length}");
    }
}
