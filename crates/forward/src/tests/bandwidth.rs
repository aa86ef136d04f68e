//! Which bytes the bandwidth limit delays. `bandwidth::tests` tests for how long.

use std::num::NonZeroU64;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::upgrades::{connect_through, read_head};
use super::*;

/// One byte per second: after a chunk of a hundred bytes, the next is delayed for more than a minute.
fn one_byte_per_second() -> ForwardLimits {
    ForwardLimits { bandwidth_max: Some(NonZeroU64::MIN), ..generous_limits() }
}

/// A chunk that passes at once and delays the next.
const CHUNK: &str =
    "................................................................................................ 100";

impl ForwarderFixture {
    /// The delay of all chunks so far.
    fn waited_seconds(&self) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == "unskew_peer_bandwidth_wait_seconds_total");
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        metrics.iter().map(|metric| metric.get_counter().get_value()).sum()
    }

    /// Returns once the delay has grown.
    async fn wait_until_throttled(&self, before: f64) {
        while self.waited_seconds() <= before {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn request_and_response_bodies_share_bandwidth_limit() {
    let fixture = ForwarderFixture::new(one_byte_per_second());
    let peer = fixture.start_responder(echo_response).await;
    let peers = [&peer];
    // The request body is the first chunk; the response is delayed by it.
    let mut answer = fixture.post(&peers, CHUNK).await.unwrap().into_body();
    assert_eq!(fixture.waited_seconds(), 0.0);
    tokio::select! {
        _ = answer.frame() => panic!("the answer was not held"),
        () = fixture.wait_until_throttled(0.0) => {}
    }
    let before = fixture.waited_seconds();
    tokio::select! {
        _ = fixture.post(&peers, CHUNK) => panic!("the request was not held"),
        () = fixture.wait_until_throttled(before) => {}
    }
    // A request without a body is not delayed.
    fixture.get(&peers).await.unwrap();
}

#[tokio::test]
async fn bandwidth_limit_is_per_peer() {
    let fixture = ForwarderFixture::new(one_byte_per_second());
    let (narrow, other) = (
        fixture.start_responder(echo_response).await,
        fixture.start_responder(|_| http_response(200, "", "at once")).await,
    );
    fixture.post(&[&narrow], CHUNK).await.unwrap();
    assert_eq!(body_text(fixture.get(&[&other]).await.unwrap()).await, "at once");
    assert_eq!(fixture.waited_seconds(), 0.0);
}

#[tokio::test]
async fn upgraded_connections_are_throttled() {
    let fixture = Arc::new(ForwarderFixture::new(one_byte_per_second()));
    let peer = fixture
        .start_peer(|mut connection| async move {
            connection.read_request().await.unwrap();
            connection
                .write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
                .await;
            connection.write(CHUNK).await;
            connection.wait_for_close().await;
        })
        .await;
    let mut client = connect_through(&fixture, &Arc::new(peer)).await;
    let request = "POST /exec HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                   Content-Length: 0\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    read_head(&mut client).await;
    let mut piece = [0; CHUNK.len()];
    client.read_exact(&mut piece).await.unwrap();
    client.write_all(b"stdin").await.unwrap();
    fixture.wait_until_throttled(0.0).await;
}
