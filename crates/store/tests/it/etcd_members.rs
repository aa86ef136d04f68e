//! Tests of members that are dead, unresponsive, leaderless or of another cluster.

use std::sync::Arc;
use std::time::Duration;

use store::etcd::Timeouts;
use store::{Error, Key, KeyRange, Store, Transaction};

use crate::conformance::check_fixture::{
    commit_ok, events_through, get, put, put_event, range, revision, watch, with_timeout,
};
use crate::etcd_cluster::{EtcdCluster, EtcdRelease, free_port};
use crate::proxy::{FaultProxy, ProxyMode};

/// Short, so that timeouts cost little.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(1),
    request: Duration::from_secs(4),
    keep_alive_interval: Duration::from_secs(1),
    keep_alive_timeout: Duration::from_secs(1),
};

fn key(name: &'static str) -> Key {
    Key::from_static(name.as_bytes())
}

#[tokio::test]
async fn requests_skip_dead_member() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let dead = format!("http://127.0.0.1:{}", free_port());
    let store = cluster.client_at(vec![dead, cluster.url(0)], TIMEOUTS).await;
    let written = put(&store, key("a"), "1").await.unwrap();
    assert_eq!(get(&store, key("a")).await.unwrap().0.unwrap().revision, written);
}

#[tokio::test]
async fn unresponsive_member_costs_few_connections() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let deaf = FaultProxy::start(cluster.members[0].port, ProxyMode::Stall).await;
    let store = cluster.client_at(vec![deaf.url.clone(), cluster.url(0)], TIMEOUTS).await;
    for round in 0..100 {
        // Writes as well: no write goes to a member that has not responded.
        put(&store, key("a"), format!("{round}")).await.unwrap();
        get(&store, key("a")).await.unwrap();
    }
    assert!(
        deaf.accepted_count() <= 3,
        "{} connections to an unresponsive member for 200 requests",
        deaf.accepted_count()
    );
}

#[tokio::test]
async fn unreachable_cluster_error_names_flag_and_members() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let deaf = FaultProxy::start(cluster.members[0].port, ProxyMode::Stall).await;
    let dead = format!("http://127.0.0.1:{}", free_port());
    let store = cluster.client_at(vec![deaf.url.clone(), dead.clone()], TIMEOUTS).await;
    let results = [
        with_timeout("get", store.get(key("a"))).await.unwrap().map(|_| ()),
        with_timeout("range", store.range(KeyRange::prefix("a"))).await.unwrap().map(|_| ()),
        with_timeout("revision", store.revision()).await.unwrap().map(|_| ()),
        with_timeout("commit", store.commit(Transaction::create("a", "1"))).await.unwrap().map(|_| ()),
    ];
    for result in results {
        let Err(Error::Unavailable { reason }) = result else { panic!("{result:?}") };
        for part in ["--etcd-servers", &deaf.url, &dead, "refused"] {
            assert!(reason.contains(part), "{part:?} is missing in: {reason}");
        }
    }
    assert!(!store.supports_progress_requests(), "no member has reported its version");
}

#[tokio::test]
async fn outage_fails_fast_and_recovery_is_detected() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let timeouts = Timeouts { request: Duration::from_secs(60), ..TIMEOUTS };
    let store = cluster.client_at(cluster.urls(), timeouts).await;
    put(&store, key("a"), "1").await.unwrap();
    cluster.kill(0);
    let began = tokio::time::Instant::now();
    for round in 0..20 {
        let results = [
            with_timeout("get", store.get(key("a"))).await.unwrap().map(|_| ()),
            with_timeout("revision", store.revision()).await.unwrap().map(|_| ()),
            with_timeout("commit", store.commit(Transaction::create("b", "1"))).await.unwrap().map(|_| ()),
        ];
        for result in results {
            assert!(
                matches!(result, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })),
                "{round}: {result:?}"
            );
        }
    }
    assert!(
        began.elapsed() < timeouts.request,
        "all requests together took longer than one timeout: {:?}",
        began.elapsed()
    );
    cluster.restart(0);
    cluster.wait_until_up(0).await;
    assert_eq!(get(&store, key("a")).await.unwrap().0.unwrap().value, "1");
}

/// Returns a client whose preferred connection goes through a proxy that stalls from now on, and which knows a direct
/// address too.
async fn client_with_stalled_proxy(cluster: &EtcdCluster) -> (Arc<dyn Store>, FaultProxy) {
    let proxy = FaultProxy::start(cluster.members[0].port, ProxyMode::Pass).await;
    let store = cluster.client_at(vec![proxy.url.clone(), cluster.url(0)], TIMEOUTS).await;
    put(&store, key("a"), "before").await.unwrap();
    proxy.set_mode(ProxyMode::Stall);
    (store, proxy)
}

#[tokio::test]
async fn read_retries_on_next_member_when_one_stalls() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let (store, _proxy) = client_with_stalled_proxy(&cluster).await;
    let (entry, _) = get(&store, key("a")).await.unwrap();
    assert_eq!(entry.unwrap().value, "before");
}

#[tokio::test]
async fn read_retries_on_new_connection_to_only_member() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let proxy = FaultProxy::start(cluster.members[0].port, ProxyMode::Pass).await;
    let timeouts = Timeouts { keep_alive_interval: Duration::from_secs(600), ..TIMEOUTS };
    let store = cluster.client_at(vec![proxy.url.clone()], timeouts).await;
    put(&store, key("a"), "before").await.unwrap();
    proxy.set_mode(ProxyMode::StallExisting);
    let (entry, _) = get(&store, key("a")).await.unwrap();
    assert_eq!(entry.unwrap().value, "before");
}

