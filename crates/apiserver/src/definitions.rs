//! The served custom resources as one live value, derived from the definitions in storage.
//!
//! [`DefinitionFollower`] is its only writer: it follows the CustomResourceDefinitions in the watch cache and publishes a
//! snapshot after every change. Requests resolve their resource in it. That a resource is absent counts only
//! after the value has caught up with storage ([`LiveDefinitions::catch_up`]).

mod acceptance;
mod conditions;
mod controller;
mod conversion;
mod follower;
mod name_guard;
mod objects;
mod views;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::{GroupVersion, GroupVersionKind, GroupVersionResource};
use apiextensions::discovery::CustomDiscovery;
use apiextensions::{CustomResourceVersion, Definition};
use discovery::build::build;
use discovery::{CreationTimestamp, GroupDiscoveryList};
use kinds::{Release, ServedResources};
use membership::exclusion::{DefinedResource, SharedResources};
use registry::{Registry, ResourceCache};
use storageversion::Registration;
use store::{Compare, Revision};
use tokio::sync::watch;

pub use controller::DefinitionController;
use conversion::ConversionScope;
pub(crate) use conversion::{Converter, ROUNDS_MAX, RequestConversions};
pub use follower::DefinitionFollower;
use objects::CompiledVersion;
use views::VersionViews;
pub(crate) use views::View;

use crate::resource::Resource;
use crate::shared_resources::SharedPublisher;

const SERVED_KIND: GroupVersionKind<&str> =
    GroupVersionKind { group: "apiextensions.k8s.io", version: "v1", kind: "CustomResourceDefinition" };
const SERVED_API_VERSION: &str = "apiextensions.k8s.io/v1";
/// How long a request waits until the served custom resources have caught up with storage.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);
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
    compiled: Arc<[OnceLock<Option<Box<CompiledVersion>>>]>,
    /// Shared like `compiled`.
    conversion: Arc<ConversionScope>,
    /// One per version, shared with other states of the definition that watches show alike.
    views: Vec<VersionViews>,
}

/// The custom resources that this server serves, in the state of one revision. Immutable.
#[derive(Debug, Default)]
pub(crate) struct CustomResources {
    /// The revision of the last change of any definition.
    revision: Revision,
    /// By group, then by plural.
    by_group: HashMap<Box<str>, HashMap<Box<str>, Arc<CustomResource>>>,
    /// Stored definitions that cannot be read, by group and plural, with the reason.
    unreadable: HashMap<(Box<str>, Box<str>), String>,
    shared: OnceLock<SharedResources>,
}

/// One definition and its served versions.
#[derive(Debug)]
pub(crate) struct CustomResource {
    pub(crate) live: Arc<LiveDefinition>,
    /// One per served version.
    resources: Vec<Arc<Resource>>,
    /// The storage version to publish.
    registration: Option<Arc<Registration>>,
}

/// The live value and its progress. Clones share it.
#[derive(Clone, Debug)]
pub struct LiveDefinitions {
    registry: Registry,
    crd_cache: Arc<ResourceCache>,
    snapshots: watch::Receiver<Arc<CustomResources>>,
}

impl LiveDefinitions {
    /// The value, empty until the follower runs. What it brings to the whole cluster goes to `shared`.
    pub fn new(
        registry: &Registry,
        prefix: &str,
        served_resources: &ServedResources,
        shared: Arc<SharedPublisher>,
    ) -> (Self, DefinitionFollower) {
        let crd_cache = crate::storage_ports::definitions_cache(registry.cache(), prefix);
        let follower = DefinitionFollower::new(registry, &crd_cache, served_resources, shared);
        let snapshots = follower.subscribe();
        (Self { registry: registry.clone(), crd_cache, snapshots }, follower)
    }

    pub(crate) fn snapshot(&self) -> Arc<CustomResources> {
        self.snapshots.borrow().clone()
    }

    /// The value as it changes.
    pub(crate) fn snapshots(&self) -> watch::Receiver<Arc<CustomResources>> {
        self.snapshots.clone()
    }

    /// True once the definitions that were stored before the start are served.
    pub fn has_synced(&self) -> bool {
        self.snapshots.borrow().revision > Revision::default()
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
    pub(crate) async fn catch_up_with_cache(&self) -> bool {
        let wanted = self.crd_cache.snapshot().revision;
        if self.snapshots.borrow().revision >= wanted {
            return true;
        }
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
        let found = self.by_group.get(name.group)?.get(name.resource)?;
        found.resources.iter().find(|resource| resource.group_version_kind().version == name.version)
    }

    /// The resource of a kind and its name, if the version is served.
    pub(crate) fn resource_of_kind(
        &self,
        kind: GroupVersionKind<&str>,
    ) -> Option<(GroupVersionResource, &Arc<Resource>)> {
        self.by_group.get(kind.group)?.iter().find_map(|(name, found)| {
            let resource = found.resources.iter().find(|resource| resource.group_version_kind() == kind)?;
            let name = GroupVersionResource { group: kind.group, version: kind.version, resource: name.as_ref() };
            Some((name.owned(), resource))
        })
    }

    /// Why the stored definition of a resource cannot be read; `None` if it can, or if there is none.
    pub(crate) fn unreadable_reason(&self, name: GroupVersionResource<&str>) -> Option<&str> {
        if self.unreadable.is_empty() {
            return None;
        }
        self.unreadable.get(&(name.group.into(), name.resource.into())).map(String::as_str)
    }

    /// True if the stored definition of some resource of a group cannot be read.
    pub(crate) fn has_unreadable(&self, group: &str) -> bool {
        self.unreadable.keys().any(|(unreadable, _)| **unreadable == *group)
    }

    /// The definition of this name: `<resource>.<group>`.
    pub(crate) fn definition(&self, name: &str) -> Option<&Arc<CustomResource>> {
        let (resource, group) = name.split_once('.')?;
        self.by_group.get(group)?.get(resource)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<CustomResource>> {
        self.by_group.values().flat_map(HashMap::values)
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Arc<LiveDefinition>> {
        self.all().map(|found| &found.live)
    }

    /// The definitions of a group.
    fn group(&self, group: &str) -> Vec<Arc<LiveDefinition>> {
        let found = self.by_group.get(group).into_iter().flat_map(HashMap::values);
        found.map(|found| found.live.clone()).collect()
    }

    /// The names for routing, and the groups for the merged document.
    pub(crate) fn shared(&self) -> &SharedResources {
        self.shared.get_or_init(|| {
            let served = self.all().flat_map(|found| &found.resources).map(|resource| {
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

impl CustomResource {
    /// True if discovery and routing show this state like the previous one.
    fn is_listed_like(&self, previous: Option<&Self>) -> bool {
        match previous {
            Some(previous) => {
                self.live.decides_like(&previous.live)
                    && self.live.definition.is_established() == previous.live.definition.is_established()
            }
            None => self.resources.is_empty() && !self.live.definition.is_established(),
        }
    }
}

impl LiveDefinition {
    /// When watches of a version end, by its index in [`Self::versions`].
    pub(crate) fn views(&self, position: usize) -> &VersionViews {
        &self.views[position]
    }

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
