//! Role-based access control: what the four kinds of `rbac.authorization.k8s.io` grant.
//!
//! One writer keeps a [`Policy`], fed with objects as they change, and publishes an immutable [`Index`] made from it.
//! Readers hold the index in an `Arc` and decide by it: no lock, no storage read, and no allocation for a yes.
//!
//! Rules only ever grant. What cannot be read, or refers to a role that is not there, grants nothing.

mod aggregation;
mod covers;
pub mod escalation;
mod holder;
mod index;
mod objects;
mod policy;
mod rule;
mod selector;
mod table;
pub mod validation;

pub use covers::{TooManyParts, missing_rules, uncovered};
pub use index::{Grant, Index, Unresolved};
pub use objects::{AggregationRule, Binding, GROUP, ObjectError, Role, RoleRef, Subject};
pub use policy::{Change, Kind, Policy};
pub use rule::PolicyRule;
pub use selector::{LabelSelector, Requirement};
