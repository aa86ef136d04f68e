//! What one server serves and stores: a release, with its gates and its `--runtime-config` applied.

mod documents;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::{GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};

use crate::gates::Gates;
use crate::kind::{Group, Kind, KindVersion, Subresource};
use crate::kinds::{self, GROUPS};
use crate::release::Release;
use crate::runtime_config::RuntimeConfig;

/// The built-in resources of one server. Immutable.
#[derive(Debug)]
pub struct Surface {
    release: Release,
    /// By group, version and resource.
    served: Vec<Served>,
    positions: HashMap<GroupVersionResource<&'static str>, usize>,
    /// By group and resource.
    persisted: Vec<Arc<Persisted>>,
}

/// One resource in one version.
#[derive(Debug)]
pub struct Served {
    /// The group.
    pub group: &'static Group,
    /// The version.
    pub version: &'static KindVersion,
    /// The kind, with everything that is the same in every version.
    pub kind: &'static Kind,
    /// The subresources that this release and its gates offer, by name.
    pub subresources: Vec<&'static Subresource>,
    /// How objects are kept; the same for every version. `None` if they are not.
    pub persisted: Option<Arc<Persisted>>,
}

/// How the objects of a resource are kept, whatever the version they are served in.
#[derive(Debug, PartialEq, Eq)]
pub struct Persisted {
    /// The group and the version in which this server writes, and the kind.
    pub encoding: GroupVersionKind<&'static str>,
    /// The resource.
    pub resource: &'static str,
    /// What this server can read from storage, its own encoding among it. A set: the order has no meaning.
    pub decodable: Vec<GroupVersion<&'static str>>,
    /// The versions of the encoding's group in which this server offers the resource, the preferred one first.
    pub served: Vec<&'static str>,
    /// The part of the key after the server's prefix, without slashes around it: `services/specs`.
    pub key_prefix: &'static str,
    /// The storageVersionHash of legacy discovery; `None` with the gate StorageVersionHash off.
    pub hash: Option<Arc<str>>,
}

impl Surface {
    /// What a server with these gates, of their release, and with this configuration serves.
    pub fn new(gates: &Gates, config: &RuntimeConfig) -> Self {
        let offers = offers_of(gates, config);
        let mut sharing: BTreeMap<_, Vec<&Offer>> = BTreeMap::new();
        for offer in &offers {
            sharing.entry(offer.home(&offers)).or_default().push(offer);
        }
        let mut served = Vec::with_capacity(2 * offers.len());
        let mut persisted = Vec::with_capacity(offers.len());
        for (home, sharing) in sharing {
            let kept = persisted_of(gates, home, &sharing).map(Arc::new);
            persisted.extend(kept.clone());
            served.extend(sharing.into_iter().flat_map(|offer| offer.served(gates, kept.as_ref())));
        }
        served.sort_by_key(Served::name);
        let positions = served.iter().enumerate().map(|(position, served)| (served.name(), position)).collect();
        Self { release: gates.release(), served, positions, persisted }
    }

    /// The release this server acts as.
    pub fn release(&self) -> Release {
        self.release
    }

    /// The resource of this name, if it is served in this version.
    pub fn get(&self, group: &str, version: &str, resource: &str) -> Option<&Served> {
        let position = self.positions.get(&GroupVersionResource { group, version, resource })?;
        Some(&self.served[*position])
    }

    /// Every resource in every version in which it is served.
    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// Every resource that is kept in storage, once, whatever the number of its versions and groups.
    pub fn persisted(&self) -> &[Arc<Persisted>] {
        &self.persisted
    }
}

impl Served {
    /// Group, version and resource.
    pub fn name(&self) -> GroupVersionResource<&'static str> {
        GroupVersionResource { group: self.group.name, version: self.version.name, resource: self.kind.plural }
    }

    /// Group, version and kind.
    pub fn response_kind(&self) -> GroupVersionKind<&'static str> {
        GroupVersionKind { group: self.group.name, version: self.version.name, kind: self.kind.name }
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().copied().find(|subresource| subresource.name == name)
    }
}

