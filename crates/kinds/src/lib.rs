//! Built-in kinds of every Kubernetes release: the resources a server serves, their storage versions, and kind-specific
//! rules.
//!
//! The crate is pure: no I/O, clock, async or HTTP; rejections are typed. [`groups`] is the table of kinds and
//! [`feature_gates`] the table of feature gates. [`FeatureGates`] and [`RuntimeConfig`] parse the flags that enable and
//! disable parts. [`ServedResources`] holds the resources of one server, [`diff_releases()`] compares two releases, and
//! [`types`] is the table of Go types.
//!
//! Each row of [`groups`] refers to the [`KindStrategy`] of its kind, defined in the file or folder of the kind:
//! initialization of new objects, immutable fields, invalid values, conversion, table columns, selectable fields.
//! Handlers read the strategy from the resource that they serve.
//!
//! Reading order: [`groups`] (one of its files shows most), [`kind`], [`strategy`] and one kind, such as `service`;
//! then [`served_resources`], [`defaults`], [`value_validation`], [`update_validation`] and [`openapi`].

// Releases, and what a server of one serves.
pub mod diff;
pub mod feature_gates;
mod flag;
pub mod groups;
pub mod kind;
pub mod openapi;
pub mod release;
pub mod runtime_config;
pub mod served_resources;
pub mod types;
pub mod verbs;

// What all kinds go through.
pub mod defaults;
mod fields;
pub mod gated_fields;
pub mod reset_fields;
pub mod strategy;
pub mod update_validation;
pub mod value_validation;

// Kinds, and pieces that several of them share.
mod admission;
mod api_service;
mod certificate_signing_request;
mod cluster_trust_bundle;
mod config_map;
mod controller_revision;
mod cron_job;
mod csi;
mod custom_resource_definition;
mod daemon_set;
mod deployment;
mod devices;
mod endpoints;
mod event;
mod eviction_request;
pub mod expressions;
mod flow_control;
mod horizontal_pod_autoscaler;
mod ingress;
mod job;
mod lease;
mod limit_range;
mod namespace;
mod network_policy;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
pub mod pod;
mod pod_certificate_request;
pub mod pod_disruption_budget;
mod pod_template;
mod rbac;
mod replica_set;
mod replication_controller;
mod resource_quota;
pub mod review;
mod runtime_class;
mod scheduling;
mod secret;
mod service;
mod service_account;
mod service_cidr;
mod stateful_set;
mod storage_class;
mod storage_version;
mod storage_version_migration;
mod validation;
mod workload;

pub use devices::requirements::{AdminAccess, DeviceRequirements};
pub use diff::{ReleaseDiff, diff_releases};
pub use feature_gates::{FeatureGates, FeatureGatesError};
pub use groups::{has_built_in_group_name, may_be_built_in};
pub use kind::{
    BuiltInGroup, BuiltInKind, BuiltInSubresource, KindScope, KindVersion, ResponseKind, StockServerVersion,
};
pub use release::{Release, ReleaseError};
pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use served_resources::{ServedResource, ServedResources, StoredResource};
pub use service::keep_allocated_values;
pub use service::validation::validate_service_addresses;
pub use strategy::{AdmissionObject, KindStrategy, SubresourceStrategy};
pub use types::{object_meta_of, types_of};
pub use verbs::VerbSet;

#[cfg(test)]
mod tests;
