//! Every built-in kind of every release.
//!
//! | file | groups |
//! |---|---|
//! | `access` | authentication, authorization, certificates, rbac |
//! | `core` | core |
//! | `devices` | resource |
//! | `network` | discovery, networking |
//! | `servers` | admissionregistration, apiextensions, apiregistration, coordination, events, flowcontrol, internal |
//! | `storage` | storage, storagemigration |
//! | `workloads` | apps, autoscaling, batch, lifecycle, node, policy, scheduling |
//!
//! In a row, `since(R34)` is the first release that serves a version, `removed(R37)` the first that does not, and
//! `forgotten(R37)` the first that cannot even read it from storage. [`crate::kind`] says what a row leaves out.

mod access;
mod core;
mod devices;
mod network;
mod servers;
mod storage;
mod workloads;

use crate::kind::{Group, Kind};
use crate::release::Release;

/// Every group, the core group first, then by name.
pub static GROUPS: [&Group; 24] = [
    &core::CORE,
    &servers::ADMISSION_REGISTRATION,
    &servers::API_EXTENSIONS,
    &servers::API_REGISTRATION,
    &workloads::APPS,
    &access::AUTHENTICATION,
    &access::AUTHORIZATION,
    &workloads::AUTOSCALING,
    &workloads::BATCH,
    &access::CERTIFICATES,
    &servers::COORDINATION,
    &network::DISCOVERY,
    &servers::EVENTS,
    &servers::FLOW_CONTROL,
    &servers::INTERNAL,
    &workloads::LIFECYCLE,
    &network::NETWORKING,
    &workloads::NODE,
    &workloads::POLICY,
    &access::RBAC,
    &devices::RESOURCE,
    &workloads::SCHEDULING,
    &storage::STORAGE,
    &storage::STORAGE_MIGRATION,
];

/// Group-versions that servers register although nothing is served or stored in them: bodies of webhooks, and the forms of
/// the oldest releases. `--runtime-config` may name them.
const REGISTERED_ONLY: [(&str, &str); 4] = [
    ("admission.k8s.io", "v1"),
    ("admission.k8s.io", "v1beta1"),
    ("extensions", "v1beta1"),
    ("imagepolicy.k8s.io", "v1alpha1"),
];

/// The group of this name.
pub fn group(name: &str) -> Option<&'static Group> {
    GROUPS.into_iter().find(|group| group.name == name)
}

/// The kind of this resource, in whatever release.
pub fn kind(group: &str, resource: &str) -> Option<&'static Kind> {
    self::group(group)?.kinds.iter().find(|kind| kind.plural == resource)
}

/// Whether any release of the catalogue can serve this resource in this version.
pub fn may_be_built_in(group: &str, version: &str, resource: &str) -> bool {
    kind(group, resource).and_then(|kind| kind.version(version)).is_some_and(|version| version.is_ever_served())
}

/// Whether a group has the form that only built-in groups may have, so that a release newer than the catalogue may serve it:
/// no dot, or a name below `k8s.io`.
///
/// Names below `k8s.io` are also given to custom resources that the Kubernetes project itself maintains.
pub fn looks_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// Whether a server of this release has types of this group.
pub(crate) fn is_group_registered(release: Release, group: &str) -> bool {
    REGISTERED_ONLY.iter().any(|(name, _)| *name == group)
        || self::group(group)
            .is_some_and(|group| group.kinds.iter().any(|kind| kind.versions_decodable(release).next().is_some()))
}

/// Whether a server of this release has types of this group-version, served or not.
pub(crate) fn is_registered(release: Release, group: &str, version: &str) -> bool {
    let has = |kind: &Kind| kind.versions_decodable(release).any(|known| known.name == version);
    REGISTERED_ONLY.contains(&(group, version)) || self::group(group).is_some_and(|group| group.kinds.iter().any(has))
}

#[cfg(test)]
mod tests;
