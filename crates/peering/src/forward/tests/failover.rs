//! Failover: what may be tried again, and what may not.

use expect_test::expect;
use tokio::net::TcpListener;

use super::*;
use crate::status;

const PLAIN_404: &str = "404 page not found\n";

/// What the first of two peers does with a request.
#[derive(Clone, Debug)]
enum Does {
    Says(String),
    /// Closes the connection when it has heard the request.
    Closes,
    /// Says this and closes the connection.
    BreaksOff(&'static str),
}

async fn first_peer(bench: &Bench, does: &Does) -> ScriptedPeer {
    let does = does.clone();
    bench
        .playing(move |mut visit| {
            let does = does.clone();
            async move {
                while visit.hear().await.is_some() {
                    match &does {
                        Does::Says(answer) => visit.say(answer).await,
                        Does::Closes => return,
                        Does::BreaksOff(start) => {
                            visit.say(start).await;
                            return;
                        }
                    }
                }
            }
        })
        .await
}

/// What becomes of a read and of a write whose first peer does this, and what is counted.
async fn outcome(does: Does) -> String {
    let mut shown = String::new();
    for effect in [Effect::Reads, Effect::Writes] {
        let bench = Bench::new(generous());
        let a = first_peer(&bench, &does).await;
        let b = bench.answering(|_| answer(200, "", "fine")).await;
        let result = match effect {
            Effect::Reads => bench.get(&[&a, &b]).await,
            Effect::Writes => bench.post(&[&a, &b], "body").await,
        };
        let result = match result {
            Ok(response) => {
                let by = answered_by(&response).as_str().to_owned();
                format!("{} from {by}: {}", response.status().as_u16(), text(response).await)
            }
            Err(ForwardError::Failed { execution, .. }) => format!("failed, execution {execution:?}"),
            Err(other) => format!("{other:?}"),
        };
        let doubted = if bench.doubted.lock().is_empty() { "" } else { ", doubted" };
        let failures = bench.failures().join(", ");
        shown += &format!("{effect:?}: {result} [{failures}{doubted}]\n");
    }
    shown
}

#[tokio::test]
async fn what_a_peer_says_of_the_request_passes() {
    let status = |code: u16, details: &str| {
        Does::Says(answer(
            code,
            "Content-Type: application/json\r\n",
            &format!(
                r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"details":{{{details}}}}}"#
            ),
        ))
    };
    expect![[r#"
        Reads: 500 from apiserver-a: oops []
        Writes: 500 from apiserver-a: oops []
    "#]]
    .assert_eq(&outcome(Does::Says(answer(500, "", "oops"))).await);
    expect![[r#"
        Reads: 404 from apiserver-a: {"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"details":{"name":"x"}} []
        Writes: 404 from apiserver-a: {"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"details":{"name":"x"}} []
    "#]].assert_eq(&outcome(status(404, r#""name":"x""#)).await);
    expect![[r#"
        Reads: 503 from apiserver-a: {"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"details":{"retryAfterSeconds":1}} []
        Writes: 503 from apiserver-a: {"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"details":{"retryAfterSeconds":1}} []
    "#]].assert_eq(&outcome(status(503, r#""retryAfterSeconds":1"#)).await);
    expect![[r#"
        Reads: 304 from apiserver-a:  []
        Writes: 304 from apiserver-a:  []
    "#]]
    .assert_eq(&outcome(Does::Says("HTTP/1.1 304 Not Modified\r\n\r\n".to_owned())).await);
}

#[tokio::test]
async fn a_peer_that_executed_nothing_is_passed_over_by_everybody() {
    let says = |status: api::Status| {
        let body = String::from_utf8(status.to_json()).unwrap();
        Does::Says(answer(status.http_code(), "", &body))
    };
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a handed_back 1]
        Writes: 200 from apiserver-b: fine [apiserver-a handed_back 1]
    "#]]
    .assert_eq(&outcome(says(status::peer_not_ready())).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a handed_back 1]
        Writes: 200 from apiserver-b: fine [apiserver-a handed_back 1]
    "#]]
    .assert_eq(&outcome(says(status::unavailable(crate::Unavailable::ForwardedButUnknown))).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a unauthorized 1, doubted]
        Writes: 200 from apiserver-b: fine [apiserver-a unauthorized 1, doubted]
    "#]]
    .assert_eq(&outcome(Does::Says(answer(401, "", "Unauthorized"))).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a not_served 1, doubted]
        Writes: 200 from apiserver-b: fine [apiserver-a not_served 1, doubted]
    "#]]
    .assert_eq(&outcome(Does::Says(answer(404, "", PLAIN_404))).await);
    let unnamed =
        api::Status::from_json(br#"{"kind":"Status","apiVersion":"v1","code":404,"reason":"NotFound","details":{}}"#);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a not_served 1, doubted]
        Writes: 200 from apiserver-b: fine [apiserver-a not_served 1, doubted]
    "#]]
    .assert_eq(&outcome(says(unnamed.unwrap())).await);
}

#[tokio::test]
async fn a_peer_that_may_have_executed_it_is_passed_over_by_reads_alone() {
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a broken 1]
        Writes: failed, execution Unknown [apiserver-a broken 1]
    "#]]
    .assert_eq(&outcome(Does::Closes).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a garbage 1]
        Writes: failed, execution Unknown [apiserver-a garbage 1]
    "#]]
    .assert_eq(&outcome(Does::BreaksOff("SSH-2.0-OpenSSH\r\n\r\n")).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a redirect 1]
        Writes: failed, execution Unknown [apiserver-a redirect 1]
    "#]]
    .assert_eq(&outcome(Does::Says(answer(302, "Location: https://elsewhere.example/\r\n", ""))).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a garbage 1]
        Writes: failed, execution Unknown [apiserver-a garbage 1]
    "#]]
    .assert_eq(&outcome(Does::Says("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n".to_owned())).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a broken 1]
        Writes: failed, execution Unknown [apiserver-a broken 1]
    "#]]
    .assert_eq(&outcome(Does::BreaksOff("HTTP/1.1 404 x\r\nContent-Length: 9\r\n\r\nbr")).await);
}

#[tokio::test]
async fn without_another_peer_the_error_says_what_may_have_happened() {
    let bench = Bench::new(generous());
    let peer = first_peer(&bench, &Does::Closes).await;
    let read = bench.get(&[&peer]).await.unwrap_err();
    assert_eq!(read.execution(), Execution::Harmless);
    let write = bench.post(&[&peer], "body").await.unwrap_err();
    assert_eq!(write.execution(), Execution::Unknown);
    assert_eq!(peer.heard().await.line, "GET /api/v1/pods HTTP/1.1");
    assert_eq!(peer.heard().await.line, "POST /api/v1/pods HTTP/1.1");
    assert_eq!(peer.heard_so_far().await, [], "neither was sent twice");
}

#[tokio::test]
async fn a_write_goes_on_to_the_next_peer_if_there_is_no_connection() {
    let bench = Bench::new(generous());
    let b = bench.answering(ok).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let candidates =
        [Candidate { server: server(0), address: Address::new("127.0.0.1", gone).unwrap() }, candidate(1, &b)];
    let user = Identity::new("jane", "", [], []).unwrap();
    let request = Request::post("/x").body(Full::new(Bytes::from_static(b"body"))).unwrap();
    let call = Call { effect: Effect::Writes, ..long_read(&candidates, &user) };
    let response = bench.forwarder.forward(call, request).await.unwrap();
    assert_eq!(text(response).await, "POST /x HTTP/1.1 body");
    assert_eq!(bench.failures(), ["apiserver-a unreachable 1"]);
}

#[tokio::test]
async fn a_peer_with_a_wrong_certificate_is_passed_over() {
    let bench = Bench::new(generous());
    let folder = tempfile::tempdir().unwrap();
    let foreign = Certificates::new(folder.path());
    let a = ScriptedPeer::answering(foreign.server(), &bench.tasks, ok).await;
    let b = bench.answering(ok).await;
    assert_eq!(text(bench.post(&[&a, &b], "x").await.unwrap()).await, "POST /api/v1/pods HTTP/1.1 x");
    assert_eq!(bench.failures(), ["apiserver-a tls 1"]);
}

#[tokio::test]
async fn a_read_is_repeated_on_a_new_connection_if_the_peer_closed_the_old_one() {
    let bench = Bench::new(generous());
    // Every connection answers once, hears a second request, and closes without a word: what a restart looks like.
    let peer = bench
        .playing(|mut visit| async move {
            let heard = visit.hear().await.unwrap();
            visit.say(&ok(&heard)).await;
            visit.hear().await;
        })
        .await;
    for _ in 0..3 {
        text(bench.get(&[&peer]).await.unwrap()).await;
    }
    assert!(bench.failures().is_empty(), "the peer is well");
    text(bench.get(&[&peer]).await.unwrap()).await;
    let write = bench.post(&[&peer], "x").await.unwrap_err();
    assert_eq!(write.execution(), Execution::Unknown, "a write that was sent is not sent again");
}

#[tokio::test]
async fn a_peer_that_failed_is_tried_last_until_it_has_rested() {
    let bench = Bench::new(generous());
    let a = bench
        .playing(|mut visit| async move {
            let heard = visit.hear().await.unwrap();
            if visit.connection > 0 {
                visit.say(&ok(&heard)).await;
            }
        })
        .await;
    let b = bench.answering(ok).await;
    for expected in [1, 1, 1] {
        let response = bench.get(&[&a, &b]).await.unwrap();
        assert_eq!(answered_by(&response), &server(expected));
        text(response).await;
    }
    assert_eq!((bench.standing(0), a.connections()), (Standing::Resting, 1));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::time::resume();
    assert_eq!(bench.standing(0), Standing::Due);
    // Turns: the fourth request would begin with b, the fifth with a.
    let mut by = Vec::new();
    for _ in 0..2 {
        let response = bench.get(&[&a, &b]).await.unwrap();
        by.push(answered_by(&response).clone());
        text(response).await;
    }
    assert!(by.contains(&server(0)), "{by:?}");
    assert_eq!(bench.standing(0), Standing::Well);
}

/// Eight clients read and write all the time while one of two peers dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_peer_dies_under_load_no_read_fails_and_no_write_is_sent_twice() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 60;
    let bench = Bench::new(generous());
    let machine = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (tls, tasks) = (bench.certificates.server(), Tasks::new());
    let a = machine.spawn(async move { ScriptedPeer::answering(tls, &tasks, ok).await }).await.unwrap();
    let b = bench.answering(ok).await;
    let sent = AtomicUsize::new(0);
    let machine = Mutex::new(Some(machine));
    let client = async |client: usize| {
        let mut unknown = 0;
        for round in 0..ROUNDS {
            let read = bench.get(&[&a, &b]).await.expect("there is always one that lives");
            text(read).await;
            let request =
                Request::post(format!("/{client}/{round}")).body(Full::new(Bytes::from_static(b"x"))).unwrap();
            match bench.forward(&[&a, &b], Effect::Writes, Span::Open, request).await {
                Ok(written) => drop(text(written).await),
                Err(error) => {
                    assert_eq!(error.execution(), Execution::Unknown, "{error}");
                    unknown += 1;
                }
            }
            if sent.fetch_add(1, Ordering::Relaxed) == CLIENTS * ROUNDS / 3 {
                machine.lock().take().unwrap().shutdown_background();
            }
        }
        unknown
    };
    let unknown = futures_util::future::join_all((0..CLIENTS).map(client)).await;
    assert!(unknown.iter().all(|&lost| lost <= 1), "only what was under way can be lost: {unknown:?}");
    let (of_a, of_b) = (a.heard_so_far().await, b.heard_so_far().await);
    let writes = of_a.iter().chain(&of_b).filter(|heard| heard.line.starts_with("POST"));
    let mut writes: Vec<_> = writes.map(|heard| &heard.line).collect();
    let count = writes.len();
    writes.sort();
    writes.dedup();
    assert_eq!(writes.len(), count, "each write was heard once at most");
    assert!(count >= CLIENTS * ROUNDS - unknown.iter().sum::<usize>());
    assert!(!of_a.is_empty() && of_b.len() > of_a.len(), "both had their part: {} and {}", of_a.len(), of_b.len());
}
