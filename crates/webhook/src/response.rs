//! The status of a response in client-go's words.

use http::HeaderMap;
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use serde_json::Value;

use crate::WebhookError;

/// The part of a refusal's body that its error shows.
const MESSAGE_BYTES_MAX: usize = 2048;

/// Returns the error of a response; `None` if its status is a success.
pub(crate) fn refusal(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<WebhookError> {
    if (200..=206).contains(&code.as_u16()) {
        return None;
    }
    let message = status_message(body).unwrap_or_else(|| generic_message(code, headers, body));
    Some(WebhookError::Refused { code: code.as_u16(), message })
}

/// The seconds after which the webhook asks for the same request again.
pub(crate) fn retry_after(code: StatusCode, headers: &HeaderMap) -> Option<u64> {
    let asks = code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error();
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    asks.then_some(seconds)
}

/// The message of a Kubernetes Status.
fn status_message(body: &[u8]) -> Option<String> {
    let status: Value = serde_json::from_slice(body).ok()?;
    let field = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_failure = (field("kind"), field("apiVersion"), field("status")) == ("Status", "v1", "Failure");
    is_failure.then(|| field("message").to_owned())
}

fn generic_message(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Without a type Go treats the body as text.
    let is_text = content_type.is_empty() || content_type.starts_with("text/");
    let shown = &body[..body.len().min(MESSAGE_BYTES_MAX)];
    let shown = if is_text { String::from_utf8_lossy(shown).trim().to_owned() } else { "unknown".to_owned() };
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => shown,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if shown.is_empty() || shown == "unknown" => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        406 => shown,
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => format!("an error on the server ({shown:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_texts_of_client_go() {
        let text = |code: u16, content_type: &'static str, body: &str| {
            let mut headers = HeaderMap::new();
            if !content_type.is_empty() {
                headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
            }
            refusal(StatusCode::from_u16(code).unwrap(), &headers, body.as_bytes()).map(|error| error.to_string())
        };
        assert_eq!(text(200, "", "x"), None);
        assert_eq!(
            text(500, "text/plain; charset=utf-8", "out of \"order\"\n").unwrap(),
            "an error on the server (\"out of \\\"order\\\"\") has prevented the request from succeeding"
        );
        assert_eq!(
            text(502, "application/json", "{}").unwrap(),
            "an error on the server (\"unknown\") has prevented the request from succeeding"
        );
        assert_eq!(text(404, "", "").unwrap(), "the server could not find the requested resource");
        assert_eq!(
            text(302, "", "").unwrap(),
            "the server responded with the status code 302 but did not return more information"
        );
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}"#;
        assert_eq!(text(400, "application/json", status).unwrap(), "no");
    }
}
