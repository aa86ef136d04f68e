//! Names and wire types of the Kubernetes API: values that every other crate speaks in.
//!
//! Pure: no I/O, no clock, no async. Whatever comes from outside is parsed by a function that returns a typed error naming
//! the part at fault, and never panics.

pub mod duration;
pub mod field_error;
pub mod json;
pub mod media;
pub mod metadata;
pub mod names;
pub mod objects;
pub mod query;
mod quote;
pub mod selector;
pub mod status;
pub mod target;
pub mod time;
pub mod validation;

pub use field_error::FieldError;
pub use names::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, version_order};
pub use status::Status;
pub use target::{Target, Verb};
