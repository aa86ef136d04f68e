//! The field selectors of custom resources.

use std::borrow::Cow;

use api::KindScope;
use api::json::JsonObject;
use api::selector::{FieldOperator, FieldSelector};
use object::Rejection;
use object::unstructured::metadata_string;
use serde_json::Value;

use crate::definition::SelectableField;
use crate::json_path::{JsonPath, PathValue, go_value};

/// The fields that field selectors of a version may name.
#[derive(Clone, Debug)]
pub struct CustomSelectableFields {
    is_namespaced: bool,
    /// Without the leading dot, with the path; `None` if the path cannot be parsed: such a field is always empty.
    fields: Vec<(String, Option<JsonPath>)>,
}

impl CustomSelectableFields {
    /// Name, namespace of namespaced objects, and the fields of the version.
    pub fn new(scope: KindScope, fields: &[SelectableField]) -> Self {
        let fields = fields.iter().map(|SelectableField { json_path }| {
            (json_path.strip_prefix('.').unwrap_or(json_path).to_owned(), JsonPath::parse(json_path).ok())
        });
        Self { is_namespaced: scope == KindScope::Namespaced, fields: fields.collect() }
    }

    /// Rejects a selector with an unsupported field.
    pub fn check_selector(&self, selector: &FieldSelector) -> Result<(), Rejection> {
        match selector.terms().iter().find(|term| !self.supports(&term.field)) {
            Some(unknown) => Err(Rejection::BadRequest(format!("field label not supported: {}", unknown.field))),
            None => Ok(()),
        }
    }

    /// True if a selector accepted by [`Self::check_selector`] matches the object.
    pub fn matches(&self, selector: &FieldSelector, object: &JsonObject) -> bool {
        selector.terms().iter().all(|term| {
            let value = self.value(object, &term.field);
            match term.operator {
                FieldOperator::Equals => value == term.value,
                FieldOperator::NotEquals => value != term.value,
            }
        })
    }

    fn supports(&self, field: &str) -> bool {
        match field {
            "metadata.name" => true,
            "metadata.namespace" => self.is_namespaced,
            field => self.fields.iter().any(|(name, _)| name == field),
        }
    }

    fn value<'o>(&'o self, object: &'o JsonObject, field: &str) -> Cow<'o, str> {
        match field {
            "metadata.name" => return metadata_string(object, "name").into(),
            "metadata.namespace" if self.is_namespaced => return metadata_string(object, "namespace").into(),
            _ => {}
        }
        let path = self.fields.iter().find(|(name, _)| name == field).and_then(|(_, path)| path.as_ref());
        match path.and_then(|path| path.first(object)) {
            None | Some(PathValue::Json(Value::Null)) => "".into(),
            Some(PathValue::Json(Value::String(text))) => text.into(),
            Some(PathValue::Json(value)) => go_value(value).into(),
            Some(other) => other.print().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_the_fields_of_the_version() {
        let fields = [".spec.color", ".spec.size.width", ".spec.on"]
            .map(|json_path| SelectableField { json_path: json_path.to_owned() });
        let object = json!({"metadata": {"name": "a", "namespace": "n"},
            "spec": {"color": "red", "size": {"width": 3}, "on": true, "other": 1}});
        let object = object.as_object().unwrap();
        let namespaced = CustomSelectableFields::new(KindScope::Namespaced, &fields);
        for (text, expected) in [
            ("metadata.name=a,metadata.namespace=n", true),
            ("spec.color=red,spec.size.width=3,spec.on=true", true),
            ("spec.color!=red", false),
            ("spec.color=", false),
        ] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(namespaced.check_selector(&selector), Ok(()), "{text}");
            assert_eq!(namespaced.matches(&selector, object), expected, "{text}");
        }
        let absent = FieldSelector::parse("spec.color=,spec.on=").unwrap();
        assert!(namespaced.matches(&absent, &JsonObject::new()));
        let refused = |fields: &CustomSelectableFields, text: &str| {
            fields.check_selector(&FieldSelector::parse(text).unwrap()).unwrap_err().to_string()
        };
        assert_eq!(refused(&namespaced, "spec.other=1"), "field label not supported: spec.other");
        let cluster = CustomSelectableFields::new(KindScope::Cluster, &[]);
        assert_eq!(refused(&cluster, "metadata.namespace=n"), "field label not supported: metadata.namespace");
    }
}
