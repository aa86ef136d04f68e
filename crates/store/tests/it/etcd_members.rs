//! Members that are dead, deaf, leaderless or of another cluster.

use std::sync::Arc;
use std::time::Duration;

use store::etcd::Timeouts;
use store::{Error, Key, Range, Store, Transaction};

use crate::conformance::stage::{events_through, get, put, put_event, range, revision, watch, within, write};
use crate::etcd::{Cluster, Release, free_port};
use crate::proxy::{Mode, Proxy};

/// Short, so that waiting for what never comes costs little.
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
async fn a_dead_member_is_passed_by() {
    let cluster = Cluster::single(Release::New).await;
    let dead = format!("http://127.0.0.1:{}", free_port());
    let store = cluster.client_at(vec![dead, cluster.url(0)], TIMEOUTS).await;
    let written = put(&store, key("a"), "1").await.unwrap();
    assert_eq!(get(&store, key("a")).await.unwrap().0.unwrap().revision, written);
}

#[tokio::test]
async fn a_deaf_member_costs_its_first_connection_and_not_every_request() {
    let cluster = Cluster::single(Release::New).await;
    let deaf = Proxy::start(cluster.members[0].port, Mode::Stall).await;
    let store = cluster.client_at(vec![deaf.url.clone(), cluster.url(0)], TIMEOUTS).await;
    for round in 0..100 {
        // Writes as well: a member that has answered nothing is entrusted with nothing.
        put(&store, key("a"), format!("{round}")).await.unwrap();
        get(&store, key("a")).await.unwrap();
    }
    assert!(deaf.accepted() <= 3, "{} connections to a deaf member for 200 requests", deaf.accepted());
}

#[tokio::test]
async fn nobody_there_is_unavailable_and_names_the_flag_and_the_members() {
    let cluster = Cluster::single(Release::New).await;
    let deaf = Proxy::start(cluster.members[0].port, Mode::Stall).await;
    let dead = format!("http://127.0.0.1:{}", free_port());
    let store = cluster.client_at(vec![deaf.url.clone(), dead.clone()], TIMEOUTS).await;
    let results = [
        within("get", store.get(key("a"))).await.unwrap().map(|_| ()),
        within("range", store.range(Range::prefix("a"))).await.unwrap().map(|_| ()),
        within("revision", store.revision()).await.unwrap().map(|_| ()),
        within("commit", store.commit(Transaction::create("a", "1"))).await.unwrap().map(|_| ()),
    ];
    for result in results {
        let Err(Error::Unavailable { reason }) = result else { panic!("{result:?}") };
        for part in ["--etcd-servers", &deaf.url, &dead, "refused"] {
            assert!(reason.contains(part), "{part:?} is not named in: {reason}");
        }
    }
    assert!(!store.answers_progress(), "nobody has said that he does");
}

#[tokio::test]
async fn an_outage_is_told_soon_and_its_end_is_noticed() {
    let cluster = Cluster::single(Release::New).await;
    let timeouts = Timeouts { request: Duration::from_secs(60), ..TIMEOUTS };
    let store = cluster.client_at(cluster.urls(), timeouts).await;
    put(&store, key("a"), "1").await.unwrap();
    cluster.kill(0);
    let began = tokio::time::Instant::now();
    for round in 0..20 {
        let results = [
            within("get", store.get(key("a"))).await.unwrap().map(|_| ()),
            within("revision", store.revision()).await.unwrap().map(|_| ()),
            within("commit", store.commit(Transaction::create("b", "1"))).await.unwrap().map(|_| ()),
        ];
        for result in results {
            assert!(matches!(result, Err(Error::Unavailable { .. } | Error::Unresolved { .. })), "{round}: {result:?}");
        }
    }
    assert!(began.elapsed() < timeouts.request, "all together took longer than one may: {:?}", began.elapsed());
    cluster.restart(0);
    cluster.wait_until_up(0).await;
    assert_eq!(get(&store, key("a")).await.unwrap().0.unwrap().value, "1");
}

/// A client that is connected through a proxy and knows another way, and the proxy, which is deaf from now on.
async fn deafened(cluster: &Cluster) -> (Arc<dyn Store>, Proxy) {
    let proxy = Proxy::start(cluster.members[0].port, Mode::Pass).await;
    let store = cluster.client_at(vec![proxy.url.clone(), cluster.url(0)], TIMEOUTS).await;
    put(&store, key("a"), "before").await.unwrap();
    proxy.set(Mode::Stall);
    (store, proxy)
}

#[tokio::test]
async fn a_read_goes_on_to_another_member_when_one_goes_deaf() {
    let cluster = Cluster::single(Release::New).await;
    let (store, _proxy) = deafened(&cluster).await;
    let (entry, _) = get(&store, key("a")).await.unwrap();
    assert_eq!(entry.unwrap().value, "before");
}

#[tokio::test]
async fn a_read_takes_another_connection_when_there_is_no_other_member() {
    let cluster = Cluster::single(Release::New).await;
    let proxy = Proxy::start(cluster.members[0].port, Mode::Pass).await;
    let timeouts = Timeouts { keep_alive_interval: Duration::from_secs(600), ..TIMEOUTS };
    let store = cluster.client_at(vec![proxy.url.clone()], timeouts).await;
    put(&store, key("a"), "before").await.unwrap();
    proxy.set(Mode::StallOld);
    let (entry, _) = get(&store, key("a")).await.unwrap();
    assert_eq!(entry.unwrap().value, "before");
}

