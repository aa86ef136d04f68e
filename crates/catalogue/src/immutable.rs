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

mod claims;
mod cluster;
mod difference;
mod jobs;
mod pods;
mod resize;
mod rows;
mod services;

use api::FieldError;
use serde_json::{Map, Value};

use crate::gates::Gates;
use crate::schema::same::is_same;
use crate::schema::{Field, Form, Struct};

type Object = Map<String, Value>;

/// What Kubernetes says of most fields that stay.
const FIXED: &str = "field is immutable";

/// What an update changes and must not. Both states are in the version of `kind`; the new one is complete, with all its
/// defaults, and the old one should be: servers of other releases have stored fewer of them. `subresource` is the one through
/// which the update came; empty: the object itself.
pub fn faults(kind: Struct, gates: &Gates, subresource: &str, [old, new]: [&Map<String, Value>; 2]) -> Vec<FieldError> {
    let Some(named) = kind.kind() else { return Vec::new() };
    let update = Update { kind, gates, old, new };
    let mut faults = match (named.group, named.kind) {
        ("", "Node") => cluster::node(update),
        ("", "PersistentVolume") => claims::volume(update),
        ("", "PersistentVolumeClaim") => claims::claim(update),
        ("", "Pod") => match subresource {
            "ephemeralcontainers" => pods::ephemeral_containers(update),
            "resize" => resize::pod(update),
            "status" => pods::status(update),
            _ => pods::pod(update),
        },
        ("", "ResourceQuota") => cluster::quota(update),
        ("", "Service") => services::service(update),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => cluster::definition(update),
        ("batch", "Job") => jobs::job(update),
        ("networking.k8s.io", "ServiceCIDR") => cluster::address_range(update),
        ("storage.k8s.io", "CSINode") => cluster::storage_node(update),
        _ => Vec::new(),
    };
    let rows = rows::of(named.group, named.kind).iter().filter(|row| row.span.contains(gates.release()));
    faults.extend(rows.filter_map(|row| row.fault(update)));
    faults
}

/// Two states of an object.
#[derive(Clone, Copy)]
struct Update<'a> {
    kind: Struct,
    gates: &'a Gates,
    old: &'a Object,
    new: &'a Object,
}

impl<'a> Update<'a> {
    /// The field at a path of names with dots; `None` if the type does not have it, in this version and release.
    fn field(self, path: &str) -> Option<Field> {
        let mut names = path.split('.');
        let first = self.kind.field(names.next()?)?;
        names.try_fold(first, |field, name| {
            let Form::Struct(inner) = field.shape().form() else { return None };
            inner.field(name)
        })
    }

    fn before(self, path: &str) -> Option<&'a Value> {
        at(self.old, path)
    }

    fn after(self, path: &str) -> Option<&'a Value> {
        at(self.new, path)
    }

    fn text_before(self, path: &str) -> &'a str {
        self.before(path).and_then(Value::as_str).unwrap_or_default()
    }

    fn text_after(self, path: &str) -> &'a str {
        self.after(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a field stays. One that the type does not have does.
    fn keeps(self, path: &str) -> bool {
        self.field(path).is_none_or(|field| is_same(field, self.before(path), self.after(path)))
    }

    /// The value that the update asks for, as Kubernetes shows it.
    fn shown(self, path: &str) -> Value {
        if let Some(value) = self.after(path) {
            return value.clone();
        }
        let field = self.field(path).filter(|field| !field.is_pointer());
        match field.map(|field| field.shape().form()) {
            Some(Form::Text) => "".into(),
            Some(Form::Int32 | Form::Int64 | Form::Double) => 0.into(),
            Some(Form::Bool) => false.into(),
            _ => Value::Null,
        }
    }
}

/// The value at a path of names with dots.
fn at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = object.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

/// The items of a list that may not be there.
fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Puts a field as it is in another state, or takes it away if it is not there.
fn copy(from: Option<&Value>, into: &mut Object, name: &str) {
    match from {
        Some(value) => into.insert(name.to_owned(), value.clone()),
        None => into.remove(name),
    };
}

#[cfg(test)]
mod tests;
