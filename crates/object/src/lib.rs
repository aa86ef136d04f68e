//! One Kubernetes object: how it is kept, and the rules that hold whatever its kind.
//!
//! Pure: no I/O, no clock, no randomness, no async; time, uid and chance come in as values, and so do the facts about a kind
//! ([`rules`]). Objects are JSON maps here, because a server of one release must keep the fields of another.
//! [`stored`] is the form in which objects lie in storage and in memory, as finished bytes.

mod access;
pub mod convert;
pub mod decode;
pub mod delete;
mod label_selector;
pub mod managed_fields;
pub mod metadata;
pub mod partial;
pub mod patch;
pub mod refusal;
pub mod rules;
pub mod scale;
pub mod schema;
pub mod selectable;
pub mod stored;
pub mod table;
pub mod unknown;
pub mod validate;

pub use refusal::{Refusal, Subject};
pub use rules::KindRules;
pub use stored::{Stored, Undecodable};

#[cfg(test)]
mod arbitrary;