#[tokio::test]
async fn a_write_that_was_sent_to_a_member_gone_deaf_is_unresolved_and_not_repeated() {
    let cluster = Cluster::single(Release::New).await;
    let (store, proxy) = deafened(&cluster).await;
    let result = within("commit", store.commit(Transaction::create("b", "once"))).await.unwrap();
    let Err(Error::Unresolved { reason }) = result else { panic!("{result:?}") };
    assert!(reason.contains(&proxy.url), "{reason}");
    // The request never arrived, and nobody sent it by the other way.
    assert_eq!(get(&store, key("b")).await.unwrap().0, None);
    // The next one goes the other way at once.
    write(&store, Transaction::create("b", "again")).await.unwrap();
}

#[tokio::test]
async fn a_write_that_is_applied_while_its_answer_is_lost_is_unresolved_and_happens_once() {
    let cluster = Cluster::single(Release::New).await;
    let proxy = Proxy::start(cluster.members[0].port, Mode::Pass).await;
    let store = cluster.client_at(vec![proxy.url.clone(), cluster.url(0)], TIMEOUTS).await;
    let direct = cluster.client().await;
    let from = revision(&direct).await.unwrap().next();
    let mut seen = watch(&direct, key("counted"), from).await.unwrap();
    put(&store, key("counted"), "0").await.unwrap();
    proxy.set(Mode::DropAnswers);
    let result = within("commit", store.commit(Transaction::create("counted/1", "once"))).await.unwrap();
    assert!(matches!(result, Err(Error::Unresolved { .. })), "{result:?}");
    let last = put(&direct, key("counted"), "1").await.unwrap();
    let events = events_through(&mut seen, last).await.unwrap();
    let names: Vec<_> = events.iter().map(|event| event.key().clone()).collect();
    assert_eq!(names, [key("counted"), key("counted/1"), key("counted")]);
}

#[tokio::test]
async fn a_watch_moves_on_when_its_member_goes_deaf() {
    let cluster = Cluster::start(Release::New, 3, &[], None).await;
    let store = cluster.client_at(cluster.urls(), TIMEOUTS).await;
    let from = revision(&store).await.unwrap().next();
    let mut watch = watch(&store, key("a"), from).await.unwrap();
    let first = put(&store, key("a"), "1").await.unwrap();
    assert_eq!(events_through(&mut watch, first).await.unwrap(), [put_event(key("a"), "1", first)]);
    // The watch is at the first member. Its connection stays open and says nothing any more.
    cluster.freeze(0);
    let others = cluster.client_at(cluster.urls()[1..].to_vec(), Timeouts::default()).await;
    // If it was the leader, the others elect a new one first.
    while revision(&others).await.is_err() {}
    let second = put(&others, key("a"), "2").await.unwrap();
    assert_eq!(events_through(&mut watch, second).await.unwrap(), [put_event(key("a"), "2", second)]);
    cluster.thaw(0);
}

async fn check_no_leader(release: Release) {
    let cluster = Cluster::start(release, 3, &[], None).await;
    let store = cluster.client_at(cluster.urls(), TIMEOUTS).await;
    put(&store, key("a"), "1").await.unwrap();
    cluster.kill(1);
    cluster.kill(2);
    // The member that is left notices after its election timeout; until then it may still take requests and wait.
    let mut said = Vec::new();
    let reason = loop {
        assert!(said.len() < 20, "{said:#?}");
        match within("revision", store.revision()).await.unwrap() {
            Err(Error::Unavailable { reason }) if reason.contains("no leader") => break reason,
            other => said.push(other),
        }
    };
    assert!(reason.contains("most members of the etcd cluster are not reachable"), "{reason}");
    let result = within("commit", store.commit(Transaction::create("b", "1"))).await.unwrap();
    assert!(matches!(&result, Err(Error::Unavailable { reason }) if reason.contains("no leader")), "{result:?}");
    // Everything goes on when the others are back.
    cluster.restart(1);
    cluster.wait_until_up(1).await;
    write(&store, Transaction::create("b", "1")).await.unwrap();
}

#[tokio::test]
async fn an_old_member_without_a_leader_says_so() {
    check_no_leader(Release::Old).await;
}

#[tokio::test]
async fn a_new_member_without_a_leader_says_so() {
    check_no_leader(Release::New).await;
}

#[tokio::test]
async fn a_member_of_another_cluster_is_refused() {
    let (cluster, other) = (Cluster::single(Release::New).await, Cluster::single(Release::New).await);
    let store = cluster.client_at(vec![cluster.url(0), other.url(0)], TIMEOUTS).await;
    put(&store, key("a"), "1").await.unwrap();
    cluster.kill(0);
    let result = loop {
        // The first request may still be lost with the connection.
        match within("commit", store.commit(Transaction::create("b", "1"))).await.unwrap() {
            Err(Error::Unresolved { .. }) => {}
            result => break result,
        }
    };
    let Err(Error::Unavailable { reason }) = result else { panic!("{result:?}") };
    assert!(reason.contains("another etcd cluster") && reason.contains("--etcd-servers"), "{reason}");
    assert_eq!(range(&other.client().await, Range::prefix("")).await.unwrap().count, 0);
}

#[tokio::test]
async fn progress_is_promised_by_new_members_only() {
    for (release, expected) in [(Release::Old, false), (Release::New, true)] {
        let cluster = Cluster::single(release).await;
        assert_eq!(cluster.client().await.answers_progress(), expected, "{release:?}");
    }
}
