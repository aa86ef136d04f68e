//! Slow peers and dead peers.

use super::*;

fn short_timeouts() -> ForwardLimits {
    ForwardLimits { silence_timeout: SHORT_TIMEOUT, ping_timeout: SHORT_TIMEOUT, ..generous_limits() }
}

fn is_ping(received: &ReceivedRequest) -> bool {
    received.request_line == "GET /livez HTTP/1.1"
}

/// A peer that answers the first request and no other.
async fn start_peer_that_falls_silent(fixture: &ForwarderFixture) -> ScriptedPeer {
    fixture
        .start_peer(|mut connection| async move {
            if connection.connection == 0 {
                let received = connection.read_request().await.unwrap();
                connection.write(&echo_response(&received)).await;
            }
            while connection.read_request().await.is_some() {}
        })
        .await
}

/// Sends a request without a deadline, which leaves an idle connection.
async fn send_one_request(fixture: &ForwarderFixture, peer: &ScriptedPeer) {
    let get = Request::get("/").body(Empty::<Bytes>::new()).unwrap();
    let lifetime = Lifetime::Until(Instant::now() + TEST_TIMEOUT);
    body_text(fixture.forward(&[peer], Effect::Reads, lifetime, get).await.unwrap()).await;
}

#[tokio::test]
async fn read_fails_over_when_peer_ignores_ping() {
    let fixture = ForwarderFixture::new(short_timeouts());
    let (a, b) = (start_peer_that_falls_silent(&fixture).await, fixture.start_responder(echo_response).await);
    send_one_request(&fixture, &a).await;
    let response = fixture.get(&[&a, &b]).await.unwrap();
    assert_eq!(responding_peer(&response), &server(1));
    assert_eq!(fixture.failure_counts(), ["apiserver-a no_answer 1"]);
    assert_eq!(fixture.peer_health(0), PeerHealth::BackingOff);
}

#[tokio::test]
async fn watch_fails_when_only_peer_is_unresponsive() {
    let fixture = ForwarderFixture::new(short_timeouts());
    let a = start_peer_that_falls_silent(&fixture).await;
    send_one_request(&fixture, &a).await;
    let error = fixture.get(&[&a]).await.unwrap_err();
    assert_eq!(error.execution(), Execution::Harmless);
    assert_eq!(fixture.failure_counts(), ["apiserver-a no_answer 1"]);
}

