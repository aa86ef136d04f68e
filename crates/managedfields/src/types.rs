//! What the rules need to know about the kind.

use api::json::JsonObject;
use schema::StructType;
use schema::structural::{MetadataType, StructuralSchema};

use crate::FieldSet;

/// The type of the objects of one version.
#[derive(Clone, Copy, Debug)]
pub enum ObjectType<'t> {
    /// A built-in kind.
    BuiltIn(StructType<'t>),
    /// A custom resource with a structural schema.
    Custom {
        /// The schema of whole objects.
        schema: &'t StructuralSchema,
        /// The type of `metadata`.
        object_meta: MetadataType<'t>,
    },
    /// No schema: maps are granular, lists atomic.
    Deduced,
}

/// What the rules need to know about the kind, for each version.
pub trait VersionedTypes {
    /// The kind of the endpoint, such as `Deployment`.
    fn kind(&self) -> &str;

    /// The type of the objects of a version; `None` if this server does not know the version: its entries are dropped.
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>>;

    /// The object in another version. Called at most once for each version and object.
    fn convert(&self, object: &JsonObject, api_version: &str) -> Result<JsonObject, ConversionUnavailable>;

    /// True if objects of both versions have the same fields, so that no conversion is needed to compare them.
    fn has_same_fields(&self, one: &str, other: &str) -> bool {
        one == other
    }

    /// The fields that the endpoint resets in this version: they have no owners, and neither have their children.
    fn reset_fields(&self, api_version: &str) -> &FieldSet;
}

/// A conversion that failed, such as that of an unreachable webhook: the write must be refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("managed fields cannot be computed: conversion to {api_version} failed: {reason}")]
pub struct ConversionUnavailable {
    /// The version of the entry.
    pub api_version: String,
    /// Why the conversion failed.
    pub reason: String,
}
