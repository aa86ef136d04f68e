//! Built-in kinds × Kubernetes releases: what a server of a given release serves, stores and understands.
//!
//! Data and lookups, nothing else: no I/O, no clock, no async. [`kinds`] is the table of kinds, [`feature_gates`] that of feature gates;
//! [`FeatureGates`] and [`RuntimeConfig`] read the flags that turn parts on and off; [`ServedResources`] is what is left, for one server;
//! [`diff_releases()`] compares two releases. [`schema`] is the table of types behind the kinds, and what follows from it for a body;
//! [`defaults`] is what a body leaves out and [`update_validation`] what an update may not change; [`protobuf`] reads bodies that are
//! not text; [`openapi`] tells clients about kinds and types.
//!
//! Reading order: [`kinds`] (a look at one of its files shows most), [`kind`], [`feature_gates`], [`runtime_config`], [`served_resources`];
//! then [`schema`], [`defaults`], [`value_validation`], [`update_validation`], [`protobuf`] and [`openapi`].

pub mod defaults;
pub mod diff;
pub mod feature_gates;
mod flag;
pub mod kind;
pub mod kinds;
pub mod openapi;
pub mod protobuf;
mod qos;
pub mod release;
pub mod runtime_config;
pub mod schema;
pub mod served_resources;
pub mod update_validation;
pub mod value_validation;
pub mod verbs;

pub use diff::{ReleaseDiff, diff_releases};
pub use feature_gates::{FeatureGates, FeatureGatesError};
pub use kind::{BuiltInGroup, BuiltInKind, BuiltInSubresource, KindScope, KindVersion, ResponseKind};
pub use kinds::{has_built_in_group_name, may_be_built_in};
pub use qos::qos_class;
pub use release::{Release, ReleaseError};
pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use served_resources::{ServedResource, ServedResources, StoredResource};
pub use verbs::VerbSet;
