//! Too much of everything: the server answers others, and its memory stays bounded.

use bytes::Bytes;
use cluster_tests::tools::is_soak;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// What an idle watch may cost, connection and TLS included: some 60 KiB were seen.
const BYTES_PER_WATCH: u64 = 160 << 10;
/// What a server may hold beside its watches: its code, caches, and one shelf's history of 8 MiB.
const BYTES_OF_SERVER: u64 = 160 << 20;

#[test]
fn idle_watches_cost_little_and_all_of_them_see_a_change() {
    let watches: u64 = if is_soak() { 10_000 } else { 1_000 };
    on_both(|server| {
        let client = server.admin();
        block_on(async {
            let mut bodies = Vec::new();
            for _ in 0..watches {
                let request = client.request(Method::GET, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=0"));
                bodies.push(client.open(request, Bytes::new()).await.into_body());
            }
            let resident = server.resident_bytes();
            assert!(resident > 0 && resident < BYTES_OF_SERVER + watches * BYTES_PER_WATCH, "{resident} bytes");
            client.create(CONFIG_MAPS, &config_map("a")).await;
            for body in &mut bodies {
                let frame = body.frame().await.expect("the watch goes on").unwrap();
                assert!(frame.into_data().unwrap().starts_with(b"{\"type\":\"ADDED\""));
            }
        });
    });
}

#[test]
fn readers_that_do_not_read_hold_nobody_up_and_are_ended() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let mut slow = Vec::new();
        for _ in 0..100 {
            let request = client.request(Method::GET, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=0"));
            slow.push(client.open(request, Bytes::new()).await.into_body());
        }
        // Far more than the sockets and queues of a reader hold.
        let mut object = config_map("big");
        object["data"]["a"] = "x".repeat(1 << 19).into();
        assert_eq!(client.create(CONFIG_MAPS, &object).await.status, 201);
        for round in 0..60 {
            object["data"]["round"] = round.to_string().into();
            assert_eq!(client.update(&format!("{CONFIG_MAPS}/big"), &object).await.status, 200);
        }
        let resident = server.resident_bytes();
        assert!(resident < 4 * BYTES_OF_SERVER, "{resident} bytes");
    });
}

#[test]
fn requests_that_never_end_and_heads_without_end_hurt_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let mut unfinished = Vec::new();
        for _ in 0..50 {
            let mut stream = client.stream(None).await.unwrap();
            stream
                .write_all(b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
                .await
                .unwrap();
            unfinished.push(stream);
        }
        let mut endless = client.stream(None).await.unwrap();
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
fn streams_reset_in_a_loop_end_at_worst_their_own_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let stream = TokioIo::new(client.stream(Some(b"h2")).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), stream).await.unwrap();
        let driving = async { drop(connection.await) };
        let resetting = async {
            for _ in 0..5_000 {
                let request = http::Request::get(format!("https://{}{CONFIG_MAPS}?watch=1", server.address()));
                let sending = sender.send_request(request.body(Full::default()).unwrap());
                // Dropped as soon as it was begun, which resets its stream.
                if futures_util::future::poll_immediate(sending).await.is_some_and(|ended| ended.is_err()) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        futures_util::future::select(Box::pin(driving), Box::pin(resetting)).await;
        assert_eq!(client.get("/readyz").await.status, 200);
        assert_eq!(client.create(CONFIG_MAPS, &config_map("after")).await.status, 201);
    });
}
