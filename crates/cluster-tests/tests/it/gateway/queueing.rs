//! An upstream that has as many requests as it may: the others wait, by turns, and not for ever.

use cluster_tests::client::{Answer, Identity};
use cluster_tests::wait::figure;
use tokio::sync::watch;
use transport::testing::{Heard, Visit};

use super::streams::{POD, Scene};
use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

const LIMITS: [&str; 4] = [
    "--upstream-max-requests-inflight=1",
    "--upstream-max-requests-queued=3",
    "--upstream-max-requests-queued-per-user=2",
    "--upstream-queue-timeout=1m",
];

/// An upstream that answers watches at once, and everything else when it may.
fn scene(may_answer: &watch::Sender<bool>) -> Scene {
    scene_with(&LIMITS, may_answer)
}

fn scene_with(flags: &[&str], may_answer: &watch::Sender<bool>) -> Scene {
    let may_answer = may_answer.subscribe();
    Scene::with(flags, move |mut visit: Visit, heard: Heard| {
        let mut may_answer = may_answer.clone();
        async move {
            if !heard.line.contains("watch=") {
                may_answer.wait_for(|may| *may).await.unwrap();
            }
            visit.say(&cluster_tests::scripted::answer("200 OK", "text/plain", "done")).await;
            Some(visit)
        }
    })
}

#[track_caller]
fn refusal(answer: &Answer) -> String {
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{}", answer.brief());
    assert_eq!(answer.headers.get("retry-after").map(|value| value.as_bytes()), Some(&b"1"[..]));
    answer.brief()
}

#[test]
fn requests_wait_for_room_and_no_user_takes_it_all() {
    let may_answer = watch::Sender::new(false);
    let scene = scene(&may_answer);
    let admin = scene.gateway.admin();
    let client = |token: &str| scene.gateway.client(Identity::Token(token.to_owned()));
    scene.runtime.block_on(async {
        let mut waiting = tokio::task::JoinSet::new();
        let mut send = |client: Client| waiting.spawn(async move { client.get(POD).await });
        send(admin.clone());
        scene.heard().await;
        for _ in 0..3 {
            send(client("greedy"));
        }
        // Three of one user are one too many.
        let refused = waiting.join_next().await.unwrap().unwrap();
        assert!(refusal(&refused).contains("too many requests of this user"), "{}", refused.brief());
        // There is room for one more, and then for nobody; who has none waiting gets it all the same.
        let mut send = |client: Client| waiting.spawn(async move { client.get(POD).await });
        send(admin.clone());
        send(client("stranger"));
        let pushed_out = waiting.join_next().await.unwrap().unwrap();
        assert!(refusal(&pushed_out).contains("made room for a user who has fewer"), "{}", pushed_out.brief());
        // What lasts does not wait.
        assert_eq!(admin.get(&format!("{PODS}?watch=1")).await.status, StatusCode::OK);
        may_answer.send_replace(true);
        let answers = waiting.join_all().await;
        assert_eq!(answers.len(), 4);
        for answer in answers {
            assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"done"[..]));
        }
        let refused = |reason: &str| format!("unskew_peer_queue_refused_total{{reason=\"{reason}\"}}");
        for reason in ["user_full", "pushed_out"] {
            assert_eq!(figure(&admin, &refused(reason)).await, 1, "{reason}");
        }
    });
}

#[test]
fn a_request_that_has_waited_long_enough_is_told_to_come_back() {
    let may_answer = watch::Sender::new(false);
    let scene = scene_with(&["--upstream-max-requests-inflight=1", "--upstream-queue-timeout=100ms"], &may_answer);
    let admin = scene.gateway.admin();
    scene.runtime.block_on(async {
        let mut first = tokio::task::JoinSet::new();
        let client = admin.clone();
        first.spawn(async move { client.get(POD).await });
        scene.heard().await;
        let refused = admin.create(PODS, &serde_json::json!({})).await;
        assert!(refusal(&refused).contains("waited for as long as it may"), "{}", refused.brief());
        may_answer.send_replace(true);
        assert_eq!(first.join_next().await.unwrap().unwrap().status, StatusCode::OK);
        // Nothing of it was sent.
        let heard = scene.peer.heard_so_far().await;
        assert!(!heard.iter().any(|heard| heard.line.contains("/pods ")), "{heard:?}");
    });
}
