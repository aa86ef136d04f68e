//! What an update may not change.
//!
//! Most of it is one field that stays as it was created, and stands in a table (`rows`); the rest looks at other fields or
//! lets some changes pass, and is a function. Every refusal has Kubernetes' words, and the difference between two releases
//! is a difference between two rows. Where Kubernetes adds a comparison of its inner types, ours is one of the objects as
//! clients see them.
//!
//! A write through a subresource is judged by the same rules, unless the subresource has rules of its own: `pods/resize` may
//! change what a write to the pod may not.
//!
//! Not here: most of what a status may not become, and rules for new objects.

mod cluster;
mod immutable_fields;
mod jobs;
mod pods;
mod resize;
mod services;
mod unified_diff;
mod volumes;

use api::FieldError;
use api::json::JsonObject;
use serde_json::{Map, Value};

use crate::feature_gates::FeatureGates;
use crate::schema::semantic_equality::is_field_equal;
use crate::schema::{StructField, StructType, TypeForm};

/// What Kubernetes says of most fields that stay.
const FIELD_IS_IMMUTABLE: &str = "field is immutable";

/// What an update changes and must not. Both states are in the version of `kind`; the new one is complete, with all its
/// defaults, and the old one should be: servers of other releases have stored fewer of them. `subresource` is the one through
/// which the update came; empty: the object itself.
pub fn validate_update(
    kind: StructType,
    gates: &FeatureGates,
    subresource: &str,
    [old, new]: [&Map<String, Value>; 2],
) -> Vec<FieldError> {
    let Some(named) = kind.kind() else { return Vec::new() };
    let update = ObjectUpdate { kind, gates, old, new };
    let mut errors = match (named.group, named.kind) {
        ("", "Node") => cluster::check_node(update),
        ("", "PersistentVolume") => volumes::check_persistent_volume(update),
        ("", "PersistentVolumeClaim") => volumes::check_persistent_volume_claim(update),
        ("", "Pod") => match subresource {
            "ephemeralcontainers" => pods::check_ephemeral_containers(update),
            "resize" => resize::check_resize(update),
            "status" => pods::check_status(update),
            _ => pods::check_pod(update),
        },
        ("", "ResourceQuota") => cluster::check_resource_quota(update),
        ("", "Service") => services::check_service(update),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => cluster::check_custom_resource_definition(update),
        ("batch", "Job") => jobs::check_job(update),
        ("networking.k8s.io", "ServiceCIDR") => cluster::check_service_cidr(update),
        ("storage.k8s.io", "CSINode") => cluster::check_csi_node(update),
        _ => Vec::new(),
    };
    let rows = immutable_fields::immutable_fields_of(named.group, named.kind)
        .iter()
        .filter(|row| row.releases.contains(gates.release()));
    errors.extend(rows.filter_map(|row| row.check(update)));
    errors
}

/// Two states of an object.
#[derive(Clone, Copy)]
struct ObjectUpdate<'a> {
    kind: StructType,
    gates: &'a FeatureGates,
    old: &'a JsonObject,
    new: &'a JsonObject,
}

impl<'a> ObjectUpdate<'a> {
    /// The field at a path of names with dots; `None` if the type does not have it, in this version and release.
    fn field(self, path: &str) -> Option<StructField> {
        let mut names = path.split('.');
        let first = self.kind.field(names.next()?)?;
        names.try_fold(first, |field, name| {
            let TypeForm::Struct(inner) = field.value_type().form() else { return None };
            inner.field(name)
        })
    }

    fn old_value(self, path: &str) -> Option<&'a Value> {
        value_at(self.old, path)
    }

    fn new_value(self, path: &str) -> Option<&'a Value> {
        value_at(self.new, path)
    }

    fn old_string(self, path: &str) -> &'a str {
        self.old_value(path).and_then(Value::as_str).unwrap_or_default()
    }

    fn new_string(self, path: &str) -> &'a str {
        self.new_value(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a field stays. One that the type does not have does.
    fn is_unchanged(self, path: &str) -> bool {
        self.field(path).is_none_or(|field| is_field_equal(field, self.old_value(path), self.new_value(path)))
    }

    /// The value that the update asks for, as Kubernetes shows it.
    fn displayed_value(self, path: &str) -> Value {
        if let Some(value) = self.new_value(path) {
            return value.clone();
        }
        let field = self.field(path).filter(|field| !field.is_pointer());
        match field.map(|field| field.value_type().form()) {
            Some(TypeForm::Text) => "".into(),
            Some(TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double) => 0.into(),
            Some(TypeForm::Bool) => false.into(),
            _ => Value::Null,
        }
    }
}

/// The value at a path of names with dots.
fn value_at<'a>(object: &'a JsonObject, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = object.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

/// The items of a list that may not be there.
fn list_items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Puts a field as it is in another state, or takes it away if it is not there.
fn copy_or_remove(from: Option<&Value>, into: &mut JsonObject, name: &str) {
    match from {
        Some(value) => into.insert(name.to_owned(), value.clone()),
        None => into.remove(name),
    };
}

#[cfg(test)]
mod tests;
