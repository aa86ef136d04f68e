//! Resources that one server serves and stores: those of a release with its feature gates and `--runtime-config`.

mod discovery_documents;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::{GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
use object::KindRules;
use object::rules::StatusSubresource;

use crate::feature_gates::FeatureGates;
use crate::groups::{self, GROUPS};
use crate::kind::{BuiltInGroup, BuiltInKind, BuiltInSubresource, KindVersion};
use crate::release::Release;
use crate::reset_fields::ResetFields;
use crate::runtime_config::RuntimeConfig;

/// The built-in resources of one server. Immutable.
#[derive(Debug)]
pub struct ServedResources {
    release: Release,
    /// By group, version and resource.
    resources: Vec<ServedResource>,
    positions: HashMap<GroupVersionResource<&'static str>, usize>,
    /// By group and resource.
    stored_resources: Vec<Arc<StoredResource>>,
}

/// One resource in one version.
#[derive(Debug)]
pub struct ServedResource {
    /// The group.
    pub group: &'static BuiltInGroup,
    /// The version.
    pub version: &'static KindVersion,
    /// The kind, with everything that is the same in every version.
    pub kind: &'static BuiltInKind,
    /// The subresources that this release and its gates offer, by name.
    pub subresources: Vec<&'static BuiltInSubresource>,
    /// How objects are stored; the same for every version. `None` if they are not stored.
    pub stored_resource: Option<Arc<StoredResource>>,
    /// The rules of objects of this kind.
    pub rules: KindRules,
}

/// Storage of the objects of a resource, the same for every served version.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredResource {
    /// The group and the version in which this server writes, and the kind.
    pub encoding: GroupVersionKind<&'static str>,
    /// The resource.
    pub resource: &'static str,
    /// Versions that this server decodes from storage, including its own encoding. The order has no meaning.
    pub decodable_versions: Vec<GroupVersion<&'static str>>,
    /// The versions of the encoding's group in which this server offers the resource, the preferred one first.
    pub served_versions: Vec<&'static str>,
    /// The part of the key after the server's prefix, without slashes around it: `services/specs`.
    pub key_prefix: &'static str,
    /// The storageVersionHash of legacy discovery; `None` with the gate StorageVersionHash off.
    pub storage_version_hash: Option<Arc<str>>,
}

impl ServedResources {
    /// The resources that a server with these gates, of their release, and with this configuration serves.
    pub fn new(gates: &FeatureGates, config: &RuntimeConfig) -> Self {
        let offers = offered_kinds(gates, config);
        let mut sharing: BTreeMap<_, Vec<&OfferedKind>> = BTreeMap::new();
        for offer in &offers {
            sharing.entry(offer.storage_group_resource(&offers)).or_default().push(offer);
        }
        let mut served = Vec::with_capacity(2 * offers.len());
        let mut persisted = Vec::with_capacity(offers.len());
        for (home, sharing) in sharing {
            let kept = stored_resource_for(gates, home, &sharing).map(Arc::new);
            persisted.extend(kept.clone());
            served.extend(sharing.into_iter().flat_map(|offer| offer.served_resources(gates, kept.as_ref())));
        }
        served.sort_by_key(ServedResource::group_version_resource);
        let positions =
            served.iter().enumerate().map(|(position, served)| (served.group_version_resource(), position)).collect();
        Self { release: gates.release(), resources: served, positions, stored_resources: persisted }
    }

    /// The release this server acts as.
    pub fn release(&self) -> Release {
        self.release
    }

    /// The resource of this name, if it is served in this version.
    pub fn get(&self, group: &str, version: &str, resource: &str) -> Option<&ServedResource> {
        let position = self.positions.get(&GroupVersionResource { group, version, resource })?;
        Some(&self.resources[*position])
    }

    /// Every resource in every version in which it is served.
    pub fn resources(&self) -> &[ServedResource] {
        &self.resources
    }

    /// Every stored resource once, regardless of the number of its versions and groups.
    pub fn stored_resources(&self) -> &[Arc<StoredResource>] {
        &self.stored_resources
    }
}

impl ServedResource {
    /// Group, version and resource.
    pub fn group_version_resource(&self) -> GroupVersionResource<&'static str> {
        GroupVersionResource { group: self.group.name, version: self.version.name, resource: self.kind.plural }
    }

    /// Group, version and kind.
    pub fn group_version_kind(&self) -> GroupVersionKind<&'static str> {
        GroupVersionKind { group: self.group.name, version: self.version.name, kind: self.kind.name }
    }

    /// The fields that a subresource, or the object itself if the name is empty, resets.
    pub fn reset_fields(&self, subresource: &str, gates: &FeatureGates) -> ResetFields {
        if subresource.is_empty() && self.rules.status == StatusSubresource::None {
            return &[];
        }
        (self.kind.strategy.reset_fields)(subresource, gates)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&'static BuiltInSubresource> {
        self.subresources.iter().copied().find(|subresource| subresource.name == name)
    }
}

