//! Floods and slow clients: memory stays bounded, and other clients are served meanwhile.

use std::cell::Cell;
use std::pin::pin;
use std::time::{Duration, Instant};

use cluster_tests::client::ClientCredentials;
use cluster_tests::gateway::PEER_PROXY_OFF;
use cluster_tests::tools::is_soak;
use cluster_tests::{Client, ControlPlane, RunningGateway, TestStore};
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, H2Socket, HEADERS, PAYLOAD_MAX, PING, RST_STREAM, SETTINGS, StreamOutcome,
    field, frame, request_fields, string,
};
use crate::block_on;

/// Growth of resident memory that a flood may cause, with the allocator's slack.
const GROWTH_MAX: u64 = 64 << 20;
/// The server ends a flood, or has read all of it, within this time.
const FLOOD_TIMEOUT: Duration = Duration::from_secs(90);
/// Limit for one request of another client during a flood, on a loaded machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A request of the other client; the gateway forwards it.
const NAMESPACE_PATH: &str = "/api/v1/namespaces/default";

/// A server, and a gateway in front of it. Both get every flood.
struct Scene {
    gateway: RunningGateway,
    plane: ControlPlane<'static>,
}

impl Scene {
    fn start() -> Self {
        let mut plane = ControlPlane::new(TestStore::Sqlite);
        plane.start("one", &[PEER_PROXY_OFF]);
        let gateway = RunningGateway::start("gateway", &plane, &["one"], &[]);
        Self { gateway, plane }
    }

    fn resident_bytes(&self) -> [u64; 2] {
        [self.plane.server("one").resident_bytes(), self.gateway.resident_bytes()]
    }

    /// Runs a flood against each process while another client sends requests.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "callers pass a closure")]
    fn check(&self, flood: impl AsyncFn(&Client)) {
        let server = self.plane.server("one");
        let clients = [
            (server.client_with(ClientCredentials::Anonymous), server.admin()),
            (self.gateway.client_with(ClientCredentials::Anonymous), self.gateway.admin()),
        ];
        for (attacker, other) in clients {
            let before = self.resident_bytes();
            let peak = Cell::new(before);
            let request = async || {
                let started = Instant::now();
                assert_eq!(other.get(NAMESPACE_PATH).await.status, StatusCode::OK);
                assert!(started.elapsed() < REQUEST_TIMEOUT, "served after {:?}", started.elapsed());
                let (now, highest) = (self.resident_bytes(), peak.get());
                peak.set([now[0].max(highest[0]), now[1].max(highest[1])]);
            };
            block_on(async {
                let flooding = pin!(tokio::time::timeout(FLOOD_TIMEOUT, flood(&attacker)));
                let requesting = pin!(async {
                    loop {
                        request().await;
                    }
                });
                match futures_util::future::select(flooding, requesting).await {
                    futures_util::future::Either::Left((ended, _)) => ended.expect("the flood ends in time"),
                    futures_util::future::Either::Right((never, _)) => never,
                }
                request().await;
            });
            for (before, peak) in before.into_iter().zip(peak.get()) {
                assert!(before > 0 && peak < before + GROWTH_MAX, "{before} bytes became {peak}");
            }
        }
    }
}

/// Writes until the server closes the connection, and returns how many bytes it took.
async fn write_until_closed(socket: &mut H2Socket, piece: &[u8], limit: usize) -> usize {
    let mut written = 0;
    while written < limit && socket.write(piece).await.is_ok() {
        written += piece.len();
    }
    written
}

#[test]
fn continuation_and_hpack_floods_end_with_the_connection() {
    const FLOOD_BYTES: usize = 256 << 20;
    let scene = Scene::start();
    // A header block that never ends.
    scene.check(async |attacker| {
        let mut socket = H2Socket::open(attacker).await;
        let _ = socket.write(&frame(HEADERS, END_STREAM, 1, &request_fields("GET", "/version"))).await;
        let piece = frame(CONTINUATION, 0, 1, &field("a", &"b".repeat(PAYLOAD_MAX - 8)));
        let written = write_until_closed(&mut socket, &piece, FLOOD_BYTES).await;
        assert!(written < FLOOD_BYTES, "the connection is closed");
    });
    scene.check(async |attacker| {
        let mut socket = H2Socket::open(attacker).await;
        let _ = socket.write(&frame(HEADERS, END_STREAM, 1, &request_fields("GET", "/version"))).await;
        // Frames without content count as well.
        let written = write_until_closed(&mut socket, &frame(CONTINUATION, 0, 1, &[]).repeat(1_000), FLOOD_BYTES).await;
        assert!(written < FLOOD_BYTES, "the connection is closed");
    });
    // One indexed field of 4 KB, repeated by a byte each.
    scene.check(async |attacker| {
        let mut socket = H2Socket::open(attacker).await;
        let indexed = [vec![0x40], string("a"), string(&"b".repeat(4_000))].concat();
        let bomb = vec![0xbe; PAYLOAD_MAX];
        let start = [request_fields("GET", "/version"), indexed].concat();
        for stream in (1..2_000).step_by(2) {
            let mut block = frame(HEADERS, END_STREAM, stream, if stream == 1 { &start } else { &bomb });
            for _ in 0..3 {
                block.extend(frame(CONTINUATION, 0, stream, &bomb));
            }
            block.extend(frame(CONTINUATION, END_HEADERS, stream, &bomb));
            if socket.write(&block).await.is_err() {
                return;
            }
        }
    });
}

