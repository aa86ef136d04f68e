//! Who you are and what you may, as rules over snapshots.
//!
//! Pure: no I/O, no clock, no async. Objects come in as JSON bytes, requests as values, instants and random bytes as
//! arguments; decisions, users and documents go out. One writer builds an immutable snapshot, readers hold it in an `Arc`.
//!
//! In the order of a request:
//! - [`authentication`]: who is asking, by front proxy, certificate, token or nobody; [`tokens`]: the tokens themselves.
//! - [`impersonation`]: as whom they want to act.
//! - [`authorization`]: whether they may; [`attributes`]: what is asked; [`rbac`]: what roles and bindings grant.
//! - [`reviews`]: the same questions asked as objects.
//! - [`bootstrap`]: the roles and bindings that every cluster has.

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
