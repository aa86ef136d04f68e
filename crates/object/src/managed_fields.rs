//! `managedFields`: who has written which field, kept well-formed on every update.
//!
//! Without a schema a list is one field, so a writer owns it whole; sets written by others may look inside of lists and are
//! kept as they are. Server-side apply, which needs more, is not here.

mod field_sets;

use api::json::JsonObject;
use api::time::Time;
use serde_json::{Map, Value};

use crate::unstructured::{self, metadata_mut};
use crate::validate::MANAGER_LENGTH_MAX;

/// How many managers by update are kept; the oldest are merged into one beyond that, as in Kubernetes.
const UPDATE_MANAGERS_MAX: usize = 10;
/// The manager that the oldest ones are merged into.
const ANCIENT_CHANGES_MANAGER: &str = "ancient-changes";

/// Who writes, through which door, and when.
#[derive(Clone, Copy, Debug)]
pub struct FieldManager<'a> {
    /// See [`manager_name`].
    pub name: &'a str,
    /// The version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// Such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// Now.
    pub now: Time,
}

/// The name of the manager: what the request says, or else the user agent up to the first slash.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for character in product.chars().filter(|character| !character.is_control()) {
        if name.len() + character.len_utf8() > MANAGER_LENGTH_MAX {
            break;
        }
        name.push(character);
    }
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Writes down what an update from `old` to `new` has changed; `old` is empty for a create.
///
/// The writer owns what it changed; removed fields have no owner. An update that changes nothing leaves the list as it was. A
/// client that sends none keeps the stored one, and one that sends an empty one resets it.
pub fn record_update(old: &Map<String, Value>, new: &mut Map<String, Value>, writer: &FieldManager<'_>) {
    let mut entries = match writer.subresource {
        "" => sent_or_stored_entries(old, new),
        _ => valid_entries(old).unwrap_or_default(),
    };
    let change = field_sets::changed_fields(old, new);
    if !change.is_empty() {
        for entry in &mut entries {
            change.remove_from(&mut entry.fields);
        }
        if !change.written.is_empty() {
            assign_fields(&mut entries, change.written, writer);
        }
        entries.retain(|entry| !entry.fields.is_empty());
        merge_oldest_managers(&mut entries);
    }
    entries.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    let list: Vec<Value> = entries.into_iter().map(ManagedFieldsEntry::into_value).collect();
    let list = (!list.is_empty()).then_some(Value::Array(list));
    unstructured::set_or_remove(metadata_mut(new), "managedFields", list);
}

/// One manager and what it owns. The rest of the entry is kept as it came.
struct ManagedFieldsEntry {
    attributes: JsonObject,
    fields: JsonObject,
}

impl ManagedFieldsEntry {
    fn attribute(&self, name: &str) -> &str {
        unstructured::text(&self.attributes, &[name])
    }

    fn belongs_to(&self, writer: &FieldManager<'_>) -> bool {
        self.attribute("manager") == writer.name
            && self.attribute("operation") == "Update"
            && self.attribute("apiVersion") == writer.api_version
            && self.attribute("subresource") == writer.subresource
    }

    /// As Kubernetes sorts them. Times are all in UTC and to the second, so their text sorts as they do.
    fn sort_key(&self) -> [&str; 5] {
        ["operation", "time", "manager", "apiVersion", "subresource"].map(|name| self.attribute(name))
    }

    fn into_value(mut self) -> Value {
        self.attributes.insert("fieldsType".to_owned(), "FieldsV1".into());
        self.attributes.insert("fieldsV1".to_owned(), Value::Object(self.fields));
        Value::Object(self.attributes)
    }
}

/// What the client has sent, if it is well-formed; else what is stored.
fn sent_or_stored_entries(old: &JsonObject, new: &JsonObject) -> Vec<ManagedFieldsEntry> {
    match unstructured::get(new, &["metadata", "managedFields"]).and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => Vec::new(),
        Some([Value::Object(only)]) if only.is_empty() => Vec::new(),
        Some(_) => valid_entries(new).or_else(|| valid_entries(old)).unwrap_or_default(),
        None => valid_entries(old).unwrap_or_default(),
    }
}

/// The entries of an object; `None` unless all of them are well-formed.
fn valid_entries(object: &JsonObject) -> Option<Vec<ManagedFieldsEntry>> {
    let list = unstructured::list(object, &["metadata", "managedFields"]);
    list.iter().map(parse_entry).collect::<Option<Vec<_>>>()
}

fn parse_entry(value: &Value) -> Option<ManagedFieldsEntry> {
    let mut rest = value.as_object()?.clone();
    let Some(Value::Object(fields)) = rest.remove("fieldsV1") else { return None };
    let is_valid = matches!(unstructured::text(&rest, &["operation"]), "Apply" | "Update")
        && unstructured::text(&rest, &["fieldsType"]) == "FieldsV1"
        && !unstructured::text(&rest, &["apiVersion"]).is_empty()
        && field_sets::is_valid_set(&fields);
    is_valid.then_some(ManagedFieldsEntry { attributes: rest, fields })
}

/// Adds fields to the writer's entry, which is made if there is none.
fn assign_fields(entries: &mut Vec<ManagedFieldsEntry>, written: JsonObject, writer: &FieldManager<'_>) {
    let time = Value::from(writer.now.to_string());
    if let Some(own) = entries.iter_mut().find(|entry| entry.belongs_to(writer)) {
        field_sets::add_all(&mut own.fields, written);
        own.attributes.insert("time".to_owned(), time);
        return;
    }
    let mut rest = Map::new();
    rest.insert("manager".to_owned(), writer.name.into());
    rest.insert("operation".to_owned(), "Update".into());
    rest.insert("apiVersion".to_owned(), writer.api_version.into());
    rest.insert("time".to_owned(), time);
    if !writer.subresource.is_empty() {
        rest.insert("subresource".to_owned(), writer.subresource.into());
    }
    entries.push(ManagedFieldsEntry { attributes: rest, fields: written });
}

/// Merges the oldest managers by update that share a version, until there are few enough.
fn merge_oldest_managers(entries: &mut Vec<ManagedFieldsEntry>) {
    entries.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    let update_managers = entries.iter().filter(|entry| entry.attribute("operation") == "Update").count();
    for _ in UPDATE_MANAGERS_MAX..update_managers {
        let is_update = |entry: &ManagedFieldsEntry| entry.attribute("operation") == "Update";
        let pair = entries.iter().enumerate().filter(|(_, entry)| is_update(entry)).find_map(|(first, entry)| {
            let mut later = entries.iter().enumerate().skip(first + 1);
            let second = later.find(|(_, other)| {
                is_update(other) && other.attribute("apiVersion") == entry.attribute("apiVersion")
            })?;
            Some((first, second.0))
        });
        let Some((first, second)) = pair else { return };
        let newer = entries.remove(second);
        let older = &mut entries[first];
        field_sets::add_all(&mut older.fields, newer.fields);
        older.attributes.insert("manager".to_owned(), ANCIENT_CHANGES_MANAGER.into());
        older.attributes.remove("subresource");
        unstructured::set_or_remove(&mut older.attributes, "time", newer.attributes.get("time").cloned());
    }
}

#[cfg(test)]
mod tests;
