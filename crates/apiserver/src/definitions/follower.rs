//! The writer of the served custom resources.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use api::GroupVersion;
use apiextensions::{CustomResourceVersion, Definition};
use kinds::{Release, ServedResources};
use object::convert::{Conversion, convert};
use registry::{CachedEntry, CachedValue, Registry, ResourceCache};
use storageversion::PublicationBarrier;
use store::{Compare, Key};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::conversion::ConversionScope;
use super::views::{self, View};
use super::{CustomResource, CustomResources, LiveDefinition, SERVED_API_VERSION, SERVED_KIND};
use crate::resource::Resource;
use crate::shared_resources::SharedPublisher;
use crate::storage_version_barrier::registration_of_definition;

/// The next [`LiveDefinition::schema_number`]. Shared by all servers of a process, so that no number has two meanings.
static NEXT_SCHEMA_NUMBER: AtomicU64 = AtomicU64::new(1);

/// The writer of [`LiveDefinitions`](super::LiveDefinitions).
pub struct DefinitionFollower {
    registry: Registry,
    crd_cache: Arc<ResourceCache>,
    release: Release,
    /// From the version in which definitions are stored to the served one.
    conversion: fn(GroupVersion<&str>, GroupVersion<&str>) -> Option<Conversion>,
    snapshots: watch::Sender<Arc<CustomResources>>,
    shared: Arc<SharedPublisher>,
    /// Publishes storage versions; `None` with the feature gate off.
    publication: Option<PublicationBarrier>,
}

/// A new state, and what ends with it.
struct NextState {
    snapshot: CustomResources,
    /// Already marked as ended; their watches are notified once the state is published.
    ended_views: Vec<Arc<View>>,
}

