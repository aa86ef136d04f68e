//! Responses that the client does not read: their memory and their in-flight seats.

use bytes::Bytes;
use cluster_tests::wait::eventually;
use http_body_util::Full;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::*;

/// The server's limit of streams per connection.
const WATCHES: usize = 250;
const OBJECTS: usize = 500;
const OBJECT_BYTES: usize = 100_000;
/// Memory limit for 250 unread watches, besides the 50 MB of objects that they share.
const SHARED_MEMORY_MAX: u64 = 64 << 20;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const STREAMING_LIST: &str = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

type UnreadRequestSender = SendRequest<Full<Bytes>>;

/// Connects with a window of 64 KB per stream, so that unread responses block.
async fn connect_http2(client: &Client) -> UnreadRequestSender {
    let stream = TokioIo::new(client.tls_stream(Some(b"h2")).await.unwrap());
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(65_535).initial_connection_window_size(1 << 30);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the task ends with the connection")]
    tokio::spawn(connection);
    sender
}

fn list_request(client: &Client, query: &str, accept: &str) -> http::Request<Full<Bytes>> {
    let uri = format!("https://{}{CONFIG_MAPS_PATH}?{query}", client.address());
    http::Request::get(uri).header("accept", accept).body(Full::default()).unwrap()
}

async fn create_objects(client: &Client, objects: usize) {
    let mut sender = connect_http2(client).await;
    let data = "x".repeat(OBJECT_BYTES);
    for number in 0..objects {
        let mut object = config_map(&format!("big-{number}"));
        object["data"]["a"] = data.clone().into();
        let uri = format!("https://{}{CONFIG_MAPS_PATH}", client.address());
        let request = http::Request::post(uri).header("content-type", JSON).body(Full::from(object.to_string()));
        assert_eq!(sender.send_request(request.unwrap()).await.unwrap().status(), 201);
    }
}

#[test]
fn unread_watches_share_their_initial_objects() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        create_objects(&client, OBJECTS).await;
        // Memory freed after creating the objects must not hide memory taken by watches.
        let mut least = server.resident_bytes();
        let mut assert_cheap = |what: &str| {
            let resident = server.resident_bytes();
            least = least.min(resident);
            let more = resident - least;
            assert!(more < SHARED_MEMORY_MAX, "unread watches cost {more} bytes: {what}");
        };
        let with_objects = "includeObject=Object";
        for (query, accept) in
            [("", JSON), (STREAMING_LIST, JSON), (with_objects, TABLE), (STREAMING_LIST, PARTIAL), ("", PARTIAL)]
        {
            let mut sender = connect_http2(&client).await;
            let mut unread = Vec::new();
            for number in 1..=WATCHES {
                let response =
                    sender.send_request(list_request(&client, &format!("watch=1&{query}"), accept)).await.unwrap();
                assert_eq!(response.status(), 200);
                unread.push(response);
                assert_cheap(&format!("{number} {query} {accept}"));
            }
            assert_eq!(client.get("/readyz").await.status, 200);
            assert_cheap(&format!("all {query} {accept}"));
        }
    });
}

#[test]
fn unread_list_holds_its_seat_until_it_is_read_dropped_or_timed_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--max-requests-inflight=2", "--request-timeout=5s"]);
    let client = server.admin();
    block_on(async {
        create_objects(&client, 10).await;
        for accept in [JSON, TABLE] {
            let query = "includeObject=Object";
            let mut sender = connect_http2(&client).await;
            let first = sender.send_request(list_request(&client, query, accept)).await.unwrap();
            let second = sender.send_request(list_request(&client, query, accept)).await.unwrap();
            assert_eq!((first.status(), second.status()), (http::StatusCode::OK, http::StatusCode::OK));
            let refused = sender.send_request(list_request(&client, query, accept)).await.unwrap();
            assert_eq!(refused.status(), 429, "{accept}");
            let whole =
                http_body_util::BodyExt::collect(first.into_body()).await.expect("a list that is read is complete");
            assert!(whole.to_bytes().len() > 10 * OBJECT_BYTES);
            eventually("reading the list releases its seat", async || {
                let again = sender.clone().send_request(list_request(&client, query, accept)).await.unwrap();
                if again.status() == 200 { Ok(()) } else { Err(again.status().to_string()) }
            })
            .await;
            // Both seats are released at the deadline of their requests, without reading or dropping the responses.
            let third = sender.send_request(list_request(&client, query, accept)).await.unwrap();
            assert_eq!(third.status(), 200, "{accept}");
            eventually("unread lists end at their deadline", async || {
                let again = sender.clone().send_request(list_request(&client, "limit=1", accept)).await.unwrap();
                if again.status() == 200 { Ok(()) } else { Err(again.status().to_string()) }
            })
            .await;
            drop((second, third));
        }
    });
}

#[test]
fn unread_list_of_an_http1_connection_is_ended_at_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--max-requests-inflight=1", "--request-timeout=2s"]);
    let client = server.admin();
    block_on(async {
        // More than the buffers of both sockets hold.
        create_objects(&client, 200).await;
        let mut unread = client.tls_stream(None).await.unwrap();
        unread.write_all(format!("GET {CONFIG_MAPS_PATH} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        unread.read_exact(&mut [0; 15]).await.unwrap();
        assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}?limit=1")).await.status, 429);
        eventually("the seat is released", async || {
            match client.get(&format!("{CONFIG_MAPS_PATH}?limit=1")).await.status {
                http::StatusCode::OK => Ok(()),
                status => Err(status.to_string()),
            }
        })
        .await;
        let mut rest = Vec::new();
        let whole = unread.read_to_end(&mut rest).await;
        assert!(whole.is_err() || rest.len() < 200 * OBJECT_BYTES, "the list was cut off: {}", rest.len());
    });
}
