//! Access reviews, which are created by POST and never stored.

use crate::strategy::KindStrategy;

/// The review that a resource implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// TokenReview: the user of a token.
    Token,
    /// SubjectAccessReview: whether a subject may perform an action.
    SubjectAccess,
    /// LocalSubjectAccessReview: the same within a namespace.
    LocalSubjectAccess,
    /// SelfSubjectAccessReview: whether the caller may perform an action.
    SelfSubjectAccess,
    /// SelfSubjectRulesReview: all rules of the caller in a namespace.
    SelfSubjectRules,
    /// SelfSubjectReview: the caller's user.
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
