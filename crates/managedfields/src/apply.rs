//! Server-side apply.

use std::borrow::Cow;

use api::json::JsonObject;
use serde_json::Value;

use crate::conflicts::Conflicts;
use crate::entries::{Entry, Fields, Operation, decode_entries, encode_entries, managed_fields, set_managed_fields};
use crate::field_set::intersects;
use crate::last_applied;
use crate::ownership::{Change, Comparisons, reconcile_entries, release, typed_object, without_unmanaged};
use crate::prune::{LastApplied, prune};
use crate::typed::{Form, drop_supplied, merge, objects_equal, restore_applied_empty, to_set, validate};
use crate::update::update_entries;
use crate::{ConversionUnavailable, FieldManager, FieldSet, ObjectType, VersionedTypes};

/// The manager of the fields of an object that had no managers before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Why a configuration cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 400: `apiVersion` or `kind` of the configuration is not the endpoint's.
    #[error("invalid object type: {found}")]
    WrongType {
        /// The type of the configuration: `apps/v1, Kind=Deployment`.
        found: String,
    },
    /// 400: the configuration has `metadata.managedFields`.
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsNotNil,
    /// 500 in Kubernetes: the configuration does not fit the schema.
    #[error("{0}")]
    InvalidConfig(String),
    /// 500: the stored entries cannot be decoded.
    #[error("failed to decode managed fields: {0}")]
    UndecodableManagedFields(String),
    /// 409.
    #[error("{}", .0.message())]
    Conflicts(Conflicts),
    /// 503: an entry's version cannot be judged now.
    #[error(transparent)]
    ConversionUnavailable(#[from] ConversionUnavailable),
}

/// Applies a configuration. `live` is `None` if the object does not exist, else it is in the version of the writer.
///
/// The result is the merged object with its `managedFields`, before defaulting. `None` means that the apply changes
/// nothing, entries included.
pub fn apply(
    live: Option<&JsonObject>,
    config: &JsonObject,
    force: bool,
    writer: &FieldManager<'_>,
    types: &dyn VersionedTypes,
) -> Result<Option<JsonObject>, ApplyError> {
    let stored = live.and_then(managed_fields);
    let mut entries = decode_entries(stored).map_err(|error| ApplyError::UndecodableManagedFields(error.0))?;
    check_type(config, writer, types)?;
    let Some(object_type) = types.object_type(writer.api_version) else {
        return Err(ApplyError::WrongType { found: shown_type(config) });
    };
    if config.get("metadata").and_then(|metadata| metadata.get("managedFields")).is_some_and(Value::is_array) {
        return Err(ApplyError::ManagedFieldsNotNil);
    }
    if let Err(errors) = validate(config, object_type.into()) {
        let text = format!("failed to create typed patch object ({}): {errors}", shown_object(config));
        return Err(ApplyError::InvalidConfig(text));
    }
    if let (true, Some(live)) = (entries.is_empty(), live) {
        let writer = FieldManager { name: BEFORE_FIRST_APPLY, ..*writer };
        let mut bare = live.clone();
        set_managed_fields(&mut bare, None);
        update_entries(&mut entries, None, &bare, &writer, types)?;
    }
    reconcile_entries(&mut entries, types);
    let attempt = Attempt { live, config, writer, types, object_type };
    let outcome = match attempt.run(entries.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) if writer.name == last_applied::MANAGER => {
            match last_applied::allowed_conflicts(live, writer, object_type) {
                None => return Err(ApplyError::Conflicts(conflicts)),
                Some(allowed) => match conflicts.without(&allowed) {
                    Some(rest) => return Err(ApplyError::Conflicts(rest)),
                    None => attempt.run(entries, true)?,
                },
            }
        }
        outcome => outcome?,
    };
    let mut result = outcome.object;
    if writer.name == last_applied::MANAGER {
        last_applied::refresh_annotation(&mut result, config);
    }
    set_managed_fields(&mut result, outcome.managed_fields);
    let is_unchanged = live.is_some_and(|live| *live == result);
    Ok((!is_unchanged).then_some(result))
}

/// One apply of a valid configuration.
struct Attempt<'a> {
    live: Option<&'a JsonObject>,
    config: &'a JsonObject,
    writer: &'a FieldManager<'a>,
    types: &'a dyn VersionedTypes,
    object_type: ObjectType<'a>,
}

struct Outcome {
    /// Without `managedFields`.
    object: JsonObject,
    managed_fields: Option<Value>,
}

