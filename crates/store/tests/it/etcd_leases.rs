//! Tests of the number of leases that times to live cost.

use std::sync::Arc;
use std::time::Duration;

use store::{Key, Op, Store, Transaction};

use crate::conformance::check_fixture::{IntoTransaction, commit_conflict, commit_ok, get, put};
use crate::etcd_cluster::{EtcdCluster, EtcdRelease, json_number};

const HOUR: Duration = Duration::from_secs(3_600);

/// Too short to be shared: five percent of it is less than a second.
const SHORT: Duration = Duration::from_secs(15);

async fn list_leases(cluster: &EtcdCluster) -> Vec<u64> {
    let answer = cluster.post_json(0, "/v3/lease/leases", "{}").await.unwrap();
    let leases = answer.split('{').filter_map(|part| json_number(part, "ID"));
    leases.collect()
}

fn key(index: usize) -> Key {
    format!("key {index}").into()
}

async fn put_with_ttl(store: &Arc<dyn Store>, keys: std::ops::Range<usize>, ttl: Duration) {
    let ops: Vec<_> = keys.map(|index| Op::Put { key: key(index), value: "1".into(), ttl: Some(ttl) }).collect();
    commit_ok(store, ops.into_transaction()).await.unwrap();
}

#[tokio::test]
async fn keys_with_same_long_ttl_share_a_lease() {
    for release in [EtcdRelease::Old, EtcdRelease::New] {
        let cluster = EtcdCluster::single(release).await;
        let store = cluster.client().await;
        for index in 0..50 {
            put_with_ttl(&store, index..index + 1, HOUR).await;
        }
        assert_eq!(list_leases(&cluster).await.len(), 1, "{release:?}");
        put_with_ttl(&store, 50..51, HOUR * 2).await;
        assert_eq!(list_leases(&cluster).await.len(), 2, "{release:?}: another time to live needs another lease");
    }
}

#[tokio::test]
async fn shared_lease_holds_at_most_a_thousand_keys() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = cluster.client().await;
    for hundred in 0..10 {
        put_with_ttl(&store, hundred * 100..(hundred + 1) * 100, HOUR).await;
    }
    assert_eq!(list_leases(&cluster).await.len(), 1);
    put_with_ttl(&store, 1_000..1_001, HOUR).await;
    assert_eq!(list_leases(&cluster).await.len(), 2);
}

#[tokio::test]
async fn concurrent_writers_share_one_granted_lease() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = cluster.client().await;
    futures_util::future::join_all((0..50).map(|index| put_with_ttl(&store, index..index + 1, HOUR))).await;
    assert_eq!(list_leases(&cluster).await.len(), 1);
}

#[tokio::test]
async fn renewed_key_keeps_its_lease() {
    for release in [EtcdRelease::Old, EtcdRelease::New] {
        let cluster = EtcdCluster::single(release).await;
        let store = cluster.client().await;
        put_with_ttl(&store, 0..1, SHORT).await;
        let first = list_leases(&cluster).await;
        for _ in 0..10 {
            put_with_ttl(&store, 0..1, SHORT).await;
        }
        assert_eq!(list_leases(&cluster).await, first, "{release:?}");
        // Another key has its own lease; otherwise a renewal would extend both keys.
        put_with_ttl(&store, 1..2, SHORT).await;
        assert_eq!(list_leases(&cluster).await.len(), 2, "{release:?}");
    }
}

#[tokio::test]
async fn renewal_replaces_a_revoked_lease() {
    for release in [EtcdRelease::Old, EtcdRelease::New] {
        let cluster = EtcdCluster::single(release).await;
        let store = cluster.client().await;
        for ttl in [SHORT, HOUR] {
            put_with_ttl(&store, 0..1, ttl).await;
            let before = list_leases(&cluster).await;
            for lease in &before {
                let body = format!("{{\"ID\":\"{lease}\"}}");
                cluster.post_json(0, "/v3/lease/revoke", &body).await.unwrap();
            }
            assert_eq!(get(&store, key(0)).await.unwrap().0, None, "{release:?}: the key has gone with its lease");
            put_with_ttl(&store, 0..1, ttl).await;
            let after = list_leases(&cluster).await;
            assert!(after.len() == 1 && after != before, "{release:?}: {before:?}, then {after:?}");
        }
    }
}

#[tokio::test]
async fn conflicts_do_not_leak_leases() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = cluster.client().await;
    put(&store, key(0), "theirs").await.unwrap();
    for _ in 0..10 {
        commit_conflict(&store, Transaction::create(key(0), "ours").with_ttl(SHORT)).await.unwrap();
    }
    assert_eq!(list_leases(&cluster).await.len(), 1, "the unused lease serves the next attempt");
}

#[tokio::test]
async fn conflict_abandons_lease_the_key_may_use() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = cluster.client().await;
    put_with_ttl(&store, 0..1, SHORT).await;
    let first = list_leases(&cluster).await;
    // A client whose comparison always fails must not extend the life of its key.
    commit_conflict(&store, Transaction::create(key(0), "again").with_ttl(SHORT)).await.unwrap();
    put_with_ttl(&store, 0..1, SHORT).await;
    let both = list_leases(&cluster).await;
    assert!(both.len() == 2 && both.contains(&first[0]), "{first:?}, then {both:?}");
}

#[tokio::test]
async fn each_operation_gets_a_lease_for_its_ttl() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = cluster.client().await;
    let put = |index: usize, ttl| Op::Put { key: key(index), value: "1".into(), ttl };
    let ops = vec![put(0, None), put(1, Some(SHORT)), put(2, Some(HOUR)), put(3, Some(SHORT))];
    commit_ok(&store, ops.into_transaction()).await.unwrap();
    let leases = list_leases(&cluster).await;
    assert_eq!(leases.len(), 2);
    let mut granted = Vec::new();
    for lease in leases {
        let body = format!("{{\"ID\":\"{lease}\",\"keys\":true}}");
        let answer = cluster.post_json(0, "/v3/lease/timetolive", &body).await.unwrap();
        let keys = answer.rsplit_once('[').map_or(0, |(_, keys)| keys.matches(',').count() + 1);
        granted.push((json_number(&answer, "grantedTTL").unwrap(), keys));
    }
    granted.sort_unstable();
    assert_eq!(granted, [(15, 2), (3_660, 1)]);
}
