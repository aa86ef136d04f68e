//! Bodies: streamed both ways, byte for byte, and cancelled with the client.

use http_body::Frame;
use tokio::sync::mpsc;

use super::*;

/// A body whose chunks the test sends.
fn channel_body()
-> (mpsc::Sender<Result<&'static str, BoxError>>, impl Body<Data = Bytes, Error = BoxError> + Send + 'static) {
    let (sender, receiver) = mpsc::channel::<Result<&'static str, BoxError>>(8);
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
        let part = receiver.recv().await?;
        Some((part.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))), receiver))
    });
    (sender, StreamBody::new(Box::pin(frames)))
}

#[tokio::test]
async fn watch_is_streamed_and_dropping_it_closes_peer_connection() {
    let fixture = ForwarderFixture::new(generous_limits());
    let (allow, allowed) = watch::channel(0);
    let (closed, mut was_closed) = watch::channel(false);
    let peer = fixture
        .start_peer(move |mut connection| {
            let (mut allowed, closed) = (allowed.clone(), closed.clone());
            async move {
                connection.read_request().await.unwrap();
                connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                for number in 1..=3 {
                    allowed.wait_for(|allowed| *allowed >= number).await.unwrap();
                    connection.write(&format!("2\r\n{number}\n\r\n")).await;
                }
                connection.wait_for_close().await;
                closed.send_replace(true);
            }
        })
        .await;
    let mut body = fixture.get(&[&peer]).await.unwrap().into_body();
    for number in 1..=3 {
        allow.send_replace(number);
        let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(event, format!("{number}\n"));
    }
    drop(body);
    tokio::time::timeout(TEST_TIMEOUT, was_closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
}

#[tokio::test]
async fn dropping_request_closes_peer_connection() {
    let fixture = ForwarderFixture::new(generous_limits());
    let (closed, mut was_closed) = watch::channel(false);
    let peer = fixture
        .start_peer(move |mut connection| {
            let closed = closed.clone();
            async move {
                connection.read_request().await.unwrap();
                connection.wait_for_close().await;
                closed.send_replace(true);
            }
        })
        .await;
    let peers = [&peer];
    tokio::select! {
        answer = fixture.get(&peers) => panic!("{answer:?}"),
        _heard = peer.next_request() => {}
    }
    tokio::time::timeout(TEST_TIMEOUT, was_closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
}

#[tokio::test]
async fn request_body_is_streamed_to_peer() {
    let fixture = ForwarderFixture::new(generous_limits());
    let (said, mut saying) = mpsc::channel(8);
    let peer = fixture
        .start_peer(move |mut connection| {
            let said = said.clone();
            async move {
                connection.read_head().await.unwrap();
                for _ in 0..2 {
                    said.send(connection.read_chunk().await.unwrap()).await.unwrap();
                }
                connection.read_chunk().await.unwrap();
                connection.write(&http_response(201, "", "created")).await;
            }
        })
        .await;
    let (sender, body) = channel_body();
    let request = Request::post("/x").body(body).unwrap();
    let peers = [&peer];
    let sending = fixture.forward(&peers, Effect::Writes, Lifetime::LongRunning, request);
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
async fn body_read_by_unready_peer_is_replayed_to_next() {
    let fixture = ForwarderFixture::new(generous_limits());
    let not_ready = String::from_utf8(not_executed_status(CAUSE_PEER_NOT_READY).to_json()).unwrap();
    let a = fixture.start_responder(move |_| http_response(503, "", &not_ready)).await;
    let b = fixture.start_responder(echo_response).await;
    let (sender, body) = channel_body();
    for part in ["one ", "two ", "three"] {
        sender.send(Ok(part)).await.unwrap();
    }
    drop(sender);
    let request = Request::post("/x").body(body).unwrap();
    let response = fixture.forward(&[&a, &b], Effect::Writes, Lifetime::LongRunning, request).await.unwrap();
    assert_eq!(body_text(response).await, "POST /x HTTP/1.1 one two three");
    assert_eq!(a.next_request().await.body, "one two three");
}

#[tokio::test]
async fn client_abort_in_body_is_not_a_peer_failure() {
    let fixture = ForwarderFixture::new(generous_limits());
    let (a, b) = (fixture.start_responder(echo_response).await, fixture.start_responder(echo_response).await);
    let (sender, body) = channel_body();
    sender.send(Ok("half")).await.unwrap();
    sender.send(Err("gone".into())).await.unwrap();
    let request = Request::post("/x").body(body).unwrap();
    let error = fixture.forward(&[&a, &b], Effect::Writes, Lifetime::LongRunning, request).await.unwrap_err();
    assert!(matches!(error, ForwardError::ClientAborted), "{error:?}");
    assert_eq!(fixture.peer_health(0), PeerHealth::Healthy);
    assert_eq!(b.connection_count(), 0);
}

#[tokio::test]
async fn truncated_response_is_an_error_and_not_retried() {
    let fixture = ForwarderFixture::new(generous_limits());
    let a = fixture
        .start_peer(|mut connection| async move {
            connection.read_request().await.unwrap();
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await;
        })
        .await;
    let b = fixture.start_responder(echo_response).await;
    let response = fixture.get(&[&a, &b]).await.unwrap();
    response.into_body().collect().await.unwrap_err();
    assert_eq!(b.connection_count(), 0);
}

#[tokio::test]
async fn response_keeps_content_length_and_head_has_no_body() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture
        .start_responder(|received| {
            let body = if received.request_line.starts_with("HEAD") { "" } else { "0123456789" };
            format!("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{body}")
        })
        .await;
    let response = fixture.get(&[&peer]).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(10));
    body_text(response).await;
    let head = Request::head("/x").body(Empty::<Bytes>::new()).unwrap();
    let response = fixture.forward(&[&peer], Effect::Reads, Lifetime::LongRunning, head).await.unwrap();
    assert_eq!(response.headers()["content-length"], "10");
    assert!(response.body().is_end_stream());
    assert_eq!(peer.connection_count(), 1);
}
