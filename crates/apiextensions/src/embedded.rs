//! The metadata of embedded resources.

use api::FieldError;
use api::json::JsonObject;
use object::rules::NameRule;
use object::unstructured::metadata_string;
use object::{KindRules, validate};

/// Validates the metadata of an embedded resource, which may have a namespace, and a name of any kind.
pub fn validate_embedded_metadata(object: &JsonObject) -> Vec<FieldError> {
    let scope = match metadata_string(object, "namespace") {
        "" => api::KindScope::Cluster,
        _ => api::KindScope::Namespaced,
    };
    let rules = KindRules { scope, name_rule: NameRule::PathSegment, ..KindRules::NAMESPACED };
    validate::validate_metadata(object, &rules)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn embedded_resource_may_have_namespace_and_any_name() {
        let errors = |metadata: Value| {
            let object = JsonObject::from_iter([("metadata".to_owned(), metadata)]);
            validate_embedded_metadata(&object).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(errors(json!({"name": "system:N!", "generateName": "X!"})), [""; 0]);
        assert_eq!(errors(json!({"name": "a", "namespace": "b"})), [""; 0]);
        assert_eq!(errors(json!({"name": "a/b"})), [r#"metadata.name: Invalid value: "a/b": may not contain '/'"#]);
    }
}
