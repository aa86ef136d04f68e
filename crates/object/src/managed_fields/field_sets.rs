//! Field sets in the format `FieldsV1`: a tree of `f:<name>` keys whose leaves, empty objects, are the members.

use api::json::JsonObject;
use serde_json::{Map, Value};

/// Depth below which a subtree counts as one field; bounds the nesting of field sets.
const SET_DEPTH_MAX: usize = 32;

/// Fields of `metadata` that the server sets and that have no manager.
const SERVER_OWNED_METADATA: [&str; 8] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];

/// Fields changed by an update.
pub(super) struct FieldChanges {
    /// New and changed fields.
    pub(super) written: JsonObject,
    /// Removed fields, including their subtrees.
    removed: JsonObject,
}

impl FieldChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty()
    }

    /// Removes the changed fields from a set.
    pub(super) fn remove_from(&self, set: &mut JsonObject) {
        subtract(set, &self.written);
        subtract(set, &self.removed);
    }
}

/// Computes the changed fields, without `apiVersion`, `kind` and server-owned metadata.
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

/// Adds all members of `other` to `set`.
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

/// Removes the members of `other` from `set`, including their subtrees.
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

/// True if every value in the tree is an object.
pub(super) fn is_valid_set(set: &JsonObject) -> bool {
    set.values().all(|inside| inside.as_object().is_some_and(is_valid_set))
}
