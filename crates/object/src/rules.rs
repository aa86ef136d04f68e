//! The rules of a kind that this crate depends on; the caller passes them in.

use std::time::Duration;

pub use api::KindScope;
use api::json::JsonObject;

/// The rules of all objects of one kind.
#[derive(Clone, Copy, Debug)]
pub struct KindRules {
    /// Whether objects live in a namespace.
    pub scope: KindScope,
    /// The syntax of names.
    pub name_rule: NameRule,
    /// How `status` is written.
    pub status: StatusSubresource,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub generation: GenerationRule,
    /// Whether a PUT creates an object that does not exist.
    pub allows_create_on_update: bool,
    /// Whether a PUT may leave out the resourceVersion.
    pub allows_unconditional_update: bool,
    /// How long deletion waits.
    pub grace_period: GracePeriodRule,
    /// What deletion does with dependents when the request does not say.
    pub garbage_collection: GarbageCollectionPolicy,
    /// The lifetime of an object; storage removes it afterwards.
    pub ttl: Option<Duration>,
}

/// The syntax of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain: most kinds.
    Subdomain,
    /// A DNS label: namespaces.
    Label,
    /// A DNS label that starts with a letter: services.
    Label1035,
    /// Anything that can be a path segment: RBAC kinds.
    PathSegment,
}

/// How `status` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSubresource {
    /// There is no status subresource; a field of that name is an ordinary one.
    None,
    /// The subresource takes `status` and nothing else: custom resources.
    StatusOnly,
    /// The subresource takes labels, annotations and finalizers too: most built-in kinds.
    WithMetadata,
}

/// Whether `metadata.generation` counts changes of the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationRule {
    /// It starts at 1 and grows with every change outside of metadata and status.
    Counted,
    /// The same, and it grows when an annotation changes: deployments.
    CountedWithAnnotations,
    /// There is no generation.
    Absent,
}

/// The grace period of an object in seconds, by the period that the request names.
pub type GraceSeconds = fn(&JsonObject, Option<i64>) -> i64;

/// How long deletion waits.
#[derive(Clone, Copy, Debug)]
pub enum GracePeriodRule {
    /// Not at all.
    None,
    /// As long as this function says; zero removes the object at once.
    Graceful(GraceSeconds),
}

/// What deletion does with dependents when the request does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollectionPolicy {
    /// The garbage collector deletes them afterwards.
    DeleteDependents,
    /// They stay: replication controllers, jobs and cron jobs.
    OrphanDependents,
    /// The garbage collector ignores the kind: events.
    Unsupported,
}

impl KindRules {
    /// A namespaced kind with a status subresource, like most.
    pub const NAMESPACED: Self = Self {
        scope: KindScope::Namespaced,
        name_rule: NameRule::Subdomain,
        status: StatusSubresource::WithMetadata,
        generation: GenerationRule::Counted,
        allows_create_on_update: false,
        allows_unconditional_update: true,
        grace_period: GracePeriodRule::None,
        garbage_collection: GarbageCollectionPolicy::DeleteDependents,
        ttl: None,
    };
}

/// Kinds that tests use as examples.
#[cfg(test)]
impl KindRules {
    /// [`KindRules::NAMESPACED`] without a namespace.
    pub(crate) const CLUSTER: Self = Self { scope: KindScope::Cluster, ..Self::NAMESPACED };

    /// A kind that is nothing but its fields, such as a ConfigMap: no status, no generation.
    pub(crate) const NO_STATUS: Self =
        Self { status: StatusSubresource::None, generation: GenerationRule::Absent, ..Self::NAMESPACED };

    /// A namespaced custom resource with a status subresource.
    pub(crate) const CUSTOM: Self =
        Self { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..Self::NAMESPACED };
}
