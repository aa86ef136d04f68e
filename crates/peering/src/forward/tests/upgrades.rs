//! Upgraded connections, with the identity of the user.

use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A client's connection to a server that forwards everything to one peer.
pub(super) async fn through(bench: &Arc<Bench>, peer: &Arc<ScriptedPeer>) -> tokio::io::DuplexStream {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (bench, peer) = (bench.clone(), peer.clone());
    let tasks = bench.tasks.clone();
    tasks.spawn_once("server", async move {
        let service = service_fn(move |request: Request<Incoming>| {
            let (bench, peer) = (bench.clone(), peer.clone());
            async move {
                let answer = bench.forward(&[&*peer], Effect::Writes, Span::Open, request).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|error| panic!("{error}")))
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
