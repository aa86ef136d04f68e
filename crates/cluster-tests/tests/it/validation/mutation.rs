//! Changes to a manifest, and the cases made of them. Both have a text form, in which they are recorded.

use std::fmt;

use serde_json::Value;

/// The field that [`Change::Unknown`] adds; no kind has it.
pub(super) const UNKNOWN_FIELD: &str = "unknownField";

/// One change at one JSON pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    Set(String, Value),
    /// Sets a string of this many letters.
    SetLong(String, usize),
    Delete(String),
    /// Appends a copy of a list's item to the list.
    Duplicate(String),
    /// Adds a field that the type does not have. The request then asks for strict field validation.
    Unknown(String),
}

/// One request: what is sent, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// `create`, `update`, or the name of a subresource.
    pub(crate) operation: String,
    /// Index among the manifests of the kind.
    pub(crate) manifest: usize,
    pub(crate) changes: Vec<Change>,
}

impl Change {
    /// Applies the change; an error if the object has no such place.
    pub(crate) fn apply(&self, object: &mut Value) -> Result<(), String> {
        let applied = match self {
            Change::Set(pointer, value) => set(object, pointer, value.clone()),
            Change::SetLong(pointer, length) => set(object, pointer, "a".repeat(*length).into()),
            Change::Unknown(pointer) => set(object, &format!("{pointer}/{UNKNOWN_FIELD}"), 1.into()),
            Change::Delete(pointer) => delete(object, pointer),
            Change::Duplicate(pointer) => duplicate(object, pointer),
        };
        applied.ok_or_else(|| format!("the manifest has no place for `{self}`"))
    }

    fn parse(text: &str) -> Option<Change> {
        let (word, rest) = text.split_once(' ')?;
        let pointer = || rest.to_owned();
        match word {
            "delete" => Some(Change::Delete(pointer())),
            "duplicate" => Some(Change::Duplicate(pointer())),
            "unknown" => Some(Change::Unknown(pointer())),
            "set" => {
                let (pointer, value) = rest.split_once(' ')?;
                Some(Change::Set(pointer.to_owned(), serde_json::from_str(value).ok()?))
            }
            "long" => {
                let (pointer, length) = rest.split_once(' ')?;
                Some(Change::SetLong(pointer.to_owned(), length.parse().ok()?))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Set(pointer, value) => write!(f, "set {pointer} {value}"),
            Change::SetLong(pointer, length) => write!(f, "long {pointer} {length}"),
            Change::Delete(pointer) => write!(f, "delete {pointer}"),
            Change::Duplicate(pointer) => write!(f, "duplicate {pointer}"),
            Change::Unknown(pointer) => write!(f, "unknown {pointer}"),
        }
    }
}

impl Case {
    pub(crate) fn parse(text: &str) -> Option<Case> {
        let mut words = text.splitn(3, ' ');
        let (operation, manifest) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let changes = match words.next() {
            Some(changes) => changes.split(" && ").map(Change::parse).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        Some(Case { operation, manifest, changes })
    }

    /// True if the request asks for unknown fields to be refused.
    pub(crate) fn is_strict(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, Change::Unknown(_)))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.manifest)?;
        for (index, change) in self.changes.iter().enumerate() {
            write!(f, "{}{change}", if index == 0 { " " } else { " && " })?;
        }
        Ok(())
    }
}

/// Escapes a key for a JSON pointer.
pub(super) fn child(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The pointer of the parent, and the last key.
fn split_pointer(pointer: &str) -> Option<(&str, String)> {
    let (parent, key) = pointer.rsplit_once('/')?;
    Some((parent, key.replace("~1", "/").replace("~0", "~")))
}

fn set(object: &mut Value, pointer: &str, value: Value) -> Option<()> {
    let (parent, key) = split_pointer(pointer)?;
    match object.pointer_mut(parent)? {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => *items.get_mut(key.parse::<usize>().ok()?)? = value,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(())
}

fn delete(object: &mut Value, pointer: &str) -> Option<()> {
    let (parent, key) = split_pointer(pointer)?;
    match object.pointer_mut(parent)? {
        Value::Object(fields) => fields.remove(&key).map(|_| ()),
        Value::Array(items) => {
            let index = key.parse::<usize>().ok().filter(|index| *index < items.len())?;
            items.remove(index);
            Some(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn duplicate(object: &mut Value, pointer: &str) -> Option<()> {
    let copy = object.pointer(pointer)?.clone();
    object.pointer_mut(split_pointer(pointer)?.0)?.as_array_mut()?.push(copy);
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &Value) {
        let case = Case::parse(text).expect("the case parses");
        assert_eq!(case.to_string(), text);
        let mut object = json!({"a": {"b/c": [1, 2]}, "d": "x"});
        case.changes.iter().for_each(|change| change.apply(&mut object).unwrap());
        assert_eq!(object, *expected);
    }

    #[test]
    fn case_text_round_trips_and_applies() {
        check("create 0", &json!({"a": {"b/c": [1, 2]}, "d": "x"}));
        check("create 0 set /d {\"e\":\"f g\"}", &json!({"a": {"b/c": [1, 2]}, "d": {"e": "f g"}}));
        check("update 1 delete /a/b~1c/0 && long /d 3", &json!({"a": {"b/c": [2]}, "d": "aaa"}));
        check(
            "status 0 duplicate /a/b~1c/0 && unknown /a",
            &json!({"a": {"b/c": [1, 2, 1], "unknownField": 1}, "d": "x"}),
        );
    }

    #[test]
    fn change_without_place_is_an_error() {
        for text in ["create 0 delete /x", "create 0 set /d/e 1", "create 0 duplicate /a", "create 0 set /a/b~1c/2 1"] {
            let case = Case::parse(text).unwrap();
            assert!(case.changes[0].apply(&mut json!({"a": {"b/c": [1, 2]}, "d": "x"})).is_err(), "{text}");
        }
        assert_eq!(Case::parse("create x"), None);
        assert_eq!(Case::parse("create 0 move /a"), None);
    }
}
