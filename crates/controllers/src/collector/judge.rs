//! Whether an object may stay, given what its owners are.

use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::follow::{Metadata, Uid};

/// What became of an owner, as the server says now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It is there.
    Solid,
    /// It is there, and waits for its dependents to go.
    Waiting,
    /// The server says that there is no such object, or that it is another one by now.
    Absent,
    /// It is in a namespace, and the dependent is not: a reference that can never be followed.
    Misplaced,
    /// Discovery knows no such kind.
    Unresolvable,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Leave,
    /// Nothing until discovery changes: nobody can say whether its owner is there.
    Park,
    /// Take these out of its owners.
    Unlink(Vec<Uid>),
    Delete {
        policy: Policy,
        /// Whether its own references must cease to block first, because it may be part of a circle.
        unblock: bool,
    },
}

/// What becomes of the dependents of what is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Background,
    Foreground,
    Orphan,
}

impl Policy {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }

    /// What an object's own finalizers ask for.
    pub(super) fn of(metadata: &Metadata) -> Self {
        match metadata.has_finalizer(FINALIZER_ORPHAN) {
            true => Self::Orphan,
            false if metadata.has_finalizer(FINALIZER_FOREGROUND) => Self::Foreground,
            false => Self::Background,
        }
    }
}

/// The dependents of the object that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dependents {
    None,
    Some,
    /// Some of them wait for dependents of their own.
    SomeWaiting,
}

/// Decides. One owner that is there keeps an object, and the others are struck from it; an object is deleted only if every
/// owner is known to be absent, or waits for it. `own` is what its finalizers ask for.
pub(super) fn judge(owners: &[(Uid, Owner)], dependents: Dependents, own: Policy) -> Verdict {
    let has = |wanted: Owner| owners.iter().any(|(_, owner)| *owner == wanted);
    if owners.is_empty() || has(Owner::Misplaced) {
        return Verdict::Leave;
    }
    if has(Owner::Unresolvable) {
        return Verdict::Park;
    }
    if has(Owner::Solid) {
        let others = owners.iter().filter(|(_, owner)| *owner != Owner::Solid);
        let others: Vec<Uid> = others.map(|(uid, _)| uid.clone()).collect();
        return if others.is_empty() { Verdict::Leave } else { Verdict::Unlink(others) };
    }
    if has(Owner::Waiting) && dependents != Dependents::None {
        return Verdict::Delete { policy: Policy::Foreground, unblock: dependents == Dependents::SomeWaiting };
    }
    Verdict::Delete { policy: own, unblock: false }
}

#[cfg(test)]
mod tests {
    use Owner::{Absent, Misplaced, Solid, Unresolvable, Waiting};
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(owners: &[Owner], dependents: Dependents, finalizers: &[&str], expected: &Expect) {
        let owners: Vec<(Uid, Owner)> =
            owners.iter().enumerate().map(|(at, owner)| (at.to_string().into(), *owner)).collect();
        let finalizers = finalizers.iter().map(|each| (*each).into()).collect();
        let own = Policy::of(&Metadata { finalizers, ..Metadata::default() });
        expected.assert_eq(&format!("{:?}", judge(&owners, dependents, own)));
    }

    #[test]
    fn an_object_goes_only_if_no_owner_is_there() {
        let none = Dependents::None;
        check(&[], none, &[], &expect!["Leave"]);
        check(&[Solid], none, &[], &expect!["Leave"]);
        check(&[Absent], none, &[], &expect!["Delete { policy: Background, unblock: false }"]);
        check(&[Absent, Absent], none, &["x"], &expect!["Delete { policy: Background, unblock: false }"]);
        check(&[Solid, Absent, Waiting], none, &[], &expect![[r#"Unlink(["1", "2"])"#]]);
        check(&[Waiting], none, &[], &expect!["Delete { policy: Background, unblock: false }"]);
    }

    #[test]
    fn finalizers_that_are_there_say_how() {
        check(&[Absent], Dependents::None, &["orphan"], &expect!["Delete { policy: Orphan, unblock: false }"]);
        let foreground = &["foregroundDeletion"];
        check(&[Absent], Dependents::Some, foreground, &expect!["Delete { policy: Foreground, unblock: false }"]);
    }

    #[test]
    fn foreground_deletion_goes_down_the_tree_and_circles_are_opened() {
        check(&[Waiting], Dependents::Some, &[], &expect!["Delete { policy: Foreground, unblock: false }"]);
        check(
            &[Waiting, Absent],
            Dependents::SomeWaiting,
            &[],
            &expect!["Delete { policy: Foreground, unblock: true }"],
        );
    }

    #[test]
    fn what_cannot_be_known_keeps_the_object() {
        check(&[Unresolvable], Dependents::None, &[], &expect!["Park"]);
        check(&[Unresolvable, Absent], Dependents::Some, &[], &expect!["Park"]);
        check(&[Misplaced], Dependents::None, &[], &expect!["Leave"]);
        check(&[Misplaced, Absent, Unresolvable], Dependents::None, &[], &expect!["Leave"]);
    }
}