impl<'a> Attempt<'a> {
    fn run(&self, mut entries: Vec<Entry<'a>>, force: bool) -> Result<Outcome, ApplyError> {
        let (writer, types) = (self.writer, self.types);
        let mut live = typed_object(self.live.unwrap_or(&JsonObject::new()), self.object_type);
        set_managed_fields(&mut live, None);
        let merged = merge(&live, self.config, self.object_type.into());
        let applied = to_set(self.config, self.object_type.into());
        let applied = applied.recursive_difference(types.reset_fields(writer.api_version));
        let last = replace_own_entry(&mut entries, writer, applied);
        let mut merged = prune(merged, last, &entries, writer.api_version, types)?;
        restore_applied_empty(&mut merged, self.config, self.object_type.into());
        let change = Change { old: Cow::Borrowed(&live), new: Cow::Borrowed(&merged), form: Form::Exact };
        let mut comparisons = Comparisons::new(types, writer.api_version, self.object_type, change);
        let mut conflicts = Vec::new();
        let mut kept = Vec::with_capacity(entries.len());
        for mut entry in entries {
            if !entry.is_of(writer, Operation::Apply) {
                let Some(object_type) = types.object_type(&entry.api_version) else { continue };
                let comparison = comparisons.in_version(&entry.api_version, object_type)?;
                if !force {
                    conflicts.push(conflicting_fields(&entry, comparison));
                }
                release(&mut entry, comparison);
            }
            kept.push(entry);
        }
        drop(comparisons);
        let conflicts = kept.iter().filter(|entry| !entry.is_of(writer, Operation::Apply)).zip(conflicts);
        if let Some(conflicts) = Conflicts::new(conflicts.filter(|(_, fields)| !fields.is_empty()).collect()) {
            return Err(ApplyError::Conflicts(conflicts));
        }
        let is_changed = !objects_equal(&live, &merged);
        for own in kept.iter_mut().filter(|entry| entry.is_of(writer, Operation::Apply)) {
            let set = without_unmanaged(&own.set());
            if set != *own.set() {
                own.replace_set(set);
            }
            if is_changed || own.time.is_none() {
                own.time = Some(writer.now);
            }
        }
        Ok(Outcome { object: self.without_supplied(merged), managed_fields: encode_entries(kept) })
    }

    fn without_supplied(&self, mut merged: JsonObject) -> JsonObject {
        if !matches!(self.object_type, ObjectType::BuiltIn(_)) {
            return merged;
        }
        drop_supplied(&mut merged, self.object_type.into(), [self.live, Some(self.config)]);
        merged
    }
}

fn conflicting_fields(entry: &Entry<'_>, comparison: &crate::typed::Comparison) -> FieldSet {
    let changed = [&comparison.modified, &comparison.added];
    if let Fields::Encoded(raw) = &entry.fields
        && !changed.iter().any(|set| intersects(raw, set))
    {
        return FieldSet::default();
    }
    entry.set().intersection(&comparison.modified.union(&comparison.added))
}

/// Makes `applied` the set of the writer's entry; returns what the entry was.
fn replace_own_entry<'e>(
    entries: &mut Vec<Entry<'e>>,
    writer: &FieldManager<'e>,
    applied: FieldSet,
) -> Option<LastApplied<'e>> {
    let Some(own) = entries.iter_mut().find(|entry| entry.is_of(writer, Operation::Apply)) else {
        entries.push(Entry::of_writer(writer, Operation::Apply, applied));
        return None;
    };
    let last = LastApplied { api_version: own.api_version.clone(), set: own.set().into_owned() };
    if without_unmanaged(&applied) == last.set && own.api_version == writer.api_version {
        // The entry stays as it is.
        return Some(last);
    }
    own.api_version = writer.api_version.into();
    own.replace_set(applied);
    Some(last)
}

fn check_type(config: &JsonObject, writer: &FieldManager<'_>, types: &dyn VersionedTypes) -> Result<(), ApplyError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") == writer.api_version && text("kind") == types.kind() {
        return Ok(());
    }
    Err(ApplyError::WrongType { found: shown_type(config) })
}

/// Group, version and kind as Go prints them: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
fn shown_type(config: &JsonObject) -> String {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", text("kind"))
}

/// `namespace/name; apps/v1, Kind=Deployment`.
fn shown_object(config: &JsonObject) -> String {
    let metadata =
        |name: &str| config.get("metadata").and_then(|metadata| metadata.get(name)?.as_str()).unwrap_or_default();
    format!("{}/{}; {}", metadata("namespace"), metadata("name"), shown_type(config))
}
