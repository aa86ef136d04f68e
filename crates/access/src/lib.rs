//! Authentication, impersonation and authorization (RBAC), as pure functions over immutable snapshots.
//!
//! No I/O, no clock, no async: objects come in as JSON bytes, requests as values, the time and random bytes as
//! arguments. One writer builds an immutable snapshot; readers hold it in an `Arc`.
//!
//! In the order in which a request passes through them:
//! - [`authentication`]: identifies the user by front proxy, client certificate, bearer token, or as anonymous;
//!   [`tokens`] issues and verifies service account tokens.
//! - [`impersonation`]: switches to the user named in the `Impersonate-*` headers.
//! - [`authorization`]: decides on a request's [`attributes`]; [`rbac`] indexes what roles and bindings grant.
//! - [`reviews`]: SubjectAccessReview, TokenReview and the other review kinds.
//! - [`bootstrap`]: the default roles and bindings of every cluster.

pub mod attributes;
pub mod authentication;
pub mod authorization;
pub mod bootstrap;
pub mod impersonation;
pub mod rbac;
pub mod reviews;
pub mod tokens;
pub mod user;

pub use attributes::{AccessTarget, Attributes, ResourceAttributes};
pub use authorization::{Authorizer, Decision};
pub use user::User;
