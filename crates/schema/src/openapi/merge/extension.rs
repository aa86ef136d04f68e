//! Adds the document of an extension API server. Its types are its own: one whose name is taken gets another name, as in
//! kube-aggregator.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use serde_json::value::RawValue;

use super::{CutDocument, MergeError, Reference, collect_references};
use crate::openapi::types::Dialect;

/// Adds the paths that `takes` accepts, and the types and parameters that they refer to. A type with the name of another type that is
/// there becomes `<name>_v2`, or the next number that is free. Nothing is added if the other document cannot be read.
pub fn add_extension(
    base: &[u8],
    other: &[u8],
    takes: impl Fn(&str) -> bool,
    dialect: Dialect,
) -> Result<Vec<u8>, MergeError> {
    let mut merged = CutDocument::new(base, dialect)?;
    let needed = NeededParts::new(&CutDocument::new(other, dialect)?, &merged, takes)?;
    let renames = needed.renames(&merged)?;
    let added = needed.renamed(&renames, dialect)?;
    merged.paths.extend(added.paths.iter().map(|(name, value)| (name.clone(), &**value)));
    // What is there stays: an equal type has texts of its own.
    for (name, value) in &added.definitions {
        merged.definitions.entry(name.clone()).or_insert(value);
    }
    for (name, value) in &added.parameters {
        merged.parameters.entry(name.clone()).or_insert(value);
    }
    Ok(merged.encode()?)
}

/// Paths that are added, and everything that they refer to.
struct NeededParts {
    paths: BTreeMap<String, Value>,
    definitions: BTreeMap<String, Value>,
    parameters: BTreeMap<String, Value>,
    /// The types that each type refers to.
    references: BTreeMap<String, Vec<String>>,
}

/// Encoded parts with their final names.
struct AddedParts {
    paths: BTreeMap<String, Box<RawValue>>,
    definitions: BTreeMap<String, Box<RawValue>>,
    parameters: BTreeMap<String, Box<RawValue>>,
}

impl NeededParts {
    fn new(
        other: &CutDocument<'_>,
        merged: &CutDocument<'_>,
        takes: impl Fn(&str) -> bool,
    ) -> Result<Self, serde_json::Error> {
        let [mut paths, mut definitions, mut parameters] = [const { BTreeMap::new() }; 3];
        let mut references = BTreeMap::new();
        let mut due = Vec::new();
        for (path, item) in &other.paths {
            if takes(path) && !merged.paths.contains_key(path) {
                let item: Value = serde_json::from_str(item.get())?;
                collect_references(&item, other.dialect, &mut due);
                paths.insert(path.clone(), item);
            }
        }
        while let Some(reference) = due.pop() {
            let (name, from, to) = match reference {
                Reference::Definition(name) => (name, &other.definitions, &mut definitions),
                Reference::Parameter(name) => (name, &other.parameters, &mut parameters),
            };
            let Some(part) = from.get(&name).filter(|_| !to.contains_key(&name)) else { continue };
            let part: Value = serde_json::from_str(part.get())?;
            let mut inner = Vec::new();
            collect_references(&part, other.dialect, &mut inner);
            let types = inner.iter().filter_map(|reference| match reference {
                Reference::Definition(name) => Some(name.clone()),
                Reference::Parameter(_) => None,
            });
            references.insert(name.clone(), types.collect());
            due.append(&mut inner);
            to.insert(name, part);
        }
        Ok(Self { paths, definitions, parameters, references })
    }

    /// New names of the types that differ from a type of the same name, and of those that refer to such a type.
    fn renames(&self, merged: &CutDocument<'_>) -> Result<BTreeMap<String, String>, serde_json::Error> {
        let mut differing = BTreeSet::new();
        for (name, definition) in &self.definitions {
            if let Some(there) = merged.definitions.get(name)
                && comparable(&serde_json::from_str(there.get())?) != comparable(definition)
            {
                differing.insert(name.clone());
            }
        }
        loop {
            let refers = |name: &String| self.references[name].iter().any(|inner| differing.contains(inner));
            let is_taken = |name: &String| merged.definitions.contains_key(name);
            let names = self.definitions.keys().filter(|name| is_taken(name) && !differing.contains(*name));
            let found: Vec<String> = names.filter(|name| refers(name)).cloned().collect();
            if found.is_empty() {
                break;
            }
            differing.extend(found);
        }
        let free_name = |name: &String| {
            let is_free =
                |name: &String| !merged.definitions.contains_key(name) && !self.definitions.contains_key(name);
            (2_u32..).map(|number| format!("{name}_v{number}")).find(is_free)
        };
        Ok(differing.iter().filter_map(|name| Some((name.clone(), free_name(name)?))).collect())
    }

