//! The decision about an object, given the state of its owners.

use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::informer::{ObservedMetadata, Uid};

/// The state of an owner, as the server reports it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// It exists and is not waiting for dependents.
    Solid,
    /// It is in foreground deletion and waits for its dependents.
    WaitingForDependents,
    /// The server says that it does not exist, or the name has another uid.
    Absent,
    /// It is namespaced and the dependent is cluster-scoped, so the reference cannot be resolved.
    OutOfNamespace,
    /// Discovery does not list its kind.
    UnknownKind,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GarbageDecision {
    Keep,
    /// Wait until discovery changes, since the state of an owner is unknown.
    AwaitDiscovery,
    /// Remove these owner references.
    RemoveOwners(Vec<Uid>),
    Delete {
        policy: PropagationPolicy,
        /// True if its own references must stop blocking first, because it may be part of a cycle.
        unblock_owners: bool,
    },
}

/// The fate of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PropagationPolicy {
    Background,
    Foreground,
    Orphan,
}

impl PropagationPolicy {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }

    /// The policy that an object's own finalizers request.
    pub(super) fn from_finalizers(metadata: &ObservedMetadata) -> Self {
        match metadata.has_finalizer(FINALIZER_ORPHAN) {
            true => Self::Orphan,
            false if metadata.has_finalizer(FINALIZER_FOREGROUND) => Self::Foreground,
            false => Self::Background,
        }
    }
}

/// The dependents of the examined object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DependentsState {
    None,
    Some,
    /// Some of them are in foreground deletion themselves.
    SomeWaiting,
}

/// Decides about an object. A solid owner keeps it, and references to other owners are removed; it is deleted only if
/// every owner is absent or waits for it. `own_policy` is what its finalizers request.
pub(super) fn decide(
    owners: &[(Uid, OwnerState)],
    dependents: DependentsState,
    own_policy: PropagationPolicy,
) -> GarbageDecision {
    let has = |wanted: OwnerState| owners.iter().any(|(_, owner)| *owner == wanted);
    if owners.is_empty() || has(OwnerState::OutOfNamespace) {
        return GarbageDecision::Keep;
    }
    if has(OwnerState::UnknownKind) {
        return GarbageDecision::AwaitDiscovery;
    }
    if has(OwnerState::Solid) {
        let others = owners.iter().filter(|(_, owner)| *owner != OwnerState::Solid);
        let others: Vec<Uid> = others.map(|(uid, _)| uid.clone()).collect();
        return if others.is_empty() { GarbageDecision::Keep } else { GarbageDecision::RemoveOwners(others) };
    }
    if has(OwnerState::WaitingForDependents) && dependents != DependentsState::None {
        return GarbageDecision::Delete {
            policy: PropagationPolicy::Foreground,
            unblock_owners: dependents == DependentsState::SomeWaiting,
        };
    }
    GarbageDecision::Delete { policy: own_policy, unblock_owners: false }
}

#[cfg(test)]
mod tests {
    use OwnerState::{Absent, OutOfNamespace, Solid, UnknownKind, WaitingForDependents};
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(owners: &[OwnerState], dependents: DependentsState, finalizers: &[&str], expected: &Expect) {
        let owners: Vec<(Uid, OwnerState)> =
            owners.iter().enumerate().map(|(at, owner)| (at.to_string().into(), *owner)).collect();
        let finalizers = finalizers.iter().map(|each| (*each).into()).collect();
        let own = PropagationPolicy::from_finalizers(&ObservedMetadata { finalizers, ..ObservedMetadata::default() });
        expected.assert_eq(&format!("{:?}", decide(&owners, dependents, own)));
    }

    #[test]
    fn decide_deletes_only_without_solid_owner() {
        let none = DependentsState::None;
        check(&[], none, &[], &expect!["Keep"]);
        check(&[Solid], none, &[], &expect!["Keep"]);
        check(&[Absent], none, &[], &expect!["Delete { policy: Background, unblock_owners: false }"]);
        check(&[Absent, Absent], none, &["x"], &expect!["Delete { policy: Background, unblock_owners: false }"]);
        check(&[Solid, Absent, WaitingForDependents], none, &[], &expect![[r#"RemoveOwners(["1", "2"])"#]]);
        check(&[WaitingForDependents], none, &[], &expect!["Delete { policy: Background, unblock_owners: false }"]);
    }

    #[test]
    fn decide_takes_policy_from_finalizers() {
        check(
            &[Absent],
            DependentsState::None,
            &["orphan"],
            &expect!["Delete { policy: Orphan, unblock_owners: false }"],
        );
        let foreground = &["foregroundDeletion"];
        check(
            &[Absent],
            DependentsState::Some,
            foreground,
            &expect!["Delete { policy: Foreground, unblock_owners: false }"],
        );
    }

    #[test]
    fn decide_propagates_foreground_deletion_and_unblocks_cycles() {
        check(
            &[WaitingForDependents],
            DependentsState::Some,
            &[],
            &expect!["Delete { policy: Foreground, unblock_owners: false }"],
        );
        check(
            &[WaitingForDependents, Absent],
            DependentsState::SomeWaiting,
            &[],
            &expect!["Delete { policy: Foreground, unblock_owners: true }"],
        );
    }

    #[test]
    fn decide_keeps_object_with_unknown_owner() {
        check(&[UnknownKind], DependentsState::None, &[], &expect!["AwaitDiscovery"]);
        check(&[UnknownKind, Absent], DependentsState::Some, &[], &expect!["AwaitDiscovery"]);
        check(&[OutOfNamespace], DependentsState::None, &[], &expect!["Keep"]);
        check(&[OutOfNamespace, Absent, UnknownKind], DependentsState::None, &[], &expect!["Keep"]);
    }
}
