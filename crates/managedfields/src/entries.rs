//! The entries of `metadata.managedFields`.

use std::borrow::Cow;
use std::cmp::Ordering;

use api::json::{JsonObject, to_go_json};
use api::time::Time;
use serde_json::{Map, Value};

use crate::field_set::{check_value, has_members};
use crate::{FieldManager, FieldSet};

/// Limit of entries with operation `Update`; the oldest beyond it are merged.
pub(crate) const UPDATE_MANAGERS_MAX: usize = 10;
/// Manager name of merged entries.
const ANCIENT_CHANGES_MANAGER: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// An entry. Its set is decoded only if a write may change it.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) manager: Cow<'a, str>,
    pub(crate) operation: Operation,
    pub(crate) api_version: Cow<'a, str>,
    pub(crate) subresource: Cow<'a, str>,
    pub(crate) time: Option<Time>,
    pub(crate) fields: Fields<'a>,
    /// The entry as it is stored or was sent; `None` if anything but the time changed.
    original: Option<&'a JsonObject>,
}

/// The set of an entry.
#[derive(Clone, Debug)]
pub(crate) enum Fields<'a> {
    Encoded(&'a Value),
    Decoded(FieldSet),
}

/// Entries that Kubernetes cannot decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UndecodableEntries(pub(crate) String);

static NO_FIELDS: Value = Value::Null;

impl<'a> Entry<'a> {
    fn decode(value: &'a Value, index: usize) -> Result<Self, UndecodableEntries> {
        let error = |problem: String| Err(UndecodableEntries(problem));
        let Value::Object(entry) = value else { return error(format!("entry {index} is no object")) };
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return error("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return error("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return error(format!("missing fieldsType in managed fields entry {index}")),
            other => {
                let other = api::quote::Quoted(other);
                return error(format!("invalid fieldsType {other} in managed fields entry {index}"));
            }
        }
        let fields = entry.get("fieldsV1").unwrap_or(&NO_FIELDS);
        if let Err(problem) = check_value(fields) {
            return error(format!(
                "error decoding versioned set from entry {index} of manager {}: error decoding set: {problem}",
                api::quote::Quoted(text("manager"))
            ));
        }
        Ok(Self {
            manager: text("manager").into(),
            operation,
            api_version: text("apiVersion").into(),
            subresource: text("subresource").into(),
            time: text("time").parse().ok(),
            fields: Fields::Encoded(fields),
            original: Some(entry),
        })
    }

    /// A new entry of the writer.
    pub(crate) fn of_writer(writer: &FieldManager<'a>, operation: Operation, set: FieldSet) -> Self {
        Self {
            manager: if writer.name.is_empty() { "unknown" } else { writer.name }.into(),
            operation,
            api_version: writer.api_version.into(),
            subresource: writer.subresource.into(),
            time: None,
            fields: Fields::Decoded(set),
            original: None,
        }
    }

    /// True if the entry belongs to the writer. An applier keeps its entry when it changes the version.
    pub(crate) fn is_of(&self, writer: &FieldManager<'_>, operation: Operation) -> bool {
        let name = if writer.name.is_empty() { "unknown" } else { writer.name };
        self.operation == operation
            && self.manager == name
            && self.subresource == writer.subresource
            && (operation == Operation::Apply || self.api_version == writer.api_version)
    }

    fn has_same_identity(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    pub(crate) fn is_empty(&self) -> bool {
        match &self.fields {
            Fields::Encoded(raw) => !has_members(raw),
            Fields::Decoded(set) => set.is_empty(),
        }
    }

    /// The set, decoded.
    pub(crate) fn set(&self) -> Cow<'_, FieldSet> {
        match &self.fields {
            // The entry was checked when it was decoded.
            Fields::Encoded(raw) => Cow::Owned(FieldSet::from_value(raw).unwrap_or_default()),
            Fields::Decoded(set) => Cow::Borrowed(set),
        }
    }

    pub(crate) fn replace_set(&mut self, set: FieldSet) {
        self.fields = Fields::Decoded(set);
        self.original = None;
    }

    /// The identifier of the manager in Kubernetes, by which messages are sorted.
    pub(crate) fn identifier(&self) -> String {
        let mut parts = Vec::new();
        let mut push = |name: &str, value: &str| {
            if !value.is_empty() {
                parts.push(format!("{name}:{}", String::from_utf8_lossy(&to_go_json(value))));
            }
        };
        push("\"manager\"", &self.manager);
        push("\"operation\"", self.operation.name());
        if self.operation == Operation::Update {
            push("\"apiVersion\"", &self.api_version);
        }
        push("\"subresource\"", &self.subresource);
        format!("{{{}}}", parts.join(","))
    }

    fn seconds(&self) -> i64 {
        self.time.map_or(0, |time| time.timestamp().as_second())
    }

