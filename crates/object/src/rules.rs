//! Per-kind rules, passed in by the caller.

use std::time::Duration;

pub use api::KindScope;
use api::json::JsonObject;

/// Rules for all objects of one kind.
#[derive(Clone, Copy, Debug)]
pub struct KindRules {
    /// Namespaced or cluster-scoped.
    pub scope: KindScope,
    /// Syntax of `metadata.name`.
    pub name_rule: NameRule,
    /// When `metadata.generateName` must follow the rule of names.
    pub generate_name: GenerateNameRule,
    /// Fields that the `status` subresource accepts, if there is one.
    pub status: StatusSubresource,
    /// Changes that increment `metadata.generation`.
    pub generation: GenerationRule,
    /// Whether a PUT creates an object that does not exist.
    pub allows_create_on_update: bool,
    /// Whether a PUT may omit the resourceVersion.
    pub allows_unconditional_update: bool,
    /// Grace period of deletions.
    pub grace_period: GracePeriodRule,
    /// Treatment of dependents if a delete request has no propagation policy.
    pub garbage_collection: GarbageCollectionPolicy,
    /// Lifetime after the last write, after which storage removes the object; `None` for no limit.
    pub ttl: Option<Duration>,
}

/// Syntax of `metadata.name`.
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
    /// An IP address in its canonical form: IP addresses.
    CanonicalIp,
    /// The name of a file in a config map: lease candidates.
    ConfigKey,
}

/// When `metadata.generateName` must follow the [`NameRule`]; at other times any path segment will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerateNameRule {
    /// On create and update.
    Always,
    /// On create alone: kinds whose updates check only what changes in the metadata.
    OnCreate,
    /// Never.
    Never,
}

/// Fields that the `status` subresource accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSubresource {
    /// No status subresource; `status` is an ordinary field.
    None,
    /// Only `status`: custom resources.
    StatusOnly,
    /// `status` and metadata that clients may change, such as labels: most built-in kinds.
    WithMetadata,
}

/// Changes that increment `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationRule {
    /// Starts at 1; every change outside of metadata and status.
    Counted,
    /// Like `Counted`, and changes of annotations: deployments.
    CountedWithAnnotations,
    /// Like `Counted`, and changes of labels: endpoint slices.
    CountedWithLabels,
    /// Stays 1: priority classes.
    Constant,
    /// The kind has no generation.
    Absent,
}

/// Computes the grace period of an object in seconds from the requested one.
pub type GraceSeconds = fn(&JsonObject, Option<i64>) -> i64;

/// Grace period of deletions.
#[derive(Clone, Copy, Debug)]
pub enum GracePeriodRule {
    /// No grace period.
    None,
    /// Grace period computed by a function; 0 removes the object immediately.
    Graceful(GraceSeconds),
}

/// Treatment of dependents if a delete request has no propagation policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollectionPolicy {
    /// The garbage collector deletes dependents after the object.
    DeleteDependents,
    /// Dependents are orphaned: replication controllers, jobs and cron jobs.
    OrphanDependents,
    /// The garbage collector ignores the kind: events.
    Unsupported,
}

impl KindRules {
    /// Rules of most kinds: namespaced, with a status subresource and a generation.
    pub const NAMESPACED: Self = Self {
        scope: KindScope::Namespaced,
        name_rule: NameRule::Subdomain,
        generate_name: GenerateNameRule::Always,
        status: StatusSubresource::WithMetadata,
        generation: GenerationRule::Counted,
        allows_create_on_update: false,
        allows_unconditional_update: true,
        grace_period: GracePeriodRule::None,
        garbage_collection: GarbageCollectionPolicy::DeleteDependents,
        ttl: None,
    };
}

/// Example kinds for tests.
#[cfg(test)]
impl KindRules {
    /// Like [`KindRules::NAMESPACED`], but cluster-scoped.
    pub(crate) const CLUSTER: Self = Self { scope: KindScope::Cluster, ..Self::NAMESPACED };

    /// A kind without status and generation, such as ConfigMap.
    pub(crate) const NO_STATUS: Self =
        Self { status: StatusSubresource::None, generation: GenerationRule::Absent, ..Self::NAMESPACED };

    /// A namespaced custom resource with a status subresource.
    pub(crate) const CUSTOM: Self =
        Self { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..Self::NAMESPACED };
}
