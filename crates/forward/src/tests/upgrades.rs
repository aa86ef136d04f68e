//! Upgraded connections, with the identity of the user.

use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A client's connection to a server that forwards everything to one peer.
pub(super) async fn connect_through(
    fixture: &Arc<ForwarderFixture>,
    peer: &Arc<ScriptedPeer>,
) -> tokio::io::DuplexStream {
    connect_through_any(fixture, std::slice::from_ref(peer), (Effect::Writes, Lifetime::LongRunning)).await
}

/// A client's connection to a server that forwards everything to one of these peers. A request that cannot be forwarded gets
/// 503 and no body.
async fn connect_through_any(
    fixture: &Arc<ForwarderFixture>,
    peers: &[Arc<ScriptedPeer>],
    (effect, lifetime): (Effect, Lifetime),
) -> tokio::io::DuplexStream {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (bench, peers) = (fixture.clone(), peers.to_vec());
    let tasks = bench.tasks.clone();
    tasks.spawn_once("server", async move {
        let service = service_fn(move |request: Request<Incoming>| {
            let (bench, peers) = (bench.clone(), peers.clone());
            async move {
                let peers: Vec<&ScriptedPeer> = peers.iter().map(|peer| &**peer).collect();
                let response = bench.forward(&peers, effect, lifetime, request).await;
                Ok::<_, Infallible>(response.unwrap_or_else(|_| {
                    let mut response = Response::new(ForwardedBody::empty());
                    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    response
                }))
            }
        });
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service);
        let _ = serving.with_upgrades().await;
    });
    near
}

pub(super) async fn read_head(client: &mut tokio::io::DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn upgrade_carries_user_then_bytes_in_both_directions() {
    let fixture = Arc::new(ForwarderFixture::new(generous_limits()));
    let (closed, mut was_closed) = watch::channel(false);
    let peer = fixture
        .start_peer(move |mut connection| {
            let closed = closed.clone();
            async move {
                connection.read_request().await.unwrap();
                connection
                    .write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n")
                    .await;
                connection.write("X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nfirst ").await;
                let said = connection.read_exactly(5).await.unwrap();
                connection.write(&said).await;
                connection.wait_for_close().await;
                closed.send_replace(true);
            }
        })
        .await;
    let peer = Arc::new(peer);
    let mut client = connect_through(&fixture, &peer).await;
    let request = "POST /api/v1/namespaces/a/pods/b/exec?command=ls HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\n\
                   Upgrade: SPDY/3.1\r\nX-Remote-User: admin\r\nContent-Length: 0\r\n\r\nhello";
    client.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut client).await.to_lowercase();
    assert!(head.starts_with("http/1.1 101 switching protocols\r\n"), "{head}");
    for line in ["connection: upgrade\r\n", "upgrade: spdy/3.1\r\n", "x-stream-protocol-version: v4.channel.k8s.io\r\n"]
    {
        assert_eq!(head.matches(line).count(), 1, "{line} in {head}");
    }
    let mut echoed = [0; 11];
    client.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"first hello");

    let received = peer.next_request().await;
    assert_eq!(received.request_line, "POST /api/v1/namespaces/a/pods/b/exec?command=ls HTTP/1.1");
    assert_eq!(received.header("x-remote-user"), ["jane"]);
    assert_eq!(received.header("x-remote-group"), ["developers", "testers"]);
    assert_eq!(received.header("x-kubernetes-peer-proxied"), ["true"]);
    assert_eq!((received.header("connection"), received.header("upgrade")), (vec!["upgrade"], vec!["SPDY/3.1"]));

    drop(client);
    tokio::time::timeout(TEST_TIMEOUT, was_closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
}

#[tokio::test]
async fn refused_upgrade_is_an_ordinary_response() {
    let fixture = Arc::new(ForwarderFixture::new(generous_limits()));
    let peer = Arc::new(fixture.start_responder(|_| http_response(403, "", "forbidden")).await);
    let mut client = connect_through(&fixture, &peer).await;
    let request = "GET /exec HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
    let mut body = [0; 9];
    client.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"forbidden");
}

