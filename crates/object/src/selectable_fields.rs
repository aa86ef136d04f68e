//! Field selectors: the supported fields of a kind, and matching.
//!
//! Every kind supports name and namespace; a few kinds add fields. Objects may be in any served version.

use std::borrow::Cow;

use api::json::JsonObject;
use api::selector::{FieldOperator, FieldSelector};
use serde_json::Value;

use crate::rejection::Rejection;
use crate::unstructured;

/// Fields that field selectors of a kind support.
#[derive(Clone, Copy, Debug)]
pub struct SelectableFields {
    /// Supported fields as dotted paths.
    pub names: &'static [&'static str],
    /// Computes fields whose value is not the scalar at the path; `None` for all other fields.
    pub value: for<'o> fn(&'o JsonObject, &str) -> Option<Cow<'o, str>>,
    /// Kubernetes' error message for an unsupported field of the kind.
    pub unsupported: fn(&str) -> String,
}

impl SelectableFields {
    /// Kinds without fields of their own.
    pub const NAME_AND_NAMESPACE: Self = Self {
        names: &["metadata.name", "metadata.namespace"],
        value: |_, _| None,
        unsupported: |field| {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        },
    };

    /// Base for kinds with fields of their own, with the usual error message.
    pub const LISTED: Self =
        Self { unsupported: |field| format!("field label not supported: {field}"), ..Self::NAME_AND_NAMESPACE };

    /// Rejects a selector with an unsupported field.
    pub fn check_selector(&self, selector: &FieldSelector) -> Result<(), Rejection> {
        match selector.terms().iter().find(|term| !self.names.contains(&term.field.as_str())) {
            Some(unknown) => Err(Rejection::BadRequest((self.unsupported)(&unknown.field))),
            None => Ok(()),
        }
    }

    /// True if a selector accepted by [`Self::check_selector`] matches the object.
    pub fn matches(&self, selector: &FieldSelector, object: &JsonObject) -> bool {
        selector.terms().iter().all(|term| {
            let value = (self.value)(object, &term.field).unwrap_or_else(|| scalar_at(object, &term.field));
            match term.operator {
                FieldOperator::Equals => value == term.value,
                FieldOperator::NotEquals => value != term.value,
            }
        })
    }
}

/// String, number or bool at a dotted path as text; empty for anything else.
fn scalar_at<'o>(object: &'o JsonObject, path: &str) -> Cow<'o, str> {
    let path: Vec<&str> = path.split('.').collect();
    match unstructured::get(object, &path) {
        Some(Value::String(text)) => text.into(),
        Some(scalar @ (Value::Bool(_) | Value::Number(_))) => scalar.to_string().into(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_selector_matches_scalars_at_their_path() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"color": {"deep": 7}, "list": [1]}});
        for (text, expected) in [
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("metadata.name=a,spec.color.deep=6", false),
            ("spec.color.deep=7,spec.list=,spec.absent=", true),
        ] {
            let selector = FieldSelector::parse(text).expect("test value is a selector");
            let object = object.as_object().unwrap();
            assert_eq!(SelectableFields::LISTED.matches(&selector, object), expected, "{text}");
        }
    }
}