    fn renamed(
        mut self,
        renames: &BTreeMap<String, String>,
        dialect: Dialect,
    ) -> Result<AddedParts, serde_json::Error> {
        let parts = self.paths.values_mut().chain(self.definitions.values_mut()).chain(self.parameters.values_mut());
        for part in parts.filter(|_| !renames.is_empty()) {
            rename_references(part, renames, dialect);
        }
        let encode = |(name, value): (String, Value)| Ok((name, RawValue::from_string(value.to_string())?));
        let rename = |(name, value): (String, Value)| (renames.get(&name).cloned().unwrap_or(name), value);
        Ok(AddedParts {
            paths: self.paths.into_iter().map(encode).collect::<Result<_, serde_json::Error>>()?,
            definitions: self
                .definitions
                .into_iter()
                .map(rename)
                .map(encode)
                .collect::<Result<_, serde_json::Error>>()?,
            parameters: self.parameters.into_iter().map(encode).collect::<Result<_, serde_json::Error>>()?,
        })
    }
}

/// A type without its texts and without the kinds that it stands for: those of types that all groups share differ between servers.
fn comparable(definition: &Value) -> Value {
    match definition {
        Value::Object(members) => members
            .iter()
            .filter(|(name, value)| {
                !(*name == "description" && value.is_string()) && *name != "x-kubernetes-group-version-kind"
            })
            .map(|(name, value)| (name.clone(), comparable(value)))
            .collect(),
        Value::Array(items) => items.iter().map(comparable).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => definition.clone(),
    }
}

/// Replaces references at any depth. The depth is that of a value that the JSON parser has read.
fn rename_references(value: &mut Value, renames: &BTreeMap<String, String>, dialect: Dialect) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let named = member.as_str().filter(|_| name == "$ref").and_then(|text| dialect.referenced_name(text));
                match named.and_then(|named| renames.get(named)) {
                    Some(new_name) => *member = dialect.reference_text(new_name).into(),
                    None => rename_references(member, renames, dialect),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_references(item, renames, dialect)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(path: &str, definitions: &Value) -> Vec<u8> {
        let item = json!({"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/Thing"}}}}});
        json!({"swagger": "2.0", "paths": {path: item}, "definitions": definitions}).to_string().into_bytes()
    }

    fn merged(base: &[u8], other: &[u8]) -> Value {
        let takes = |path: &str| path.starts_with("/apis/x/v1/");
        serde_json::from_slice(&add_extension(base, other, takes, Dialect::V2).unwrap()).unwrap()
    }

    #[test]
    fn extension_types_that_differ_from_types_of_the_same_name_are_renamed_with_their_references() {
        let base = document(
            "/api/v1/things",
            &json!({
                "Thing": {"properties": {"meta": {"$ref": "#/definitions/Meta"}, "spec": {"$ref": "#/definitions/Spec"}}},
                "Meta": {"description": "ours", "type": "object"}, "Spec": {"type": "object"}, "Spec_v2": {},
            }),
        );
        let other = document(
            "/apis/x/v1/things",
            &json!({
                "Thing": {"properties": {"meta": {"$ref": "#/definitions/Meta"}, "spec": {"$ref": "#/definitions/Spec"}}},
                "Meta": {"description": "theirs", "type": "object"}, "Spec": {"type": "string"}, "Unused": {},
            }),
        );
        let merged = merged(&base, &other);
        let names: Vec<_> = merged["definitions"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["Meta", "Spec", "Spec_v2", "Spec_v3", "Thing", "Thing_v2"]);
        let response = |path: &str| merged["paths"][path]["get"]["responses"]["200"]["schema"]["$ref"].clone();
        assert_eq!(response("/api/v1/things"), "#/definitions/Thing");
        assert_eq!(response("/apis/x/v1/things"), "#/definitions/Thing_v2");
        let properties = &merged["definitions"]["Thing_v2"]["properties"];
        assert_eq!(properties["spec"]["$ref"], "#/definitions/Spec_v3");
        assert_eq!(properties["meta"]["$ref"], "#/definitions/Meta", "texts do not make types differ");
        assert_eq!(merged["definitions"]["Meta"]["description"], "ours");
    }

    #[test]
    fn extension_paths_that_are_there_or_not_taken_are_left_out() {
        let base = document("/apis/x/v1/things", &json!({"Thing": {"type": "object"}}));
        let there = merged(&base, &document("/apis/x/v1/things", &json!({"Thing": {"type": "string"}})));
        assert_eq!(there, serde_json::from_slice::<Value>(&base).unwrap());
        let foreign = merged(&base, &document("/api/v1/pods", &json!({"Thing": {"type": "string"}})));
        assert_eq!(foreign, there);
    }

    #[test]
    fn garbage_of_an_extension_server_is_an_error() {
        let base = document("/api/v1/things", &json!({}));
        let deep = format!(r#"{{"paths": {{"/apis/x/v1/a": {}1{}}}}}"#, "[".repeat(1000), "]".repeat(1000));
        for body in ["", "[]", "SSH", r#"{"paths": 1}"#, &deep] {
            assert!(add_extension(&base, body.as_bytes(), |_| true, Dialect::V2).is_err(), "{body}");
        }
        // References that lead nowhere, or to themselves.
        let odd = json!({"paths": {"/apis/x/v1/a": {"$ref": "#/definitions/A"}},
            "definitions": {"A": {"$ref": "#/definitions/A", "items": {"$ref": "#/definitions/None"}}}});
        assert!(add_extension(&base, odd.to_string().as_bytes(), |_| true, Dialect::V2).is_ok());
    }
}
