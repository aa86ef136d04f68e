//! Peers at their in-flight limit, and requests that wait for them.

use std::sync::atomic::AtomicUsize;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};

use super::*;

type ForwardResult = Result<Response<ForwardedBody>, ForwardError>;

fn limits_with_queue(in_flight_max: usize, queue: QueueLimits) -> ForwardLimits {
    ForwardLimits { in_flight_max: Some(in_flight_max), queue, ..generous_limits() }
}

fn large_queue() -> QueueLimits {
    QueueLimits { length_max: 1_000, user_max: 1_000, wait_max: TEST_TIMEOUT }
}

/// A short request of this user.
fn send_short_request<'a>(
    fixture: &'a ForwarderFixture,
    peers: &'a [&'a ScriptedPeer],
    user: &'a str,
    path: &'a str,
) -> BoxFuture<'a, ForwardResult> {
    async move {
        let candidates: Vec<_> = peers.iter().enumerate().map(|(number, peer)| candidate(number, peer)).collect();
        let user = ForwardedUser::new(user, "", [], []).unwrap();
        let forward_request = ForwardRequest {
            lifetime: Lifetime::Until(Instant::now() + TEST_TIMEOUT),
            ..long_read(&candidates, &user)
        };
        fixture.forwarder.forward(forward_request, Request::get(path).body(Empty::<Bytes>::new()).unwrap()).await
    }
    .boxed()
}

/// Polls a request until it waits.
fn poll_until_waiting(request: &mut BoxFuture<'_, ForwardResult>) {
    assert!(request.now_or_never().is_none(), "it waits");
}

#[track_caller]
fn expect_rejection(request: BoxFuture<'_, ForwardResult>) -> QueueRejection {
    match request.now_or_never() {
        Some(Err(ForwardError::Overloaded(rejection))) => rejection,
        other => panic!("{other:?}"),
    }
}

impl ForwarderFixture {
    /// The values of a metric: `apiserver-a 2`.
    fn metric_values(&self, name: &str) -> Vec<String> {
        let families = self.registry.gather();
        let metrics = families.iter().find(|family| family.name() == name).map(|family| family.get_metric());
        let show = |metric: &prometheus::proto::Metric| {
            let labels: Vec<_> = metric.get_label().iter().map(|label| label.value()).collect();
            let value = metric.get_gauge().get_value() + metric.get_counter().get_value();
            let count = value + metric.get_histogram().get_sample_count() as f64;
            format!("{} {count}", labels.join(" "))
        };
        metrics.unwrap_or_default().iter().map(show).collect()
    }
}

#[tokio::test]
async fn queued_request_is_served_when_seat_is_free() {
    let fixture = ForwarderFixture::new(limits_with_queue(1, large_queue()));
    let a = fixture.start_responder(echo_response).await;
    let first = send_short_request(&fixture, &[&a], "jane", "/first").await.unwrap();
    let peers = [&a];
    let mut second = send_short_request(&fixture, &peers, "jane", "/second");
    poll_until_waiting(&mut second);
    assert_eq!(fixture.metric_values("unskew_peer_queue_length"), ["apiserver-a 1"]);
    assert_eq!(body_text(first).await, "GET /first HTTP/1.1 ");
    assert_eq!(body_text(second.await.unwrap()).await, "GET /second HTTP/1.1 ");
    assert_eq!(fixture.metric_values("unskew_peer_queue_length"), ["apiserver-a 0"]);
    assert_eq!(fixture.metric_values("unskew_peer_queue_wait_seconds"), ["apiserver-a 1"]);
    // Both requests left no trace, and none counted as a failure.
    assert!(fixture.failure_counts().is_empty());
    let observed = fixture.forwarder.peers().status(&server(0)).unwrap();
    assert_eq!((observed.in_flight, observed.health), (0, PeerHealth::Healthy));
}

