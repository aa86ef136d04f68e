//! Unique items of lists of the types `set` and `map`.

use std::collections::HashMap;
use std::fmt::Write as _;

use api::FieldError;
use api::json::{JsonObject, to_go_json};
use serde_json::Value;

use super::embedded::push_child;
use super::node::{ListType, SchemaNode};
use super::validate::ERRORS_MAX;

/// Reports repeated items, each once at its second occurrence.
pub(super) fn validate(object: &JsonObject, schema: &SchemaNode) -> Vec<FieldError> {
    let mut walk = ListWalk { path: String::new(), errors: Vec::new() };
    walk.object(object, schema);
    walk.errors
}

struct ListWalk {
    path: String,
    errors: Vec<FieldError>,
}

impl ListWalk {
    fn object(&mut self, object: &JsonObject, schema: &SchemaNode) {
        let length = self.path.len();
        if let Some(values) = schema.additional_schema() {
            for (name, value) in object {
                let _ = write!(self.path, "[{name}]");
                self.value(value, values);
                self.path.truncate(length);
            }
        }
        for (name, value) in object {
            let Some(property) = schema.property(name) else { continue };
            push_child(&mut self.path, name);
            self.value(value, property);
            self.path.truncate(length);
        }
    }

    fn value(&mut self, value: &Value, schema: &SchemaNode) {
        match value {
            Value::Object(object) => self.object(object, schema),
            Value::Array(items) => self.list(items, schema),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn list(&mut self, items: &[Value], schema: &SchemaNode) {
        match schema.list_type() {
            Some(ListType::Set) => self.report_repeated(items.iter().map(|item| (item_key(item), item.clone()))),
            Some(ListType::Map) => self.map(items, schema.list_map_keys()),
            Some(ListType::Atomic) | None => {}
        }
        let Some(schema) = schema.items() else { return };
        let length = self.path.len();
        for (index, item) in items.iter().enumerate() {
            let _ = write!(self.path, "[{index}]");
            self.value(item, schema);
            self.path.truncate(length);
        }
    }

    fn map(&mut self, items: &[Value], keys: &[Box<str>]) {
        if let Some(index) = items.iter().position(|item| !item.is_null() && !item.is_object()) {
            let problem = "must be an object for an array of list-type map";
            self.push(FieldError::invalid(format!("{}[{index}]", self.path), items[index].clone(), problem));
            return;
        }
        let keyed = items.iter().map(|item| {
            let fields = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
            let fields: JsonObject = fields.collect();
            let key = match (keys, fields.values().next()) {
                ([_], Some(value)) => item_key(value),
                _ => item_key(&Value::Object(fields.clone())),
            };
            (key, Value::Object(fields))
        });
        self.report_repeated(keyed);
    }

    /// Reports the second of equal items, with the value to show for it.
    fn report_repeated(&mut self, items: impl Iterator<Item = (Vec<u8>, Value)>) {
        let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
        for (index, (key, shown)) in items.enumerate() {
            let times = seen.entry(key).or_default();
            *times += 1;
            if *times == 2 {
                self.push(FieldError::duplicate(format!("{}[{index}]", self.path), shown));
            }
        }
    }

    fn push(&mut self, error: FieldError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }
}

/// Bytes that are equal for items that Kubernetes considers equal: scalars of one Go type, compounds as JSON.
fn item_key(item: &Value) -> Vec<u8> {
    let mut key = to_go_json(item);
    if item.as_number().is_some_and(|number| number.as_i64().is_none()) {
        key.push(b'f');
    }
    key
}
