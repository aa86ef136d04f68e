//! One Kubernetes object: its stored form, and the rules that hold for every kind.
//!
//! Pure: no I/O, no clock, no randomness, no async; time, uid and random numbers come in as values. The crate knows no kind: the
//! rules of a kind ([`rules`]), its columns, selectable fields and conversions, and the fields of its type
//! ([`schema::SchemaCursor`]) come in as values too. Objects are JSON maps, because a server of one release must keep the fields of
//! another. [`stored_object`] is an object in storage and in memory, as encoded bytes.
//!
//! A write goes through [`decode`], perhaps [`patch`] or [`scale`], [`unknown_fields`], [`metadata`], [`managed_fields`] and
//! [`validate`], in this order; `tests/it` shows it. [`delete`] decides a deletion. A read may end in [`convert`], [`table`] or
//! [`partial_object_metadata`]; [`selectable_fields`] matches field selectors. A [`Rejection`] is a refusal in Kubernetes' words;
//! the caller chooses the HTTP status.
//!
//! **Invariant:** what [`decode`] and [`patch`] let through nests no deeper than [`decode::DEPTH_MAX`], and nothing here nests
//! it so much deeper that it could not be read again.

pub mod rejection;
pub mod rules;

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
#[cfg(test)]
mod test_schema;
