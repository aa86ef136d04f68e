//! Check of an applied configuration against its type.

use std::collections::BTreeSet;
use std::fmt;

use api::json::JsonObject;
use serde_json::Value;

use super::atom::{Handled, List, MapOf, Scalar, Type};
use super::items::element_of_item;
use crate::field_set::{PathElement, Shown};

/// Why an object does not fit its type, one error per path; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValidationErrors(Vec<(String, String)>);

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(path, problem): &(String, String)| match path.as_str() {
            "" => problem.clone(),
            path => format!("{path}: {problem}"),
        };
        match &self.0[..] {
            [only] => f.write_str(&line(only)),
            errors => {
                f.write_str("errors:")?;
                errors.iter().try_for_each(|error| write!(f, "\n  {}", line(error)))
            }
        }
    }
}

/// Checks that an object has only declared fields, values of their types, and no item twice.
pub(crate) fn validate(object: &JsonObject, object_type: Type<'_>) -> Result<(), ValidationErrors> {
    let mut walk = Validation { path: Vec::new(), errors: Vec::new() };
    match object_type.atom().first() {
        Handled::Map(map) => walk.fields(object, map),
        Handled::Scalar(_) | Handled::List(_) => {}
    }
    if walk.errors.is_empty() { Ok(()) } else { Err(ValidationErrors(walk.errors)) }
}

struct Validation {
    path: Vec<String>,
    errors: Vec<(String, String)>,
}

impl Validation {
    fn report(&mut self, problem: String) {
        self.errors.push((self.path.concat(), problem));
    }

    fn value(&mut self, value: &Value, value_type: Type<'_>) {
        match (value_type.handled(value), value) {
            (_, Value::Null) => {}
            (Handled::Scalar(scalar), _) => self.scalar(value, scalar),
            (Handled::Map(map), Value::Object(object)) => self.fields(object, map),
            (Handled::List(list), Value::Array(items)) => self.items(items, list),
            (Handled::Map(_), _) => self.report(format!("expected map, got {}", Printed(value))),
            (Handled::List(_), _) => self.report(format!("expected list, got {}", Printed(value))),
        }
    }

    fn scalar(&mut self, value: &Value, scalar: Scalar) {
        let problem = match (scalar, value) {
            (Scalar::Numeric, Value::Number(_))
            | (Scalar::Text, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return,
            (Scalar::Numeric, _) => format!("expected numeric (int or float), got {}", go_type(value)),
            (Scalar::Text, _) => format!("expected string, got {}", GoSyntax(value)),
            (Scalar::Boolean, _) => format!("expected boolean, got {}", Printed(value)),
            (Scalar::Untyped, _) => format!("expected any scalar, got {}", Printed(value)),
        };
        self.report(problem);
    }

    fn fields(&mut self, object: &JsonObject, map: MapOf<'_>) {
        for (name, value) in object {
            self.path.push(format!(".{name}"));
            let child = map.child(name);
            match child {
                Some(field) => self.value(value, field),
                None => self.report("field not declared in schema".to_owned()),
            }
            self.path.pop();
            if child.is_none() {
                // Kubernetes reports one unknown field per map.
                return;
            }
        }
    }

    fn items(&mut self, items: &[Value], list: List<'_>) {
        let mut seen: BTreeSet<PathElement> = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = if list.is_atomic() {
                PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match element_of_item(list, item) {
                    Ok(element) => element,
                    Err(problem) => {
                        self.report(format!("element {index}: {problem}"));
                        return;
                    }
                }
            };
            if !list.is_atomic() && !seen.insert(element.clone()) {
                self.report(format!("duplicate entries for key {element}"));
            }
            self.path.push(element.to_string());
            self.value(item, list.items);
            self.path.pop();
        }
    }
}

/// The name of a value's type in Go.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value in Go's `%v`.
struct Printed<'a>(&'a Value);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "&{{{}}}", Plain(self.0))
    }
}

/// Like Go's `%v` of the bare value.
struct Plain<'a>(&'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(text) => f.write_str(text),
            Value::Bool(_) | Value::Number(_) => write!(f, "{}", Shown(self.0)),
            Value::Array(items) => {
                f.write_str("[")?;
                for (position, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if position > 0 { " " } else { "" }, Plain(item))?;
                }
                f.write_str("]")
            }
            Value::Object(fields) => {
                f.write_str("map[")?;
                for (position, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}:{}", if position > 0 { " " } else { "" }, Plain(value))?;
                }
                f.write_str("]")
            }
        }
    }
}

/// A value in Go's `%#v`, with Kubernetes' wrapper.
struct GoSyntax<'a>(&'a Value);

impl fmt::Display for GoSyntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "&value.valueUnstructured{{Value:{}}}", GoSyntaxPlain(self.0))
    }
}

struct GoSyntaxPlain<'a>(&'a Value);

impl fmt::Display for GoSyntaxPlain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => write!(f, "{}", Shown(self.0)),
            Value::Array(items) => {
                f.write_str("[]interface {}{")?;
                for (position, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if position > 0 { ", " } else { "" }, GoSyntaxPlain(item))?;
                }
                f.write_str("}")
            }
            Value::Object(fields) => {
                f.write_str("map[string]interface {}{")?;
                for (position, (name, value)) in fields.iter().enumerate() {
                    let comma = if position > 0 { ", " } else { "" };
                    write!(f, "{comma}{}:{}", api::quote::Quoted(name), GoSyntaxPlain(value))?;
                }
                f.write_str("}")
            }
        }
    }
}
