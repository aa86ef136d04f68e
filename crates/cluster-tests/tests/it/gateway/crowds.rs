//! Many watches, while servers come and go.

use std::time::Duration;

use bytes::Bytes;
use cluster_tests::Lines;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;

use super::balance::http2;
use super::*;
use crate::{CONFIG_MAPS, config_map};

/// Long enough for a loaded machine, and only ever waited for by a test that fails.
const ENOUGH: Duration = Duration::from_secs(60);
/// As many as a control plane of a middling cluster has, on as many connections.
const WATCHES: usize = 1_000;
const CONNECTIONS: usize = 10;

/// One watch among many: who serves it, and what comes.
struct Watch {
    server: String,
    body: Incoming,
    text: String,
}

/// How a watch goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Saw,
    Ended,
    Broke,
}

impl Watch {
    /// Reads on until an object of this name was seen, or the end.
    async fn read_to(&mut self, name: &str) -> Next {
        let name = format!("\"name\":\"{name}\"");
        while !self.text.contains(&name) {
            match tokio::time::timeout(ENOUGH, self.body.frame()).await.expect("something comes in time") {
                None => return Next::Ended,
                Some(Err(_)) => return Next::Broke,
                Some(Ok(frame)) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    self.text.push_str(std::str::from_utf8(&bytes).unwrap());
                }
            }
        }
        self.text.clear();
        Next::Saw
    }
}

/// Opens watches on a few connections.
async fn open(client: &Client, watches: usize) -> Vec<Watch> {
    let mut opened = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(http2(client).await);
    }
    for number in 0..watches {
        let uri = format!("https://gateway{CONFIG_MAPS}?watch=1");
        let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
        let response = connections[number % CONNECTIONS].send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let server = response.headers()["x-unskew-served-by"].to_str().unwrap().to_owned();
        opened.push(Watch { server, body: response.into_body(), text: String::new() });
    }
    opened
}

#[test]
fn watches_notice_nothing_of_servers_that_are_not_theirs() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    for name in ["a", "b", "c"] {
        plane.start(name, &[STOCK]);
    }
    plane.stop("c");
    let gateway = Gateway::start("gateway", &plane, &["a", "b", "c"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let mut watches = open(&admin, WATCHES).await;
        println!("{WATCHES} watches, {} KiB resident", gateway.resident_bytes() / 1024);
        let files = gateway.open_files();
        assert!((CONNECTIONS..WATCHES / 10).contains(&files), "{files} open files: watches share connections");
        // A server comes.
        plane.launch("c", &[STOCK]);
        cluster_tests::wait::eventually("the new server is used", async || {
            let answer = admin.get("/api/v1/namespaces/default").await;
            let name = format!("apiserver-{}", plane.address("c"));
            if served_by(&answer) == name { Ok(()) } else { Err(served_by(&answer)) }
        })
        .await;
        admin.create(CONFIG_MAPS, &config_map("first")).await;
        for watch in &mut watches {
            assert_eq!(watch.read_to("first").await, Next::Saw, "{}", watch.server);
        }
        // Another one goes, in order.
        let gone = format!("apiserver-{}", plane.address("b"));
        plane.stop("b");
        admin.create(CONFIG_MAPS, &config_map("second")).await;
        let (mut stayed, mut ended) = (0, 0);
        for watch in &mut watches {
            match (watch.server == gone, watch.read_to("second").await) {
                (true, Next::Ended) => ended += 1,
                (false, Next::Saw) => stayed += 1,
                (was_there, next) => panic!("on {} (gone: {was_there}): {next:?}", watch.server),
            }
        }
        assert_eq!(stayed + ended, WATCHES);
        assert!(stayed >= WATCHES / 3 && ended >= WATCHES / 3, "{stayed} stayed, {ended} ended");
        // Whoever was there comes back, elsewhere.
        for watch in open(&admin, 10).await {
            assert_ne!(watch.server, gone);
        }
    });
}

#[test]
fn a_gateway_that_stops_ends_watches_in_order_and_at_once() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("a", &[STOCK]);
    let gateway = Gateway::start("gateway", &plane, &["a"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let mut watches = open(&admin, 20).await;
        let mut plain = Lines::open(&admin, &format!("{CONFIG_MAPS}?watch=1")).await;
        admin.create(CONFIG_MAPS, &config_map("first")).await;
        for watch in &mut watches {
            assert_eq!(watch.read_to("first").await, Next::Saw);
        }
        while plain.next().await["object"]["metadata"]["name"] != "first" {}
        let begun = std::time::Instant::now();
        let stopping = tokio::task::spawn_blocking(|| gateway.stop());
        for watch in &mut watches {
            assert_eq!(watch.read_to("never").await, Next::Ended);
        }
        assert!(plain.try_next().await.is_err());
        assert_eq!(stopping.await.unwrap(), Some(0));
        println!("stopped after {:?}", begun.elapsed());
    });
}
