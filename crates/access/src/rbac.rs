//! Role-based access control: what the four kinds of `rbac.authorization.k8s.io` grant.
//!
//! One writer keeps a [`RbacPolicy`], fed with objects as they change, and publishes an immutable [`RbacIndex`] made from it.
//! Readers hold the index in an `Arc` and decide by it: no lock, no storage read, and no allocation for a yes.
//!
//! Rules only ever grant. What cannot be read, or refers to a role that is not there, grants nothing.

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
