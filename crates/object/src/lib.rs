//! One Kubernetes object: how it is kept, and the rules that hold whatever its kind.
//!
//! Pure: no I/O, no clock, no randomness, no async; time, uid and chance come in as values, and so do the facts about a kind
//! ([`rules`]) and the fields of its type ([`schema`]). Objects are JSON maps here, because a server of one release must keep
//! the fields of another. [`stored_object`] is the form in which they lie in storage and in memory, as finished bytes.
//!
//! A write goes through [`decode`], perhaps [`patch`] or [`scale`], [`unknown_fields`], [`metadata`], [`managed_fields`] and
//! [`validate`], in this order; `tests/it` shows it. A deletion is decided by [`delete`]. A read may end in [`convert`],
//! [`table`] or [`partial_object_metadata`], and [`selectable_fields`] says what it selects by. A [`Rejection`] says why not, in Kubernetes' words, and
//! leaves the HTTP status to who answers.
//!
//! **Invariant:** what [`decode`] and [`patch`] let through nests no deeper than [`decode::DEPTH_MAX`], and nothing here nests
//! it so much deeper that it could not be read again.

pub mod rejection;
pub mod rules;
pub mod schema;

pub mod stored_object;

pub mod decode;
pub mod managed_fields;
pub mod metadata;
pub mod patch;
pub mod scale;
pub mod unknown_fields;
pub mod validate;

pub mod delete;

pub mod convert;
pub mod partial_object_metadata;
pub mod selectable_fields;
pub mod table;

pub mod label_selector;
pub mod unstructured;

pub use rejection::{Rejection, RejectionSubject};
pub use rules::KindRules;
pub use stored_object::{StoredObject, StoredObjectError};

#[cfg(test)]
mod arbitrary;