    /// Order in the object: appliers first, then by age.
    fn compare(&self, other: &Self) -> Ordering {
        self.operation
            .cmp(&other.operation)
            .then_with(|| self.seconds().cmp(&other.seconds()))
            .then_with(|| self.manager.cmp(&other.manager))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    fn encode(&self) -> Value {
        let time = self.time.map(|time| time.to_string());
        if let Some(original) = self.original {
            let mut entry = original.clone();
            match time {
                Some(time) if entry.get("time").and_then(Value::as_str) != Some(&time) => {
                    entry.insert("time".to_owned(), time.into());
                }
                _ => {}
            }
            return Value::Object(entry);
        }
        let fields = match &self.fields {
            Fields::Encoded(raw) => (*raw).clone(),
            Fields::Decoded(set) => set.to_value(),
        };
        let mut entry = Map::new();
        for (name, text) in [
            ("manager", &*self.manager),
            ("operation", self.operation.name()),
            ("apiVersion", &*self.api_version),
            ("time", time.as_deref().unwrap_or_default()),
            ("fieldsType", "FieldsV1"),
            ("subresource", &*self.subresource),
        ] {
            if !text.is_empty() {
                entry.insert(name.to_owned(), text.into());
            }
        }
        entry.insert("fieldsV1".to_owned(), fields);
        Value::Object(entry)
    }
}

/// The entries of a `managedFields`. Of several entries of one identity the last counts.
pub(crate) fn decode_entries(value: Option<&Value>) -> Result<Vec<Entry<'_>>, UndecodableEntries> {
    let list = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut entries: Vec<Entry<'_>> = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let entry = Entry::decode(value, index)?;
        entries.retain(|other| !other.has_same_identity(&entry));
        entries.push(entry);
    }
    Ok(entries)
}

/// The `managedFields` of the entries; `None` if there are none.
pub(crate) fn encode_entries(mut entries: Vec<Entry<'_>>) -> Option<Value> {
    entries.retain(|entry| !entry.is_empty());
    entries.sort_by(Entry::compare);
    (!entries.is_empty()).then(|| Value::Array(entries.iter().map(Entry::encode).collect()))
}

/// Sets or removes `metadata.managedFields`.
pub(crate) fn set_managed_fields(object: &mut JsonObject, managed_fields: Option<Value>) {
    match (object.get_mut("metadata"), managed_fields) {
        (Some(Value::Object(metadata)), Some(managed_fields)) => {
            metadata.insert("managedFields".to_owned(), managed_fields);
        }
        (Some(Value::Object(metadata)), None) => {
            metadata.remove("managedFields");
        }
        (_, Some(managed_fields)) => {
            let metadata = Map::from_iter([("managedFields".to_owned(), managed_fields)]);
            object.insert("metadata".to_owned(), Value::Object(metadata));
        }
        (_, None) => {}
    }
}

/// The `metadata.managedFields` of an object.
pub(crate) fn managed_fields(object: &JsonObject) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Merges the oldest `Update` entries of the same version until at most [`UPDATE_MANAGERS_MAX`] are left. Entries of
/// different versions are never merged.
pub(crate) fn merge_oldest_managers(entries: &mut Vec<Entry<'_>>) {
    let is_update = |entry: &Entry<'_>| entry.operation == Operation::Update;
    let mut count = entries.iter().filter(|entry| is_update(entry)).count();
    if count <= UPDATE_MANAGERS_MAX {
        return;
    }
    let mut oldest: Vec<(i64, String)> = Vec::new();
    oldest.extend(entries.iter().filter(|entry| is_update(entry)).map(|entry| (entry.seconds(), entry.identifier())));
    oldest.sort();
    // The first entry of each version, into which later ones are merged.
    let mut first_of_version: Vec<(String, String)> = Vec::new();
    for (_, identifier) in oldest {
        if count <= UPDATE_MANAGERS_MAX {
            return;
        }
        let position = |identifier: &str, entries: &[Entry<'_>]| {
            entries.iter().position(|entry| is_update(entry) && entry.identifier() == identifier)
        };
        let Some(at) = position(&identifier, entries) else { continue };
        let version = entries[at].api_version.to_string();
        let Some((_, first)) = first_of_version.iter_mut().find(|(other, _)| *other == version) else {
            first_of_version.push((version, identifier));
            continue;
        };
        let newer = entries.remove(at);
        let bucket =
            Entry { manager: ANCIENT_CHANGES_MANAGER.into(), subresource: "".into(), original: None, ..newer.clone() };
        let bucket_identifier = bucket.identifier();
        let target = position(&bucket_identifier, entries).or_else(|| position(first, entries));
        if let Some(target) = target {
            let set = newer.set().union(&entries[target].set());
            entries[target] = bucket;
            entries[target].replace_set(set);
            *first = bucket_identifier;
            count -= 1;
        } else {
            entries.insert(at, newer);
        }
    }
}
