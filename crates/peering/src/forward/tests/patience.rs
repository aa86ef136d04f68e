//! Peers that are slow, and peers that are dead.

use super::*;

fn impatient() -> ForwardLimits {
    ForwardLimits { patience: SOON, ping_timeout: SOON, ..generous() }
}

fn is_ping(heard: &Heard) -> bool {
    heard.line == "GET /livez HTTP/1.1"
}

/// A peer that answers the first request and falls silent for ever.
async fn falls_silent(bench: &Bench) -> ScriptedPeer {
    bench
        .playing(|mut visit| async move {
            if visit.connection == 0 {
                let heard = visit.hear().await.unwrap();
                visit.say(&ok(&heard)).await;
            }
            while visit.hear().await.is_some() {}
        })
        .await
}

/// A request with all the time it needs, after which there is an idle connection.
async fn use_once(bench: &Bench, peer: &ScriptedPeer) {
    let get = Request::get("/").body(Empty::<Bytes>::new()).unwrap();
    let span = Span::Until(Instant::now() + ENOUGH);
    text(bench.forward(&[peer], Effect::Reads, span, get).await.unwrap()).await;
}

#[tokio::test]
async fn a_silent_peer_that_does_not_answer_a_ping_is_passed_over_by_reads() {
    let bench = Bench::new(impatient());
    let (a, b) = (falls_silent(&bench).await, bench.answering(ok).await);
    use_once(&bench, &a).await;
    let response = bench.get(&[&a, &b]).await.unwrap();
    assert_eq!(answered_by(&response), &server(1));
    assert_eq!(bench.failures(), ["apiserver-a no_answer 1"]);
    assert_eq!(bench.standing(0), Standing::Resting);
}

#[tokio::test]
async fn a_watch_does_not_wait_for_ever_for_a_deaf_peer_that_is_the_only_one() {
    let bench = Bench::new(impatient());
    let a = falls_silent(&bench).await;
    use_once(&bench, &a).await;
    let error = bench.get(&[&a]).await.unwrap_err();
    assert_eq!(error.execution(), Execution::Harmless);
    assert_eq!(bench.failures(), ["apiserver-a no_answer 1"]);
}

#[tokio::test]
async fn a_slow_peer_that_answers_pings_is_left_alone() {
    let bench = Bench::new(ForwardLimits { patience: SOON, ..generous() });
    let (pinged, was_pinged) = watch::channel(0);
    let a = bench
        .playing(move |mut visit| {
            let (pinged, mut was_pinged) = (pinged.clone(), was_pinged.clone());
            async move {
                while let Some(heard) = visit.hear().await {
                    if is_ping(&heard) {
                        assert_eq!(heard.header("x-remote-user"), ["system:apiserver"]);
                        pinged.send_modify(|count| *count += 1);
                        // Whatever it says, it lives.
                        visit.say(&answer(500, "", "not well")).await;
                    } else {
                        was_pinged.wait_for(|count| *count >= 2).await.unwrap();
                        visit.say(&ok(&heard)).await;
                    }
                }
            }
        })
        .await;
    let b = bench.answering(ok).await;
    let response = bench.get(&[&a, &b]).await.unwrap();
    assert_eq!(answered_by(&response), &server(0));
    assert!(bench.failures().is_empty());
}

