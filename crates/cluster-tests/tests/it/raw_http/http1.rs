//! Malformed and ambiguous HTTP/1.1 framing: every request is executed once as its sender, or refused.

use super::site::Site;

/// What becomes of a raw request and of the request that follows it on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Neither is executed: a 4xx or 501, or none, and the connection is closed.
    Refused,
    /// The first one is executed, and the connection is closed after its response.
    ServedAlone,
    /// Both are executed, one after the other.
    ServedWithNext,
}

use Outcome::{Refused, ServedAlone, ServedWithNext};

/// Header lines, body and outcome. `NEXT` in a body stands for a whole request inside of it.
const CASES: &[(&str, &str, Outcome)] = &[
    // Content-Length and Transfer-Encoding: the latter counts, and nothing after it is read.
    ("Content-Length: 300\r\nTransfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", ServedAlone),
    ("Transfer-Encoding: chunked\r\nContent-Length: 2", "2\r\n{}\r\n0\r\n\r\n", ServedAlone),
    // Encodings that servers read differently.
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "2\r\n{}\r\n0\r\n\r\n", Refused),
    ("Transfer-Encoding: x\r\nTransfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", Refused),
    ("Transfer-Encoding: gzip, chunked", "2\r\n{}\r\n0\r\n\r\n", Refused),
    ("Transfer-Encoding: chunked, chunked", "2\r\n{}\r\n0\r\n\r\n", Refused),
    ("Transfer-Encoding: identity\r\nContent-Length: 2", "{}", Refused),
    ("Transfer-Encoding: \x0bchunked", "2\r\n{}\r\n0\r\n\r\n", Refused),
    ("Transfer-Encoding : chunked\r\nContent-Length: 2", "{}", Refused),
    ("Transfer-Encoding\r\n: chunked\r\nContent-Length: 2", "{}", Refused),
    // Lengths.
    ("Content-Length: 2\r\nContent-Length: 3", "{}", Refused),
    ("Content-Length: 2\r\nContent-Length: 2", "{}", ServedWithNext),
    ("Content-Length: 2, 2", "{}", Refused),
    ("Content-Length: +2", "{}", Refused),
    ("Content-Length: 0x2", "{}", Refused),
    ("Content-Length: -1", "{}", Refused),
    ("Content-Length: 18446744073709551618", "{}", Refused),
    // Chunks.
    ("Transfer-Encoding: chunked", "2;name=value\r\n{}\r\n0\r\n\r\n", ServedWithNext),
    ("Transfer-Encoding: chunked", "2;a\nb\r\n{}\r\n0\r\n\r\n", Refused),
    ("Transfer-Encoding: chunked", "2\n{}\n0\n\n", Refused),
    ("Transfer-Encoding: chunked", "0x2\r\n{}\r\n0\r\n\r\n", Refused),
    ("Transfer-Encoding: chunked", "10000000000000002\r\n{}\r\n0\r\n\r\n", Refused),
    ("Transfer-Encoding: chunked", "2\r\n{}NEXT\r\n0\r\n\r\n", Refused),
    // Header lines.
    ("Content-Length: 2\r\nX-Folded: a\r\n X-Remote-User: root", "{}", Refused),
    ("Content-Length: 2\r\nX-A: b\rX-Remote-User: root", "{}", Refused),
    ("Content-Length: 2\r\nX-A: b\0c", "{}", Refused),
    ("Content-Length: 2\r\nX-\0A: b", "{}", Refused),
    ("Content-Length: 2\r\nX-Remote-User : root", "{}", Refused),
    ("Content-Length: 2\r\n: root", "{}", Refused),
    ("Content-Length: 2\r\nHost: other", "{}", Refused),
    ("Content-Length: 2\nX-A: b\nX-B: c", "{}", ServedWithNext),
];