#[test]
fn frame_floods_do_not_affect_other_clients() {
    let scene = Scene::start();
    // Requests that are reset at once.
    scene.check(async |attacker| {
        let mut socket = H2Socket::open(attacker).await;
        let fields = request_fields("GET", "/api/v1/configmaps?watch=1");
        for stream in (1..100_000).step_by(2) {
            let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields);
            let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            if socket.write(&[request, reset].concat()).await.is_err() {
                return;
            }
        }
        panic!("resets in a loop end the connection");
    });
    // Frames that ask for an answer each, which the client does not read.
    for flood in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])] {
        scene.check(async |attacker| {
            let mut socket = H2Socket::open(attacker).await;
            let piece = flood.repeat(1_000);
            // The server stops reading once its answers are not read.
            let writing = async { while socket.write(&piece).await.is_ok() {} };
            let _ = tokio::time::timeout(Duration::from_secs(1), writing).await;
        });
    }
}

/// Reads the status of the response, or nothing from a closed connection.
async fn send_head(attacker: &Client, head: &[u8]) -> String {
    let mut stream = attacker.tls_stream(None).await.unwrap();
    let mut answer = Vec::new();
    // The server may close before it has read everything.
    let _ = stream.write_all(head).await;
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).split("\r\n").next().unwrap_or_default().to_owned()
}

#[test]
fn header_floods_are_refused() {
    let scene = Scene::start();
    let too_large = "HTTP/1.1 431 Request Header Fields Too Large";
    let many = (0..50_000).map(|number| format!("a{number}: b\r\n")).collect::<String>();
    let floods = [many, "a: b\r\n".repeat(500_000), format!("a: {}", "b".repeat(32 << 20)), "b".repeat(32 << 20)];
    for flood in floods {
        scene.check(async |attacker| {
            let head = format!("GET /version HTTP/1.1\r\nHost: x\r\n{flood}\r\n\r\n");
            for _ in 0..5 {
                let status = send_head(attacker, head.as_bytes()).await;
                assert!(status.is_empty() || status == too_large, "{status}");
            }
        });
    }
    let line = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "b".repeat(1 << 20));
    scene.check(async |attacker| {
        let status = send_head(attacker, line.as_bytes()).await;
        assert!(status.is_empty() || status.starts_with("HTTP/1.1 4"), "{status}");
    });
    // More distinct names than a header map holds, in less than the largest header list.
    let names = (0..29_000).flat_map(|number| field(&format!("{number:x}"), "")).collect::<Vec<u8>>();
    scene.check(async |attacker| {
        let mut socket = H2Socket::open(attacker).await;
        let mut block = frame(HEADERS, END_STREAM, 1, &request_fields("GET", "/version"));
        names.chunks(PAYLOAD_MAX).for_each(|part| block.extend(frame(CONTINUATION, 0, 1, part)));
        block.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
        let _ = socket.write(&block).await;
        let outcome = socket.outcome(1).await;
        assert!(!matches!(&outcome, StreamOutcome::Response(body) if body.contains("gitVersion")), "{outcome:?}");
    });
}

/// A request that a gateway accepts and its upstream does not is the client's fault.
#[test]
fn headers_that_only_the_upstream_refuses_do_not_count_against_it() {
    let scene = Scene::start();
    let (admin, path) = (scene.gateway.admin(), format!("{NAMESPACE_PATH}?big"));
    block_on(async {
        for size in [300_000, 500_000, 1_000_000] {
            for _ in 0..4 {
                let mut socket = H2Socket::open(&admin).await;
                let block = [request_fields("GET", &path), field("a", &"b".repeat(size))].concat();
                let mut bytes = frame(HEADERS, END_STREAM, 1, &[]);
                block.chunks(PAYLOAD_MAX).for_each(|part| bytes.extend(frame(CONTINUATION, 0, 1, part)));
                bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
                let _ = socket.write(&bytes).await;
                tokio::time::timeout(REQUEST_TIMEOUT, socket.outcome(1)).await.expect("an answer in time");
                assert_eq!(admin.get(NAMESPACE_PATH).await.status, StatusCode::OK);
            }
        }
        let metrics = String::from_utf8_lossy(&admin.get("/metrics").await.body).into_owned();
        assert!(metrics.contains("unskew_upstream_ready{"), "{metrics}");
        assert!(!metrics.contains("unskew_peer_transport_failures_total{"), "{metrics}");
    });
}

#[test]
fn slow_clients_do_not_affect_others() {
    let scene = Scene::start();
    let beginnings: [&[u8]; 4] = [
        b"GET /ver",
        b"GET /version HTTP/1.1\r\nHost: x\r\nX-A: ",
        b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{",
        b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n{",
    ];
    scene.check(async |attacker| {
        let mut streams = Vec::new();
        for number in 0..200 {
            let mut stream = attacker.tls_stream(None).await.unwrap();
            stream.write_all(beginnings[number % beginnings.len()]).await.unwrap();
            streams.push(stream);
        }
        for _ in 0..3 {
            for stream in &mut streams {
                let _ = stream.write_all(b"x").await;
            }
        }
        if is_soak() {
            // The timeout of a request head ends those that still send one.
            for stream in streams.iter_mut().step_by(beginnings.len()) {
                let mut rest = Vec::new();
                let closing = stream.read_to_end(&mut rest);
                let _ = tokio::time::timeout(Duration::from_secs(60), closing).await.expect("closed in time");
            }
        }
    });
}