#[tokio::test]
async fn a_write_stays_with_a_deaf_peer_until_its_time_is_over_and_others_go_elsewhere() {
    let bench = Bench::new(impatient());
    let (a, b) = (falls_silent(&bench).await, bench.answering(ok).await);
    use_once(&bench, &a).await;
    let peers = [&a, &b];
    let request = Request::post("/x").body(Full::new(Bytes::from_static(b"x"))).unwrap();
    let writing = bench.forward(&peers, Effect::Writes, Span::Open, request);
    let failing = async {
        while bench.standing(0) == Standing::Well {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = writing => panic!("{done:?}"),
        () = failing => {}
    }
    let other = bench.post(&peers, "y").await.unwrap();
    assert_eq!(answered_by(&other), &server(1));
}

#[tokio::test]
async fn time_that_is_over_says_what_may_have_happened() {
    let bench = Bench::new(generous());
    let silent = bench.playing(|mut visit| async move { while visit.hear().await.is_some() {} }).await;
    let in_time = || Span::Until(Instant::now() + Duration::from_millis(100));
    let get = Request::get("/x").body(Empty::<Bytes>::new()).unwrap();
    let read = bench.forward(&[&silent], Effect::Reads, in_time(), get).await.unwrap_err();
    assert!(matches!(read, ForwardError::TimedOut { .. }), "{read:?}");
    assert_eq!(bench.failures(), ["apiserver-a timeout 1"], "whoever is slow is counted");
    let late = Span::Until(Instant::now() - Duration::from_secs(1));
    let never_sent = Request::post("/x").body(Empty::<Bytes>::new()).unwrap();
    let error = bench.forward(&[&silent], Effect::Writes, late, never_sent).await.unwrap_err();
    assert_eq!(error.execution(), Execution::None);
    let post = Request::post("/sent").body(Empty::<Bytes>::new()).unwrap();
    let peers = [&silent];
    // However slow the machine is, the time is over only once the request was heard.
    let deadline = Instant::now() + ENOUGH;
    let writing = bench.forward(&peers, Effect::Writes, Span::Until(deadline), post);
    let hearing = async {
        while silent.heard().await.line != "POST /sent HTTP/1.1" {}
        tokio::time::pause();
        tokio::time::advance(ENOUGH).await;
        tokio::time::resume();
    };
    let (written, ()) = tokio::join!(writing, hearing);
    assert_eq!(written.unwrap_err().execution(), Execution::Unknown);
}

#[tokio::test]
async fn an_answer_that_does_not_end_in_time_is_broken_off() {
    let bench = Bench::new(generous());
    let peer = bench
        .playing(|mut visit| async move {
            visit.hear().await.unwrap();
            visit.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await;
            visit.closed().await;
        })
        .await;
    let get = Request::get("/x").body(Empty::<Bytes>::new()).unwrap();
    let deadline = Instant::now() + ENOUGH;
    let response = bench.forward(&[&peer], Effect::Reads, Span::Until(deadline), get).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    tokio::time::pause();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the peer did not finish its answer in time");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_watch_of_a_peer_that_falls_silent_is_ended() {
    let limits = ForwardLimits { stream_ping_interval: SOON, stream_ping_timeout: SOON, ..generous() };
    let bench = Bench::new(limits);
    let peer = bench
        .playing(|mut visit| async move {
            let heard = visit.hear().await.unwrap();
            if !is_ping(&heard) {
                visit.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n1\n\r\n").await;
            }
            visit.closed().await;
        })
        .await;
    let mut body = bench.get(&[&peer]).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "1\n");
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the peer does not answer any more");
    assert_eq!(bench.standing(0), Standing::Resting);
}

#[tokio::test]
async fn a_quiet_watch_of_a_peer_that_answers_pings_goes_on() {
    let bench = Bench::new(ForwardLimits { stream_ping_interval: SOON, stream_ping_timeout: ENOUGH, ..generous() });
    let (pinged, was_pinged) = watch::channel(0);
    let peer = bench
        .playing(move |mut visit| {
            let (pinged, mut was_pinged) = (pinged.clone(), was_pinged.clone());
            async move {
                while let Some(heard) = visit.hear().await {
                    if is_ping(&heard) {
                        pinged.send_modify(|count| *count += 1);
                        visit.say(&answer(200, "", "ok")).await;
                        continue;
                    }
                    visit.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                    was_pinged.wait_for(|count| *count >= 3).await.unwrap();
                    visit.say("2\r\n1\n\r\n").await;
                }
            }
        })
        .await;
    let mut body = bench.get(&[&peer]).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "1\n");
}