/// A kind with the versions that one server offers; never without any.
struct Offer {
    group: &'static Group,
    kind: &'static Kind,
    versions: Vec<&'static KindVersion>,
}

fn offers_of(gates: &Gates, config: &RuntimeConfig) -> Vec<Offer> {
    let kinds = GROUPS.into_iter().flat_map(|group| group.kinds.iter().map(move |kind| (group, kind)));
    let kinds = kinds.filter(|(_, kind)| kind.gate.is_none_or(|gate| gates.enabled(gate)));
    let offers = kinds.map(|(group, kind)| {
        let versions = kind.versions_served(gates.release());
        let versions = versions.filter(|version| is_offered(gates, config, group, version, kind)).collect();
        Offer { group, kind, versions }
    });
    offers.filter(|offer| !offer.versions.is_empty()).collect()
}

impl Offer {
    /// Where the objects are kept: with the same resource of another group if that group is offered at all, else by themselves.
    fn home(&self, offers: &[Self]) -> GroupResource<&'static str> {
        let elsewhere = self.kind.stored_with_group();
        let elsewhere = elsewhere.filter(|group| offers.iter().any(|offer| offer.group.name == *group));
        GroupResource { group: elsewhere.unwrap_or(self.group.name), resource: self.kind.plural }
    }

    fn served(&self, gates: &Gates, persisted: Option<&Arc<Persisted>>) -> impl Iterator<Item = Served> {
        self.versions.iter().map(move |version| Served {
            group: self.group,
            version,
            kind: self.kind,
            subresources: subresources_of(gates, self.kind),
            persisted: persisted.cloned(),
        })
    }

    fn group_versions(&self) -> impl Iterator<Item = GroupVersion<&'static str>> {
        self.versions.iter().map(|version| GroupVersion { group: self.group.name, version: version.name })
    }
}

/// How objects are kept that all of these offer; `None` if they are not.
fn persisted_of(gates: &Gates, home: GroupResource<&'static str>, sharing: &[&Offer]) -> Option<Persisted> {
    let release = gates.release();
    let GroupResource { group, resource } = home;
    let kind = kinds::kind(group, resource)?;
    let encoding = GroupVersionKind { group, version: kind.version_stored(release)?, kind: kind.name };
    let (own, guests): (Vec<&Offer>, Vec<&Offer>) = sharing.iter().partition(|offer| offer.group.name == group);
    let known = kind.versions_decodable(release).map(|version| GroupVersion { group, version: version.name });
    Some(Persisted {
        encoding,
        resource,
        decodable: known.chain(guests.into_iter().flat_map(Offer::group_versions)).collect(),
        served: own.into_iter().flat_map(Offer::group_versions).map(|served| served.version).collect(),
        key_prefix: kind.key_prefix(),
        hash: gates.enabled("StorageVersionHash").then(|| hash_of(encoding)),
    })
}

fn is_offered(gates: &Gates, config: &RuntimeConfig, group: &Group, version: &KindVersion, kind: &Kind) -> bool {
    // Turned on by its gate, where kube-apiserver asks for both the gate and the version.
    let by_gate = group.name == "internal.apiserver.k8s.io" && gates.enabled("StorageVersionAPI");
    config.offers(group.name, version, kind.plural, version.is_on_by_default() || by_gate)
}

fn subresources_of(gates: &Gates, kind: &Kind) -> Vec<&'static Subresource> {
    let subresources = kind.subresources_of(gates.release());
    subresources.filter(|subresource| subresource.gate.is_none_or(|gate| gates.enabled(gate))).collect()
}

fn hash_of(encoding: GroupVersionKind<&str>) -> Arc<str> {
    discovery::legacy::storage_version_hash(encoding.group, encoding.version, encoding.kind).into()
}

#[cfg(test)]
mod tests;
