//! The served custom resources as one live value, derived from the definitions in storage.
//!
//! [`DefinitionFollower`] is its only writer: it follows the CustomResourceDefinitions in the watch cache and publishes a
//! snapshot after every change. Requests resolve their resource in it. That a resource is absent counts only
//! after the value has caught up with storage ([`LiveDefinitions::catch_up`]).

mod controller;
mod conversion;
mod objects;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::{GroupVersion, GroupVersionKind, GroupVersionResource};
use apiextensions::discovery::CustomDiscovery;
use apiextensions::{CustomResourceVersion, Definition};
use discovery::build::build;
use discovery::{CreationTimestamp, GroupDiscoveryList};
use kinds::{Release, ServedResources};
use membership::exclusion::{DefinedResource, SharedResources};
use object::convert::{Conversion, convert};
use registry::{CachedEntry, CachedValue, Registry, ResourceCache};
use store::{Compare, Key, Revision};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use controller::DefinitionController;
use conversion::ConversionScope;
pub(crate) use conversion::{Converter, ROUNDS_MAX, RequestConversions};
use objects::CompiledVersion;

use crate::discovery_pages::AggregatedDocuments;
use crate::resource::Resource;

const SERVED_KIND: GroupVersionKind<&str> =
    GroupVersionKind { group: "apiextensions.k8s.io", version: "v1", kind: "CustomResourceDefinition" };
const SERVED_API_VERSION: &str = "apiextensions.k8s.io/v1";
/// How long a request waits until the served custom resources have caught up with storage.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);
/// Reason of a 503 if the absence of a custom resource cannot be proven.
pub(crate) const DEFINITIONS_BEHIND: &str = "the custom resource definitions have not caught up with storage";

/// The next [`LiveDefinition::schema_number`]. Shared by all servers of a process, so that no number has two meanings.
static NEXT_SCHEMA_NUMBER: AtomicU64 = AtomicU64::new(1);

/// A definition in the state of one revision, with everything that serving its versions needs.
#[derive(Debug)]
pub(crate) struct LiveDefinition {
    pub(crate) definition: Arc<Definition>,
    /// All versions, served or not, in the order of the definition.
    pub(crate) versions: Vec<CustomResourceVersion>,
    /// The definition object. Every write of its objects compares it.
    pub(crate) fence: Compare,
    /// The release whose formats and CEL libraries apply.
    pub(crate) release: Release,
    /// Differs between states of definitions with different schemas; counts from 1.
    pub(crate) schema_number: u64,
    /// One per version. States of a definition that differ in their status only share it.
    compiled: Arc<[OnceLock<Option<CompiledVersion>>]>,
    /// Shared like `compiled`.
    conversion: Arc<ConversionScope>,
}

/// The custom resources that this server serves, in the state of one revision. Immutable.
#[derive(Debug, Default)]
pub(crate) struct CustomResources {
    /// The revision of the last change of any definition.
    revision: Revision,
    /// By name: `<resource>.<group>`.
    by_name: HashMap<Box<str>, CustomResource>,
    shared: OnceLock<SharedResources>,
    /// The aggregated documents of this server, with built-in groups.
    pub(crate) local_documents: OnceLock<AggregatedDocuments>,
}

/// One definition and its served versions.
#[derive(Clone, Debug)]
pub(crate) struct CustomResource {
    pub(crate) live: Arc<LiveDefinition>,
    /// One per served version.
    resources: Vec<Arc<Resource>>,
}

/// The live value and its progress. Clones share it.
#[derive(Clone, Debug)]
pub struct LiveDefinitions {
    registry: Registry,
    crd_cache: Arc<ResourceCache>,
    snapshots: watch::Receiver<Arc<CustomResources>>,
    shared: watch::Receiver<SharedResources>,
}

/// The writer of [`LiveDefinitions`].
pub struct DefinitionFollower {
    registry: Registry,
    crd_cache: Arc<ResourceCache>,
    release: Release,
    /// From the version in which definitions are stored to the served one.
    conversion: fn(GroupVersion<&str>, GroupVersion<&str>) -> Option<Conversion>,
    snapshots: watch::Sender<Arc<CustomResources>>,
    shared: watch::Sender<SharedResources>,
}

