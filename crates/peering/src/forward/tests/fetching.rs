//! Asking a peer for its discovery documents.

use http::HeaderMap;

use super::*;
use crate::ports::{Fetch, FetchFault, FetchRequest};

async fn fetch(bench: &Bench, peer: &ScriptedPeer, bytes_max: usize) -> Result<(StatusCode, Bytes), FetchFault> {
    let Candidate { server, address } = candidate(0, peer);
    let headers = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("application/json"))]);
    let request = FetchRequest { server, address, path: "/apis".to_owned(), headers, bytes_max };
    bench.forwarder.fetch(request).await.map(|answer| (answer.status, answer.body))
}

#[tokio::test]
async fn a_document_is_fetched_over_the_connections_of_requests() {
    let bench = Bench::new(generous());
    let peer = bench.answering(|_| answer(200, "", "{}")).await;
    for _ in 0..2 {
        assert_eq!(fetch(&bench, &peer, 2).await, Ok((StatusCode::OK, Bytes::from_static(b"{}"))));
    }
    let (get, span) = (Request::get("/").body(Empty::<Bytes>::new()).unwrap(), Span::Until(Instant::now() + ENOUGH));
    text(bench.forward(&[&peer], Effect::Reads, span, get).await.unwrap()).await;
    assert_eq!(peer.connections(), 1);
    let heard = peer.heard().await;
    assert_eq!((&*heard.line, heard.header("accept")), ("GET /apis HTTP/1.1", vec!["application/json"]));
}

#[tokio::test]
async fn no_document_says_why() {
    let bench = Bench::new(generous());
    let peer = bench.answering(|_| answer(200, "", "far too long")).await;
    assert_eq!(fetch(&bench, &peer, 4).await, Err(FetchFault::TooLong { bytes_max: 4 }));
    let redirecting = bench.answering(|_| answer(302, "Location: https://elsewhere.example/\r\n", "")).await;
    assert_eq!(fetch(&bench, &redirecting, 4).await.unwrap().0, StatusCode::FOUND);
    let half = bench
        .playing(|mut visit| async move {
            visit.hear().await.unwrap();
            visit.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
        })
        .await;
    assert!(matches!(fetch(&bench, &half, 9).await, Err(FetchFault::Broken { .. })));
    let folder = tempfile::tempdir().unwrap();
    let foreign = Certificates::new(folder.path());
    let stranger = ScriptedPeer::answering(foreign.server(), &bench.tasks, ok).await;
    assert!(matches!(fetch(&bench, &stranger, 9).await, Err(FetchFault::Tls { .. })));
}

#[tokio::test]
async fn a_closed_idle_connection_does_not_fail_a_fetch() {
    let bench = Bench::new(generous());
    let peer = bench
        .playing(|mut visit| async move {
            visit.hear().await.unwrap();
            visit.say(&answer(200, "", "{}")).await;
            visit.hear().await;
        })
        .await;
    for _ in 0..3 {
        assert_eq!(fetch(&bench, &peer, 2).await, Ok((StatusCode::OK, Bytes::from_static(b"{}"))));
    }
}
