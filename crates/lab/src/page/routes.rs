//! Routing of page requests. Pure.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

/// What the page server sends for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageResponse {
    /// A file compiled into the binary.
    File { text: &'static str, content_type: &'static str },
    /// The current snapshot as JSON.
    Snapshot,
    /// Stream of snapshots as server-sent events.
    Events,
    /// An error with a one-sentence body.
    Rejected { status: StatusCode, message: &'static str },
}

const PAGE_FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("/script.js", "text/javascript; charset=utf-8", include_str!("script.js")),
    ("/icon.svg", "image/svg+xml", include_str!("icon.svg")),
];

/// Allow only our own files, no framing and no cross-origin reads; no caching, so that a new binary shows its own page.
const SECURITY_HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
];

/// Selects the response. `host` is the Host header, checked against DNS rebinding.
pub(super) fn route(method: &Method, path: &str, host: &str) -> PageResponse {
    if !is_loopback_host(host) {
        let why = "This page is available as localhost or 127.0.0.1 only.\n";
        return PageResponse::Rejected { status: StatusCode::MISDIRECTED_REQUEST, message: why };
    }
    if method != Method::GET && method != Method::HEAD {
        let why = "This page is read-only; see `unskew --help` for commands.\n";
        return PageResponse::Rejected { status: StatusCode::METHOD_NOT_ALLOWED, message: why };
    }
    match path {
        "/snapshot.json" => PageResponse::Snapshot,
        "/events" => PageResponse::Events,
        path => match PAGE_FILES.iter().find(|(known, ..)| *known == path) {
            Some((_, kind, text)) => PageResponse::File { text, content_type: kind },
            None => PageResponse::Rejected {
                status: StatusCode::NOT_FOUND,
                message: "Not found; try /, /snapshot.json or /events.\n",
            },
        },
    }
}

/// True for `localhost` and loopback addresses with any port, as the port may be forwarded.
fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl PageResponse {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::File { .. } | Self::Snapshot | Self::Events => StatusCode::OK,
            Self::Rejected { status, .. } => status,
        }
    }

    pub(super) fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in SECURITY_HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let kind = match self {
            Self::File { content_type: kind, .. } => kind,
            Self::Snapshot => "application/json",
            Self::Events => "text/event-stream",
            Self::Rejected { .. } => "text/plain; charset=utf-8",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.status() == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &Method, path: &str, host: &str, expected: &str) {
        let found = route(method, path, host);
        let kind = found.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        assert_eq!(format!("{} {kind}", found.status().as_u16()), expected, "{method} {path} at {host}");
    }

    #[test]
    fn page_files_snapshot_and_events_are_routed() {
        check(&Method::GET, "/", "127.0.0.1:20001", "200 text/html; charset=utf-8");
        check(&Method::HEAD, "/style.css", "localhost:20001", "200 text/css; charset=utf-8");
        check(&Method::GET, "/script.js", "localhost", "200 text/javascript; charset=utf-8");
        check(&Method::GET, "/icon.svg", "[::1]:9", "200 image/svg+xml");
        check(&Method::GET, "/snapshot.json", "LOCALHOST:9", "200 application/json");
        check(&Method::GET, "/events", "127.0.0.2", "200 text/event-stream");
        check(&Method::GET, "/../lab.json", "127.0.0.1", "404 text/plain; charset=utf-8");
    }

    #[test]
    fn page_rejects_methods_other_than_get_and_head() {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            check(&method, "/snapshot.json", "127.0.0.1", "405 text/plain; charset=utf-8");
        }
        assert_eq!(route(&Method::POST, "/", "localhost").headers()[header::ALLOW], "GET, HEAD");
    }

    #[test]
    fn page_rejects_hosts_other_than_loopback() {
        for host in ["evil.example:20001", "127.0.0.1.evil.example", "10.0.0.1:20001", "localhost.evil.example", ""] {
            check(&Method::GET, "/snapshot.json", host, "421 text/plain; charset=utf-8");
        }
    }

    #[test]
    fn page_files_load_nothing_from_other_origins() {
        for (path, _, text) in PAGE_FILES {
            let addresses = text.match_indices("http").map(|(at, _)| text[at..].split(['"', '\'']).next());
            let foreign: Vec<_> =
                addresses.flatten().filter(|address| !address.starts_with("http://www.w3.org/")).collect();
            assert!(foreign.is_empty(), "{path}: {foreign:?}");
            assert!(
                !text.contains("innerHTML") && !text.contains("style=\""),
                "{path}: breaks the content security policy or escaping"
            );
        }
    }
}
