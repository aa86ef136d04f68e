//! Field selectors: the fields of an object that they may name, and whether they match.
//!
//! Every kind can be selected by name and namespace; a few list fields of their own. Objects are read in whatever served version
//! they come.

use std::borrow::Cow;

use api::json::JsonObject;
use api::selector::{FieldOperator, FieldSelector};
use serde_json::Value;

use crate::rejection::Rejection;
use crate::unstructured;

/// The fields by which objects of a kind are selected.
#[derive(Clone, Copy, Debug)]
pub struct SelectableFields {
    /// Their names, as paths with dots.
    pub names: &'static [&'static str],
    /// The value of a field that is not simply the scalar at its path; `None` for all others.
    pub value: for<'o> fn(&'o JsonObject, &str) -> Option<Cow<'o, str>>,
    /// The refusal of another field, in Kubernetes' words for the kind.
    pub unsupported: fn(&str) -> String,
}

impl SelectableFields {
    /// A kind that lists no fields.
    pub const NAME_AND_NAMESPACE: Self = Self {
        names: &["metadata.name", "metadata.namespace"],
        value: |_, _| None,
        unsupported: |field| {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        },
    };

    /// A kind that lists its fields, with the usual refusal of others.
    pub const LISTED: Self =
        Self { unsupported: |field| format!("field label not supported: {field}"), ..Self::NAME_AND_NAMESPACE };

    /// Refuses a selector that names another field.
    pub fn check_selector(&self, selector: &FieldSelector) -> Result<(), Rejection> {
        match selector.terms().iter().find(|term| !self.names.contains(&term.field.as_str())) {
            Some(unknown) => Err(Rejection::BadRequest((self.unsupported)(&unknown.field))),
            None => Ok(()),
        }
    }

    /// Whether a selector that has been checked selects an object.
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

/// A string, number or bool at a dotted path, as text.
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
            let selector = FieldSelector::parse(text).expect("a test writes selectors");
            let object = object.as_object().unwrap();
            assert_eq!(SelectableFields::LISTED.matches(&selector, object), expected, "{text}");
        }
    }
}
