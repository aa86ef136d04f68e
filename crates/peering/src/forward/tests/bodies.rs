//! Bodies: streamed both ways, byte for byte, and given up when the client goes.

use http_body::Frame;
use tokio::sync::mpsc;

use super::*;
use crate::status::peer_not_ready;

/// A body whose parts come when the test says so.
fn channel()
-> (mpsc::Sender<Result<&'static str, BoxError>>, impl Body<Data = Bytes, Error = BoxError> + Send + 'static) {
    let (sender, receiver) = mpsc::channel::<Result<&'static str, BoxError>>(8);
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
        let part = receiver.recv().await?;
        Some((part.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))), receiver))
    });
    (sender, StreamBody::new(Box::pin(frames)))
}

#[tokio::test]
async fn a_watch_arrives_event_by_event_and_leaving_it_closes_the_peers_connection() {
    let bench = Bench::new(generous());
    let (allow, allowed) = watch::channel(0);
    let (closed, mut was_closed) = watch::channel(false);
    let peer = bench
        .playing(move |mut visit| {
            let (mut allowed, closed) = (allowed.clone(), closed.clone());
            async move {
                visit.hear().await.unwrap();
                visit.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                for number in 1..=3 {
                    allowed.wait_for(|allowed| *allowed >= number).await.unwrap();
                    visit.say(&format!("2\r\n{number}\n\r\n")).await;
                }
                visit.closed().await;
                closed.send_replace(true);
            }
        })
        .await;
    let mut body = bench.get(&[&peer]).await.unwrap().into_body();
    for number in 1..=3 {
        allow.send_replace(number);
        let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(event, format!("{number}\n"));
    }
    drop(body);
    tokio::time::timeout(ENOUGH, was_closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_closes_the_peers_connection() {
    let bench = Bench::new(generous());
    let (closed, mut was_closed) = watch::channel(false);
    let peer = bench
        .playing(move |mut visit| {
            let closed = closed.clone();
            async move {
                visit.hear().await.unwrap();
                visit.closed().await;
                closed.send_replace(true);
            }
        })
        .await;
    let peers = [&peer];
    tokio::select! {
        answer = bench.get(&peers) => panic!("{answer:?}"),
        _heard = peer.heard() => {}
    }
    tokio::time::timeout(ENOUGH, was_closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_body_is_passed_on_as_it_comes() {
    let bench = Bench::new(generous());
    let (said, mut saying) = mpsc::channel(8);
    let peer = bench
        .playing(move |mut visit| {
            let said = said.clone();
            async move {
                visit.hear_head().await.unwrap();
                for _ in 0..2 {
                    said.send(visit.hear_chunk().await.unwrap()).await.unwrap();
                }
                visit.hear_chunk().await.unwrap();
                visit.say(&answer(201, "", "created")).await;
            }
        })
        .await;
    let (sender, body) = channel();
    let request = Request::post("/x").body(body).unwrap();
    let peers = [&peer];
    let sending = bench.forward(&peers, Effect::Writes, Span::Open, request);
    let talking = async {
        for part in ["one", "two"] {
            sender.send(Ok(part)).await.unwrap();
            assert_eq!(saying.recv().await.unwrap(), part, "before the next part was written");
        }
        drop(sender);
    };
    let (response, ()) = tokio::join!(sending, talking);
    assert_eq!(response.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_body_that_was_read_by_a_peer_that_is_not_ready_reaches_the_next_whole() {
    let bench = Bench::new(generous());
    let not_ready = String::from_utf8(peer_not_ready().to_json()).unwrap();
    let a = bench.answering(move |_| answer(503, "", &not_ready)).await;
    let b = bench.answering(ok).await;
    let (sender, body) = channel();
    for part in ["one ", "two ", "three"] {
        sender.send(Ok(part)).await.unwrap();
    }
    drop(sender);
    let request = Request::post("/x").body(body).unwrap();
    let response = bench.forward(&[&a, &b], Effect::Writes, Span::Open, request).await.unwrap();
    assert_eq!(text(response).await, "POST /x HTTP/1.1 one two three");
    assert_eq!(a.heard().await.body, "one two three");
}

#[tokio::test]
async fn a_client_that_breaks_off_its_body_is_not_the_peers_failure() {
    let bench = Bench::new(generous());
    let (a, b) = (bench.answering(ok).await, bench.answering(ok).await);
    let (sender, body) = channel();
    sender.send(Ok("half")).await.unwrap();
    sender.send(Err("gone".into())).await.unwrap();
    let request = Request::post("/x").body(body).unwrap();
    let error = bench.forward(&[&a, &b], Effect::Writes, Span::Open, request).await.unwrap_err();
    assert!(matches!(error, ForwardError::ClientGone), "{error:?}");
    assert_eq!(bench.standing(0), Standing::Well);
    assert_eq!(b.connections(), 0);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_and_no_second_answer() {
    let bench = Bench::new(generous());
    let a = bench
        .playing(|mut visit| async move {
            visit.hear().await.unwrap();
            visit.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await;
        })
        .await;
    let b = bench.answering(ok).await;
    let response = bench.get(&[&a, &b]).await.unwrap();
    response.into_body().collect().await.unwrap_err();
    assert_eq!(b.connections(), 0);
}

#[tokio::test]
async fn an_answer_of_known_length_keeps_its_length_and_head_has_no_body() {
    let bench = Bench::new(generous());
    let peer = bench
        .answering(|heard| {
            let body = if heard.line.starts_with("HEAD") { "" } else { "0123456789" };
            format!("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{body}")
        })
        .await;
    let response = bench.get(&[&peer]).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(10));
    text(response).await;
    let head = Request::head("/x").body(Empty::<Bytes>::new()).unwrap();
    let response = bench.forward(&[&peer], Effect::Reads, Span::Open, head).await.unwrap();
    assert_eq!(response.headers()["content-length"], "10");
    assert!(response.body().is_end_stream());
    assert_eq!(peer.connections(), 1);
}
