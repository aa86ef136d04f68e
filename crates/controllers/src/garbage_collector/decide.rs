//! Whether an object may stay, given what its owners are.

use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::informer::{ObservedMetadata, Uid};

/// What became of an owner, as the server says now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// It is there.
    Solid,
    /// It is there, and waits for its dependents to go.
    WaitingForDependents,
    /// The server says that there is no such object, or that it is another one by now.
    Absent,
    /// It is in a namespace, and the dependent is not: a reference that can never be followed.
    OutOfNamespace,
    /// Discovery knows no such kind.
    UnknownKind,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GarbageDecision {
    /// Nothing.
    Keep,
    /// Nothing until discovery changes: nobody can say whether its owner is there.
    AwaitDiscovery,
    /// Take these out of its owners.
    RemoveOwners(Vec<Uid>),
    Delete {
        policy: PropagationPolicy,
        /// Whether its own references must cease to block first, because it may be part of a circle.
        unblock_owners: bool,
    },
}

/// What becomes of the dependents of what is deleted.
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

    /// What an object's own finalizers ask for.
    pub(super) fn from_finalizers(metadata: &ObservedMetadata) -> Self {
        match metadata.has_finalizer(FINALIZER_ORPHAN) {
            true => Self::Orphan,
            false if metadata.has_finalizer(FINALIZER_FOREGROUND) => Self::Foreground,
            false => Self::Background,
        }
    }
}

/// The dependents of the object that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DependentsState {
    None,
    Some,
    /// Some of them wait for dependents of their own.
    SomeWaiting,
}

/// Decides. One owner that is there keeps an object, and the others are struck from it; an object is deleted only if every
/// owner is known to be absent, or waits for it. `own` is what its finalizers ask for.
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