/// A kind with the versions that one server offers; never without any.
struct OfferedKind {
    group: &'static BuiltInGroup,
    kind: &'static BuiltInKind,
    versions: Vec<&'static KindVersion>,
}

fn offered_kinds(gates: &FeatureGates, config: &RuntimeConfig) -> Vec<OfferedKind> {
    let kinds = GROUPS.into_iter().flat_map(|group| group.kinds.iter().map(move |kind| (group, kind)));
    let kinds = kinds.filter(|(_, kind)| kind.gate.is_none_or(|gate| gates.enabled(gate)));
    let offers = kinds.map(|(group, kind)| {
        let versions = kind.served_versions(gates.release());
        let versions = versions.filter(|version| is_offered(gates, config, group, version, kind)).collect();
        OfferedKind { group, kind, versions }
    });
    offers.filter(|offer| !offer.versions.is_empty()).collect()
}

impl OfferedKind {
    /// Group that stores the objects: another group with the same resource if that group is served, else the kind's
    /// own.
    fn storage_group_resource(&self, offers: &[Self]) -> GroupResource<&'static str> {
        let elsewhere = self.kind.storage_group();
        let elsewhere = elsewhere.filter(|group| offers.iter().any(|offer| offer.group.name == *group));
        GroupResource { group: elsewhere.unwrap_or(self.group.name), resource: self.kind.plural }
    }

    fn served_resources(
        &self,
        gates: &FeatureGates,
        persisted: Option<&Arc<StoredResource>>,
    ) -> impl Iterator<Item = ServedResource> {
        let subresources = enabled_subresources(gates, self.kind);
        let has_status = subresources.iter().any(|subresource| subresource.name == "status");
        let status = if has_status { self.kind.strategy.rules.status } else { StatusSubresource::None };
        let strategy = self.kind.strategy;
        let gated = strategy.gated_name_rule.filter(|(gate, _)| gates.enabled(gate));
        let name_rule = gated.map_or(strategy.rules.name_rule, |(_, rule)| rule);
        self.versions.iter().map(move |version| ServedResource {
            group: self.group,
            version,
            kind: self.kind,
            rules: KindRules { scope: self.kind.scope, status, name_rule, ..strategy.rules },
            subresources: subresources.clone(),
            stored_resource: persisted.cloned(),
        })
    }

    fn group_versions(&self) -> impl Iterator<Item = GroupVersion<&'static str>> {
        self.versions.iter().map(|version| GroupVersion { group: self.group.name, version: version.name })
    }
}

/// Storage of the objects that these kinds share; `None` if they are not stored.
fn stored_resource_for(
    gates: &FeatureGates,
    home: GroupResource<&'static str>,
    sharing: &[&OfferedKind],
) -> Option<StoredResource> {
    let release = gates.release();
    let GroupResource { group, resource } = home;
    let kind = groups::find_kind(group, resource)?;
    let encoding = GroupVersionKind { group, version: kind.storage_version(release)?, kind: kind.name };
    let (own, guests): (Vec<&OfferedKind>, Vec<&OfferedKind>) =
        sharing.iter().partition(|offer| offer.group.name == group);
    let known = kind.decodable_versions(release).map(|version| GroupVersion { group, version: version.name });
    Some(StoredResource {
        encoding,
        resource,
        decodable_versions: known.chain(guests.into_iter().flat_map(OfferedKind::group_versions)).collect(),
        served_versions: own.into_iter().flat_map(OfferedKind::group_versions).map(|served| served.version).collect(),
        key_prefix: kind.key_prefix(),
        storage_version_hash: gates.enabled("StorageVersionHash").then(|| storage_version_hash_of(encoding)),
    })
}

fn is_offered(
    gates: &FeatureGates,
    config: &RuntimeConfig,
    group: &BuiltInGroup,
    version: &KindVersion,
    kind: &BuiltInKind,
) -> bool {
    // Turned on by its gate, where kube-apiserver asks for both the gate and the version.
    let by_gate = group.name == "internal.apiserver.k8s.io" && gates.enabled("StorageVersionAPI");
    config.is_enabled(group.name, version, kind.plural, version.is_enabled_by_default() || by_gate)
}

fn enabled_subresources(gates: &FeatureGates, kind: &BuiltInKind) -> Vec<&'static BuiltInSubresource> {
    let subresources = kind.subresources_in(gates.release());
    subresources.filter(|subresource| subresource.gate.is_none_or(|gate| gates.enabled(gate))).collect()
}

fn storage_version_hash_of(encoding: GroupVersionKind<&str>) -> Arc<str> {
    discovery::legacy::storage_version_hash(encoding.group, encoding.version, encoding.kind).into()
}

#[cfg(test)]
mod tests;
