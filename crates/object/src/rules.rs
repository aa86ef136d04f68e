//! The facts about a kind that the rules of this crate depend on; the caller looks them up and passes them in.

use std::time::Duration;

pub use api::Scope;

/// What holds for all objects of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindRules {
    /// Whether objects live in a namespace.
    pub scope: Scope,
    /// What a name may look like.
    pub names: NameRule,
    /// How `status` is written.
    pub status: StatusPart,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub generation: Generation,
    /// Whether a PUT creates an object that does not exist.
    pub create_on_update: bool,
    /// Whether a PUT may leave out the resourceVersion.
    pub unconditional_update: bool,
    /// How long deletion waits.
    pub grace: Grace,
    /// What deletion does with dependents when the request does not say.
    pub dependents: Dependents,
    /// After how long an object vanishes by itself.
    pub ttl: Option<Duration>,
}

/// What a name may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain: most kinds.
    Subdomain,
    /// A DNS label: namespaces.
    Label,
    /// A DNS label that starts with a letter: services.
    Label1035,
    /// Whatever can stand in a path: RBAC kinds.
    PathSegment,
}

/// How `status` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPart {
    /// There is no status subresource; a field of that name is an ordinary one.
    None,
    /// The subresource takes `status` and nothing else: custom resources.
    Only,
    /// The subresource takes labels, annotations and finalizers too: most built-in kinds.
    WithMetadata,
}

/// Whether `metadata.generation` counts changes of the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// It starts at 1 and grows with every change outside of metadata and status.
    Counted,
    /// The same, and it grows when an annotation changes: deployments.
    CountedWithAnnotations,
    /// It is kept as it is, which is absent.
    Absent,
}

/// How long deletion waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// Not at all.
    None,
    /// As long as a pod says, unless no node runs it.
    Pod,
}

/// What deletion does with dependents when the request does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    /// They go afterwards.
    Delete,
    /// They stay: replication controllers, jobs and cron jobs.
    Orphan,
    /// The garbage collector never looks at them: events.
    Ignore,
}

impl KindRules {
    /// A namespaced kind with a status subresource, like most.
    pub const NAMESPACED: Self = Self {
        scope: Scope::Namespaced,
        names: NameRule::Subdomain,
        status: StatusPart::WithMetadata,
        generation: Generation::Counted,
        create_on_update: false,
        unconditional_update: true,
        grace: Grace::None,
        dependents: Dependents::Delete,
        ttl: None,
    };
}

/// Kinds that tests use as examples.
#[cfg(test)]
impl KindRules {
    /// [`KindRules::NAMESPACED`] without a namespace.
    pub(crate) const CLUSTER: Self = Self { scope: Scope::Cluster, ..Self::NAMESPACED };

    /// A kind that is nothing but its fields, such as a ConfigMap: no status, no generation.
    pub(crate) const PLAIN: Self =
        Self { status: StatusPart::None, generation: Generation::Absent, ..Self::NAMESPACED };

    /// A namespaced custom resource with a status subresource.
    pub(crate) const CUSTOM: Self = Self { status: StatusPart::Only, unconditional_update: false, ..Self::NAMESPACED };
}
