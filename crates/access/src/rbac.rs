//! Role-based access control: the four kinds of `rbac.authorization.k8s.io` and what they grant.
//!
//! One writer applies object changes to an [`RbacPolicy`] and publishes an immutable [`RbacIndex`] built from it.
//! Readers hold the index in an `Arc`: a decision takes no lock, reads no storage, and allocates nothing if it allows.
//!
//! Rules only grant. An object that cannot be decoded, or a binding to a missing role, grants nothing.

mod aggregation;
pub mod escalation;
mod index;
mod label_selector;
mod objects;
mod policy;
mod rule;
mod rule_coverage;
mod rule_set;
mod subject_grants;
pub mod validation;

pub use index::{RbacGrant, RbacIndex, UnresolvedRole};
pub use label_selector::{LabelSelectorRequirement, LabelSelectorSpec};
pub use objects::{AggregationRule, RBAC_GROUP, RbacObjectError, Role, RoleBinding, RoleRef, Subject};
pub use policy::{PolicyChange, RbacKind, RbacPolicy};
pub use rule::PolicyRule;
pub use rule_coverage::{TooManyPermissions, missing_rules, uncovered_permissions};
