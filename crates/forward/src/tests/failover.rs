//! Failover: which requests are retried.

use expect_test::expect;
use tokio::net::TcpListener;

use super::*;

const PLAIN_404: &str = "404 page not found\n";

/// What the first of two peers does with a request.
#[derive(Clone, Debug)]
enum PeerAction {
    Responds(String),
    /// Closes the connection after it has read the request.
    ClosesConnection,
    /// Writes this and closes the connection.
    ClosesAfter(&'static str),
}

async fn start_first_peer(fixture: &ForwarderFixture, action: &PeerAction) -> ScriptedPeer {
    let does = action.clone();
    fixture
        .start_peer(move |mut connection| {
            let does = does.clone();
            async move {
                while connection.read_request().await.is_some() {
                    match &does {
                        PeerAction::Responds(answer) => connection.write(answer).await,
                        PeerAction::ClosesConnection => return,
                        PeerAction::ClosesAfter(start) => {
                            connection.write(start).await;
                            return;
                        }
                    }
                }
            }
        })
        .await
}

/// The outcome of a read and of a write whose first peer does this, and the counted failures.
async fn forward_outcome(action: PeerAction) -> String {
    let mut shown = String::new();
    for effect in [Effect::Reads, Effect::Writes] {
        let fixture = ForwarderFixture::new(generous_limits());
        let a = start_first_peer(&fixture, &action).await;
        let b = fixture.start_responder(|_| http_response(200, "", "fine")).await;
        let result = match effect {
            Effect::Reads => fixture.get(&[&a, &b]).await,
            Effect::Writes => fixture.post(&[&a, &b], "body").await,
        };
        let result = match result {
            Ok(response) => {
                let by = responding_peer(&response).clone();
                format!("{} from {by}: {}", response.status().as_u16(), body_text(response).await)
            }
            Err(ForwardError::Failed { execution, .. }) => format!("failed, execution {execution:?}"),
            Err(other) => format!("{other:?}"),
        };
        let doubted = if fixture.stale_marks.lock().is_empty() { "" } else { ", doubted" };
        let failures = fixture.failure_counts().join(", ");
        shown += &format!("{effect:?}: {result} [{failures}{doubted}]\n");
    }
    shown
}

#[tokio::test]
async fn response_about_the_request_is_passed_through() {
    let status = |code: u16, details: &str| {
        PeerAction::Responds(http_response(
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
    .assert_eq(&forward_outcome(PeerAction::Responds(http_response(500, "", "oops"))).await);
    expect![[r#"
        Reads: 404 from apiserver-a: {"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"details":{"name":"x"}} []
        Writes: 404 from apiserver-a: {"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"details":{"name":"x"}} []
    "#]].assert_eq(&forward_outcome(status(404, r#""name":"x""#)).await);
    expect![[r#"
        Reads: 503 from apiserver-a: {"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"details":{"retryAfterSeconds":1}} []
        Writes: 503 from apiserver-a: {"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"details":{"retryAfterSeconds":1}} []
    "#]].assert_eq(&forward_outcome(status(503, r#""retryAfterSeconds":1"#)).await);
    expect![[r#"
        Reads: 304 from apiserver-a:  []
        Writes: 304 from apiserver-a:  []
    "#]]
    .assert_eq(&forward_outcome(PeerAction::Responds("HTTP/1.1 304 Not Modified\r\n\r\n".to_owned())).await);
}

#[tokio::test]
async fn unexecuted_request_fails_over_for_reads_and_writes() {
    let says = |status: api::Status| {
        let body = String::from_utf8(status.to_json()).unwrap();
        PeerAction::Responds(http_response(status.http_code(), "", &body))
    };
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a handed_back 1]
        Writes: 200 from apiserver-b: fine [apiserver-a handed_back 1]
    "#]]
    .assert_eq(&forward_outcome(says(not_executed_status(CAUSE_PEER_NOT_READY))).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a handed_back 1]
        Writes: 200 from apiserver-b: fine [apiserver-a handed_back 1]
    "#]]
    .assert_eq(&forward_outcome(says(not_executed_status(CAUSE_NOT_SERVED_BY_PEER))).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a unauthorized 1, doubted]
        Writes: 200 from apiserver-b: fine [apiserver-a unauthorized 1, doubted]
    "#]]
    .assert_eq(&forward_outcome(PeerAction::Responds(http_response(401, "", "Unauthorized"))).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a not_served 1, doubted]
        Writes: 200 from apiserver-b: fine [apiserver-a not_served 1, doubted]
    "#]]
    .assert_eq(&forward_outcome(PeerAction::Responds(http_response(404, "", PLAIN_404))).await);
    let unnamed =
        api::Status::from_json(br#"{"kind":"Status","apiVersion":"v1","code":404,"reason":"NotFound","details":{}}"#);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a not_served 1, doubted]
        Writes: 200 from apiserver-b: fine [apiserver-a not_served 1, doubted]
    "#]]
    .assert_eq(&forward_outcome(says(unnamed.unwrap())).await);
}

#[tokio::test]
async fn possibly_executed_request_fails_over_for_reads_only() {
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a broken 1]
        Writes: failed, execution Unknown [apiserver-a broken 1]
    "#]]
    .assert_eq(&forward_outcome(PeerAction::ClosesConnection).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a garbage 1]
        Writes: failed, execution Unknown [apiserver-a garbage 1]
    "#]]
    .assert_eq(&forward_outcome(PeerAction::ClosesAfter("SSH-2.0-OpenSSH\r\n\r\n")).await);
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a redirect 1]
        Writes: failed, execution Unknown [apiserver-a redirect 1]
    "#]]
    .assert_eq(
        &forward_outcome(PeerAction::Responds(http_response(302, "Location: https://elsewhere.example/\r\n", "")))
            .await,
    );
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a garbage 1]
        Writes: failed, execution Unknown [apiserver-a garbage 1]
    "#]]
    .assert_eq(
        &forward_outcome(PeerAction::Responds(
            "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n".to_owned(),
        ))
        .await,
    );
    expect![[r#"
        Reads: 200 from apiserver-b: fine [apiserver-a broken 1]
        Writes: failed, execution Unknown [apiserver-a broken 1]
    "#]]
    .assert_eq(&forward_outcome(PeerAction::ClosesAfter("HTTP/1.1 404 x\r\nContent-Length: 9\r\n\r\nbr")).await);
}

#[tokio::test]
async fn error_of_only_peer_reports_execution() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = start_first_peer(&fixture, &PeerAction::ClosesConnection).await;
    let read = fixture.get(&[&peer]).await.unwrap_err();
    assert_eq!(read.execution(), Execution::Harmless);
    let write = fixture.post(&[&peer], "body").await.unwrap_err();
    assert_eq!(write.execution(), Execution::Unknown);
    assert_eq!(peer.next_request().await.request_line, "GET /api/v1/pods HTTP/1.1");
    assert_eq!(peer.next_request().await.request_line, "POST /api/v1/pods HTTP/1.1");
    assert_eq!(peer.take_requests().await, [], "neither was sent twice");
}

#[tokio::test]
async fn write_fails_over_when_peer_is_unreachable() {
    let fixture = ForwarderFixture::new(generous_limits());
    let b = fixture.start_responder(echo_response).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let candidates = [Candidate::new(server(0), Address::new("127.0.0.1", gone).unwrap()), candidate(1, &b)];
    let user = ForwardedUser::new("jane", "", [], []).unwrap();
    let request = Request::post("/x").body(Full::new(Bytes::from_static(b"body"))).unwrap();
    let call = ForwardRequest { effect: Effect::Writes, ..long_read(&candidates, &user) };
    let response = fixture.forwarder.forward(call, request).await.unwrap();
    assert_eq!(body_text(response).await, "POST /x HTTP/1.1 body");
    assert_eq!(fixture.failure_counts(), ["apiserver-a unreachable 1"]);
}

#[tokio::test]
async fn peer_with_untrusted_certificate_is_skipped() {
    let fixture = ForwarderFixture::new(generous_limits());
    let dir = tempfile::tempdir().unwrap();
    let foreign = TestCertificates::new(dir.path());
    let a = ScriptedPeer::start_responder(foreign.server_config(), &fixture.tasks, echo_response).await;
    let b = fixture.start_responder(echo_response).await;
    assert_eq!(body_text(fixture.post(&[&a, &b], "x").await.unwrap()).await, "POST /api/v1/pods HTTP/1.1 x");
    assert_eq!(fixture.failure_counts(), ["apiserver-a tls 1"]);
}

#[tokio::test]
async fn read_is_resent_when_idle_connection_was_closed() {
    let fixture = ForwarderFixture::new(generous_limits());
    // Every connection answers once, reads a second request, and closes: like a server that restarts.
    let peer = fixture
        .start_peer(|mut connection| async move {
            let received = connection.read_request().await.unwrap();
            connection.write(&echo_response(&received)).await;
            connection.read_request().await;
        })
        .await;
    for _ in 0..3 {
        body_text(fixture.get(&[&peer]).await.unwrap()).await;
    }
    assert!(fixture.failure_counts().is_empty(), "the peer is well");
    body_text(fixture.get(&[&peer]).await.unwrap()).await;
    let write = fixture.post(&[&peer], "x").await.unwrap_err();
    assert_eq!(write.execution(), Execution::Unknown, "a write that was sent is not sent again");
}

#[tokio::test]
async fn failed_peer_is_tried_last_until_backoff_ends() {
    let fixture = ForwarderFixture::new(generous_limits());
    let a = fixture
        .start_peer(|mut connection| async move {
            let received = connection.read_request().await.unwrap();
            if connection.connection > 0 {
                connection.write(&echo_response(&received)).await;
            }
        })
        .await;
    let b = fixture.start_responder(echo_response).await;
    for expected in [1, 1, 1] {
        let response = fixture.get(&[&a, &b]).await.unwrap();
        assert_eq!(responding_peer(&response), &server(expected));
        body_text(response).await;
    }
    assert_eq!((fixture.peer_health(0), a.connection_count()), (PeerHealth::BackingOff, 1));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::time::resume();
    assert_eq!(fixture.peer_health(0), PeerHealth::RetryDue);
    // Round robin: the fourth request would begin with b, the fifth with a.
    let mut by = Vec::new();
    for _ in 0..2 {
        let response = fixture.get(&[&a, &b]).await.unwrap();
        by.push(responding_peer(&response).clone());
        body_text(response).await;
    }
    assert!(by.contains(&server(0)), "{by:?}");
    assert_eq!(fixture.peer_health(0), PeerHealth::Healthy);
}

/// Eight clients read and write while one of two peers dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_crash_under_load_fails_no_read_and_repeats_no_write() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 60;
    let fixture = ForwarderFixture::new(generous_limits());
    let machine = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (tls, tasks) = (fixture.certificates.server_config(), Tasks::new());
    let a =
        machine.spawn(async move { ScriptedPeer::start_responder(tls, &tasks, echo_response).await }).await.unwrap();
    let b = fixture.start_responder(echo_response).await;
    let sent = AtomicUsize::new(0);
    let machine = Mutex::new(Some(machine));
    let client = async |client: usize| {
        let mut unknown = 0;
        for round in 0..ROUNDS {
            let read = fixture.get(&[&a, &b]).await.expect("there is always one that lives");
            body_text(read).await;
            let request =
                Request::post(format!("/{client}/{round}")).body(Full::new(Bytes::from_static(b"x"))).unwrap();
            match fixture.forward(&[&a, &b], Effect::Writes, Lifetime::LongRunning, request).await {
                Ok(written) => drop(body_text(written).await),
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
    let (of_a, of_b) = (a.take_requests().await, b.take_requests().await);
    let writes = of_a.iter().chain(&of_b).filter(|received| received.request_line.starts_with("POST"));
    let mut writes: Vec<_> = writes.map(|received| &received.request_line).collect();
    let count = writes.len();
    writes.sort();
    writes.dedup();
    assert_eq!(writes.len(), count, "each write was heard once at most");
    assert!(count >= CLIENTS * ROUNDS - unknown.iter().sum::<usize>());
    assert!(!of_a.is_empty() && of_b.len() > of_a.len(), "both had their part: {} and {}", of_a.len(), of_b.len());
}
