//! Row types of the table in [`crate::groups`]: groups, kinds, versions and subresources, and their state in one
//! release.

pub(crate) mod builder;

pub use api::KindScope;

use crate::release::{Release, ReleaseRange};
use crate::strategy::KindStrategy;
use crate::verbs::VerbSet;

/// One API group with its kinds.
#[derive(Debug)]
pub struct BuiltInGroup {
    /// The name; empty for core.
    pub name: &'static str,
    priority: i32,
    /// Priority in releases before this one.
    earlier_priority: Option<(Release, i32)>,
    versions: &'static [(&'static str, i32)],
    /// The kinds, by plural.
    pub kinds: &'static [BuiltInKind],
}

/// One kind with its resource and all of its versions.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInKind {
    /// The kind, such as `Pod`.
    pub name: &'static str,
    /// The resource, such as `pods`.
    pub plural: &'static str,
    /// Namespaced or cluster-scoped.
    pub scope: KindScope,
    /// The verbs that the resource supports.
    pub verbs: VerbSet,
    /// Short names for the command line.
    pub short_names: &'static [&'static str],
    /// Categories such as `all`.
    pub categories: &'static [&'static str],
    /// Feature gate that must be enabled to serve any version.
    pub gate: Option<&'static str>,
    /// Whether this server implements it. Requests for what is listed and not implemented go to a member that serves
    /// it.
    pub is_implemented: bool,
    /// The subresources, by name.
    pub subresources: &'static [BuiltInSubresource],
    /// The versions, the preferred one first.
    pub versions: &'static [KindVersion],
    /// Kind-specific rules.
    pub strategy: &'static KindStrategy,
    storage: KindStorage,
    key_override: Option<&'static str>,
}

/// One version of a kind.
#[derive(Clone, Copy, Debug)]
pub struct KindVersion {
    /// The version, such as `v1beta1`.
    pub name: &'static str,
    /// `None` if no known release serves it: objects may still be stored in it.
    served: Option<ReleaseRange>,
    decodable: ReleaseRange,
    /// Enabled by default although it is a beta version.
    enabled_by_default: bool,
}

/// One subresource of a kind.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInSubresource {
    /// The name alone, such as `scale`.
    pub name: &'static str,
    /// The kind of its responses.
    pub kind: ResponseKind,
    /// The verbs that the subresource supports.
    pub verbs: VerbSet,
    /// Feature gate that must be enabled to serve it.
    pub gate: Option<&'static str>,
    /// Whether it opens a connection; then every HTTP method is accepted, regardless of `verbs`.
    pub is_connect: bool,
    /// Whether this server implements it. Requests for what is listed and not implemented go to a member that serves
    /// it.
    pub is_implemented: bool,
    since: Release,
}

/// The kind of a subresource's responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// The kind of the resource.
    Parent,
    /// Another kind of the same group and version.
    Sibling(&'static str),
    /// A kind of another group and version: group, version, kind.
    Foreign(&'static str, &'static str, &'static str),
}

/// The versions that `GET /version` of a kube-apiserver shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockServerVersion {
    /// The release of the program.
    pub binary: Release,
    /// `--emulated-version`.
    pub emulated: Release,
    /// `--min-compatibility-version`.
    pub min_compatibility: Release,
}

/// Resources that kube-apiserver stores in a version that emulation does not change, in 1.35 and later.
const STORAGE_OVERRIDES: &[&str] = &[
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "clustertrustbundles",
    "podcertificaterequests",
    "leasecandidates",
    "devicetaintrules",
    "workloads",
    "storageversionmigrations",
    "customresourcedefinitions",
];

/// How objects of a kind are stored.
#[derive(Clone, Copy, Debug)]
enum KindStorage {
    /// In the preferred version among those that the release serves.
    PreferredVersion,
    /// In these versions, each from its release on.
    VersionSince(&'static [(Release, &'static str)]),
    /// As the resource of the same name in another group.
    SharedWithGroup(&'static str),
    /// Not stored: the response is computed.
    NotStored,
}

impl BuiltInGroup {
    /// Higher groups come first in discovery.
    pub fn priority(&self, release: Release) -> i32 {
        match self.earlier_priority {
            Some((changed, earlier)) if release < changed => earlier,
            Some(_) | None => self.priority,
        }
    }

    /// Higher versions come first in their group.
    pub fn version_priority(&self, version: &str) -> i32 {
        let stated = self.versions.iter().find(|(name, _)| *name == version);
        stated.map_or(discovery::build::VERSION_PRIORITY_DEFAULT, |(_, priority)| *priority)
    }
}

impl BuiltInKind {
    /// The singular, which is the kind in lower case for every built-in kind.
    pub fn singular(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// The version of this name.
    pub fn version(&self, name: &str) -> Option<&'static KindVersion> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The versions that a server of this release can serve, the preferred one first.
    pub fn served_versions(&self, release: Release) -> impl Iterator<Item = &'static KindVersion> {
        self.versions.iter().filter(move |version| version.is_served(release))
    }

