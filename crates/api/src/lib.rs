//! Names and wire types of the Kubernetes API: values that every other crate speaks in.
//!
//! Pure: no I/O, no clock, no async. Whatever comes from outside is parsed by a function that returns a typed error naming
//! the part at fault, never panics, and never recurses with its input.
//!
//! In reading order:
//! - [`names`]: group, version, resource, kind, and which version is preferred; [`validation`]: what a name may look like.
//! - [`target`]: what a request is about; [`query`]: its parameters; [`selector`]: which objects it selects.
//! - [`media`]: which encoding and which kind the client wants; [`headers`]: which headers name the user.
//! - [`status`]: every error there is, and [`field_error`]: what is wrong with one field.
//! - [`metadata`], [`time`]: what every object carries; [`objects`]: the few kinds that servers keep about each other.
//! - [`PortError`]: how a call to storage fails, for the crates that declare ports over it.
//! - [`wire`]: reading JSON as Go does; [`json`], [`duration`], [`quote`]: JSON, durations and quoted texts as Go writes them.

pub mod duration;
pub mod field_error;
pub mod headers;
pub mod json;
pub mod media;
pub mod metadata;
pub mod names;
pub mod objects;
mod port_error;
pub mod query;
pub mod quote;
pub mod selector;
pub mod status;
pub mod target;
pub mod time;
pub mod validation;
pub mod wire;

pub use field_error::FieldError;
pub use names::{
    GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, compare_kube_aware_versions,
};
pub use port_error::PortError;
pub use status::Status;
pub use target::{KindScope, RouteMismatch, Target, Verb};