#[tokio::test]
async fn write_to_stalled_member_is_unknown_and_not_retried() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let (store, proxy) = client_with_stalled_proxy(&cluster).await;
    let result = with_timeout("commit", store.commit(Transaction::create("b", "once"))).await.unwrap();
    let Err(Error::OutcomeUnknown { reason }) = result else { panic!("{result:?}") };
    assert!(reason.contains(&proxy.url), "{reason}");
    // The request never arrived, and was not sent to the direct address.
    assert_eq!(get(&store, key("b")).await.unwrap().0, None);
    // The next one uses the direct address at once.
    commit_ok(&store, Transaction::create("b", "again")).await.unwrap();
}

#[tokio::test]
async fn write_with_lost_response_is_unknown_and_applied_once() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let proxy = FaultProxy::start(cluster.members[0].port, ProxyMode::Pass).await;
    let store = cluster.client_at(vec![proxy.url.clone(), cluster.url(0)], TIMEOUTS).await;
    let direct = cluster.client().await;
    let from = revision(&direct).await.unwrap().next();
    let mut seen = watch(&direct, key("counted"), from).await.unwrap();
    put(&store, key("counted"), "0").await.unwrap();
    proxy.set_mode(ProxyMode::DropResponses);
    let result = with_timeout("commit", store.commit(Transaction::create("counted/1", "once"))).await.unwrap();
    assert!(matches!(result, Err(Error::OutcomeUnknown { .. })), "{result:?}");
    let last = put(&direct, key("counted"), "1").await.unwrap();
    let events = events_through(&mut seen, last).await.unwrap();
    let names: Vec<_> = events.iter().map(|event| event.key().clone()).collect();
    assert_eq!(names, [key("counted"), key("counted/1"), key("counted")]);
}

#[tokio::test]
async fn watch_moves_to_next_member_when_one_stalls() {
    let cluster = EtcdCluster::start(EtcdRelease::New, 3, &[], None).await;
    let store = cluster.client_at(cluster.urls(), TIMEOUTS).await;
    let from = revision(&store).await.unwrap().next();
    let mut watch = watch(&store, key("a"), from).await.unwrap();
    let first = put(&store, key("a"), "1").await.unwrap();
    assert_eq!(events_through(&mut watch, first).await.unwrap(), [put_event(key("a"), "1", first)]);
    // The watch is at the first member. Its connection stays open but silent.
    cluster.pause(0);
    let others = cluster.client_at(cluster.urls()[1..].to_vec(), Timeouts::default()).await;
    // If the first member was the leader, the others elect a new one first.
    while revision(&others).await.is_err() {}
    let second = put(&others, key("a"), "2").await.unwrap();
    assert_eq!(events_through(&mut watch, second).await.unwrap(), [put_event(key("a"), "2", second)]);
    cluster.resume(0);
}

async fn check_no_leader(release: EtcdRelease) {
    let cluster = EtcdCluster::start(release, 3, &[], None).await;
    let store = cluster.client_at(cluster.urls(), TIMEOUTS).await;
    put(&store, key("a"), "1").await.unwrap();
    cluster.kill(1);
    cluster.kill(2);
    // The remaining member notices after its election timeout; until then it may still accept requests and wait.
    let mut said = Vec::new();
    let reason = loop {
        assert!(said.len() < 20, "{said:#?}");
        match with_timeout("revision", store.revision()).await.unwrap() {
            Err(Error::Unavailable { reason }) if reason.contains("no leader") => break reason,
            other => said.push(other),
        }
    };
    assert!(reason.contains("most members of the etcd cluster are not reachable"), "{reason}");
    let result = with_timeout("commit", store.commit(Transaction::create("b", "1"))).await.unwrap();
    assert!(matches!(&result, Err(Error::Unavailable { reason }) if reason.contains("no leader")), "{result:?}");
    // Requests succeed again when the other members are back.
    cluster.restart(1);
    cluster.wait_until_up(1).await;
    commit_ok(&store, Transaction::create("b", "1")).await.unwrap();
}

#[tokio::test]
async fn old_member_without_leader_is_unavailable() {
    check_no_leader(EtcdRelease::Old).await;
}

#[tokio::test]
async fn new_member_without_leader_is_unavailable() {
    check_no_leader(EtcdRelease::New).await;
}

#[tokio::test]
async fn member_of_another_cluster_is_rejected() {
    let (cluster, other) = (EtcdCluster::single(EtcdRelease::New).await, EtcdCluster::single(EtcdRelease::New).await);
    let store = cluster.client_at(vec![cluster.url(0), other.url(0)], TIMEOUTS).await;
    put(&store, key("a"), "1").await.unwrap();
    cluster.kill(0);
    let result = loop {
        // The first request may still be lost with the old connection.
        match with_timeout("commit", store.commit(Transaction::create("b", "1"))).await.unwrap() {
            Err(Error::OutcomeUnknown { .. }) => {}
            result => break result,
        }
    };
    let Err(Error::Unavailable { reason }) = result else { panic!("{result:?}") };
    assert!(reason.contains("another etcd cluster") && reason.contains("--etcd-servers"), "{reason}");
    assert_eq!(range(&other.client().await, KeyRange::prefix("")).await.unwrap().count, 0);
}

#[tokio::test]
async fn only_new_members_support_progress_requests() {
    for (release, expected) in [(EtcdRelease::Old, false), (EtcdRelease::New, true)] {
        let cluster = EtcdCluster::single(release).await;
        assert_eq!(cluster.client().await.supports_progress_requests(), expected, "{release:?}");
    }
}
