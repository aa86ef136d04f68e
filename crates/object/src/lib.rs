//! A single Kubernetes object: its stored form, and the rules that apply to every kind.
//!
//! The crate is pure: no I/O, clock, randomness or async; callers pass the time, uids and random numbers. It defines no
//! kind: callers also pass the rules of a kind ([`rules`]), its columns, selectable fields, conversions and schema
//! ([`schema::SchemaCursor`]). Objects are JSON maps, because a server of one release must preserve fields of other
//! releases. [`stored_object`] holds an object as encoded bytes, in storage and in caches.
//!
//! A write passes through [`decode`], optionally [`patch`] or [`scale`], then [`unknown_fields`], [`metadata`]
//! and [`validate`], in this order; see `tests/it`. [`delete`] decides deletions. A read may end in
//! [`convert`], [`table`] or [`partial_object_metadata`]; [`selectable_fields`] matches field selectors. A
//! [`Rejection`] carries Kubernetes' error message; the caller builds the HTTP status.
//!
//! **Invariant:** objects from [`decode`] and [`patch`] nest no deeper than [`decode::DEPTH_MAX`], and the levels that
//! this crate adds stay within the limit of the JSON parser.

pub mod rejection;
pub mod rules;

pub mod stored_object;

pub mod decode;
pub mod metadata;
pub mod patch;
pub mod scale;
pub mod unknown_fields;
pub mod validate;

pub mod delete;
pub mod encode_yaml;

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
