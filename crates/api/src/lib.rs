//! Names and wire types of the Kubernetes API, shared by all crates.
//!
//! No I/O, no clock, no async. Parsers of external input return typed errors that name the faulty part; they never
//! panic and never recurse with the input.
//!
//! In reading order:
//! - [`names`]: group, version, resource and kind, and the preference order of versions; [`validation`]: rules for
//!   names and labels.
//! - [`target`]: the parsed request line; [`query`]: query parameters; [`selector`]: label and field selectors.
//! - [`media`]: content negotiation; [`headers`]: identity headers.
//! - [`status`]: error responses; [`field_error`]: validation errors of single fields.
//! - [`metadata`], [`time`]: object metadata and timestamps; [`objects`]: the kinds by which servers coordinate.
//! - [`Address`]: the host and port of a server.
//! - [`PortError`]: the error of the storage ports that other crates declare.
//! - [`wire`]: reading JSON like Go; [`json`], [`duration`], [`quote`]: writing JSON, durations and quoted strings
//!   like Go; [`protobuf`]: writing metadata and Status in protobuf like Go.

mod address;
pub mod duration;
pub mod field_error;
pub mod headers;
pub mod json;
pub mod media;
pub mod metadata;
pub mod names;
pub mod objects;
mod port_error;
pub mod protobuf;
pub mod query;
pub mod quote;
pub mod selector;
pub mod status;
pub mod target;
pub mod time;
pub mod validation;
pub mod wire;

pub use address::Address;
pub use field_error::FieldError;
pub use names::{
    GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, compare_kube_aware_versions,
};
pub use port_error::PortError;
pub use status::Status;
pub use target::{KindScope, RouteMismatch, Target, Verb};