impl LiveDefinitions {
    /// The value, empty until the follower runs. `crd_cache` holds the CustomResourceDefinitions.
    pub fn new(registry: &Registry, prefix: &str, served_resources: &ServedResources) -> (Self, DefinitionFollower) {
        let (sender, snapshots) = watch::channel(Arc::default());
        let crd_cache = crate::storage_ports::definitions_cache(registry.cache(), prefix);
        let registry = registry.clone();
        let served = served_resources.get("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let follower = DefinitionFollower {
            registry: registry.clone(),
            crd_cache: crd_cache.clone(),
            release: served_resources.release(),
            conversion: served.map_or(|_, _| None, |served| served.kind.strategy.conversion),
            snapshots: sender,
            shared: watch::Sender::default(),
        };
        let shared = follower.shared.subscribe();
        (Self { registry, crd_cache, snapshots, shared }, follower)
    }

    pub(crate) fn snapshot(&self) -> Arc<CustomResources> {
        self.snapshots.borrow().clone()
    }

    /// The value as it changes.
    pub(crate) fn snapshots(&self) -> watch::Receiver<Arc<CustomResources>> {
        self.snapshots.clone()
    }

    /// The names for routing and the groups for merged discovery, as they change.
    pub fn shared(&self) -> watch::Receiver<SharedResources> {
        self.shared.clone()
    }

    /// Waits until every definition that was stored before the call is in the snapshot; `false` if storage cannot be
    /// reached or the wait takes too long.
    pub async fn catch_up(&self) -> bool {
        match self.registry.catch_up_with_store().await {
            Ok(true) => self.catch_up_with_cache().await,
            Ok(false) => false,
            Err(error) => {
                tracing::warn!(%error, "definitions cannot catch up with storage");
                false
            }
        }
    }

    /// Waits until every definition that the watch cache holds is in the snapshot.
    async fn catch_up_with_cache(&self) -> bool {
        let wanted = self.crd_cache.snapshot().revision;
        let mut snapshots = self.snapshots.clone();
        let caught_up = snapshots.wait_for(|snapshot| snapshot.revision >= wanted);
        tokio::time::timeout(CATCH_UP_TIMEOUT, caught_up).await.is_ok_and(|found| found.is_ok())
    }

    /// Waits until the snapshot has caught up with the watch cache at `revision`.
    pub(crate) async fn catch_up_to(&self, revision: Revision) -> bool {
        let reached = self.registry.cache().wait_for_revision(revision, CATCH_UP_TIMEOUT).await;
        matches!(reached, Ok(true)) && self.catch_up_with_cache().await
    }
}

impl CustomResources {
    /// The revision of the last change of any definition.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// The resource of this name, if the version is served.
    pub(crate) fn resource(&self, name: GroupVersionResource<&str>) -> Option<&Arc<Resource>> {
        // No group without a dot can be that of a definition.
        if !name.group.contains('.') {
            return None;
        }
        let found = self.by_name.get(format!("{}.{}", name.resource, name.group).as_str())?;
        found.resources.iter().find(|resource| resource.group_version_kind().version == name.version)
    }

    /// The definition of this name: `<resource>.<group>`.
    pub(crate) fn definition(&self, name: &str) -> Option<&CustomResource> {
        self.by_name.get(name)
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Arc<LiveDefinition>> {
        self.by_name.values().map(|found| &found.live)
    }

    /// The definitions of a group.
    fn group(&self, group: &str) -> Vec<Arc<LiveDefinition>> {
        self.definitions().filter(|live| live.definition.spec.group == group).cloned().collect()
    }

    /// The names for routing, and the groups for the merged document.
    pub(crate) fn shared(&self) -> &SharedResources {
        self.shared.get_or_init(|| {
            let served = self.by_name.values().flat_map(|found| &found.resources).map(|resource| {
                let kind = resource.group_version_kind();
                DefinedResource::Resource {
                    group: kind.group.into(),
                    version: kind.version.into(),
                    resource: resource.storage_name().resource.into(),
                }
            });
            let groups = self.discovery(CreationTimestamp::Absent);
            SharedResources { defined: Arc::new(served.collect()), groups: Arc::new(groups) }
        })
    }

    /// The served versions of all established definitions.
    pub(crate) fn custom_discovery(&self) -> CustomDiscovery {
        CustomDiscovery::new(self.definitions().map(|live| &*live.definition))
    }

    /// The groups of all established definitions.
    pub(crate) fn discovery(&self, creation_timestamp: CreationTimestamp) -> GroupDiscoveryList {
        build(&self.custom_discovery().group_versions, creation_timestamp)
    }
}

impl DefinitionFollower {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let follow = async {
            if self.registry.cache().wait_for_sync().await.is_err() {
                // The server stops: no change will follow.
                return std::future::pending().await;
            }
            loop {
                let snapshot = self.read_snapshot(&self.snapshots.borrow().clone());
                let revision = snapshot.revision;
                // First, because routing must know what a request waits for in the snapshot.
                self.shared.send_replace(snapshot.shared().clone());
                self.snapshots.send_replace(Arc::new(snapshot));
                // Fails if the revision was compacted in between; the loop then takes a newer snapshot.
                if let Ok(mut watcher) = self.registry.watch(&self.crd_cache, revision) {
                    let _ = watcher.next_changes().await;
                }
            }
        };
        stop.run_until_cancelled(follow).await;
    }

