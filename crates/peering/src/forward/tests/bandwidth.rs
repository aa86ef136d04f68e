//! The limit on bandwidth: what of a request it is for. How long things wait is tested with the rule.

use std::num::NonZeroU64;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::upgrades::{read_head, through};
use super::*;

/// A byte a second: after one piece of a hundred bytes, the next is held for more than a minute.
fn narrow() -> ForwardLimits {
    ForwardLimits { bandwidth_max: Some(NonZeroU64::MIN), ..generous() }
}

/// A piece that goes at once and has to be paid for.
const PIECE: &str =
    "................................................................................................ 100";

impl Bench {
    /// For how long pieces were held so far.
    fn held(&self) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == "unskew_peer_bandwidth_wait_seconds_total");
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        metrics.iter().map(|metric| metric.get_counter().get_value()).sum()
    }

    /// Returns once something was held that was not before.
    async fn holds(&self, before: f64) {
        while self.held() <= before {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn bodies_of_requests_and_of_answers_share_the_limit() {
    let bench = Bench::new(narrow());
    let peer = bench.answering(ok).await;
    let peers = [&peer];
    // The first piece is that of the request; the answer waits for it.
    let mut answer = bench.post(&peers, PIECE).await.unwrap().into_body();
    assert_eq!(bench.held(), 0.0);
    tokio::select! {
        _ = answer.frame() => panic!("the answer was not held"),
        () = bench.holds(0.0) => {}
    }
    let before = bench.held();
    tokio::select! {
        _ = bench.post(&peers, PIECE) => panic!("the request was not held"),
        () = bench.holds(before) => {}
    }
    // What has no body waits for nothing.
    bench.get(&peers).await.unwrap();
}

#[tokio::test]
async fn the_limit_is_that_of_one_peer() {
    let bench = Bench::new(narrow());
    let (narrow, other) = (bench.answering(ok).await, bench.answering(|_| answer(200, "", "at once")).await);
    bench.post(&[&narrow], PIECE).await.unwrap();
    assert_eq!(text(bench.get(&[&other]).await.unwrap()).await, "at once");
    assert_eq!(bench.held(), 0.0);
}

#[tokio::test]
async fn upgraded_connections_are_held_too() {
    let bench = Arc::new(Bench::new(narrow()));
    let peer = bench
        .playing(|mut visit| async move {
            visit.hear().await.unwrap();
            visit.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n").await;
            visit.say(PIECE).await;
            visit.closed().await;
        })
        .await;
    let mut client = through(&bench, &Arc::new(peer)).await;
    let request = "POST /exec HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                   Content-Length: 0\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    read_head(&mut client).await;
    let mut piece = [0; PIECE.len()];
    client.read_exact(&mut piece).await.unwrap();
    client.write_all(b"stdin").await.unwrap();
    bench.holds(0.0).await;
}
