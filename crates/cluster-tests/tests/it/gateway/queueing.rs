//! Queueing at an upstream that is at its in-flight limit.

use cluster_tests::client::{ClientCredentials, FullResponse};
use cluster_tests::wait::metric_value;
use tokio::sync::watch;
use transport::testing::{ReceivedRequest, ScriptedConnection};

use super::streams::{POD_PATH, ScriptedGateway};
use super::*;

const PODS_PATH: &str = "/api/v1/namespaces/default/pods";

const LIMIT_FLAGS: [&str; 4] = [
    "--upstream-max-requests-inflight=1",
    "--upstream-max-requests-queued=3",
    "--upstream-max-requests-queued-per-user=2",
    "--upstream-queue-timeout=1m",
];

/// A gateway before an upstream that serves watches at once, and other requests once `may_answer` is true.
fn scripted_gateway(may_answer: &watch::Sender<bool>) -> ScriptedGateway {
    scripted_gateway_with(&LIMIT_FLAGS, may_answer)
}

fn scripted_gateway_with(flags: &[&str], may_answer: &watch::Sender<bool>) -> ScriptedGateway {
    let may_answer = may_answer.subscribe();
    ScriptedGateway::with_flags(flags, move |mut visit: ScriptedConnection, received: ReceivedRequest| {
        let mut may_answer = may_answer.clone();
        async move {
            if !received.request_line.contains("watch=") {
                may_answer.wait_for(|may| *may).await.unwrap();
            }
            visit.write(&cluster_tests::scripted_members::http_response("200 OK", "text/plain", "done")).await;
            Some(visit)
        }
    })
}

#[track_caller]
fn too_many_requests_message(answer: &FullResponse) -> String {
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{}", answer.summary());
    assert_eq!(answer.headers.get("retry-after").map(|value| value.as_bytes()), Some(&b"1"[..]));
    answer.summary()
}

#[test]
fn queued_requests_are_shared_fairly_among_users() {
    let may_answer = watch::Sender::new(false);
    let scene = scripted_gateway(&may_answer);
    let admin = scene.gateway.admin();
    let client = |token: &str| scene.gateway.client_with(ClientCredentials::Token(token.to_owned()));
    scene.runtime.block_on(async {
        let mut waiting = tokio::task::JoinSet::new();
        let mut send = |client: Client| waiting.spawn(async move { client.get(POD_PATH).await });
        send(admin.clone());
        scene.next_pod_request().await;
        for _ in 0..3 {
            send(client("greedy"));
        }
        // A third queued request of one user exceeds the limit per user.
        let refused = waiting.join_next().await.unwrap().unwrap();
        assert!(
            too_many_requests_message(&refused).contains("too many requests of this user"),
            "{}",
            refused.summary()
        );
        // The queue has room for one more. When it is full, a user without queued requests evicts one of a busier user.
        let mut send = |client: Client| waiting.spawn(async move { client.get(POD_PATH).await });
        send(admin.clone());
        send(client("stranger"));
        let pushed_out = waiting.join_next().await.unwrap().unwrap();
        assert!(
            too_many_requests_message(&pushed_out).contains("evicted from the queue in favour of a less busy user"),
            "{}",
            pushed_out.summary()
        );
        // Long-running requests are not queued.
        assert_eq!(admin.get(&format!("{PODS_PATH}?watch=1")).await.status, StatusCode::OK);
        may_answer.send_replace(true);
        let answers = waiting.join_all().await;
        assert_eq!(answers.len(), 4);
        for answer in answers {
            assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"done"[..]));
        }
        let refused = |reason: &str| format!("unskew_peer_queue_refused_total{{reason=\"{reason}\"}}");
        for reason in ["user_full", "pushed_out"] {
            assert_eq!(metric_value(&admin, &refused(reason)).await, 1, "{reason}");
        }
    });
}

#[test]
fn request_beyond_the_queue_timeout_is_429() {
    let may_answer = watch::Sender::new(false);
    let scene =
        scripted_gateway_with(&["--upstream-max-requests-inflight=1", "--upstream-queue-timeout=100ms"], &may_answer);
    let admin = scene.gateway.admin();
    scene.runtime.block_on(async {
        let mut first = tokio::task::JoinSet::new();
        let client = admin.clone();
        first.spawn(async move { client.get(POD_PATH).await });
        scene.next_pod_request().await;
        let refused = admin.create(PODS_PATH, &serde_json::json!({})).await;
        assert!(
            too_many_requests_message(&refused).contains("queued for the longest allowed time"),
            "{}",
            refused.summary()
        );
        may_answer.send_replace(true);
        assert_eq!(first.join_next().await.unwrap().unwrap().status, StatusCode::OK);
        // A request that timed out in the queue was never sent.
        let received = scene.peer.take_requests().await;
        assert!(!received.iter().any(|received| received.request_line.contains("/pods ")), "{received:?}");
    });
}