    /// Reads all definitions, reusing the unchanged ones of the previous snapshot.
    fn read_snapshot(&self, previous: &CustomResources) -> CustomResources {
        let snapshot = self.crd_cache.snapshot();
        let by_name = snapshot.entries.iter().filter_map(|(key, cached)| {
            let name = std::str::from_utf8(key.strip_prefix(&**self.crd_cache.prefix())?).ok()?;
            let known = previous.by_name.get(name);
            let found = match known.filter(|known| known.live.fence.revision == Some(cached.revision)) {
                Some(known) => known.clone(),
                None => self.read_definition(key, cached, known)?,
            };
            Some((name.into(), found))
        });
        CustomResources { revision: snapshot.revision, by_name: by_name.collect(), ..CustomResources::default() }
    }

    fn read_definition(
        &self,
        key: &Key,
        cached: &CachedEntry,
        known: Option<&CustomResource>,
    ) -> Option<CustomResource> {
        let CachedValue::Object(stored) = &cached.value else { return None };
        let read = if *stored.api_version == *SERVED_API_VERSION {
            Definition::from_json(&stored.body)
        } else {
            let mut object = stored.to_object();
            convert(&mut object, SERVED_KIND, self.conversion);
            Definition::from_object(&object)
        };
        let definition = match read {
            Ok(definition) => Arc::new(definition),
            Err(error) => {
                tracing::error!(key = %key.escape_ascii(), %error, "stored definition cannot be read; it is not served");
                return None;
            }
        };
        let versions = definition.spec.versions.iter();
        let versions =
            versions.filter_map(|version| CustomResourceVersion::new(&definition, &version.name)).collect::<Vec<_>>();
        let fence = Compare { key: key.clone(), revision: Some(cached.revision) };
        let has_same_spec = |known: &&CustomResource| {
            let (known, new) = (&known.live.definition.metadata, &definition.metadata);
            known.uid == new.uid && known.generation == new.generation && new.generation > 0
        };
        let (schema_number, compiled, conversion) = match known.filter(has_same_spec) {
            Some(known) => (known.live.schema_number, known.live.compiled.clone(), known.live.conversion.clone()),
            None => (
                NEXT_SCHEMA_NUMBER.fetch_add(1, Ordering::Relaxed),
                versions.iter().map(|_| OnceLock::new()).collect(),
                Arc::new(ConversionScope::new(&definition.spec)),
            ),
        };
        let release = self.release;
        let live =
            Arc::new(LiveDefinition { definition, versions, fence, release, schema_number, compiled, conversion });
        let names = &live.definition.spec;
        let cache = self.registry.cache().custom_resource_cache(&names.group, &names.names.plural);
        let resources = match cache.filter(|_| live.definition.is_served()) {
            None => Vec::new(),
            Some(cache) => {
                let served = live.versions.iter().enumerate().filter(|(_, version)| version.version().served);
                served.map(|(position, _)| Arc::new(Resource::custom(&live, position, &cache))).collect()
            }
        };
        Some(CustomResource { live, resources })
    }
}

impl LiveDefinition {
    /// The version of this name, served or not.
    pub(crate) fn version(&self, name: &str) -> Option<&CustomResourceVersion> {
        self.versions.iter().find(|version| version.version().name == name)
    }

    /// The version of this group and name, served or not.
    pub(crate) fn version_of_group(&self, name: GroupVersion<&str>) -> Option<&CustomResourceVersion> {
        self.version(name.version).filter(|_| self.definition.spec.group == name.group)
    }

    /// True if nothing that a write depends on differs between two states of a definition.
    pub(crate) fn decides_like(&self, other: &Self) -> bool {
        let (a, b) = (&*self.definition, &*other.definition);
        a.metadata.uid == b.metadata.uid
            && a.metadata.generation == b.metadata.generation
            && a.status.accepted_names == b.status.accepted_names
            && a.is_served() == b.is_served()
            && a.is_terminating() == b.is_terminating()
    }
}
