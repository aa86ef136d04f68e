//! `managedFields`: who has written which field, kept well-formed on every update.
//!
//! Without a schema a list is one field, so a writer owns it whole; sets written by others may look inside of lists and are
//! kept as they are. Server-side apply, which needs more, is not here.

mod sets;

use api::time::Time;
use serde_json::{Map, Value};

use crate::access::{self, Object, metadata_mut};
use crate::validate::MANAGER_LENGTH_MAX;

/// How many managers by update are kept; the oldest are merged into one beyond that, as in Kubernetes.
const UPDATERS_MAX: usize = 10;
/// The manager that the oldest ones are merged into.
const ANCIENT: &str = "ancient-changes";

/// Who writes, through which door, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// See [`manager_name`].
    pub manager: &'a str,
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
/// The writer owns what it changed, nobody owns what is gone. An update that changes nothing leaves the list as it was. A
/// client that sends none keeps the stored one, and one that sends an empty one resets it.
pub fn update(old: &Map<String, Value>, new: &mut Map<String, Value>, writer: &Writer<'_>) {
    let mut entries = match writer.subresource {
        "" => sent_or_stored(old, new),
        _ => valid_entries(old).unwrap_or_default(),
    };
    let change = sets::compare(old, new);
    if !change.is_empty() {
        for entry in &mut entries {
            change.take_from(&mut entry.fields);
        }
        if !change.written.is_empty() {
            give(&mut entries, change.written, writer);
        }
        entries.retain(|entry| !entry.fields.is_empty());
        merge_oldest(&mut entries);
    }
    entries.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    let list: Vec<Value> = entries.into_iter().map(Entry::into_value).collect();
    let list = (!list.is_empty()).then_some(Value::Array(list));
    access::set(metadata_mut(new), "managedFields", list);
}

/// One manager and what it owns. The rest of the entry is kept as it came.
struct Entry {
    rest: Object,
    fields: Object,
}

impl Entry {
    fn text(&self, name: &str) -> &str {
        access::text(&self.rest, &[name])
    }

    fn is_of(&self, writer: &Writer<'_>) -> bool {
        self.text("manager") == writer.manager
            && self.text("operation") == "Update"
            && self.text("apiVersion") == writer.api_version
            && self.text("subresource") == writer.subresource
    }

    /// As Kubernetes sorts them. Times are all in UTC and to the second, so their text sorts as they do.
    fn sort_key(&self) -> [&str; 5] {
        ["operation", "time", "manager", "apiVersion", "subresource"].map(|name| self.text(name))
    }

    fn into_value(mut self) -> Value {
        self.rest.insert("fieldsType".to_owned(), "FieldsV1".into());
        self.rest.insert("fieldsV1".to_owned(), Value::Object(self.fields));
        Value::Object(self.rest)
    }
}

/// What the client has sent, if it is well-formed; else what is stored.
fn sent_or_stored(old: &Object, new: &Object) -> Vec<Entry> {
    match access::get(new, &["metadata", "managedFields"]).and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => Vec::new(),
        Some([Value::Object(only)]) if only.is_empty() => Vec::new(),
        Some(_) => valid_entries(new).or_else(|| valid_entries(old)).unwrap_or_default(),
        None => valid_entries(old).unwrap_or_default(),
    }
}

/// The entries of an object; `None` unless all of them are well-formed.
fn valid_entries(object: &Object) -> Option<Vec<Entry>> {
    let list = access::list(object, &["metadata", "managedFields"]);
    list.iter().map(entry).collect::<Option<Vec<_>>>()
}

fn entry(value: &Value) -> Option<Entry> {
    let mut rest = value.as_object()?.clone();
    let Some(Value::Object(fields)) = rest.remove("fieldsV1") else { return None };
    let is_valid = matches!(access::text(&rest, &["operation"]), "Apply" | "Update")
        && access::text(&rest, &["fieldsType"]) == "FieldsV1"
        && !access::text(&rest, &["apiVersion"]).is_empty()
        && sets::is_valid(&fields);
    is_valid.then_some(Entry { rest, fields })
}

/// Adds fields to the writer's entry, which is made if there is none.
fn give(entries: &mut Vec<Entry>, written: Object, writer: &Writer<'_>) {
    let time = Value::from(writer.now.to_string());
    if let Some(own) = entries.iter_mut().find(|entry| entry.is_of(writer)) {
        sets::add(&mut own.fields, written);
        own.rest.insert("time".to_owned(), time);
        return;
    }
    let mut rest = Map::new();
    rest.insert("manager".to_owned(), writer.manager.into());
    rest.insert("operation".to_owned(), "Update".into());
    rest.insert("apiVersion".to_owned(), writer.api_version.into());
    rest.insert("time".to_owned(), time);
    if !writer.subresource.is_empty() {
        rest.insert("subresource".to_owned(), writer.subresource.into());
    }
    entries.push(Entry { rest, fields: written });
}

/// Merges the oldest managers by update that share a version, until there are few enough.
fn merge_oldest(entries: &mut Vec<Entry>) {
    entries.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    let updaters = entries.iter().filter(|entry| entry.text("operation") == "Update").count();
    for _ in UPDATERS_MAX..updaters {
        let is_update = |entry: &Entry| entry.text("operation") == "Update";
        let pair = entries.iter().enumerate().filter(|(_, entry)| is_update(entry)).find_map(|(first, entry)| {
            let mut later = entries.iter().enumerate().skip(first + 1);
            let second =
                later.find(|(_, other)| is_update(other) && other.text("apiVersion") == entry.text("apiVersion"))?;
            Some((first, second.0))
        });
        let Some((first, second)) = pair else { return };
        let newer = entries.remove(second);
        let older = &mut entries[first];
        sets::add(&mut older.fields, newer.fields);
        older.rest.insert("manager".to_owned(), ANCIENT.into());
        older.rest.remove("subresource");
        access::set(&mut older.rest, "time", newer.rest.get("time").cloned());
    }
}

#[cfg(test)]
mod tests;