#[tokio::test]
async fn queued_users_are_served_in_turn() {
    let fixture = ForwarderFixture::new(limits_with_queue(1, large_queue()));
    let a = fixture.start_responder(echo_response).await;
    let peers = [&a];
    let held = send_short_request(&fixture, &peers, "jane", "/held").await.unwrap();
    let asked = [("greedy", "/g1"), ("greedy", "/g2"), ("greedy", "/g3"), ("jane", "/j1"), ("joe", "/o1")];
    let mut waiting: Vec<_> =
        asked.iter().map(|(user, path)| send_short_request(&fixture, &peers, user, path)).collect();
    waiting.iter_mut().for_each(poll_until_waiting);
    drop(held);
    join_all(waiting.into_iter().map(|request| async { body_text(request.await.unwrap()).await })).await;
    let mut lines = Vec::new();
    for _ in 0..6 {
        lines.push(a.next_request().await.request_line);
    }
    assert_eq!(lines.join(" ").replace("GET ", "").replace(" HTTP/1.1", ""), "/held /g1 /j1 /o1 /g2 /g3");
}

#[tokio::test]
async fn queued_request_goes_to_first_peer_with_free_seat() {
    let fixture = ForwarderFixture::new(limits_with_queue(1, large_queue()));
    let (a, b) = (fixture.start_responder(echo_response).await, fixture.start_responder(echo_response).await);
    let peers = [&a, &b];
    let held = [
        send_short_request(&fixture, &peers, "jane", "/").await.unwrap(),
        send_short_request(&fixture, &peers, "jane", "/").await.unwrap(),
    ];
    assert_ne!(responding_peer(&held[0]), responding_peer(&held[1]));
    let mut waits = send_short_request(&fixture, &peers, "jane", "/");
    poll_until_waiting(&mut waits);
    assert_eq!(fixture.metric_values("unskew_peer_queue_length"), ["apiserver-a 1", "apiserver-b 1"]);
    let [kept, left] = held;
    let free = responding_peer(&left).clone();
    drop(left);
    let answered = waits.await.unwrap();
    assert_eq!(responding_peer(&answered), &free);
    // The request left both queues, so the next one is first at the other peer.
    assert_eq!(fixture.metric_values("unskew_peer_queue_length"), ["apiserver-a 0", "apiserver-b 0"]);
    let free = responding_peer(&kept).clone();
    let mut waits = send_short_request(&fixture, &peers, "jane", "/");
    poll_until_waiting(&mut waits);
    drop(kept);
    assert_eq!(responding_peer(&waits.await.unwrap()), &free);
}

#[tokio::test]
async fn new_request_does_not_overtake_queued_one() {
    let fixture = ForwarderFixture::new(limits_with_queue(1, large_queue()));
    let a = fixture.start_responder(echo_response).await;
    let peers = [&a];
    let held = send_short_request(&fixture, &peers, "jane", "/").await.unwrap();
    let mut first = send_short_request(&fixture, &peers, "jane", "/");
    poll_until_waiting(&mut first);
    drop(held);
    // The first request owns the seat already, although it was not polled since.
    let mut second = send_short_request(&fixture, &peers, "joe", "/");
    poll_until_waiting(&mut second);
    drop(first.await.unwrap());
    second.await.unwrap();
}

#[tokio::test]
async fn queue_rejects_beyond_limits_and_times_out() {
    let queue = QueueLimits { length_max: 3, user_max: 2, wait_max: SHORT_TIMEOUT };
    let fixture = ForwarderFixture::new(limits_with_queue(1, queue));
    let a = fixture.start_responder(echo_response).await;
    let peers = [&a];
    let held = send_short_request(&fixture, &peers, "jane", "/").await.unwrap();
    let mut waiting: Vec<_> =
        ["greedy", "greedy", "jane"].into_iter().map(|user| send_short_request(&fixture, &peers, user, "/")).collect();
    waiting.iter_mut().for_each(poll_until_waiting);
    assert_eq!(expect_rejection(send_short_request(&fixture, &peers, "greedy", "/")), QueueRejection::UserQueueFull);
    assert_eq!(expect_rejection(send_short_request(&fixture, &peers, "jane", "/")), QueueRejection::QueueFull);
    let mut joe = send_short_request(&fixture, &peers, "joe", "/");
    poll_until_waiting(&mut joe);
    assert_eq!(expect_rejection(waiting.remove(1)), QueueRejection::Evicted);
    for request in waiting.into_iter().chain([joe]) {
        assert!(matches!(request.await, Err(ForwardError::Overloaded(QueueRejection::TimedOut))));
    }
    assert_eq!(
        fixture.metric_values("unskew_peer_queue_refused_total"),
        ["full 1", "pushed_out 1", "timeout 3", "user_full 1"]
    );
    // The peer is healthy and has a free seat again.
    drop(held);
    assert_eq!(fixture.peer_health(0), PeerHealth::Healthy);
    body_text(send_short_request(&fixture, &peers, "jane", "/").await.unwrap()).await;
}