/// The request that follows on the connection, or hides in a body.
fn next_request(path: &str, number: usize) -> String {
    format!(
        "POST {path}?as=jane&next={number} HTTP/1.1\r\nHost: x\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
}

fn check_outcome(site: &Site, label: &str, request: &str, next: &str, outcome: Outcome) {
    let responses = site.exchange(format!("{request}{next}").as_bytes());
    let label = format!("{}: {label}: {responses:?}", site.name);
    match outcome {
        Refused => {
            assert!(responses.len() <= 1, "{label}");
            let is_refusal = |status: u16| (400..500).contains(&status) && status != 403 || status == 501;
            assert!(responses.iter().all(|response| is_refusal(response.status)), "{label}");
        }
        ServedAlone | ServedWithNext => {
            let expected = if outcome == ServedAlone { 1 } else { 2 };
            assert_eq!(responses.len(), expected, "{label}");
            responses.iter().for_each(|response| site.check_names("jane", &response.body));
        }
    }
    site.check_joe_is_served();
}

fn check_cases(mut site: Site) {
    let path = site.path;
    for (number, (headers, body, outcome)) in CASES.iter().enumerate() {
        let next = next_request(path, number);
        let body = body.replace("NEXT", &next);
        let request = format!(
            "POST {path}?as=jane&case={number} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}\r\n\r\n{body}"
        );
        check_outcome(&site, &format!("{headers:?} {body:?}"), &request, &next, *outcome);
    }
    let heads = [
        ("POST PATH HTTP/1.1", "", Refused),
        ("POST PATH HTTP/1.0", "Transfer-Encoding: chunked\r\nHost: x\r\n", Refused),
        ("POST PATH HTTP/2.0", "Host: x\r\n", Refused),
        ("POST PATH", "Host: x\r\n", Refused),
        ("POST PATH\0 HTTP/1.1", "Host: x\r\n", Refused),
        ("CONNECT PATH HTTP/1.1", "Host: x\r\n", Refused),
        ("CONNECT x:443 HTTP/1.1", "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", Refused),
        ("CONNECT x:443 HTTP/1.1", "Host: x\r\nContent-Length: 0\r\n", Refused),
        ("POST http://other.examplePATH HTTP/1.1", "Host: x\r\nContent-Length: 2\r\n", ServedWithNext),
        ("POST https://root@other.examplePATH HTTP/1.1", "Host: x\r\nContent-Length: 2\r\n", ServedWithNext),
    ];
    for (number, (line, headers, outcome)) in heads.into_iter().enumerate() {
        let number = CASES.len() + number;
        let line = line.replace("PATH", &format!("{path}?as=jane&case={number}"));
        let body = if headers.contains("Content-Length: 2") { "{}" } else { "" };
        let request = format!("{line}\r\n{headers}Content-Type: application/json\r\n\r\n{body}");
        check_outcome(&site, &request, &request, &next_request(path, number), outcome);
    }
    site.check_users_of_executions();
    let outcomes = CASES.iter().map(|(_, _, outcome)| *outcome).chain(heads.map(|(_, _, outcome)| outcome));
    let is_executed = |site: &mut Site, tag: String| {
        let tag = format!("{tag} ");
        site.executions().iter().any(|execution| format!("{} ", execution.target).contains(&tag))
    };
    for (number, outcome) in outcomes.enumerate() {
        let follows = is_executed(&mut site, format!("next={number}"));
        assert_eq!(follows, outcome == ServedWithNext, "{}: the request after case {number}", site.name);
        let is_served = outcome != Refused;
        assert!(!is_served || is_executed(&mut site, format!("case={number}")), "{}: case {number}", site.name);
    }
}

#[test]
fn ambiguous_framing_is_refused_or_read_one_way_by_a_server() {
    check_cases(Site::server());
}

#[test]
fn ambiguous_framing_is_refused_or_read_one_way_when_forwarded_to_a_peer() {
    check_cases(Site::forwarding_server());
}

#[test]
fn ambiguous_framing_is_refused_or_read_one_way_by_a_gateway() {
    check_cases(Site::gateway());
}