    /// The versions that a server of this release reads from storage, the preferred one first.
    pub fn decodable_versions(&self, release: Release) -> impl Iterator<Item = &'static KindVersion> {
        self.versions.iter().filter(move |version| version.decodable.contains(release))
    }

    /// The version in which a server of this release stores objects; `None` if it does not have the kind, or stores
    /// none.
    pub fn storage_version(&self, release: Release) -> Option<&'static str> {
        let preferred = self.served_versions(release).next()?.name;
        match self.storage {
            KindStorage::PreferredVersion | KindStorage::SharedWithGroup(_) => Some(preferred),
            KindStorage::VersionSince(since) => {
                since.iter().rev().find(|(from, _)| *from <= release).map(|(_, name)| *name)
            }
            KindStorage::NotStored => None,
        }
    }

    /// The version in which a stock kube-apiserver stores objects. `None` if it does not have the kind, or if the rule of
    /// its release is not known: of emulation before 1.35.
    pub fn storage_version_of(&self, server: StockServerVersion) -> Option<&'static str> {
        let StockServerVersion { binary, emulated, min_compatibility } = server;
        if emulated == binary && min_compatibility.minor() + 1 == binary.minor() {
            return self.storage_version(binary);
        }
        if binary < Release::R35 {
            return None;
        }
        self.storage_version(binary)?;
        // kube-apiserver's overrides count whatever is emulated.
        if self.has_storage_override(binary) {
            return self.storage_version(binary);
        }
        let introduced_by = |release: Release| {
            move |version: &&'static KindVersion| version.served.is_some_and(|served| served.since <= release)
        };
        let is_alpha = |version: &KindVersion| StabilityLevel::of_version(version.name) == StabilityLevel::Alpha;
        let mut versions = self.served_versions(binary);
        let found = match binary < Release::R37 {
            true => versions.find(introduced_by(min_compatibility)),
            false => versions
                .find(|version| !is_alpha(version) && introduced_by(min_compatibility)(version))
                .or_else(|| self.served_versions(binary).find(introduced_by(emulated))),
        };
        found.or_else(|| self.served_versions(binary).next()).map(|version| version.name)
    }

    /// True if kube-apiservers of this release store the kind in a version of their own choice.
    fn has_storage_override(&self, binary: Release) -> bool {
        match self.plural {
            "volumeattributesclasses" => binary == Release::R35,
            "podgroups" => binary >= Release::R36,
            plural => STORAGE_OVERRIDES.contains(&plural),
        }
    }

    /// The other group that stores the objects under the same resource name; `None` if the kind stores its own.
    pub fn storage_group(&self) -> Option<&'static str> {
        match self.storage {
            KindStorage::SharedWithGroup(group) => Some(group),
            KindStorage::PreferredVersion | KindStorage::VersionSince(_) | KindStorage::NotStored => None,
        }
    }

    /// The part of the key after the server's prefix, without slashes around it.
    pub fn key_prefix(&self) -> &'static str {
        self.key_override.unwrap_or(self.plural)
    }

    /// The subresources that a server of this release can serve, whatever their gates.
    pub fn subresources_in(&self, release: Release) -> impl Iterator<Item = &'static BuiltInSubresource> {
        self.subresources.iter().filter(move |subresource| subresource.since <= release)
    }
}

impl KindVersion {
    /// Whether a server of this release can serve it.
    pub fn is_served(&self, release: Release) -> bool {
        self.served.is_some_and(|span| span.contains(release))
    }

    /// Whether any known release can serve it.
    pub fn is_ever_served(&self) -> bool {
        self.served.is_some()
    }

    /// True if a server serves it by default: stable versions and a few beta versions.
    pub fn is_enabled_by_default(&self) -> bool {
        self.enabled_by_default || StabilityLevel::of_version(self.name) == StabilityLevel::Stable
    }
}

/// The stability of a version, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StabilityLevel {
    Alpha,
    Beta,
    Stable,
}

impl StabilityLevel {
    /// By the form of the name: every built-in version conforms to it.
    pub(crate) fn of_version(version: &str) -> Self {
        match (version.contains("alpha"), version.contains("beta")) {
            (true, _) => Self::Alpha,
            (false, true) => Self::Beta,
            (false, false) => Self::Stable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::find_kind;
    use Release::*;

    #[track_caller]
    fn check(group: &str, resource: &str, [binary, emulated, min_compatibility]: [Release; 3], expected: Option<&str>) {
        let kind = find_kind(group, resource).unwrap();
        let server = StockServerVersion { binary, emulated, min_compatibility };
        assert_eq!(kind.storage_version_of(server), expected, "{resource} of {server:?}");
    }

    /// Measured on kube-apiserver 1.36.4 with `--min-compatibility-version`.
    #[test]
    fn stock_server_stores_versions_that_its_minimum_release_reads() {
        for resource in ["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"] {
            check("resource.k8s.io", resource, [R36, R36, R35], Some("v1"));
            check("resource.k8s.io", resource, [R36, R36, R33], Some("v1beta2"));
        }
        let classes = |versions, expected| check("storage.k8s.io", "volumeattributesclasses", versions, expected);
        classes([R36, R36, R35], Some("v1"));
        classes([R36, R36, R34], Some("v1"));
        classes([R36, R36, R33], Some("v1beta1"));
        classes([R36, R34, R33], Some("v1beta1"));
        classes([R35, R35, R35], Some("v1beta1"));
        classes([R34, R33, R32], None);
        check("", "pods", [R36, R33, R33], Some("v1"));
        check("certificates.k8s.io", "clustertrustbundles", [R35, R32, R31], Some("v1beta1"));
    }

    #[test]
    fn stock_server_with_defaults_stores_the_version_of_its_release() {
        for release in &Release::ALL[1..] {
            let before = Release::ALL[release.index() - 1];
            let server = StockServerVersion { binary: *release, emulated: *release, min_compatibility: before };
            for kind in crate::groups::GROUPS.into_iter().flat_map(|group| group.kinds) {
                assert_eq!(kind.storage_version_of(server), kind.storage_version(*release), "{}", kind.plural);
            }
        }
    }
}
