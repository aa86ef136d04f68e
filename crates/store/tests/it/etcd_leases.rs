//! How many leases times to live cost, as etcd counts them.

use std::sync::Arc;
use std::time::Duration;

use store::{Key, Op, Store, Transaction};

use crate::conformance::stage::{IntoTransaction, conflict, get, put, write};
use crate::etcd::{Cluster, Release, number_after};

const HOUR: Duration = Duration::from_secs(3_600);

/// Too short to be shared: a twentieth of it is no whole second.
const SHORT: Duration = Duration::from_secs(15);

/// The leases that there are.
async fn leases(cluster: &Cluster) -> Vec<u64> {
    let answer = cluster.gateway(0, "/v3/lease/leases", "{}").await.unwrap();
    let leases = answer.split('{').filter_map(|part| number_after(part, "ID"));
    leases.collect()
}

fn key(index: usize) -> Key {
    format!("key {index}").into()
}

async fn put_for(store: &Arc<dyn Store>, keys: std::ops::Range<usize>, ttl: Duration) {
    let ops: Vec<_> = keys.map(|index| Op::Put { key: key(index), value: "1".into(), ttl: Some(ttl) }).collect();
    write(store, ops.into_transaction()).await.unwrap();
}

#[tokio::test]
async fn keys_with_the_same_long_time_share_a_lease() {
    for release in [Release::Old, Release::New] {
        let cluster = Cluster::single(release).await;
        let store = cluster.client().await;
        for index in 0..50 {
            put_for(&store, index..index + 1, HOUR).await;
        }
        assert_eq!(leases(&cluster).await.len(), 1, "{release:?}");
        put_for(&store, 50..51, HOUR * 2).await;
        assert_eq!(leases(&cluster).await.len(), 2, "{release:?}: another time needs another lease");
    }
}

#[tokio::test]
async fn a_lease_is_shared_by_a_thousand_keys_and_no_more() {
    let cluster = Cluster::single(Release::New).await;
    let store = cluster.client().await;
    for hundred in 0..10 {
        put_for(&store, hundred * 100..(hundred + 1) * 100, HOUR).await;
    }
    assert_eq!(leases(&cluster).await.len(), 1);
    put_for(&store, 1_000..1_001, HOUR).await;
    assert_eq!(leases(&cluster).await.len(), 2);
}

#[tokio::test]
async fn writers_at_once_wait_for_one_lease() {
    let cluster = Cluster::single(Release::New).await;
    let store = cluster.client().await;
    futures_util::future::join_all((0..50).map(|index| put_for(&store, index..index + 1, HOUR))).await;
    assert_eq!(leases(&cluster).await.len(), 1);
}

#[tokio::test]
async fn a_renewed_key_keeps_its_lease() {
    for release in [Release::Old, Release::New] {
        let cluster = Cluster::single(release).await;
        let store = cluster.client().await;
        put_for(&store, 0..1, SHORT).await;
        let first = leases(&cluster).await;
        for _ in 0..10 {
            put_for(&store, 0..1, SHORT).await;
        }
        assert_eq!(leases(&cluster).await, first, "{release:?}");
        // Another key has another one, or its renewal would be that of both.
        put_for(&store, 1..2, SHORT).await;
        assert_eq!(leases(&cluster).await.len(), 2, "{release:?}");
    }
}

#[tokio::test]
async fn a_renewal_wins_over_a_lease_that_has_gone() {
    for release in [Release::Old, Release::New] {
        let cluster = Cluster::single(release).await;
        let store = cluster.client().await;
        for ttl in [SHORT, HOUR] {
            put_for(&store, 0..1, ttl).await;
            let before = leases(&cluster).await;
            for lease in &before {
                let body = format!("{{\"ID\":\"{lease}\"}}");
                cluster.gateway(0, "/v3/lease/revoke", &body).await.unwrap();
            }
            assert_eq!(get(&store, key(0)).await.unwrap().0, None, "{release:?}: the key has gone with its lease");
            put_for(&store, 0..1, ttl).await;
            let after = leases(&cluster).await;
            assert!(after.len() == 1 && after != before, "{release:?}: {before:?}, then {after:?}");
        }
    }
}

#[tokio::test]
async fn conflicts_do_not_collect_leases() {
    let cluster = Cluster::single(Release::New).await;
    let store = cluster.client().await;
    put(&store, key(0), "theirs").await.unwrap();
    for _ in 0..10 {
        conflict(&store, Transaction::create(key(0), "ours").with_ttl(SHORT)).await.unwrap();
    }
    assert_eq!(leases(&cluster).await.len(), 1, "a lease that was granted in vain serves the next try");
}

#[tokio::test]
async fn a_conflict_gives_up_the_lease_that_the_key_may_be_on() {
    let cluster = Cluster::single(Release::New).await;
    let store = cluster.client().await;
    put_for(&store, 0..1, SHORT).await;
    let first = leases(&cluster).await;
    // A client that never finds its key as it expects it must not give it more time again and again.
    conflict(&store, Transaction::create(key(0), "again").with_ttl(SHORT)).await.unwrap();
    put_for(&store, 0..1, SHORT).await;
    let both = leases(&cluster).await;
    assert!(both.len() == 2 && both.contains(&first[0]), "{first:?}, then {both:?}");
}

#[tokio::test]
async fn each_operation_has_its_own_time() {
    let cluster = Cluster::single(Release::New).await;
    let store = cluster.client().await;
    let put = |index: usize, ttl| Op::Put { key: key(index), value: "1".into(), ttl };
    let ops = vec![put(0, None), put(1, Some(SHORT)), put(2, Some(HOUR)), put(3, Some(SHORT))];
    write(&store, ops.into_transaction()).await.unwrap();
    let leases = leases(&cluster).await;
    assert_eq!(leases.len(), 2);
    let mut granted = Vec::new();
    for lease in leases {
        let body = format!("{{\"ID\":\"{lease}\",\"keys\":true}}");
        let answer = cluster.gateway(0, "/v3/lease/timetolive", &body).await.unwrap();
        let keys = answer.rsplit_once('[').map_or(0, |(_, keys)| keys.matches(',').count() + 1);
        granted.push((number_after(&answer, "grantedTTL").unwrap(), keys));
    }
    granted.sort_unstable();
    assert_eq!(granted, [(15, 2), (3_660, 1)]);
}
