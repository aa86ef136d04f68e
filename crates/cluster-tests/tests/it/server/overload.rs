//! Overload: other clients are served, and memory stays bounded.

use bytes::Bytes;
use cluster_tests::tools::is_soak;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::*;

/// Limit for an idle watch including connection and TLS; about 60 KiB were measured.
const BYTES_PER_WATCH_MAX: u64 = 160 << 10;
/// Limit for a server without its watches: code, caches, and one resource cache's history of 8 MiB.
const SERVER_BYTES_MAX: u64 = 160 << 20;

#[test]
fn idle_watches_use_bounded_memory_and_receive_events() {
    let watches: u64 = if is_soak() { 10_000 } else { 1_000 };
    for_each_store(|server| {
        let client = server.admin();
        block_on(async {
            let mut bodies = Vec::new();
            for _ in 0..watches {
                let request =
                    client.request_builder(Method::GET, &format!("{CONFIG_MAPS_PATH}?watch=1&resourceVersion=0"));
                bodies.push(client.send_streaming(request, Bytes::new()).await.into_body());
            }
            let resident = server.resident_bytes();
            assert!(resident > 0 && resident < SERVER_BYTES_MAX + watches * BYTES_PER_WATCH_MAX, "{resident} bytes");
            client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
            for body in &mut bodies {
                let frame = body.frame().await.expect("the watch goes on").unwrap();
                assert!(frame.into_data().unwrap().starts_with(b"{\"type\":\"ADDED\""));
            }
        });
    });
}

#[test]
fn slow_watchers_do_not_block_writers() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let mut slow = Vec::new();
        for _ in 0..100 {
            let request = client.request_builder(Method::GET, &format!("{CONFIG_MAPS_PATH}?watch=1&resourceVersion=0"));
            slow.push(client.send_streaming(request, Bytes::new()).await.into_body());
        }
        // Far more than sockets and queues of a reader hold.
        let mut object = config_map("big");
        object["data"]["a"] = "x".repeat(1 << 19).into();
        assert_eq!(client.create(CONFIG_MAPS_PATH, &object).await.status, 201);
        for round in 0..60 {
            object["data"]["round"] = round.to_string().into();
            assert_eq!(client.update(&format!("{CONFIG_MAPS_PATH}/big"), &object).await.status, 200);
        }
        let resident = server.resident_bytes();
        assert!(resident < 4 * SERVER_BYTES_MAX, "{resident} bytes");
    });
}

#[test]
fn unfinished_requests_do_not_affect_other_clients() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let mut unfinished = Vec::new();
        for _ in 0..50 {
            let mut stream = client.tls_stream(None).await.unwrap();
            stream
                .write_all(b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
                .await
                .unwrap();
            unfinished.push(stream);
        }
        let mut endless = client.tls_stream(None).await.unwrap();
        let mut refusal = Vec::new();
        let head = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "y".repeat(4 << 20));
        // The server may close before it has read everything.
        let _ = endless.write_all(head.as_bytes()).await;
        let _ = endless.read_to_end(&mut refusal).await;
        assert!(refusal.is_empty() || refusal.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&refusal));
        assert_eq!(client.get("/readyz").await.status, 200);
    });
}

#[test]
fn rapid_stream_resets_do_not_affect_other_connections() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let stream = TokioIo::new(client.tls_stream(Some(b"h2")).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), stream).await.unwrap();
        let driving = async { drop(connection.await) };
        let resetting = async {
            for _ in 0..5_000 {
                let request = http::Request::get(format!("https://{}{CONFIG_MAPS_PATH}?watch=1", server.address()));
                let sending = sender.send_request(request.body(Full::default()).unwrap());
                // Dropping the request right after it began resets its stream.
                if futures_util::future::poll_immediate(sending).await.is_some_and(|ended| ended.is_err()) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        futures_util::future::select(Box::pin(driving), Box::pin(resetting)).await;
        assert_eq!(client.get("/readyz").await.status, 200);
        assert_eq!(client.create(CONFIG_MAPS_PATH, &config_map("after")).await.status, 201);
    });
}
