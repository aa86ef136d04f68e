//! The wire form of field sets: `{"f:spec":{"f:replicas":{}}}`.

use serde_json::{Map, Value};

use api::json::to_go_json;

use super::{ElementError, FieldSet, PathElement};

/// Why a field set cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldSetError(pub(crate) String);

impl FieldSet {
    /// Decodes a `fieldsV1`. Elements of kinds that a newer release may have added are dropped.
    pub fn from_value(value: &Value) -> Result<Self, FieldSetError> {
        let (set, _) = decode(value)?;
        Ok(set)
    }

    /// The `fieldsV1` of this set. The keys of the map have the order of its type.
    pub fn to_value(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    fn to_map(&self, includes_self: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if includes_self && !self.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            map.insert(node.element.to_key(), Value::Object(node.children.to_map(node.is_member)));
        }
        map
    }

    /// The bytes of the `fieldsV1` as Kubernetes encodes it.
    pub fn to_json(&self) -> String {
        let mut json = String::new();
        self.write_json(&mut json, false);
        json
    }

    fn write_json(&self, json: &mut String, includes_self: bool) {
        json.push('{');
        let mut comma = "";
        if includes_self && !self.is_empty() {
            json.push_str("\".\":{}");
            comma = ",";
        }
        for node in &self.nodes {
            json.push_str(comma);
            json.push_str(&String::from_utf8_lossy(&to_go_json(&node.element.to_key())));
            json.push(':');
            node.children.write_json(json, node.is_member);
            comma = ",";
        }
        json.push('}');
    }
}

/// The set of the fields below a node, and whether the node is a member.
fn decode(value: &Value) -> Result<(FieldSet, bool), FieldSetError> {
    let mut set = FieldSet::default();
    let mut is_member = false;
    let map = match value {
        Value::Null => return Ok((set, true)),
        Value::Object(map) => map,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(FieldSetError(format!("expected an object, got {value}")));
        }
    };
    for (key, below) in map {
        if key == "." {
            is_member = true;
            continue;
        }
        match PathElement::parse(key) {
            Ok(element) => {
                let (children, child_is_member) = decode(below)?;
                set.add(element, child_is_member, children);
            }
            Err(ElementError::UnknownKind) => {}
            Err(ElementError::Malformed(problem)) => {
                return Err(FieldSetError(format!("parsing key as path element: {problem}")));
            }
        }
    }
    let is_leaf = set.is_empty();
    Ok((set, is_member || is_leaf))
}

/// Like [`FieldSet::from_value`], without building the set.
pub(crate) fn check_value(value: &Value) -> Result<(), FieldSetError> {
    let map = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => return decode(value).map(drop),
    };
    for (key, below) in map.iter().filter(|(key, _)| *key != ".") {
        if key.starts_with("f:") {
            check_value(below)?;
            continue;
        }
        match PathElement::parse(key) {
            Ok(_) => check_value(below)?,
            Err(ElementError::UnknownKind) => {}
            Err(ElementError::Malformed(_)) => return decode(value).map(drop),
        }
    }
    Ok(())
}
