//! Peers that have as many requests as they may, and who waits for them.

use std::sync::atomic::AtomicUsize;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};

use super::*;

type Answered = Result<Response<AnswerBody>, ForwardError>;

fn crowded(in_flight_max: usize, queue: QueueLimits) -> ForwardLimits {
    ForwardLimits { in_flight_max: Some(in_flight_max), queue, ..generous() }
}

fn roomy() -> QueueLimits {
    QueueLimits { length_max: 1_000, user_max: 1_000, wait_max: ENOUGH }
}

/// A short request of somebody.
fn ask<'a>(bench: &'a Bench, peers: &'a [&'a ScriptedPeer], user: &'a str, path: &'a str) -> BoxFuture<'a, Answered> {
    async move {
        let candidates: Vec<_> = peers.iter().enumerate().map(|(number, peer)| candidate(number, peer)).collect();
        let user = Identity::new(user, "", [], []).unwrap();
        let call = Call { span: Span::Until(Instant::now() + ENOUGH), ..long_read(&candidates, &user) };
        bench.forwarder.forward(call, Request::get(path).body(Empty::<Bytes>::new()).unwrap()).await
    }
    .boxed()
}

/// Lets a request go on until it waits.
fn wait(request: &mut BoxFuture<'_, Answered>) {
    assert!(request.now_or_never().is_none(), "it waits");
}

#[track_caller]
fn refused(request: BoxFuture<'_, Answered>) -> Refusal {
    match request.now_or_never() {
        Some(Err(ForwardError::Overloaded(refusal))) => refusal,
        other => panic!("{other:?}"),
    }
}

