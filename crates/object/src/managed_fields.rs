//! Maintenance of `metadata.managedFields` on creates and updates.
//!
//! The module has no schema, so a list counts as one field and its last writer owns all of it. Field sets of other
//! servers may name list items and are kept unchanged. Server-side apply is not implemented in this module.

mod field_sets;

use api::json::JsonObject;
use api::time::Time;
use serde_json::{Map, Value};

use crate::unstructured::{self, metadata_mut};
use crate::validate::MANAGER_LENGTH_MAX;

/// Limit of entries with operation `Update`; the oldest beyond it are merged, as in Kubernetes.
const UPDATE_MANAGERS_MAX: usize = 10;
/// Manager name of merged entries.
const ANCIENT_CHANGES_MANAGER: &str = "ancient-changes";

/// Manager, version, subresource and time of a write.
#[derive(Clone, Copy, Debug)]
pub struct FieldManager<'a> {
    /// Name as derived by [`manager_name`].
    pub name: &'a str,
    /// `apiVersion` of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// Subresource, such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// Time of the write.
    pub now: Time,
}

/// Manager name: the request's `fieldManager`, else the user agent up to the first slash, limited to
/// [`MANAGER_LENGTH_MAX`].
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

/// Updates `managedFields` of `new` with the changes from `old`, which is empty for a create.
///
/// The writer becomes the only owner of the fields it changed; removed fields lose their owners. An update without
/// changes keeps the entries. If the client omits `managedFields`, the stored list applies; an empty list resets it.
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
            add_to_update_entry(&mut entries, change.written, writer);
        }
        entries.retain(|entry| !entry.fields.is_empty());
        merge_oldest_managers(&mut entries);
    }
    entries.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    let list: Vec<Value> = entries.into_iter().map(ManagedFieldsEntry::into_value).collect();
    let list = (!list.is_empty()).then_some(Value::Array(list));
    unstructured::set_or_remove(metadata_mut(new), "managedFields", list);
}

/// An entry of `managedFields`. Attributes that this crate does not know are kept.
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

    /// Sort order of Kubernetes. Times are in UTC with seconds, so their texts sort chronologically.
    fn sort_key(&self) -> [&str; 5] {
        ["operation", "time", "manager", "apiVersion", "subresource"].map(|name| self.attribute(name))
    }

    fn into_value(mut self) -> Value {
        self.attributes.insert("fieldsType".to_owned(), "FieldsV1".into());
        self.attributes.insert("fieldsV1".to_owned(), Value::Object(self.fields));
        Value::Object(self.attributes)
    }
}

/// Entries sent by the client if they are well-formed, else the stored ones.
fn sent_or_stored_entries(old: &JsonObject, new: &JsonObject) -> Vec<ManagedFieldsEntry> {
    match unstructured::get(new, &["metadata", "managedFields"]).and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => Vec::new(),
        Some([Value::Object(only)]) if only.is_empty() => Vec::new(),
        Some(_) => valid_entries(new).or_else(|| valid_entries(old)).unwrap_or_default(),
        None => valid_entries(old).unwrap_or_default(),
    }
}

/// Entries of an object; `None` if one is malformed.
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

/// Adds fields to the manager's `Update` entry, creating it if absent.
fn add_to_update_entry(entries: &mut Vec<ManagedFieldsEntry>, written: JsonObject, writer: &FieldManager<'_>) {
    let time = Value::from(writer.now.to_string());
    if let Some(own) = entries.iter_mut().find(|entry| entry.belongs_to(writer)) {
        field_sets::add_all(&mut own.fields, written);
        own.attributes.insert("time".to_owned(), time);
        return;
    }
    let mut attributes = Map::new();
    attributes.insert("manager".to_owned(), writer.name.into());
    attributes.insert("operation".to_owned(), "Update".into());
    attributes.insert("apiVersion".to_owned(), writer.api_version.into());
    attributes.insert("time".to_owned(), time);
    if !writer.subresource.is_empty() {
        attributes.insert("subresource".to_owned(), writer.subresource.into());
    }
    entries.push(ManagedFieldsEntry { attributes, fields: written });
}

/// Merges the oldest `Update` entries of the same version until at most [`UPDATE_MANAGERS_MAX`] are left.
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