const UPGRADE: &str = "GET /exec HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// The status line and body of the response to an upgrade, the first of whose peers does this.
async fn send_upgrade(
    peer_response: &str,
    (effect, lifetime): (Effect, Lifetime),
) -> (String, Arc<ForwarderFixture>, Arc<ScriptedPeer>) {
    let fixture = Arc::new(ForwarderFixture::new(generous_limits()));
    let says = peer_response.to_owned();
    let a = fixture
        .start_peer(move |mut connection| {
            let says = says.clone();
            async move {
                while connection.read_request().await.is_some() {
                    if says.is_empty() {
                        return;
                    }
                    connection.write(&says).await;
                }
            }
        })
        .await;
    let b = Arc::new(fixture.start_responder(|_| http_response(200, "", "other")).await);
    let mut client = connect_through_any(&fixture, &[Arc::new(a), b.clone()], (effect, lifetime)).await;
    client.write_all(UPGRADE.as_bytes()).await.unwrap();
    let head = read_head(&mut client).await.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.unwrap();
    (format!("{} {}", &head[9..12], String::from_utf8(body).unwrap()), fixture, b)
}

#[tokio::test]
async fn backend_response_to_upgrade_passes_unchanged_and_is_not_resent() {
    let handed_back = String::from_utf8(not_executed_status(CAUSE_PEER_NOT_READY).to_json()).unwrap();
    for (status, body) in [
        (400, "bad"),
        (401, "Unauthorized"),
        (403, "forbidden"),
        (404, "404 page not found\n"),
        (302, ""),
        (500, "container not found"),
        (503, "later"),
        (503, &handed_back),
    ] {
        // As for exec, for an upgrade of an unknown resource, and for one through any upstream.
        let until = Lifetime::Until(Instant::now() + TEST_TIMEOUT);
        for handling in [(Effect::Writes, Lifetime::LongRunning), (Effect::Reads, until)] {
            let (said, fixture, other) = send_upgrade(&http_response(status, "", body), handling).await;
            assert_eq!(said, format!("{status} {body}"), "{handling:?}");
            assert_eq!(other.take_requests().await, [], "{status} {handling:?}");
            assert_eq!(fixture.failure_counts(), [""; 0], "{status} {handling:?}");
            assert_eq!(fixture.peer_health(0), PeerHealth::Healthy);
            assert_eq!(*fixture.stale_marks.lock(), []);
        }
    }
}

#[tokio::test]
async fn upgrade_is_not_resent_when_connection_breaks_after_sending() {
    let until = Lifetime::Until(Instant::now() + TEST_TIMEOUT);
    for handling in
        [(Effect::Writes, Lifetime::LongRunning), (Effect::Reads, Lifetime::LongRunning), (Effect::Reads, until)]
    {
        let (said, fixture, other) = send_upgrade("", handling).await;
        assert_eq!(said, "503 ", "{handling:?}");
        assert_eq!(other.take_requests().await, [], "{handling:?}");
        assert_eq!(fixture.failure_counts(), ["apiserver-a broken 1"], "{handling:?}");
    }
}

#[tokio::test]
async fn websocket_watch_fails_over_when_peer_does_not_serve_it() {
    let watch = (Effect::Reads, Lifetime::LongRunning);
    let (said, fixture, _) = send_upgrade(&http_response(404, "", "404 page not found\n"), watch).await;
    assert_eq!((said.as_str(), fixture.failure_counts()), ("200 other", vec!["apiserver-a not_served 1".to_owned()]));
}

#[tokio::test]
async fn connection_of_refused_upgrade_is_not_used_again() {
    let fixture = Arc::new(ForwarderFixture::new(generous_limits()));
    let peer = Arc::new(fixture.start_responder(|_| http_response(403, "", "no")).await);
    let mut client = connect_through(&fixture, &peer).await;
    for _ in 0..2 {
        client.write_all(UPGRADE.as_bytes()).await.unwrap();
        read_head(&mut client).await;
        let mut body = [0; 2];
        client.read_exact(&mut body).await.unwrap();
    }
    // The next request would reuse the connections of the upgrades if they were pooled.
    body_text(fixture.post(&[&peer], "x").await.unwrap_or_else(|error| panic!("{error}"))).await;
    assert_eq!(peer.connection_count(), 3);
}
