//! Built-in kinds × Kubernetes releases: what a server of a given release serves, stores and understands.
//!
//! Data and lookups, nothing else: no I/O, no clock, no async. [`kinds`] is the table of kinds, [`gates`] that of feature gates;
//! [`Gates`] and [`RuntimeConfig`] read the flags that turn parts on and off; [`Surface`] is what is left, for one server;
//! [`diff()`] compares two releases. [`schema`] is the table of types behind the kinds, and what follows from it for a body;
//! [`defaults`] is what a body leaves out and [`immutable`] what an update may not change; [`protobuf`] reads bodies that are
//! not text; [`openapi`] tells clients about kinds and types.
//!
//! Reading order: [`kinds`] (a look at one of its files shows most), [`kind`], [`gates`], [`runtime_config`], [`surface`];
//! then [`schema`], [`defaults`], [`values`], [`immutable`], [`protobuf`] and [`openapi`].

pub mod defaults;
pub mod diff;
mod flag;
pub mod gates;
pub mod immutable;
pub mod kind;
pub mod kinds;
pub mod openapi;
pub mod protobuf;
mod qos;
pub mod release;
pub mod runtime_config;
pub mod schema;
pub mod surface;
pub mod values;
pub mod verbs;

pub use diff::{Diff, diff};
pub use gates::{Gates, GatesError};
pub use kind::{Group, Kind, KindVersion, ResponseKind, Scope, Subresource};
pub use kinds::{looks_built_in, may_be_built_in};
pub use qos::qos_class;
pub use release::{Release, ReleaseError};
pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use surface::{Persisted, Served, Surface};
pub use verbs::Verbs;
