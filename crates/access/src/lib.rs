//! Who you are and what you may, as rules over snapshots.
//!
//! Pure: no I/O, no clock, no async. Objects come in as JSON bytes, requests as values, instants as arguments; decisions,
//! users and documents go out. One writer builds an immutable snapshot, readers hold it in an `Arc`.

pub mod attributes;
pub mod authenticate;
pub mod authorize;
pub mod bootstrap;
pub mod impersonate;
mod quote;
pub mod rbac;
pub mod reviews;
pub mod tokens;
pub mod user;
mod wire;

pub use attributes::{Asked, Attributes, Resource};
pub use authorize::{Authorizer, Decision};
pub use user::User;
