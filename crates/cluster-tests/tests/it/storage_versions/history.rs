//! Checks the store's history: was every write in an encoding version that was published at that moment?

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cluster_tests::{Client, ControlPlane, TestStore};
use serde_json::Value;
use store::etcd::EtcdStore;
use store::sqlite::SqliteStore;
use store::{Key, Revision, StoreEvent};
use tasks::Tasks;

/// Opens the store of a control plane. At least one server must have been started.
pub(crate) async fn open_store(plane: &ControlPlane<'_>) -> (Arc<dyn store::Store>, Tasks) {
    open_store_at(plane.store(), plane.folder()).await
}

/// Opens the store of servers whose data is in `folder`.
pub(crate) async fn open_store_at(store: TestStore<'_>, folder: &Path) -> (Arc<dyn store::Store>, Tasks) {
    let tasks = Tasks::new();
    let store: Arc<dyn store::Store> = match store {
        TestStore::Sqlite => {
            let config = store::sqlite::Config::new(folder.join("unskew-data/store.db"));
            Arc::new(SqliteStore::open(config, &tasks).await.unwrap())
        }
        TestStore::Etcd(etcd) => {
            let config = store::etcd::Config::new(vec![etcd.url().to_owned()]);
            Arc::new(EtcdStore::open(&config, tasks.clone()).await.unwrap())
        }
    };
    (store, tasks)
}

/// Reads every change from the first revision on.
pub(crate) async fn read_store_history(plane: &ControlPlane<'_>) -> Vec<StoreEvent> {
    let (store, tasks) = open_store(plane).await;
    let newest = store.revision().await.unwrap();
    let mut watch = store.watch(Key::from_static(b"/registry/"), Revision(1)).await.unwrap();
    let mut events = Vec::new();
    let mut through = Revision(0);
    while through < newest {
        watch.progress_request().send();
        let batch = watch.next_batch().await.unwrap().unwrap();
        events.extend(batch.events);
        through = batch.complete_through;
    }
    drop((watch, store));
    tasks.stop(super::CONVERGENCE_TIMEOUT).await.unwrap();
    events
}

/// Result of checking a history.
#[derive(Debug, Default)]
pub(crate) struct HistoryFindings {
    /// Writes whose version had to be published.
    pub(crate) checked: usize,
    /// Checked writes of a known server, by server and version.
    pub(crate) by_writer: BTreeMap<(String, String), usize>,
    /// Writes that are exempt from publication, by reason.
    pub(crate) exempt: BTreeMap<&'static str, usize>,
    pub(crate) wrong: Vec<String>,
}

/// State at one moment of a history.
struct HistoryState<'a> {
    /// Plural by group and kind.
    plurals: &'a BTreeMap<(String, String), String>,
    /// Identities by hostname.
    identities: BTreeMap<String, String>,
    /// Encoding versions by StorageVersion name and identity.
    published: BTreeMap<String, BTreeMap<String, String>>,
}

/// Replays a history and compares every stored `apiVersion` with the StorageVersion objects at that moment. The label
/// `writer` names the server that wrote an object; without it any server may have.
pub(crate) async fn check_history(client: &Client, events: &[StoreEvent]) -> HistoryFindings {
    let plurals = plurals(client).await;
    let mut moment = HistoryState { plurals: &plurals, identities: BTreeMap::new(), published: BTreeMap::new() };
    let mut findings = HistoryFindings::default();
    for event in events {
        let key = String::from_utf8_lossy(event.key()).into_owned();
        match event {
            StoreEvent::Delete { .. } => {
                if let Some(name) = key.strip_prefix("/registry/storageversions/") {
                    moment.published.remove(name);
                }
            }
            StoreEvent::Put(entry) => moment.apply_write(&key, &entry.value, entry.revision, &mut findings),
        }
    }
    findings
}

impl HistoryState<'_> {
    fn apply_write(&mut self, key: &str, value: &[u8], revision: Revision, findings: &mut HistoryFindings) {
        let object: Value = serde_json::from_slice(value).unwrap_or_default();
        match exemption_reason(key) {
            Some(why) => *findings.exempt.entry(why).or_default() += 1,
            None => self.check_write(key, &object, revision, findings),
        }
        if let Some(name) = key.strip_prefix("/registry/storageversions/") {
            let entries = object["status"]["storageVersions"].as_array().into_iter().flatten();
            let entries = entries.map(|entry| (text(&entry["apiServerID"]), text(&entry["encodingVersion"])));
            self.published.insert(name.to_owned(), entries.collect());
        }
        let hostname = text(&object["metadata"]["labels"]["kubernetes.io/hostname"]);
        if key.starts_with("/registry/leases/kube-system/apiserver-") {
            self.identities.insert(hostname, text(&object["metadata"]["name"]));
        }
    }

    fn check_write(&self, key: &str, object: &Value, revision: Revision, findings: &mut HistoryFindings) {
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
        let Some(plural) = self.plurals.get(&(group.clone(), kind)) else {
            findings.wrong.push(format!("{key} at {revision}: unknown resource"));
            return;
        };
        findings.checked += 1;
        let name = format!("{}.{plural}", if group.is_empty() { "core" } else { &group });
        let published = self.published.get(&name).cloned().unwrap_or_default();
        let writer = text(&object["metadata"]["labels"]["writer"]);
        let is_published = match &*writer {
            "" => published.values().any(|published| *published == version),
            writer => {
                *findings.by_writer.entry((writer.to_owned(), version.clone())).or_default() += 1;
                self.identities.get(writer).and_then(|identity| published.get(identity)) == Some(&version)
            }
        };
        if !is_published {
            findings.wrong.push(format!("{key} at {revision}: {version} by {writer:?} while published: {published:?}"));
        }
    }
}

/// Why a write is exempt from publication; `None` if it is not.
fn exemption_reason(key: &str) -> Option<&'static str> {
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
    let path = key.strip_prefix("/registry/")?;
    match path.split_once('/')? {
        ("storageversions", _) => Some("storage versions"),
        ("leases", name) if name.starts_with("kube-system/") => Some("leases in kube-system"),
        ("namespaces", name) if namespaces.contains(&name) => Some("namespaces of the server"),
        ("_unskew" | "peerserverleases" | "masterleases" | "ranges", _) => Some("no served objects"),
        _ => None,
    }
}

/// Plurals of all kinds, from discovery.
async fn plurals(client: &Client) -> BTreeMap<(String, String), String> {
    let mut plurals = BTreeMap::new();
    for path in ["/api", "/apis"] {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let request = client.request_builder(http::Method::GET, path).header("accept", accept);
        let document = client.send(request, "".into()).await.json();
        for group in document["items"].as_array().into_iter().flatten() {
            let resources = group["versions"].as_array().into_iter().flatten();
            let resources = resources.flat_map(|version| version["resources"].as_array().into_iter().flatten());
            for resource in resources {
                let kind = text(&resource["responseKind"]["kind"]);
                plurals.insert((text(&group["metadata"]["name"]), kind), text(&resource["resource"]));
            }
        }
    }
    plurals
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
