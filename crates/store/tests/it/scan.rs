//! Tests of scans: everything below a prefix at one revision, beside writers, and without a trace.

use std::collections::BTreeSet;
use std::path::Path;

use store::etcd::{self, EtcdStore};
use store::sqlite::{Config, SqliteScan, SqliteStore};
use store::{Error, Key, Op, Revision, Store, StoreEntry, Transaction};
use tasks::Tasks;
use tempfile::TempDir;

use crate::etcd_cluster::{EtcdCluster, EtcdRelease};

/// More than one chunk of either backend holds.
const KEYS: usize = 6_000;

async fn fill(store: &impl Store) {
    for first in (0..KEYS).step_by(100) {
        let op = |number| Op::Put { key: format!("/a/{number:05}").into(), value: "old".into(), ttl: None };
        let ops = (first..first + 100).map(op).collect();
        store.commit(Transaction { compares: Vec::new(), ops }).await.unwrap();
    }
    put(store, "/b/outside", "1").await;
}

async fn put(store: &impl Store, key: &'static str, value: &'static str) {
    let ops = vec![Op::Put { key: key.into(), value: value.into(), ttl: None }];
    store.commit(Transaction { compares: Vec::new(), ops }).await.unwrap();
}

#[track_caller]
fn check_scanned(entries: &[StoreEntry]) {
    assert_eq!(entries.len(), KEYS);
    assert!(entries.windows(2).all(|pair| pair[0].key < pair[1].key), "in the order of keys");
    assert!(entries.iter().all(|entry| entry.value == "old" && entry.key.starts_with(b"/a/")), "as of one revision");
}

fn file_names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn scan_to_end(scan: &mut SqliteScan) -> Vec<StoreEntry> {
    let mut entries = Vec::new();
    while let Some(chunk) = scan.next_chunk().unwrap() {
        entries.extend(chunk);
    }
    entries
}

#[tokio::test]
async fn sqlite_scan_reads_one_revision_beside_a_running_store() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state.db");
    let store = SqliteStore::open(Config::new(&path), &Tasks::new()).await.unwrap();
    fill(&store).await;
    let at = store.revision().await.unwrap();
    let mut scan = SqliteScan::open(&path, "/a/").unwrap();
    assert_eq!((scan.revision(), scan.total()), (at, KEYS as u64));
    let mut entries = scan.next_chunk().unwrap().unwrap();
    assert!(entries.len() < KEYS, "it is read in chunks");
    put(&store, "/a/05999", "new").await;
    put(&store, "/a/later", "new").await;
    entries.extend(scan_to_end(&mut scan));
    check_scanned(&entries);
    assert_eq!(store.get(Key::from("/a/05999")).await.unwrap().0.unwrap().value, "new");
    store.close().await;
}

#[tokio::test]
async fn sqlite_scan_of_an_unused_store_leaves_no_trace() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state ?#%.db");
    let store = SqliteStore::open(Config::new(&path), &Tasks::new()).await.unwrap();
    fill(&store).await;
    store.close().await;
    let (files, bytes) = (file_names(folder.path()), std::fs::read(&path).unwrap());
    check_scanned(&scan_to_end(&mut SqliteScan::open(&path, "/a/").unwrap()));
    assert_eq!((file_names(folder.path()), std::fs::read(&path).unwrap()), (files, bytes));

    let copy = folder.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    check_scanned(&scan_to_end(&mut SqliteScan::open(&copy, "/a/").unwrap()));
}

#[tokio::test]
async fn sqlite_scan_fails_when_a_server_opens_an_unused_store() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state.db");
    let store = SqliteStore::open(Config::new(&path), &Tasks::new()).await.unwrap();
    fill(&store).await;
    store.close().await;
    let mut scan = SqliteScan::open(&path, "/a/").unwrap();
    let store = SqliteStore::open(Config::new(&path), &Tasks::new()).await.unwrap();
    put(&store, "/a/later", "new").await;
    let refused = scan.next_chunk().unwrap_err();
    assert!(matches!(&refused, Error::Unavailable { reason } if reason.contains("read it again")), "{refused}");
    store.close().await;
}

#[test]
fn sqlite_scan_creates_no_file() {
    let folder = TempDir::new().unwrap();
    SqliteScan::open(&folder.path().join("missing.db"), "/a/").unwrap_err();
    let other = folder.path().join("other.db");
    std::fs::write(&other, b"not a database, and long enough to have a header of one hundred bytes. ".repeat(4))
        .unwrap();
    let refused = SqliteScan::open(&other, "/a/").unwrap_err();
    assert!(refused.to_string().contains("is not a store of unskew"), "{refused}");
    assert_eq!(file_names(folder.path()), BTreeSet::from(["other.db".to_owned()]));
}

#[tokio::test]
async fn etcd_scan_reads_one_revision_beside_writers() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = EtcdStore::open(&etcd::Config::new(cluster.urls()), Tasks::new()).await.unwrap();
    fill(&store).await;
    let at = store.revision().await.unwrap();
    let mut scan = store.scan("/a/");
    let mut entries = scan.next_chunk().await.unwrap().unwrap();
    assert_eq!((scan.revision(), scan.total()), (at, KEYS as u64));
    assert!(entries.len() < KEYS, "it is read in pages");
    put(&store, "/a/05999", "new").await;
    put(&store, "/a/later", "new").await;
    while let Some(page) = scan.next_chunk().await.unwrap() {
        entries.extend(page);
    }
    check_scanned(&entries);
}

#[tokio::test]
async fn etcd_scan_reports_a_compacted_revision() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let store = EtcdStore::open(&etcd::Config::new(cluster.urls()), Tasks::new()).await.unwrap();
    fill(&store).await;
    let mut scan = store.scan("/a/");
    scan.next_chunk().await.unwrap().unwrap();
    let Revision(at) = scan.revision();
    put(&store, "/a/later", "new").await;
    store.compact(Revision(at + 1)).await.unwrap();
    let refused = scan.next_chunk().await.unwrap_err();
    assert!(matches!(refused, Error::Compacted { requested, .. } if requested == Revision(at)), "{refused}");
}
