//! Merge patch (RFC 7396): objects merge, null removes a field, other values replace. As in Kubernetes, null fields are
//! also removed from objects in a new list, where the RFC keeps them.

use serde_json::{Map, Value};

use crate::decode::{Decoded, drop_nulls};
use crate::rejection::Rejection;

/// A merge patch of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct MergePatch(pub Map<String, Value>);

impl MergePatch {
    /// Parses a patch, which must be a JSON object.
    pub fn parse(body: &[u8]) -> Result<Decoded<Self>, Rejection> {
        let Decoded { value, duplicate_fields } = super::decode_patch_object(body, "error decoding patch: ")?;
        let value = value.ok_or_else(|| Rejection::BadRequest("Invalid JSON Patch".to_owned()))?;
        Ok(Decoded { value: Self(value), duplicate_fields })
    }

    /// Merges the patch into a copy of the object.
    pub fn apply(&self, object: &Map<String, Value>) -> Value {
        let mut merged = object.clone();
        merge_into(&mut merged, &self.0);
        Value::Object(merged)
    }
}

fn merge_into(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match (into.get_mut(name), value) {
            (_, Value::Null) => {
                into.remove(name);
            }
            (Some(Value::Object(fields)), Value::Object(patch)) => merge_into(fields, patch),
            (_, Value::Object(patch)) => {
                let mut fields = Map::new();
                merge_into(&mut fields, patch);
                into.insert(name.clone(), Value::Object(fields));
            }
            (_, Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                let mut value = value.clone();
                drop_nulls(&mut value);
                into.insert(name.clone(), value);
            }
        }
    }
}
