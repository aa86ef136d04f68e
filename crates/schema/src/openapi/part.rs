//! Parts of documents that are not made from built-in types: the paths and models of custom resources.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::types::Dialect;

/// The part of an OpenAPI document that describes one version of a custom resource.
#[derive(Clone, Debug, Default)]
pub struct OpenApiPart {
    /// Operations by path.
    pub paths: Map<String, Value>,
    /// Models by name; without the built-in types that they refer to.
    pub models: Map<String, Value>,
    /// Names of built-in types that paths and models refer to.
    pub built_in_types: Vec<String>,
}

impl OpenApiPart {
    /// Renames the models whose name a built-in type has, as kube-aggregator does when it merges documents:
    /// `<name>_v2`, or the next number that is free.
    pub(super) fn rename_clashes(&mut self, built_in: &BTreeSet<String>, dialect: Dialect) {
        let clashing: Vec<String> = self.models.keys().filter(|name| built_in.contains(*name)).cloned().collect();
        for name in clashing {
            let is_taken = |name: &String| built_in.contains(name) || self.models.contains_key(name);
            let Some(free) = (2_u32..).map(|number| format!("{name}_v{number}")).find(|name| !is_taken(name)) else {
                continue;
            };
            let (from, to) = (dialect.reference(&name), dialect.reference(&free));
            self.paths.values_mut().for_each(|value| replace_references(value, &from, &to));
            self.models.values_mut().for_each(|value| replace_references(value, &from, &to));
            if let Some(model) = self.models.remove(&name) {
                self.models.insert(free, model);
            }
        }
    }
}

/// Replaces references at any depth. The depth is that of a schema that the JSON parser has read.
fn replace_references(value: &mut Value, from: &Value, to: &Value) {
    match value {
        Value::Object(_) if value == from => *value = to.clone(),
        Value::Object(members) => members.values_mut().for_each(|inner| replace_references(inner, from, to)),
        Value::Array(items) => items.iter_mut().for_each(|inner| replace_references(inner, from, to)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The members of a JSON object, written one by one: a whole document as `Value` would take ten times the memory.
#[derive(Debug, Default)]
pub struct JsonMembers(String);

impl JsonMembers {
    /// Adds members. The names must differ from earlier ones.
    pub fn extend<N: AsRef<str>>(&mut self, members: impl IntoIterator<Item = (N, Value)>) {
        for (name, value) in members {
            if !self.0.is_empty() {
                self.0.push(',');
            }
            self.0.push_str(&Value::from(name.as_ref()).to_string());
            self.0.push(':');
            self.0.push_str(&value.to_string());
        }
    }

    /// True if there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the object.
    pub fn push_to(&self, body: &mut String) {
        body.reserve(self.0.len() + 2);
        body.push('{');
        body.push_str(&self.0);
        body.push('}');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn model_with_the_name_of_a_built_in_type_is_renamed_with_its_references() {
        let object = |value: Value| value.as_object().expect("test value is an object").clone();
        let mut part = OpenApiPart {
            paths: object(json!({"/p": {"get": {"schema": {"$ref": "#/definitions/a.Pod"}}}})),
            models: object(
                json!({"a.Pod": {"type": "object"}, "a.PodList": {"items": {"$ref": "#/definitions/a.Pod"}}}),
            ),
            built_in_types: Vec::new(),
        };
        part.rename_clashes(&["a.Pod".to_owned(), "a.Pod_v2".to_owned()].into(), Dialect::V2);
        assert_eq!(
            Value::from(part.models),
            json!({"a.Pod_v3": {"type": "object"}, "a.PodList": {"items": {"$ref": "#/definitions/a.Pod_v3"}}})
        );
        assert_eq!(part.paths["/p"]["get"]["schema"], json!({"$ref": "#/definitions/a.Pod_v3"}));
    }
}
