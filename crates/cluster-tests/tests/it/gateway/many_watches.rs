//! Many watches while servers join and stop.

use std::time::Duration;

use bytes::Bytes;
use cluster_tests::WatchReader;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;

use super::load_balancing::connect_http2;
use super::*;
use crate::{CONFIG_MAPS_PATH, config_map};

/// Long enough for a loaded machine; only a failing test waits that long.
const FRAME_TIMEOUT: Duration = Duration::from_secs(60);
/// As many as the control plane of a medium cluster has.
const WATCHES: usize = 1_000;
const CONNECTIONS: usize = 10;

/// One of many watches: its server and the text received.
struct CrowdWatch {
    server: String,
    body: Incoming,
    text: String,
}

/// Result of reading a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchProgress {
    Received,
    Ended,
    Failed,
}

impl CrowdWatch {
    /// Reads until an object of this name was received, or the watch ended.
    async fn read_until_object(&mut self, name: &str) -> WatchProgress {
        let name = format!("\"name\":\"{name}\"");
        while !self.text.contains(&name) {
            match tokio::time::timeout(FRAME_TIMEOUT, self.body.frame())
                .await
                .expect("a frame or the end arrives in time")
            {
                None => return WatchProgress::Ended,
                Some(Err(_)) => return WatchProgress::Failed,
                Some(Ok(frame)) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    self.text.push_str(std::str::from_utf8(&bytes).unwrap());
                }
            }
        }
        self.text.clear();
        WatchProgress::Received
    }
}

/// Opens watches over a few HTTP/2 connections.
async fn open_watches(client: &Client, watches: usize) -> Vec<CrowdWatch> {
    let mut opened = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(connect_http2(client).await);
    }
    for number in 0..watches {
        let uri = format!("https://gateway{CONFIG_MAPS_PATH}?watch=1");
        let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
        let response = connections[number % CONNECTIONS].send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let server = response.headers()["x-unskew-served-by"].to_str().unwrap().to_owned();
        opened.push(CrowdWatch { server, body: response.into_body(), text: String::new() });
    }
    opened
}

#[test]
fn watches_survive_joins_and_stops_of_other_servers() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    for name in ["a", "b", "c"] {
        plane.start(name, &[PEER_PROXY_OFF]);
    }
    plane.stop("c");
    let gateway = RunningGateway::start("gateway", &plane, &["a", "b", "c"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let mut watches = open_watches(&admin, WATCHES).await;
        println!("{WATCHES} watches, {} KiB resident", gateway.resident_bytes() / 1024);
        let files = gateway.open_files();
        assert!((CONNECTIONS..WATCHES / 10).contains(&files), "{files} open files: watches share connections");
        // A server joins.
        plane.launch("c", &[PEER_PROXY_OFF]);
        cluster_tests::wait::eventually("the new server is used", async || {
            let answer = admin.get("/api/v1/namespaces/default").await;
            let name = format!("apiserver-{}", plane.address("c"));
            if served_by(&answer) == name { Ok(()) } else { Err(served_by(&answer)) }
        })
        .await;
        admin.create(CONFIG_MAPS_PATH, &config_map("first")).await;
        for watch in &mut watches {
            assert_eq!(watch.read_until_object("first").await, WatchProgress::Received, "{}", watch.server);
        }
        // Another server stops gracefully.
        let gone = format!("apiserver-{}", plane.address("b"));
        plane.stop("b");
        admin.create(CONFIG_MAPS_PATH, &config_map("second")).await;
        let (mut stayed, mut ended) = (0, 0);
        for watch in &mut watches {
            match (watch.server == gone, watch.read_until_object("second").await) {
                (true, WatchProgress::Ended) => ended += 1,
                (false, WatchProgress::Received) => stayed += 1,
                (was_there, next) => panic!("on {} (gone: {was_there}): {next:?}", watch.server),
            }
        }
        assert_eq!(stayed + ended, WATCHES);
        assert!(stayed >= WATCHES / 3 && ended >= WATCHES / 3, "{stayed} stayed, {ended} ended");
        // New watches go to the remaining servers.
        for watch in open_watches(&admin, 10).await {
            assert_ne!(watch.server, gone);
        }
    });
}

#[test]
fn stopping_gateway_ends_watches_cleanly() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[PEER_PROXY_OFF]);
    let gateway = RunningGateway::start("gateway", &plane, &["a"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let mut watches = open_watches(&admin, 20).await;
        let mut plain = WatchReader::open(&admin, &format!("{CONFIG_MAPS_PATH}?watch=1")).await;
        admin.create(CONFIG_MAPS_PATH, &config_map("first")).await;
        for watch in &mut watches {
            assert_eq!(watch.read_until_object("first").await, WatchProgress::Received);
        }
        while plain.next_event().await["object"]["metadata"]["name"] != "first" {}
        let begun = std::time::Instant::now();
        let stopping = tokio::task::spawn_blocking(|| gateway.stop());
        for watch in &mut watches {
            assert_eq!(watch.read_until_object("never").await, WatchProgress::Ended);
        }
        assert!(plain.try_next_event().await.is_err());
        assert_eq!(stopping.await.unwrap(), Some(0));
        println!("stopped after {:?}", begun.elapsed());
    });
}
