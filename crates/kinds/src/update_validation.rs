//! Validation of updates: immutable fields and forbidden changes.
//!
//! Most rules are one immutable field: a row of the kind's `immutable_fields`. Rules that depend on other fields or
//! allow some changes are functions of the kind. Messages equal Kubernetes', and differences between releases are
//! separate rows. Where a Kubernetes message shows internal types, so does ours: see `go_form`.
//!
//! The same rules apply to writes through a subresource, unless it has rules of its own: `pods/resize` may change
//! fields that are immutable in the pod.
//!
//! Not covered: rules for new objects.

pub(crate) mod go_form;
pub(crate) mod immutable_fields;
pub(crate) mod unified_diff;

use api::FieldError;
use api::json::JsonObject;
use schema::semantic_equality::is_field_equal;
use schema::{StructField, StructType, TypeForm};
use serde_json::Value;

use crate::feature_gates::FeatureGates;
use crate::strategy::KindStrategy;
use go_form::{GoLayout, go_form};

/// The usual message for an immutable field.
pub(crate) const FIELD_IS_IMMUTABLE: &str = "field is immutable";

/// Errors for the forbidden changes of an update. Both states are in the version of `kind`; the new one is complete,
/// with all its defaults, and the old one should be: servers of other releases have stored fewer of them. `subresource`
/// is the one through which the update came; empty: the object itself.
pub fn validate_update(
    strategy: &KindStrategy,
    kind: StructType<'_>,
    gates: &FeatureGates,
    subresource: &str,
    [old, new]: [&JsonObject; 2],
) -> Vec<FieldError> {
    let update = ObjectUpdate { kind, gates, old, new };
    let mut errors = (strategy.validate_update)(update, subresource);
    let rows = strategy.immutable_fields.iter().filter(|row| row.releases.contains(gates.release()));
    errors.extend(rows.filter_map(|row| row.check(update)));
    errors
}

/// The old and the new state of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectUpdate<'a> {
    kind: StructType<'a>,
    pub(crate) gates: &'a FeatureGates,
    pub(crate) old: &'a JsonObject,
    pub(crate) new: &'a JsonObject,
}

impl<'a> ObjectUpdate<'a> {
    /// The field at a path of names with dots; `None` if the type does not have it, in this version and release.
    pub(crate) fn field(self, path: &str) -> Option<StructField<'a>> {
        let mut names = path.split('.');
        let first = self.kind.field(names.next()?)?;
        names.try_fold(first, |field, name| {
            let TypeForm::Struct(inner) = field.value_type().form() else { return None };
            inner.field(name)
        })
    }

    pub(crate) fn old_value(self, path: &str) -> Option<&'a Value> {
        value_at(self.old, path)
    }

    pub(crate) fn new_value(self, path: &str) -> Option<&'a Value> {
        value_at(self.new, path)
    }

    pub(crate) fn old_string(self, path: &str) -> &'a str {
        self.old_value(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn new_string(self, path: &str) -> &'a str {
        self.new_value(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// True if a field is unchanged, or the type does not have it.
    pub(crate) fn is_unchanged(self, path: &str) -> bool {
        self.field(path).is_none_or(|field| is_field_equal(field, self.old_value(path), self.new_value(path)))
    }

    /// An error at a field that shows its requested value as Kubernetes does.
    pub(crate) fn invalid(self, displayed_path: &str, path: &str, detail: &str) -> FieldError {
        let error = FieldError::invalid(displayed_path, self.displayed_value(path), detail);
        let form = self.field(path).zip(self.new_value(path));
        match form.and_then(|(field, value)| go_form(value, field.value_type(), GoLayout::Compact)) {
            Some(form) => error.showing(form),
            None => error,
        }
    }

    /// The requested value, as Kubernetes prints it in messages.
    pub(crate) fn displayed_value(self, path: &str) -> Value {
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

/// The value at a path of names with dots; null counts as absent.
fn value_at<'a>(object: &'a JsonObject, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = object.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// Copies a field from another state, or removes it if that has none.
pub(crate) fn copy_or_remove(from: Option<&Value>, into: &mut JsonObject, name: &str) {
    match from {
        Some(value) => into.insert(name.to_owned(), value.clone()),
        None => into.remove(name),
    };
}

#[cfg(test)]
mod tests;
