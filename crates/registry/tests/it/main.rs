//! The registry over a real SQLite file that several servers share.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lagging_watch;
mod reads;
mod restarts;
mod snapshot_readers;
mod store_failures;
mod watches;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use api::GroupResource;
use bytes::Bytes;
use object::StoredObject;
use registry::read::ReadConsistency;
use registry::{
    AlwaysOpenBarrier, CachedEntry, CachedValue, ListPage, ListSelection, Registry, ResourceCache, ValueFormat,
    WatchCache, WriteBarrier, WriteDecision, WriteError, WriteOutcome,
};
use store::sqlite::{Config, SqliteStore};
use store::{Key, Store};
use tasks::Tasks;

const PREFIX: &str = "/registry/";
const PODS: GroupResource<&str> = GroupResource { group: "", resource: "pods" };

struct Cluster {
    data_dir: tempfile::TempDir,
}

/// One server: its own handle of the shared file, and a registry.
struct TestServer {
    registry: Registry,
    store: Arc<SqliteStore>,
    tasks: Tasks,
}

impl Cluster {
    fn new() -> Self {
        Self { data_dir: tempfile::tempdir().unwrap() }
    }

    async fn start_server(&self) -> TestServer {
        self.start_server_with_barrier(Arc::new(AlwaysOpenBarrier)).await
    }

    async fn start_server_with_barrier(&self, barrier: Arc<dyn WriteBarrier>) -> TestServer {
        let tasks = Tasks::new();
        let store = self.open_store(&tasks).await;
        let cache = WatchCache::start(store.clone(), PREFIX.into(), resource_prefixes(), &tasks);
        cache.wait_for_sync().await.unwrap();
        TestServer { registry: Registry::new(store.clone(), cache, barrier), store, tasks }
    }
}

impl Cluster {
    async fn open_store(&self, tasks: &Tasks) -> Arc<SqliteStore> {
        let config = Config::new(self.data_dir.path().join("store.db"));
        Arc::new(SqliteStore::open(config, tasks).await.unwrap())
    }
}

fn resource_prefixes() -> Vec<(Key, ValueFormat)> {
    vec![("/registry/pods/".into(), ValueFormat::Objects), ("/registry/records/".into(), ValueFormat::Raw)]
}

impl TestServer {
    fn pod_cache(&self) -> Arc<ResourceCache> {
        self.registry.cache().resource_cache(b"/registry/pods/").expect("the prefix is cached").clone()
    }

    /// Puts a pod with a label unconditionally.
    async fn put(&self, name: &str, label: &str) -> StoredObject {
        let body = pod_json(name, label);
        let decide = |_: Option<&StoredObject>| Ok::<_, ()>(WriteDecision::Put { value: body.clone(), ttl: None });
        match self.registry.write(PODS, &self.pod_cache(), &pod_key(name), decide).await.unwrap() {
            WriteOutcome::Put(stored) => stored,
            written @ (WriteOutcome::Deleted(_) | WriteOutcome::Unchanged) => panic!("not put: {written:?}"),
        }
    }

    async fn delete(&self, name: &str) {
        let decide = |_: Option<&StoredObject>| Ok::<_, ()>(WriteDecision::Delete);
        let written = self.registry.write(PODS, &self.pod_cache(), &pod_key(name), decide).await.unwrap();
        assert!(matches!(written, WriteOutcome::Deleted(_)), "{written:?}");
    }

    async fn list(&self, freshness: ReadConsistency, limit: Option<usize>, start: Key) -> ListPage {
        let span = ListSelection { prefix: "/registry/pods/".into(), start_key: start, limit, filter: &|_| true };
        self.registry.list(&self.pod_cache(), &span, freshness).await.unwrap()
    }

    async fn stop(self) {
        self.store.close().await;
        self.tasks.stop(Duration::from_secs(30)).await.unwrap();
    }
}

fn pod_key(name: &str) -> Key {
    format!("/registry/pods/default/{name}").into()
}

fn pod_json(name: &str, label: &str) -> Bytes {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","labels":{{"l":"{label}"}}}}}}"#
    )
    .into()
}

fn entry_names(listing: &ListPage) -> Vec<String> {
    listing.entries.iter().map(|cached| entry_name(cached)).collect()
}

fn entry_name(cached: &CachedEntry) -> String {
    match &cached.value {
        CachedValue::Object(stored) => stored.name.to_string(),
        item @ (CachedValue::Raw(_) | CachedValue::Undecodable(_)) => panic!("an object was expected: {item:?}"),
    }
}

/// Puts bytes into the store directly, as another program would.
async fn put_raw(store: &SqliteStore, key: &str, value: &'static [u8]) {
    let transaction = store::Transaction::create(key.to_owned(), Bytes::from_static(value));
    store.commit(transaction).await.unwrap();
}

fn expect_refusal<E: std::fmt::Debug>(error: WriteError<E>) -> E {
    let shown = format!("{error:?}");
    if let WriteError::Refused(refusal) = error { refusal } else { panic!("a refusal was expected: {shown}") }
}
