//! Sets of fields in the form `FieldsV1`: a tree of `f:<name>`, where an empty object is a member.

use api::json::JsonObject;
use serde_json::{Map, Value};

/// Deeper than this a part of an object is one field, so that sets nest less than what they are about.
const SET_DEPTH_MAX: usize = 32;

/// The fields of `metadata` that belong to the server and have no manager.
const SERVER_OWNED_METADATA: [&str; 8] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];

/// What an update has done.
pub(super) struct FieldChanges {
    /// Fields that are new or different.
    pub(super) written: JsonObject,
    /// Fields that are gone, with all inside of them.
    removed: JsonObject,
}

impl FieldChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty()
    }

    /// Takes what has changed out of a set.
    pub(super) fn remove_from(&self, set: &mut JsonObject) {
        subtract(set, &self.written);
        subtract(set, &self.removed);
    }
}

/// Compares two states of an object.
pub(super) fn changed_fields(old: &JsonObject, new: &JsonObject) -> FieldChanges {
    let mut change = FieldChanges { written: Map::new(), removed: Map::new() };
    let is_owned = |path: &[&str]| match path {
        ["apiVersion" | "kind"] => false,
        ["metadata", field] => !SERVER_OWNED_METADATA.contains(field),
        _ => true,
    };
    collect_changes(Some(old), new, &mut Vec::new(), &is_owned, &mut change);
    change
}

fn collect_changes<'o>(
    old: Option<&'o JsonObject>,
    new: &'o JsonObject,
    path: &mut Vec<&'o str>,
    is_owned: &dyn Fn(&[&str]) -> bool,
    change: &mut FieldChanges,
) {
    for (name, after) in new {
        path.push(name);
        match (old.and_then(|old| old.get(name)), after) {
            (Some(before), _) if before == after => {}
            _ if !is_owned(path) => {}
            (before, Value::Object(fields)) if !fields.is_empty() && path.len() < SET_DEPTH_MAX => {
                collect_changes(before.and_then(Value::as_object), fields, path, is_owned, change);
            }
            _ => insert_path(&mut change.written, path),
        }
        path.pop();
    }
    for name in old.into_iter().flat_map(Map::keys).filter(|name| !new.contains_key(*name)) {
        path.push(name);
        if is_owned(path) {
            insert_path(&mut change.removed, path);
        }
        path.pop();
    }
}

fn insert_path(set: &mut JsonObject, path: &[&str]) {
    let mut here = set;
    for name in path {
        let inside = here.entry(format!("f:{name}")).or_insert_with(|| Value::Object(Map::new()));
        here = inside.as_object_mut().expect("sets hold objects only");
    }
}

/// Adds the members of another set.
pub(super) fn add_all(set: &mut JsonObject, other: JsonObject) {
    for (name, theirs) in other {
        match (set.get_mut(&name), theirs) {
            (Some(Value::Object(ours)), Value::Object(theirs)) => add_all(ours, theirs),
            (_, theirs) => {
                set.insert(name, theirs);
            }
        }
    }
}

/// Removes the members of another set, each with all inside of it.
fn subtract(set: &mut JsonObject, other: &JsonObject) {
    for (name, theirs) in other {
        let Some(Value::Object(ours)) = set.get_mut(name) else { continue };
        let theirs = theirs.as_object().expect("sets hold objects only");
        let was_leaf = ours.is_empty();
        subtract(ours, theirs);
        if theirs.is_empty() || (ours.is_empty() && !was_leaf) {
            set.remove(name);
        }
    }
}

/// Whether this is a set: objects all the way down.
pub(super) fn is_valid_set(set: &JsonObject) -> bool {
    set.values().all(|inside| inside.as_object().is_some_and(is_valid_set))
}
