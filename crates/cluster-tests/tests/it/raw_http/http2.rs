//! Malformed HTTP/2 requests: refused before anything is executed, or executed once as their sender.

use std::time::Duration;

use super::frames::{DATA, END_HEADERS, END_STREAM, H2Socket, HEADERS, StreamOutcome, field, frame, request_fields};
use super::site::Site;

/// Sends a header block, a body and trailers as jane.
fn send(site: &Site, fields: &[u8], body: Option<&str>, trailers: Option<&[u8]>) -> StreamOutcome {
    let end = |is_last: bool| if is_last { END_STREAM } else { 0 };
    let mut bytes = frame(HEADERS, END_HEADERS | end(body.is_none()), 1, fields);
    if let Some(body) = body {
        bytes.extend(frame(DATA, end(trailers.is_none()), 1, body.as_bytes()));
    }
    if let Some(trailers) = trailers {
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers));
    }
    site.runtime.block_on(async {
        let mut socket = H2Socket::open(&site.jane).await;
        let _ = socket.write(&bytes).await;
        tokio::time::timeout(Duration::from_secs(20), socket.outcome(1)).await.expect("the stream ends in time")
    })
}

fn fields(list: &[(&str, &str)]) -> Vec<u8> {
    list.iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// Fields that make a request malformed.
const MALFORMED: &[&[(&str, &str)]] = &[
    &[("connection", "x-remote-user"), ("x-remote-user", "root")],
    &[("connection", "keep-alive")],
    &[("keep-alive", "timeout=5")],
    &[("proxy-connection", "x-remote-user")],
    &[("transfer-encoding", "chunked")],
    &[("upgrade", "websocket")],
    &[("te", "gzip")],
    &[("content-length", "1")],
    &[("content-length", "3")],
    &[("content-length", "2"), ("content-length", "3")],
    &[("content-length", "+2")],
    &[("content-length", "2, 2")],
    &[("x-a", "b\r\nx-remote-user: root")],
    &[("x-a", "b\nc")],
    &[("x-a", "b\0c")],
    &[("X-Remote-User", "root")],
    &[("x-a ", "b")],
    &[("x-remote-user: root\r\nx-a", "b")],
    &[("", "b")],
    &[(":path", "/version")],
    &[(":remote-user", "root")],
    &[(":status", "200")],
    &[(":protocol", "websocket")],
];

/// Fields that change neither the user nor the framing.
const HARMLESS: &[&[(&str, &str)]] = &[
    &[("host", "other"), ("x-forwarded-host", "another")],
    &[("content-length", "2"), ("content-length", "2")],
    &[("x-remote-user", "root"), ("x-remote-group", "system:masters")],
    &[("x_remote_user", "root"), ("x-remote_group", "system:masters")],
    &[("te", "trailers"), ("trailer", "x-remote-user")],
];

fn check_cases(mut site: Site) {
    let path = site.path;
    let target = |case: &str| format!("{path}?as=jane&case={case}");
    for (number, more) in MALFORMED.iter().enumerate() {
        let all = [request_fields("POST", &target(&format!("bad-{number}"))), fields(more)].concat();
        let outcome = send(&site, &all, Some("{}"), None);
        assert!(!matches!(outcome, StreamOutcome::Response(_)), "{}: {more:?}: {outcome:?}", site.name);
        site.check_joe_is_served();
    }
    let trailers = fields(&[("x-remote-user", "root"), ("x-remote-group", "system:masters")]);
    for (number, more) in HARMLESS.iter().enumerate() {
        let all = [request_fields("POST", &target(&format!("good-{number}"))), fields(more)].concat();
        match send(&site, &all, Some("{}"), Some(&trailers)) {
            StreamOutcome::Response(body) => site.check_names("jane", &body),
            other @ (StreamOutcome::Reset | StreamOutcome::ConnectionClosed) => {
                panic!("{}: {more:?}: {other:?}", site.name)
            }
        }
        site.check_joe_is_served();
    }
    // Requests without a path of their own.
    let connect = fields(&[(":method", "CONNECT"), (":authority", "x:443"), ("x-remote-user", "root")]);
    match send(&site, &connect, None, None) {
        StreamOutcome::Response(body) => assert!(body.contains("CONNECT"), "{}: {body}", site.name),
        StreamOutcome::Reset | StreamOutcome::ConnectionClosed => {}
    }
    for path in ["", "*", "x", "https://other/version", "/ver sion"] {
        let all = fields(&[(":method", "GET"), (":scheme", "https"), (":authority", "x"), (":path", path)]);
        let outcome = send(&site, &all, None, None);
        assert!(
            !matches!(&outcome, StreamOutcome::Response(body) if body.contains("gitVersion")),
            "{path}: {outcome:?}"
        );
    }
    site.check_joe_is_served();
    site.check_users_of_executions();
    let name = site.name;
    let executions = site.executions();
    let is_executed = |tag: &str| executions.iter().any(|execution| execution.target.contains(tag));
    for (number, more) in HARMLESS.iter().enumerate() {
        assert!(is_executed(&format!("case=good-{number}")), "{name}: {more:?}");
    }
    // Only a wrong length is found after the request has begun.
    for (number, more) in MALFORMED.iter().enumerate().filter(|(_, more)| more[0].0 != "content-length") {
        assert!(!is_executed(&format!("case=bad-{number}")), "{name}: {more:?}");
    }
}

#[test]
fn malformed_http2_requests_are_reset_by_a_server() {
    check_cases(Site::server());
}

#[test]
fn malformed_http2_requests_are_reset_before_they_reach_a_peer() {
    check_cases(Site::forwarding_server());
}

#[test]
fn malformed_http2_requests_are_reset_by_a_gateway() {
    check_cases(Site::gateway());
}