#[tokio::test]
async fn slow_peer_that_answers_pings_is_waited_for() {
    let fixture = ForwarderFixture::new(ForwardLimits { silence_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let (pinged, was_pinged) = watch::channel(0);
    let a = fixture
        .start_peer(move |mut connection| {
            let (pinged, mut was_pinged) = (pinged.clone(), was_pinged.clone());
            async move {
                while let Some(received) = connection.read_request().await {
                    if is_ping(&received) {
                        assert_eq!(received.header("x-remote-user"), ["system:apiserver"]);
                        pinged.send_modify(|count| *count += 1);
                        // Any response proves that the peer is alive.
                        connection.write(&http_response(500, "", "not well")).await;
                    } else {
                        was_pinged.wait_for(|count| *count >= 2).await.unwrap();
                        connection.write(&echo_response(&received)).await;
                    }
                }
            }
        })
        .await;
    let b = fixture.start_responder(echo_response).await;
    let response = fixture.get(&[&a, &b]).await.unwrap();
    assert_eq!(responding_peer(&response), &server(0));
    assert!(fixture.failure_counts().is_empty());
}

#[tokio::test]
async fn write_waits_for_unresponsive_peer_while_others_avoid_it() {
    let fixture = ForwarderFixture::new(short_timeouts());
    let (a, b) = (start_peer_that_falls_silent(&fixture).await, fixture.start_responder(echo_response).await);
    send_one_request(&fixture, &a).await;
    let peers = [&a, &b];
    let request = Request::post("/x").body(Full::new(Bytes::from_static(b"x"))).unwrap();
    let writing = fixture.forward(&peers, Effect::Writes, Lifetime::LongRunning, request);
    let failing = async {
        while fixture.peer_health(0) == PeerHealth::Healthy {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = writing => panic!("{done:?}"),
        () = failing => {}
    }
    let other = fixture.post(&peers, "y").await.unwrap();
    assert_eq!(responding_peer(&other), &server(1));
}

#[tokio::test]
async fn timeout_error_reports_execution() {
    let fixture = ForwarderFixture::new(generous_limits());
    let silent =
        fixture.start_peer(|mut connection| async move { while connection.read_request().await.is_some() {} }).await;
    let in_time = || Lifetime::Until(Instant::now() + Duration::from_millis(100));
    let get = Request::get("/x").body(Empty::<Bytes>::new()).unwrap();
    let read = fixture.forward(&[&silent], Effect::Reads, in_time(), get).await.unwrap_err();
    assert!(matches!(read, ForwardError::TimedOut { .. }), "{read:?}");
    assert_eq!(fixture.failure_counts(), ["apiserver-a timeout 1"], "a slow peer is counted");
    let late = Lifetime::Until(Instant::now() - Duration::from_secs(1));
    let never_sent = Request::post("/x").body(Empty::<Bytes>::new()).unwrap();
    let error = fixture.forward(&[&silent], Effect::Writes, late, never_sent).await.unwrap_err();
    assert_eq!(error.execution(), Execution::None);
    let post = Request::post("/sent").body(Empty::<Bytes>::new()).unwrap();
    let peers = [&silent];
    // However slow the machine is, the deadline passes only after the peer has read the request.
    let deadline = Instant::now() + TEST_TIMEOUT;
    let writing = fixture.forward(&peers, Effect::Writes, Lifetime::Until(deadline), post);
    let hearing = async {
        while silent.next_request().await.request_line != "POST /sent HTTP/1.1" {}
        tokio::time::pause();
        tokio::time::advance(TEST_TIMEOUT).await;
        tokio::time::resume();
    };
    let (written, ()) = tokio::join!(writing, hearing);
    assert_eq!(written.unwrap_err().execution(), Execution::Unknown);
}

#[tokio::test]
async fn response_body_is_aborted_at_deadline() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture
        .start_peer(|mut connection| async move {
            connection.read_request().await.unwrap();
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await;
            connection.wait_for_close().await;
        })
        .await;
    let get = Request::get("/x").body(Empty::<Bytes>::new()).unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    let response = fixture.forward(&[&peer], Effect::Reads, Lifetime::Until(deadline), get).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    tokio::time::pause();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the peer did not finish its answer in time");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn watch_ends_when_peer_becomes_unresponsive() {
    let limits =
        ForwardLimits { stream_ping_interval: SHORT_TIMEOUT, stream_ping_timeout: SHORT_TIMEOUT, ..generous_limits() };
    let fixture = ForwarderFixture::new(limits);
    let peer = fixture
        .start_peer(|mut connection| async move {
            let received = connection.read_request().await.unwrap();
            if !is_ping(&received) {
                connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n1\n\r\n").await;
            }
            connection.wait_for_close().await;
        })
        .await;
    let mut body = fixture.get(&[&peer]).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "1\n");
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the peer does not answer any more");
    assert_eq!(fixture.peer_health(0), PeerHealth::BackingOff);
}

#[tokio::test]
async fn quiet_watch_continues_while_peer_answers_pings() {
    let fixture = ForwarderFixture::new(ForwardLimits {
        stream_ping_interval: SHORT_TIMEOUT,
        stream_ping_timeout: TEST_TIMEOUT,
        ..generous_limits()
    });
    let (pinged, was_pinged) = watch::channel(0);
    let peer = fixture
        .start_peer(move |mut connection| {
            let (pinged, mut was_pinged) = (pinged.clone(), was_pinged.clone());
            async move {
                while let Some(received) = connection.read_request().await {
                    if is_ping(&received) {
                        pinged.send_modify(|count| *count += 1);
                        connection.write(&http_response(200, "", "ok")).await;
                        continue;
                    }
                    connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                    was_pinged.wait_for(|count| *count >= 3).await.unwrap();
                    connection.write("2\r\n1\n\r\n").await;
                }
            }
        })
        .await;
    let mut body = fixture.get(&[&peer]).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "1\n");
}
