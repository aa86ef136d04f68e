//! Tests of oversized requests, full databases, and many concurrent callers.

use std::time::Duration;

use futures_util::future::join_all;
use store::compaction::{COMPACT_REV_KEY, Compactor};
use store::etcd::Timeouts;
use store::{Error, Key, KeyRange, Revision};
use tasks::Tasks;

use crate::conformance::check_fixture::{
    IntoTransaction, events_through, get, put, put_event, put_op, range, revision, watch, with_timeout,
};
use crate::etcd_cluster::{EtcdCluster, EtcdRelease, json_number};

fn key(name: &str) -> Key {
    Key::copy_from_slice(name.as_bytes())
}

#[tokio::test]
async fn oversized_etcd_requests_are_too_large() {
    for release in [EtcdRelease::Old, EtcdRelease::New] {
        let cluster = EtcdCluster::single(release).await;
        let store = cluster.client().await;
        let value = |bytes: usize| vec![put_op(key("a"), vec![b'x'; bytes])];
        let ops = (0..129).map(|index| put_op(key(&format!("{index}")), "1")).collect();
        // Above etcd's request limit, above its gRPC limit, and above its limit of operations.
        for ops in [value(1_700_000), value(5_000_000), ops] {
            let result = with_timeout("commit", store.commit(ops.into_transaction())).await.unwrap();
            assert!(matches!(result, Err(Error::TooLarge { .. })), "{release:?}: {result:?}");
        }
        put(&store, key("a"), "1").await.unwrap();
    }
}

#[tokio::test]
async fn full_database_error_explains_remedy_and_reads_work() {
    let cluster = EtcdCluster::start(EtcdRelease::New, 1, &["--quota-backend-bytes=8388608"], None).await;
    let store = cluster.client().await;
    put(&store, key("small"), "1").await.unwrap();
    let mut result = Ok(());
    // etcd checks its size only now and then, so it accepts more than fits.
    for index in 0..500 {
        let large = put_op(key(&format!("large {index}")), vec![b'x'; 1 << 20]);
        result = with_timeout("commit", store.commit(vec![large].into_transaction())).await.unwrap().map(|_| ());
        if result.is_err() {
            break;
        }
    }
    let Err(Error::OutcomeUnknown { reason }) = result else { panic!("{result:?}") };
    assert!(reason.contains("NOSPACE") && reason.contains("etcdctl alarm disarm"), "{reason}");
    assert_eq!(get(&store, key("small")).await.unwrap().0.unwrap().value, "1");
}

#[tokio::test]
async fn range_of_large_values_is_read_in_pages() {
    // 90 MiB: more than one response may hold, in pages that are first too large and then smaller.
    const VALUES: usize = 90;
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = cluster.client().await;
    for index in 0..VALUES {
        put(&store, key(&format!("{index:02}")), vec![b'x'; 1 << 20]).await.unwrap();
    }
    let page = range(&store, KeyRange::prefix("")).await.unwrap();
    assert_eq!((page.entries.len(), page.count), (VALUES, VALUES as u64));
    assert!(page.entries.iter().all(|entry| entry.value.len() == 1 << 20));
    assert_eq!(revision(&store).await.unwrap(), page.revision);
}

async fn grpc_call_count(cluster: &EtcdCluster, method: &str) -> u64 {
    let metrics = cluster.get_page(0, "/metrics").await.unwrap();
    let wanted = format!("grpc_method=\"{method}\"");
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("grpc_server_started_total") && line.contains(&wanted))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    counts.sum::<f64>() as u64
}

#[tokio::test]
async fn concurrent_revision_callers_share_a_probe() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = cluster.client().await;
    let written = put(&store, key("a"), "1").await.unwrap();
    let before = grpc_call_count(&cluster, "Range").await;
    let answers = join_all((0..500).map(|_| revision(&store))).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap() == written));
    let probes = grpc_call_count(&cluster, "Range").await - before;
    assert!((1..=10).contains(&probes), "{probes} probes for 500 callers");
}

#[tokio::test]
async fn watch_starts_while_etcd_is_down() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let direct = cluster.client().await;
    let from = revision(&direct).await.unwrap().next();
    cluster.kill(0);
    let store = cluster.client_at(cluster.urls(), Timeouts::default()).await;
    let mut watch = watch(&store, key("a"), from).await.unwrap();
    cluster.restart(0);
    cluster.wait_until_up(0).await;
    let written = put(&direct, key("a"), "1").await.unwrap();
    assert_eq!(events_through(&mut watch, written).await.unwrap(), [put_event(key("a"), "1", written)]);
}

#[tokio::test]
async fn closed_store_ends_watches_and_rejects_calls() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let tasks = Tasks::new();
    let store = cluster.client_with(tasks.clone()).await;
    let mut watch = watch(&store, key("a"), Revision(1)).await.unwrap();
    let (entry, _) = get(&store, key("a")).await.unwrap();
    assert_eq!(entry, None);
    assert_eq!(tasks.stop(Duration::from_secs(10)).await, Ok(()));
    assert_eq!(with_timeout("the end of the watch", watch.next_batch()).await.unwrap(), None);
    let result = with_timeout("revision", store.revision()).await.unwrap();
    assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
}

/// Runs the compaction loop beside one that compares the version of the key, as kube-apiserver does.
#[tokio::test]
async fn compactor_interoperates_with_version_comparing_servers() {
    // The key in base64.
    const KEY_64: &str = "Y29tcGFjdF9yZXZfa2V5";
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = cluster.client().await;
    let old = put(&store, key("a"), "1").await.unwrap();
    put(&store, key("a"), "2").await.unwrap();
    let tasks = Tasks::new();
    let compaction = Compactor::new(store.clone(), Duration::from_millis(50));
    tasks.spawn("compaction", |shutdown| compaction.run(shutdown));
    // The compactor works while it is alone.
    with_timeout("compaction", async { while range(&store, KeyRange::prefix("a").at_revision(old)).await.is_ok() {} })
        .await
        .unwrap();
    // Then the other server wins a round with the version that it finds, and the compactor must adopt it.
    let version = async || {
        let answer = cluster.post_json(0, "/v3/kv/range", &format!("{{\"key\":\"{KEY_64}\"}}")).await.unwrap();
        json_number(&answer, "version").unwrap_or(0)
    };
    let mut won = 0;
    while won < 3 {
        let seen = version().await;
        let body = format!(
            "{{\"compare\":[{{\"key\":\"{KEY_64}\",\"target\":\"VERSION\",\"result\":\"EQUAL\",\"version\":\"{seen}\"}}],\
             \"success\":[{{\"requestPut\":{{\"key\":\"{KEY_64}\",\"value\":\"MQ==\"}}}}]}}"
        );
        let answer = cluster.post_json(0, "/v3/kv/txn", &body).await.unwrap();
        won += usize::from(answer.contains("\"succeeded\":true"));
    }
    let theirs = version().await;
    with_timeout("the compactor's next round", async { while version().await <= theirs {} }).await.unwrap();
    // The compactor writes a revision in decimal, which only grows.
    let (entry, _) = get(&store, COMPACT_REV_KEY).await.unwrap();
    let recorded: u64 = std::str::from_utf8(&entry.unwrap().value).unwrap().parse().unwrap();
    assert!(recorded > old.0, "{recorded}");
    tasks.stop(Duration::from_secs(10)).await.unwrap();
}