#[tokio::test]
async fn dropped_request_leaves_queue() {
    let fixture = ForwarderFixture::new(limits_with_queue(1, large_queue()));
    let a = fixture.start_responder(echo_response).await;
    let peers = [&a];
    let held = send_short_request(&fixture, &peers, "jane", "/").await.unwrap();
    let mut gone = send_short_request(&fixture, &peers, "jane", "/");
    let mut gone_with_room = send_short_request(&fixture, &peers, "jane", "/");
    let mut stays = send_short_request(&fixture, &peers, "jane", "/");
    for request in [&mut gone, &mut gone_with_room, &mut stays] {
        poll_until_waiting(request);
    }
    drop(gone);
    assert_eq!(fixture.metric_values("unskew_peer_queue_length"), ["apiserver-a 2"]);
    drop(held);
    // The request was given the seat and never took it.
    drop(gone_with_room);
    stays.await.unwrap();
}

#[tokio::test]
async fn long_running_requests_use_no_seats() {
    let fixture = ForwarderFixture::new(limits_with_queue(1, large_queue()));
    let a = fixture.start_responder(|_| "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n".to_owned()).await;
    let peers = [&a];
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(fixture.get(&peers).await.unwrap());
    }
    let held = send_short_request(&fixture, &peers, "jane", "/").await.unwrap();
    let mut waits = send_short_request(&fixture, &peers, "jane", "/");
    poll_until_waiting(&mut waits);
    watches.push(fixture.get(&peers).await.unwrap());
    let observed = fixture.forwarder.peers().status(&server(0)).unwrap();
    assert_eq!((observed.in_flight, observed.streams), (1, 4));
    drop(held);
    waits.await.unwrap();
}

#[tokio::test]
async fn requests_queued_for_crashed_peer_fail() {
    let fixture = ForwarderFixture::new(limits_with_queue(1, large_queue()));
    let a = fixture
        .start_peer(|mut connection| async move {
            let received = connection.read_request().await.unwrap();
            if received.request_line.contains("/held") {
                connection.write("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n").await;
                connection.wait_for_close().await;
            }
        })
        .await;
    let peers = [&a];
    let held = send_short_request(&fixture, &peers, "jane", "/held").await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| send_short_request(&fixture, &peers, "jane", "/")).collect();
    waiting.iter_mut().for_each(poll_until_waiting);
    drop(held);
    for ended in join_all(waiting).await {
        assert!(matches!(ended, Err(ForwardError::Failed { .. })), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_never_exceed_in_flight_limit() {
    let fixture = Arc::new(ForwarderFixture::new(limits_with_queue(3, large_queue())));
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, max) = (under_way.clone(), most.clone());
    let peer = fixture
        .start_peer(move |mut connection| {
            let (now, max) = (now.clone(), max.clone());
            async move {
                while let Some(received) = connection.read_request().await {
                    max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    connection.write(&echo_response(&received)).await;
                }
            }
        })
        .await;
    let peer = Arc::new(peer);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..16_usize {
        let (fixture, peer) = (fixture.clone(), peer.clone());
        clients.spawn(async move {
            for _ in 0..25 {
                let user = ["a", "b", "c", "d", "e"][number % 5];
                body_text(send_short_request(&fixture, &[&peer], user, "/").await.unwrap()).await;
            }
        });
    }
    tokio::time::timeout(TEST_TIMEOUT, clients.join_all()).await.unwrap();
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    assert_eq!(fixture.forwarder.peers().status(&server(0)).unwrap().in_flight, 0);
    assert_eq!(fixture.metric_values("unskew_peer_queue_length"), ["apiserver-a 0"]);
}