impl Bench {
    /// What a family of figures says: `apiserver-a 2`.
    fn figures(&self, name: &str) -> Vec<String> {
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
async fn a_request_waits_for_room_and_is_answered() {
    let bench = Bench::new(crowded(1, roomy()));
    let a = bench.answering(ok).await;
    let first = ask(&bench, &[&a], "jane", "/first").await.unwrap();
    let peers = [&a];
    let mut second = ask(&bench, &peers, "jane", "/second");
    wait(&mut second);
    assert_eq!(bench.figures("unskew_peer_queue_length"), ["apiserver-a 1"]);
    assert_eq!(text(first).await, "GET /first HTTP/1.1 ");
    assert_eq!(text(second.await.unwrap()).await, "GET /second HTTP/1.1 ");
    assert_eq!(bench.figures("unskew_peer_queue_length"), ["apiserver-a 0"]);
    assert_eq!(bench.figures("unskew_peer_queue_wait_seconds"), ["apiserver-a 1"]);
    // Nothing is left of either, and nothing of it was a failure.
    assert!(bench.failures().is_empty());
    let observed = bench.forwarder.peers().observed(&server(0)).unwrap();
    assert_eq!((observed.in_flight, observed.standing), (0, Standing::Well));
}

#[tokio::test]
async fn users_take_turns() {
    let bench = Bench::new(crowded(1, roomy()));
    let a = bench.answering(ok).await;
    let peers = [&a];
    let held = ask(&bench, &peers, "jane", "/held").await.unwrap();
    let asked = [("greedy", "/g1"), ("greedy", "/g2"), ("greedy", "/g3"), ("jane", "/j1"), ("joe", "/o1")];
    let mut waiting: Vec<_> = asked.iter().map(|(user, path)| ask(&bench, &peers, user, path)).collect();
    waiting.iter_mut().for_each(wait);
    drop(held);
    join_all(waiting.into_iter().map(|request| async { text(request.await.unwrap()).await })).await;
    let mut lines = Vec::new();
    for _ in 0..6 {
        lines.push(a.heard().await.line);
    }
    assert_eq!(lines.join(" ").replace("GET ", "").replace(" HTTP/1.1", ""), "/held /g1 /j1 /o1 /g2 /g3");
}

#[tokio::test]
async fn whoever_has_room_first_answers() {
    let bench = Bench::new(crowded(1, roomy()));
    let (a, b) = (bench.answering(ok).await, bench.answering(ok).await);
    let peers = [&a, &b];
    let held = [ask(&bench, &peers, "jane", "/").await.unwrap(), ask(&bench, &peers, "jane", "/").await.unwrap()];
    assert_ne!(answered_by(&held[0]), answered_by(&held[1]));
    let mut waits = ask(&bench, &peers, "jane", "/");
    wait(&mut waits);
    assert_eq!(bench.figures("unskew_peer_queue_length"), ["apiserver-a 1", "apiserver-b 1"]);
    let [kept, left] = held;
    let free = answered_by(&left).clone();
    drop(left);
    let answered = waits.await.unwrap();
    assert_eq!(answered_by(&answered), &free);
    // It waits nowhere any more, so that the next one is first at the other.
    assert_eq!(bench.figures("unskew_peer_queue_length"), ["apiserver-a 0", "apiserver-b 0"]);
    let free = answered_by(&kept).clone();
    let mut waits = ask(&bench, &peers, "jane", "/");
    wait(&mut waits);
    drop(kept);
    assert_eq!(answered_by(&waits.await.unwrap()), &free);
}

#[tokio::test]
async fn a_newcomer_does_not_overtake_who_waits() {
    let bench = Bench::new(crowded(1, roomy()));
    let a = bench.answering(ok).await;
    let peers = [&a];
    let held = ask(&bench, &peers, "jane", "/").await.unwrap();
    let mut first = ask(&bench, &peers, "jane", "/");
    wait(&mut first);
    drop(held);
    // The room is the first one's already, although that has not noticed yet.
    let mut second = ask(&bench, &peers, "joe", "/");
    wait(&mut second);
    drop(first.await.unwrap());
    second.await.unwrap();
}

#[tokio::test]
async fn no_more_wait_than_may_and_none_for_longer() {
    let queue = QueueLimits { length_max: 3, user_max: 2, wait_max: SOON };
    let bench = Bench::new(crowded(1, queue));
    let a = bench.answering(ok).await;
    let peers = [&a];
    let held = ask(&bench, &peers, "jane", "/").await.unwrap();
    let mut waiting: Vec<_> =
        ["greedy", "greedy", "jane"].into_iter().map(|user| ask(&bench, &peers, user, "/")).collect();
    waiting.iter_mut().for_each(wait);
    assert_eq!(refused(ask(&bench, &peers, "greedy", "/")), Refusal::UserFull);
    assert_eq!(refused(ask(&bench, &peers, "jane", "/")), Refusal::Full);
    let mut joe = ask(&bench, &peers, "joe", "/");
    wait(&mut joe);
    assert_eq!(refused(waiting.remove(1)), Refusal::PushedOut);
    for request in waiting.into_iter().chain([joe]) {
        assert!(matches!(request.await, Err(ForwardError::Overloaded(Refusal::TimedOut))));
    }
    assert_eq!(
        bench.figures("unskew_peer_queue_refused_total"),
        ["full 1", "pushed_out 1", "timeout 3", "user_full 1"]
    );
    // The peer is as well as before, and has room again.
    drop(held);
    assert_eq!(bench.standing(0), Standing::Well);
    text(ask(&bench, &peers, "jane", "/").await.unwrap()).await;
}

#[tokio::test]
async fn a_client_that_goes_away_waits_no_longer() {
    let bench = Bench::new(crowded(1, roomy()));
    let a = bench.answering(ok).await;
    let peers = [&a];
    let held = ask(&bench, &peers, "jane", "/").await.unwrap();
    let mut gone = ask(&bench, &peers, "jane", "/");
    let mut gone_with_room = ask(&bench, &peers, "jane", "/");
    let mut stays = ask(&bench, &peers, "jane", "/");
    for request in [&mut gone, &mut gone_with_room, &mut stays] {
        wait(request);
    }
    drop(gone);
    assert_eq!(bench.figures("unskew_peer_queue_length"), ["apiserver-a 2"]);
    drop(held);
    // It was given the room and never took it.
    drop(gone_with_room);
    stays.await.unwrap();
}

#[tokio::test]
async fn what_lasts_neither_waits_nor_keeps_others_waiting() {
    let bench = Bench::new(crowded(1, roomy()));
    let a = bench.answering(|_| "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n".to_owned()).await;
    let peers = [&a];
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(bench.get(&peers).await.unwrap());
    }
    let held = ask(&bench, &peers, "jane", "/").await.unwrap();
    let mut waits = ask(&bench, &peers, "jane", "/");
    wait(&mut waits);
    watches.push(bench.get(&peers).await.unwrap());
    let observed = bench.forwarder.peers().observed(&server(0)).unwrap();
    assert_eq!((observed.in_flight, observed.streams), (1, 4));
    drop(held);
    waits.await.unwrap();
}

#[tokio::test]
async fn a_peer_that_dies_while_others_wait_for_it_does_not_keep_them() {
    let bench = Bench::new(crowded(1, roomy()));
    let a = bench
        .playing(|mut visit| async move {
            let heard = visit.hear().await.unwrap();
            if heard.line.contains("/held") {
                visit.say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n").await;
                visit.closed().await;
            }
        })
        .await;
    let peers = [&a];
    let held = ask(&bench, &peers, "jane", "/held").await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| ask(&bench, &peers, "jane", "/")).collect();
    waiting.iter_mut().for_each(wait);
    drop(held);
    for ended in join_all(waiting).await {
        assert!(matches!(ended, Err(ForwardError::Failed { .. })), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_are_all_answered_and_never_more_than_may_be() {
    let bench = Arc::new(Bench::new(crowded(3, roomy())));
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, max) = (under_way.clone(), most.clone());
    let peer = bench
        .playing(move |mut visit| {
            let (now, max) = (now.clone(), max.clone());
            async move {
                while let Some(heard) = visit.hear().await {
                    max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    visit.say(&ok(&heard)).await;
                }
            }
        })
        .await;
    let peer = Arc::new(peer);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..16_usize {
        let (bench, peer) = (bench.clone(), peer.clone());
        clients.spawn(async move {
            for _ in 0..25 {
                let user = ["a", "b", "c", "d", "e"][number % 5];
                text(ask(&bench, &[&peer], user, "/").await.unwrap()).await;
            }
        });
    }
    tokio::time::timeout(ENOUGH, clients.join_all()).await.unwrap();
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    assert_eq!(bench.forwarder.peers().observed(&server(0)).unwrap().in_flight, 0);
    assert_eq!(bench.figures("unskew_peer_queue_length"), ["apiserver-a 0"]);
}
