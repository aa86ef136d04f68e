//! Defaults of missing values.

use api::json::JsonObject;
use serde_json::Value;

use super::node::{Keyword, SchemaNode};
use super::prune;
use super::{MetadataType, embedded};

/// Adds the defaults of fields that are missing, or null without being nullable. Items of lists and values of maps get
/// theirs only instead of null.
pub(super) fn set_defaults(object: &mut JsonObject, schema: &SchemaNode) {
    for property in schema.properties() {
        let Some(default) = property.schema.default() else { continue };
        match object.get_mut(property.name()) {
            None => {
                object.insert(property.name().to_owned(), default.clone());
            }
            Some(value) if value.is_null() && !property.schema.is_nullable() => *value = default.clone(),
            Some(_) => {}
        }
    }
    for (name, value) in object {
        match schema.property(name) {
            Some(property) => set_defaults_in_value(value, property),
            None => {
                if let Some(values) = schema.additional_schema() {
                    replace_null(value, values);
                    set_defaults_in_value(value, values);
                }
            }
        }
    }
}

fn set_defaults_in_value(value: &mut Value, schema: &SchemaNode) {
    match value {
        Value::Object(object) => set_defaults(object, schema),
        Value::Array(items) => {
            let Some(schema) = schema.items() else { return };
            for item in items {
                replace_null(item, schema);
                set_defaults_in_value(item, schema);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn replace_null(value: &mut Value, schema: &SchemaNode) {
    if value.is_null() && !schema.is_nullable() {
        *value = schema.default().cloned().unwrap_or_default();
    }
}

/// One step from a schema to one below it.
#[derive(Clone)]
enum Step {
    Field(Box<str>),
    Item,
    /// A value of a map.
    Additional,
}

/// Prunes the defaults of a schema as if they were in an object, because a definition may have been written when rules
/// were laxer.
pub(super) fn prune_defaults(root: &mut SchemaNode, metadata: MetadataType<'_>) {
    let mut found = Vec::new();
    collect(root, &mut Vec::new(), &mut found);
    for path in found {
        if let Some((default, pruned)) = at(root, &path).and_then(SchemaNode::default).cloned().map(|default| {
            let pruned = prune_default(&default, root, &path, metadata);
            (default, pruned)
        }) && default != pruned
            && let Some(node) = at_mut(root, &path)
        {
            replace(node, pruned);
        }
    }
}

fn collect(node: &SchemaNode, path: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
    if node.default().is_some_and(|default| default.is_object() || default.is_array()) {
        found.push(path.clone());
    }
    let mut below = |step, node: &SchemaNode| {
        path.push(step);
        collect(node, path, found);
        path.pop();
    };
    node.additional_schema().into_iter().for_each(|values| below(Step::Additional, values));
    node.items().into_iter().for_each(|items| below(Step::Item, items));
    node.properties().iter().for_each(|property| below(Step::Field(property.name().into()), property.schema()));
}

fn prune_default(default: &Value, root: &SchemaNode, path: &[Step], metadata: MetadataType<'_>) -> Value {
    let mut value = default.clone();
    for step in path.iter().rev() {
        value = match step {
            Step::Field(name) => Value::Object([(name.to_string(), value)].into_iter().collect()),
            Step::Item => Value::Array(vec![value]),
            Step::Additional => Value::Object([("*".to_owned(), value)].into_iter().collect()),
        };
    }
    let Value::Object(mut object) = value else { return default.clone() };
    embedded::repair(&mut object, root, true, metadata);
    prune::prune(&mut object, root, false);
    let mut value = Value::Object(object);
    for step in path {
        let inner = match (step, &mut value) {
            (Step::Field(name), Value::Object(object)) => object.get_mut(&**name),
            (Step::Additional, Value::Object(object)) => object.get_mut("*"),
            (Step::Item, Value::Array(items)) => items.first_mut(),
            _ => None,
        };
        value = inner.map(Value::take).unwrap_or_default();
    }
    value
}

fn at<'s>(root: &'s SchemaNode, path: &[Step]) -> Option<&'s SchemaNode> {
    path.iter().try_fold(root, |node, step| match step {
        Step::Field(name) => node.property(name),
        Step::Item => node.items(),
        Step::Additional => node.additional_schema(),
    })
}

fn at_mut<'s>(root: &'s mut SchemaNode, path: &[Step]) -> Option<&'s mut SchemaNode> {
    path.iter().try_fold(root, |node, step| match step {
        Step::Field(name) => {
            let found = node.properties.binary_search_by(|property| property.name.cmp(name)).ok()?;
            Some(&mut node.properties[found].schema)
        }
        Step::Item => node.keywords.iter_mut().find_map(|keyword| match keyword {
            Keyword::Items(schema) => Some(&mut **schema),
            #[allow(clippy::wildcard_enum_match_arm)]
            _ => None,
        }),
        Step::Additional => node.keywords.iter_mut().find_map(|keyword| match keyword {
            Keyword::AdditionalSchema(schema) => Some(&mut **schema),
            #[allow(clippy::wildcard_enum_match_arm)]
            _ => None,
        }),
    })
}

fn replace(node: &mut SchemaNode, default: Value) {
    let mut keywords: Vec<_> = std::mem::take(&mut node.keywords).into();
    keywords.retain(|keyword| !matches!(keyword, Keyword::Default(_)));
    if !default.is_null() {
        keywords.push(Keyword::Default(Box::new(default)));
    }
    node.keywords = keywords.into();
}
