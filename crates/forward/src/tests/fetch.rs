//! GET requests of this server itself.

use http::{HeaderMap, HeaderValue};

use transport::peer::DialError;

use super::*;

async fn fetch_apis(
    fixture: &ForwarderFixture,
    peer: &ScriptedPeer,
    bytes_max: usize,
) -> Result<(StatusCode, Bytes), GetError> {
    let headers = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("application/json"))]);
    let response = fixture.forwarder.get(&candidate(0, peer), "/apis", headers, bytes_max).await?;
    Ok((response.status(), response.into_body()))
}

#[tokio::test]
async fn fetch_uses_pooled_connections() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture.start_responder(|_| http_response(200, "", "{}")).await;
    for _ in 0..2 {
        assert_eq!(fetch_apis(&fixture, &peer, 2).await.unwrap(), (StatusCode::OK, Bytes::from_static(b"{}")));
    }
    let (get, span) =
        (Request::get("/").body(Empty::<Bytes>::new()).unwrap(), Lifetime::Until(Instant::now() + TEST_TIMEOUT));
    body_text(fixture.forward(&[&peer], Effect::Reads, span, get).await.unwrap()).await;
    assert_eq!(peer.connection_count(), 1);
    let received = peer.next_request().await;
    assert_eq!((&*received.request_line, received.header("accept")), ("GET /apis HTTP/1.1", vec!["application/json"]));
}

#[tokio::test]
async fn fetch_error_names_cause() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture.start_responder(|_| http_response(200, "", "far too long")).await;
    assert!(matches!(fetch_apis(&fixture, &peer, 4).await, Err(GetError::TooLong { bytes_max: 4 })));
    let redirecting =
        fixture.start_responder(|_| http_response(302, "Location: https://elsewhere.example/\r\n", "")).await;
    assert_eq!(fetch_apis(&fixture, &redirecting, 4).await.unwrap().0, StatusCode::FOUND);
    let half = fixture
        .start_peer(|mut connection| async move {
            connection.read_request().await.unwrap();
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
        })
        .await;
    assert!(matches!(fetch_apis(&fixture, &half, 9).await, Err(GetError::BodyBroken(_))));
    let dir = tempfile::tempdir().unwrap();
    let foreign = TestCertificates::new(dir.path());
    let stranger = ScriptedPeer::start_responder(foreign.server_config(), &fixture.tasks, echo_response).await;
    assert!(matches!(fetch_apis(&fixture, &stranger, 9).await, Err(GetError::Dial(DialError::Tls(_)))));
}

#[tokio::test]
async fn fetch_retries_when_idle_connection_was_closed() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture
        .start_peer(|mut connection| async move {
            connection.read_request().await.unwrap();
            connection.write(&http_response(200, "", "{}")).await;
            connection.read_request().await;
        })
        .await;
    for _ in 0..3 {
        assert_eq!(fetch_apis(&fixture, &peer, 2).await.unwrap(), (StatusCode::OK, Bytes::from_static(b"{}")));
    }
}
