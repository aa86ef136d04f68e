//! Reviews: questions about access that are posted as objects, answered, and never stored.

use crate::strategy::KindStrategy;

/// The review that a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// Whose a token is.
    Token,
    /// Whether a subject may do something.
    SubjectAccess,
    /// Whether a subject may do something in a namespace.
    LocalSubjectAccess,
    /// Whether the caller may do something.
    SelfSubjectAccess,
    /// Everything that the caller may do in a namespace.
    SelfSubjectRules,
    /// Who the caller is.
    SelfSubject,
}

pub(crate) static TOKEN_REVIEW_STRATEGY: KindStrategy = review(ReviewKind::Token);

pub(crate) static SUBJECT_ACCESS_REVIEW_STRATEGY: KindStrategy = review(ReviewKind::SubjectAccess);

pub(crate) static LOCAL_SUBJECT_ACCESS_REVIEW_STRATEGY: KindStrategy = review(ReviewKind::LocalSubjectAccess);

pub(crate) static SELF_SUBJECT_ACCESS_REVIEW_STRATEGY: KindStrategy = review(ReviewKind::SelfSubjectAccess);

pub(crate) static SELF_SUBJECT_RULES_REVIEW_STRATEGY: KindStrategy = review(ReviewKind::SelfSubjectRules);

pub(crate) static SELF_SUBJECT_REVIEW_STRATEGY: KindStrategy = review(ReviewKind::SelfSubject);

const fn review(kind: ReviewKind) -> KindStrategy {
    KindStrategy { review: Some(kind), ..KindStrategy::DEFAULT }
}
