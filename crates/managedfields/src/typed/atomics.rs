//! Paths of atomic lists and maps.

use serde_json::Value;

use super::atom::{Handled, Type};

/// The paths of atomic lists and maps within a value, in order: `.spec.template.spec.args`.
pub(crate) fn atomic_paths(value: &Value, value_type: Type<'_>) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, value_type, String::new(), &mut found);
    found
}

fn walk(value: &Value, value_type: Type<'_>, path: String, found: &mut Vec<String>) {
    match (value, value_type.handled(value)) {
        (Value::Object(fields), Handled::Map(map)) => {
            for (name, field) in fields {
                // Entries of maps have no names of their own in the type, and are not looked at.
                if let Some(field_type) = map.field(name) {
                    walk(field, field_type, format!("{path}.{name}"), found);
                }
            }
            if map.is_atomic {
                found.push(path);
            }
        }
        (Value::Array(items), Handled::List(list)) => {
            if list.is_atomic() {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                walk(item, list.items, format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}
