//! The registry over a real SQLite file: what one server writes, another reads.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failures;
mod lagging;
mod readers;
mod reads;
mod restarts;
mod watches;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use api::GroupResource;
use bytes::Bytes;
use object::Stored;
use registry::read::Freshness;
use registry::{
    Barrier, Cache, Cached, Decision, Form, Item, Listing, Open, Registry, Shelf, Span, WriteError, Written,
};
use store::sqlite::{Config, SqliteStore};
use store::{Key, Store};
use tasks::Tasks;

const PREFIX: &str = "/registry/";
const PODS: GroupResource<&str> = GroupResource { group: "", resource: "pods" };

/// A folder with a store in it, which servers share.
struct Cluster {
    folder: tempfile::TempDir,
}

/// One server of it: a store of its own on the shared file, and a registry.
struct Server {
    registry: Registry,
    store: Arc<SqliteStore>,
    tasks: Tasks,
}

impl Cluster {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    async fn server(&self) -> Server {
        self.server_behind(Arc::new(Open)).await
    }

    async fn server_behind(&self, barrier: Arc<dyn Barrier>) -> Server {
        let tasks = Tasks::new();
        let store = self.store(&tasks).await;
        let cache = Cache::start(store.clone(), PREFIX.into(), shelves(), &tasks);
        cache.filled().await.unwrap();
        Server { registry: Registry::new(store.clone(), cache, barrier), store, tasks }
    }
}

impl Cluster {
    async fn store(&self, tasks: &Tasks) -> Arc<SqliteStore> {
        let config = Config::new(self.folder.path().join("store.db"));
        Arc::new(SqliteStore::open(config, tasks).await.unwrap())
    }
}

fn shelves() -> Vec<(Key, Form)> {
    vec![("/registry/pods/".into(), Form::Objects), ("/registry/records/".into(), Form::Raw)]
}

impl Server {
    fn pods(&self) -> Arc<Shelf> {
        self.registry.cache().shelf(b"/registry/pods/").expect("it was asked for").clone()
    }

    /// Puts a pod with a label, whatever was there.
    async fn put(&self, name: &str, label: &str) -> Stored {
        let body = pod(name, label);
        let decide = |_: Option<&Stored>| Ok::<_, ()>(Decision::Put { value: body.clone(), ttl: None });
        match self.registry.write(PODS, &self.pods(), &key(name), decide).await.unwrap() {
            Written::Put(stored) => stored,
            written @ (Written::Deleted(_) | Written::Kept) => panic!("it was to be put: {written:?}"),
        }
    }

    async fn delete(&self, name: &str) {
        let decide = |_: Option<&Stored>| Ok::<_, ()>(Decision::Delete);
        let written = self.registry.write(PODS, &self.pods(), &key(name), decide).await.unwrap();
        assert!(matches!(written, Written::Deleted(_)), "{written:?}");
    }

    async fn list(&self, freshness: Freshness, limit: Option<usize>, start: Key) -> Listing {
        let span = Span { within: "/registry/pods/".into(), start, limit, wants: &|_| true };
        self.registry.list(&self.pods(), &span, freshness).await.unwrap()
    }

    async fn stop(self) {
        self.store.close().await;
        self.tasks.stop(Duration::from_secs(30)).await.unwrap();
    }
}

fn key(name: &str) -> Key {
    format!("/registry/pods/default/{name}").into()
}

fn pod(name: &str, label: &str) -> Bytes {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","labels":{{"l":"{label}"}}}}}}"#
    )
    .into()
}

fn names(listing: &Listing) -> Vec<String> {
    listing.items.iter().map(|cached| name(cached)).collect()
}

fn name(cached: &Cached) -> String {
    match &cached.item {
        Item::Object(stored) => stored.name.to_string(),
        item @ (Item::Raw(_) | Item::Undecodable(_)) => panic!("an object was expected: {item:?}"),
    }
}

/// Puts bytes into the store behind the registry's back, as another program would.
async fn put_raw(store: &SqliteStore, key: &str, value: &'static [u8]) {
    let transaction = store::Transaction::create(key.to_owned(), Bytes::from_static(value));
    store.commit(transaction).await.unwrap();
}

fn refusal<E: std::fmt::Debug>(error: WriteError<E>) -> E {
    let shown = format!("{error:?}");
    if let WriteError::Refused(refusal) = error { refusal } else { panic!("a refusal was expected: {shown}") }
}