impl DefinitionFollower {
    pub(super) fn new(
        registry: &Registry,
        crd_cache: &Arc<ResourceCache>,
        served_resources: &ServedResources,
        shared: Arc<SharedPublisher>,
    ) -> Self {
        let served = served_resources.get("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        Self {
            registry: registry.clone(),
            crd_cache: crd_cache.clone(),
            release: served_resources.release(),
            conversion: served.map_or(|_, _| None, |served| served.kind.strategy.conversion),
            snapshots: watch::Sender::default(),
            shared,
            publication: None,
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<CustomResources>> {
        self.snapshots.subscribe()
    }

    /// Registers the storage versions of all definitions with `publication`.
    pub fn publish_storage_versions(mut self, publication: PublicationBarrier) -> Self {
        publication.expect_custom_registrations();
        self.publication = Some(publication);
        self
    }

    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let follow = async {
            if self.registry.cache().wait_for_sync().await.is_err() {
                // The server stops: no change will follow.
                return std::future::pending().await;
            }
            loop {
                let previous = self.snapshots.borrow().clone();
                let NextState { snapshot, ended_views } = self.read_snapshot(&previous);
                let revision = snapshot.revision;
                // First: a write in a new storage version must find the barrier closed until that version is published.
                if let Some(publication) = &self.publication {
                    let registrations = snapshot.all().filter_map(|found| found.registration.clone());
                    publication.replace_custom_registrations(&registrations.collect::<Vec<_>>());
                }
                // Before the snapshot, because routing must know what a request waits for in the snapshot.
                let snapshot = Arc::new(snapshot);
                self.shared.set_custom(&snapshot);
                self.snapshots.send_replace(snapshot);
                ended_views.iter().for_each(|view| view.notify());
                // Fails if the revision was compacted in between; the loop then takes a newer snapshot.
                if let Ok(mut watcher) = self.registry.watch(&self.crd_cache, revision) {
                    let _ = watcher.next_changes().await;
                }
            }
        };
        stop.run_until_cancelled(follow).await;
    }

    /// Reads all definitions, reusing the unchanged ones of the previous state.
    fn read_snapshot(&self, previous: &CustomResources) -> NextState {
        let cached = self.crd_cache.snapshot();
        let mut snapshot = CustomResources { revision: cached.revision, ..CustomResources::default() };
        let mut ended_views = Vec::new();
        let mut is_shared_same = true;
        for (key, entry) in &cached.entries {
            let name = key.strip_prefix(&**self.crd_cache.prefix()).and_then(|name| std::str::from_utf8(name).ok());
            let Some((name, (plural, group))) = name.and_then(|name| Some((name, name.split_once('.')?))) else {
                continue;
            };
            let known = previous.definition(name);
            let found = match known.filter(|known| known.live.fence.revision == Some(entry.revision)) {
                Some(known) => known.clone(),
                None => match self.read_definition(key, entry, known.map(|known| &*known.live)) {
                    Ok(found) => {
                        is_shared_same &= found.is_listed_like(known.map(|known| &**known));
                        Arc::new(found)
                    }
                    Err(reason) => {
                        if previous.unreadable.get(&(group.into(), plural.into())) != Some(&reason) {
                            tracing::error!(definition = name, reason, "stored definition cannot be read");
                        }
                        snapshot.unreadable.insert((group.into(), plural.into()), reason);
                        continue;
                    }
                },
            };
            snapshot.by_group.entry(group.into()).or_default().insert(plural.into(), found);
        }
        for known in previous.all() {
            let live = snapshot.definition(&known.live.definition.metadata.name).map(|found| &*found.live);
            if live.is_none() {
                is_shared_same = false;
                let spec = &known.live.definition.spec;
                self.registry.cache().release_custom_resource(&spec.group, &spec.names.plural);
            }
            if live.is_none_or(|live| !std::ptr::eq(live, &*known.live)) {
                let ended_at = live.and_then(|live| live.fence.revision).unwrap_or(cached.revision);
                ended_views.extend(views::end_replaced(&known.live, live, ended_at));
            }
        }
        if is_shared_same && let Some(shared) = previous.shared.get() {
            snapshot.shared = shared.clone().into();
        }
        NextState { snapshot, ended_views }
    }

    /// Reads a definition, or returns the reason for which it cannot be read.
    fn read_definition(
        &self,
        key: &Key,
        cached: &CachedEntry,
        known: Option<&LiveDefinition>,
    ) -> Result<CustomResource, String> {
        let stored = match &cached.value {
            CachedValue::Object(stored) => stored,
            CachedValue::Undecodable(undecodable) => return Err(undecodable.to_string()),
            CachedValue::Raw(_) => return Err("the value is no object".to_owned()),
        };
        let read = if *stored.api_version == *SERVED_API_VERSION {
            Definition::from_json(&stored.body)
        } else {
            let mut object = stored.to_object();
            convert(&mut object, SERVED_KIND, self.conversion);
            Definition::from_converted(&object, &stored.body)
        };
        let definition = Arc::new(read.map_err(|error| error.to_string())?);
        let versions = definition.spec.versions.iter();
        let versions =
            versions.filter_map(|version| CustomResourceVersion::new(&definition, &version.name)).collect::<Vec<_>>();
        let fence = Compare { key: key.clone(), revision: Some(cached.revision) };
        let has_same_spec = |known: &&LiveDefinition| {
            let (known, new) = (&known.definition.metadata, &definition.metadata);
            known.uid == new.uid && known.generation == new.generation && new.generation > 0
        };
        let (schema_number, compiled, conversion) = match known.filter(has_same_spec) {
            Some(known) => (known.schema_number, known.compiled.clone(), known.conversion.clone()),
            None => (
                NEXT_SCHEMA_NUMBER.fetch_add(1, Ordering::Relaxed),
                versions.iter().map(|_| OnceLock::new()).collect(),
                Arc::new(ConversionScope::new(&definition.spec)),
            ),
        };
        let views = views::views_of(&definition, known);
        let live = Arc::new(LiveDefinition {
            definition,
            versions,
            fence,
            release: self.release,
            schema_number,
            compiled,
            conversion,
            views,
        });
        let names = &live.definition.spec;
        let cache = self.registry.cache().custom_resource_cache(&names.group, &names.names.plural);
        let resources = match cache.filter(|_| live.definition.is_served()) {
            None => Vec::new(),
            Some(cache) => {
                let served = live.versions.iter().enumerate().filter(|(_, version)| version.version().served);
                served.map(|(position, _)| Arc::new(Resource::custom(&live, position, &cache))).collect()
            }
        };
        let registration = registration_of_definition(&live.definition).map(Arc::new);
        Ok(CustomResource { live, resources, registration })
    }
}
