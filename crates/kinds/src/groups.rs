//! Every built-in kind of every release.
//!
//! | file | groups |
//! |---|---|
//! | `auth` | authentication, authorization, certificates, rbac |
//! | `core` | core |
//! | `devices` | resource |
//! | `network` | discovery, networking |
//! | `control_plane` | admissionregistration, apiextensions, apiregistration, coordination, events, flowcontrol,
//! internal |
//! | `storage` | storage, storagemigration |
//! | `workloads` | apps, autoscaling, batch, lifecycle, node, policy, scheduling |
//!
//! In a row, `since(R34)` is the first release that serves a version, `removed(R37)` the first that does not, and
//! `undecodable_since(R37)` the first that cannot decode it from storage. [`crate::kind`] has the defaults of a row.

mod auth;
mod control_plane;
mod core;
mod devices;
mod network;
mod storage;
mod workloads;

use crate::kind::{BuiltInGroup, BuiltInKind};
use crate::release::Release;

/// Every group, the core group first, then by name.
pub static GROUPS: [&BuiltInGroup; 24] = [
    &core::CORE,
    &control_plane::ADMISSION_REGISTRATION,
    &control_plane::API_EXTENSIONS,
    &control_plane::API_REGISTRATION,
    &workloads::APPS,
    &auth::AUTHENTICATION,
    &auth::AUTHORIZATION,
    &workloads::AUTOSCALING,
    &workloads::BATCH,
    &auth::CERTIFICATES,
    &control_plane::COORDINATION,
    &network::DISCOVERY,
    &control_plane::EVENTS,
    &control_plane::FLOW_CONTROL,
    &control_plane::INTERNAL,
    &workloads::LIFECYCLE,
    &network::NETWORKING,
    &workloads::NODE,
    &workloads::POLICY,
    &auth::RBAC,
    &devices::RESOURCE,
    &workloads::SCHEDULING,
    &storage::STORAGE,
    &storage::STORAGE_MIGRATION,
];

/// Group-versions that servers register without serving or storing anything in them: webhook bodies, and versions of
/// old releases. `--runtime-config` accepts them.
const REGISTERED_ONLY: [(&str, &str); 4] = [
    ("admission.k8s.io", "v1"),
    ("admission.k8s.io", "v1beta1"),
    ("extensions", "v1beta1"),
    ("imagepolicy.k8s.io", "v1alpha1"),
];

/// The group of this name.
pub fn find_group(name: &str) -> Option<&'static BuiltInGroup> {
    GROUPS.into_iter().find(|group| group.name == name)
}

/// The kind of this resource, in any release.
pub fn find_kind(group: &str, resource: &str) -> Option<&'static BuiltInKind> {
    self::find_group(group)?.kinds.iter().find(|kind| kind.plural == resource)
}

/// The strategy of a kind by its name.
#[cfg(test)]
pub(crate) fn strategy_of(group: &str, kind: &str) -> Option<&'static crate::strategy::KindStrategy> {
    self::find_group(group)?.kinds.iter().find(|known| known.name == kind).map(|kind| kind.strategy)
}

/// Whether any known release can serve this resource in this version.
pub fn may_be_built_in(group: &str, version: &str, resource: &str) -> bool {
    find_kind(group, resource).and_then(|kind| kind.version(version)).is_some_and(|version| version.is_ever_served())
}

/// True if a group name has the form of built-in groups, so that a release newer than the known ones may serve it: no
/// dot, or a name below `k8s.io`.
///
/// Custom resources maintained by the Kubernetes project also use names below `k8s.io`.
pub fn has_built_in_group_name(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// Whether a server of this release has types of this group.
pub(crate) fn is_group_registered(release: Release, group: &str) -> bool {
    REGISTERED_ONLY.iter().any(|(name, _)| *name == group)
        || self::find_group(group)
            .is_some_and(|group| group.kinds.iter().any(|kind| kind.decodable_versions(release).next().is_some()))
}

/// Whether a server of this release has types of this group-version, served or not.
pub(crate) fn is_version_registered(release: Release, group: &str, version: &str) -> bool {
    let has = |kind: &BuiltInKind| kind.decodable_versions(release).any(|known| known.name == version);
    REGISTERED_ONLY.contains(&(group, version))
        || self::find_group(group).is_some_and(|group| group.kinds.iter().any(has))
}

#[cfg(test)]
mod tests;
