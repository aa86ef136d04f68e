//! Upgraded connections, with the identity of the user.

use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A client's connection to a server that forwards everything to one peer.
pub(super) async fn through(bench: &Arc<Bench>, peer: &Arc<ScriptedPeer>) -> tokio::io::DuplexStream {
    through_any(bench, std::slice::from_ref(peer), (Effect::Writes, Span::Open)).await
}

/// A client's connection to a server that forwards everything to one of these peers. What cannot be forwarded is answered with
/// the status of the error and no body.
async fn through_any(
    bench: &Arc<Bench>,
    peers: &[Arc<ScriptedPeer>],
    (effect, span): (Effect, Span),
) -> tokio::io::DuplexStream {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (bench, peers) = (bench.clone(), peers.to_vec());
    let tasks = bench.tasks.clone();
    tasks.spawn_once("server", async move {
        let service = service_fn(move |request: Request<Incoming>| {
            let (bench, peers) = (bench.clone(), peers.clone());
            async move {
                let peers: Vec<&ScriptedPeer> = peers.iter().map(|peer| &**peer).collect();
                let answer = bench.forward(&peers, effect, span, request).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|error| {
                    let mut response = Response::new(AnswerBody::empty());
                    *response.status_mut() = StatusCode::from_u16(error.status().http_code()).unwrap();
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
async fn an_upgraded_connection_carries_the_user_and_then_bytes_both_ways() {
    let bench = Arc::new(Bench::new(generous()));
    let (closed, mut was_closed) = watch::channel(false);
    let peer = bench
        .playing(move |mut visit| {
            let closed = closed.clone();
            async move {
                visit.hear().await.unwrap();
                visit.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n").await;
                visit.say("X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nfirst ").await;
                let said = visit.exactly(5).await.unwrap();
                visit.say(&said).await;
                visit.closed().await;
                closed.send_replace(true);
            }
        })
        .await;
    let peer = Arc::new(peer);
    let mut client = through(&bench, &peer).await;
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

    let heard = peer.heard().await;
    assert_eq!(heard.line, "POST /api/v1/namespaces/a/pods/b/exec?command=ls HTTP/1.1");
    assert_eq!(heard.header("x-remote-user"), ["jane"]);
    assert_eq!(heard.header("x-remote-group"), ["developers", "testers"]);
    assert_eq!(heard.header("x-kubernetes-peer-proxied"), ["true"]);
    assert_eq!((heard.header("connection"), heard.header("upgrade")), (vec!["upgrade"], vec!["SPDY/3.1"]));

    drop(client);
    tokio::time::timeout(ENOUGH, was_closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_answer() {
    let bench = Arc::new(Bench::new(generous()));
    let peer = Arc::new(bench.answering(|_| answer(403, "", "forbidden")).await);
    let mut client = through(&bench, &peer).await;
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
async fn refused(does: &str, (effect, span): (Effect, Span)) -> (String, Arc<Bench>, Arc<ScriptedPeer>) {
    let bench = Arc::new(Bench::new(generous()));
    let says = does.to_owned();
    let a = bench
        .playing(move |mut visit| {
            let says = says.clone();
            async move {
                while visit.hear().await.is_some() {
                    if says.is_empty() {
                        return;
                    }
                    visit.say(&says).await;
                }
            }
        })
        .await;
    let b = Arc::new(bench.answering(|_| answer(200, "", "other")).await);
    let mut client = through_any(&bench, &[Arc::new(a), b.clone()], (effect, span)).await;
    client.write_all(UPGRADE.as_bytes()).await.unwrap();
    let head = read_head(&mut client).await.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.unwrap();
    (format!("{} {}", &head[9..12], String::from_utf8(body).unwrap()), bench, b)
}

#[tokio::test]
async fn backend_response_to_upgrade_passes_unchanged_and_is_not_resent() {
    let handed_back = String::from_utf8(crate::status::peer_not_ready().to_json()).unwrap();
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
        // As for exec, for an upgrade of a resource that nothing here knows, and for one through any upstream.
        let until = Span::Until(Instant::now() + ENOUGH);
        for handling in [(Effect::Writes, Span::Open), (Effect::Reads, until)] {
            let (said, bench, other) = refused(&answer(status, "", body), handling).await;
            assert_eq!(said, format!("{status} {body}"), "{handling:?}");
            assert_eq!(other.heard_so_far().await, [], "{status} {handling:?}");
            assert_eq!(bench.failures(), [""; 0], "{status} {handling:?}");
            assert_eq!(bench.standing(0), Standing::Well);
            assert_eq!(*bench.doubted.lock(), []);
        }
    }
}

#[tokio::test]
async fn upgrade_is_not_resent_when_connection_breaks_after_sending() {
    let until = Span::Until(Instant::now() + ENOUGH);
    for handling in [(Effect::Writes, Span::Open), (Effect::Reads, Span::Open), (Effect::Reads, until)] {
        let (said, bench, other) = refused("", handling).await;
        assert_eq!(said, "503 ", "{handling:?}");
        assert_eq!(other.heard_so_far().await, [], "{handling:?}");
        assert_eq!(bench.failures(), ["apiserver-a broken 1"], "{handling:?}");
    }
}

#[tokio::test]
async fn websocket_watch_fails_over_when_peer_does_not_serve_it() {
    let watch = (Effect::Reads, Span::Open);
    let (said, bench, _) = refused(&answer(404, "", "404 page not found\n"), watch).await;
    assert_eq!((said.as_str(), bench.failures()), ("200 other", vec!["apiserver-a not_served 1".to_owned()]));
}

#[tokio::test]
async fn connection_of_refused_upgrade_is_not_used_again() {
    let bench = Arc::new(Bench::new(generous()));
    let peer = Arc::new(bench.answering(|_| answer(403, "", "no")).await);
    let mut client = through(&bench, &peer).await;
    for _ in 0..2 {
        client.write_all(UPGRADE.as_bytes()).await.unwrap();
        read_head(&mut client).await;
        let mut body = [0; 2];
        client.read_exact(&mut body).await.unwrap();
    }
    // The next request would find the connections of the upgrades if they had been kept.
    text(bench.post(&[&peer], "x").await.unwrap_or_else(|error| panic!("{error}"))).await;
    assert_eq!(peer.connections(), 3);
}
