//! Every change of definitions and their objects, read directly from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use store::{Key, Revision, Store, StoreEvent};
use tasks::Tasks;

use super::watcher::WatchedEvents;
use super::*;
use crate::storage_versions::history::{open_store, open_store_at};

/// Below it, definitions are stored.
pub(super) const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// A log that begins at the current revision.
pub(super) struct StoreLog {
    store: Arc<dyn Store>,
    tasks: Tasks,
    /// The state at the start.
    initial: BTreeMap<String, Value>,
    start: Revision,
}

/// One change of a key.
struct Change {
    revision: u64,
    key: String,
    /// `None` if the key was deleted.
    value: Option<Value>,
}

/// All changes of a round.
pub(super) struct StoreHistory {
    initial: BTreeMap<String, Value>,
    changes: Vec<Change>,
}

impl StoreLog {
    pub(super) async fn open(store: TestStore<'_>, folder: &Path) -> Self {
        let (store, tasks) = open_store_at(store, folder).await;
        let page = store.range(KeyRange::prefix("/registry/")).await.unwrap();
        let objects = page.entries.iter().map(|entry| (text(&entry.key), parse(&entry.value)));
        let initial = objects.filter(|(key, _)| is_relevant(key)).collect();
        Self { store, tasks, initial, start: page.revision }
    }

    /// The revision after which changes are logged.
    pub(super) fn start(&self) -> u64 {
        self.start.0
    }

    /// Reads all changes up to now.
    pub(super) async fn finish(self) -> StoreHistory {
        let newest = self.store.revision().await.unwrap();
        let mut watch = self.store.watch(Key::from_static(b"/registry/"), self.start.next()).await.unwrap();
        let (mut changes, mut through) = (Vec::new(), self.start);
        while through < newest {
            watch.progress_request().send();
            let batch = watch.next_batch().await.unwrap().unwrap();
            through = batch.complete_through;
            changes.extend(batch.events.into_iter().filter_map(change_of));
        }
        drop((watch, self.store));
        self.tasks.stop(Duration::from_secs(10)).await.unwrap();
        StoreHistory { initial: self.initial, changes }
    }
}

fn change_of(event: StoreEvent) -> Option<Change> {
    let key = text(event.key());
    let revision = event.revision().0;
    let value = match event {
        StoreEvent::Put(entry) => Some(parse(&entry.value)),
        StoreEvent::Delete { .. } => None,
    };
    is_relevant(&key).then_some(Change { revision, key, value })
}

/// True for definitions and for objects of custom resources.
fn is_relevant(key: &str) -> bool {
    key.starts_with(DEFINITIONS) || key.split('/').nth(2).is_some_and(|group| group.ends_with(".storm.example.com"))
}

fn text(key: &Key) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn parse(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or_default()
}

/// The key of the definition of a stored object.
fn definition_key(object: &str) -> String {
    let mut parts = object.split('/').skip(2);
    let (group, plural) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{DEFINITIONS}{plural}.{group}")
}

fn storage_version(definition: &Value) -> String {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let mut storage = versions.filter(|version| version["storage"] == true);
    let version = storage.next().map_or(&Value::Null, |version| &version["name"]);
    format!("{}/{}", definition["spec"]["group"].as_str().unwrap(), version.as_str().unwrap())
}

impl StoreHistory {
    /// The revision of the last change of a definition.
    pub(super) fn last_definition_revision(&self) -> u64 {
        let mut changes = self.changes.iter().rev();
        changes.find(|change| change.key.starts_with(DEFINITIONS)).map_or(0, |change| change.revision)
    }

    /// At every revision: no object without its definition, none created under a terminating one, and none written in
    /// another version than the storage version of that moment.
    pub(super) fn check_life_stages(&self) {
        let mut state = self.initial.clone();
        for Change { revision, key, value } in &self.changes {
            match value {
                Some(value) if !key.starts_with(DEFINITIONS) => {
                    let definition = state.get(&definition_key(key));
                    let definition = definition.unwrap_or_else(|| panic!("{key} at {revision} has no definition"));
                    let is_terminating = definition["metadata"]["deletionTimestamp"].is_string();
                    assert!(!is_terminating || state.contains_key(key), "{key} at {revision} was created too late");
                    assert_eq!(value["apiVersion"], storage_version(definition), "{key} at {revision}");
                    state.insert(key.clone(), value.clone());
                }
                Some(value) => {
                    state.insert(key.clone(), value.clone());
                }
                None => {
                    assert!(state.remove(key).is_some(), "{key} at {revision} was deleted twice");
                    let left: Vec<_> = state.keys().filter(|object| definition_key(object) == *key).collect();
                    assert!(left.is_empty(), "{key} at {revision} left {left:?}");
                }
            }
        }
    }

    /// The events that a watch of a prefix must show: each once, in order, none between the first and the last missing.
    pub(super) fn check_watch(&self, what: &str, prefix: &str, watched: &WatchedEvents) {
        let mut known: BTreeSet<&str> = self.initial.keys().map(String::as_str).collect();
        let mut expected = Vec::new();
        for Change { revision, key, value } in &self.changes {
            let event = match value {
                Some(_) if known.insert(key) => "ADDED",
                Some(_) => "MODIFIED",
                None => {
                    known.remove(&**key);
                    "DELETED"
                }
            };
            if let Some(name) = key.strip_prefix(prefix).filter(|_| *revision > watched.from) {
                let name = name.rsplit('/').next().unwrap_or_default();
                expected.push((*revision, event.to_owned(), name.to_owned()));
            }
        }
        if !watched.is_complete {
            // The rest was no longer to be had; and the objects of a later life have the same keys.
            expected.truncate(watched.events.len());
        }
        assert_eq!(watched.events, expected, "{what} from {}", watched.from);
    }
}

/// All keys of the store that contain a text.
pub(super) async fn keys_containing(plane: &ControlPlane<'_>, part: &str) -> Vec<String> {
    let (store, tasks) = open_store(plane).await;
    let page = store.range(KeyRange::prefix("/")).await.unwrap();
    let keys = page.entries.iter().map(|entry| text(&entry.key)).filter(|key| key.contains(part)).collect();
    drop(store);
    tasks.stop(Duration::from_secs(10)).await.unwrap();
    keys
}
