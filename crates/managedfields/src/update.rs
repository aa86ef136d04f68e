//! Managed fields of creates, updates and patches.

use std::borrow::Cow;

use api::json::JsonObject;
use serde_json::Value;

use crate::entries::{
    Entry, Fields, Operation, decode_entries, encode_entries, managed_fields, merge_oldest_managers, set_managed_fields,
};
use crate::field_set::contains_all;
use crate::ownership::{Change, Comparisons, reconcile_entries, release, without_unmanaged};
use crate::typed::Form;
use crate::{ConversionUnavailable, FieldManager, VersionedTypes};

/// Why an update cannot be recorded. The write must be refused with 503.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// An entry's version cannot be judged now.
    #[error(transparent)]
    ConversionUnavailable(#[from] ConversionUnavailable),
}

/// Records a create (`live` is `None`), an update or a patch: the writer becomes the owner of the fields it changed.
///
/// Both objects are in the version of the writer, decoded and defaulted. Stored entries that cannot be decoded count as
/// none, and entries that a client sent broken are replaced by the stored ones. An object without entries stays so.
pub fn record_update(
    live: Option<&JsonObject>,
    new: &mut JsonObject,
    writer: &FieldManager<'_>,
    types: &dyn VersionedTypes,
) -> Result<(), UpdateError> {
    let sent = new.get_mut("metadata").and_then(|metadata| metadata.as_object_mut()?.remove("managedFields"));
    let mut entries = first_entries(live, sent.as_ref(), writer);
    if entries.is_empty() && live.is_some() {
        return Ok(());
    }
    update_entries(&mut entries, live, new, writer, types)?;
    merge_oldest_managers(&mut entries);
    let list = encode_entries(entries);
    set_managed_fields(new, list);
    Ok(())
}

/// The entries that an update starts from: those that were sent, unless they are broken or a subresource was written.
fn first_entries<'e>(
    live: Option<&'e JsonObject>,
    sent: Option<&'e Value>,
    writer: &FieldManager<'_>,
) -> Vec<Entry<'e>> {
    let stored = || decode_entries(live.and_then(managed_fields)).unwrap_or_default();
    if !writer.subresource.is_empty() {
        return stored();
    }
    match sent.and_then(Value::as_array).map(Vec::as_slice) {
        // The client resets them.
        Some([]) => return Vec::new(),
        Some([Value::Object(only)]) if only.is_empty() => return Vec::new(),
        _ => {}
    }
    decode_entries(sent).ok().filter(|entries| !entries.is_empty()).unwrap_or_else(stored)
}

/// Moves the changed fields to the writer. `old` is `None` for the object without fields.
pub(crate) fn update_entries<'e>(
    entries: &mut Vec<Entry<'e>>,
    old: Option<&JsonObject>,
    new: &JsonObject,
    writer: &FieldManager<'e>,
    types: &dyn VersionedTypes,
) -> Result<(), ConversionUnavailable> {
    let Some(object_type) = types.object_type(writer.api_version) else { return Ok(()) };
    reconcile_entries(entries, types);
    let old = old.map_or_else(|| Cow::Owned(JsonObject::new()), Cow::Borrowed);
    let change = Change { old, new: Cow::Borrowed(new), form: Form::of(object_type) };
    let mut comparisons = Comparisons::new(types, writer.api_version, object_type, change);
    let is_own = |entry: &Entry<'_>| entry.is_of(writer, Operation::Update);
    for entry in entries.iter_mut().filter(|entry| !is_own(entry)) {
        let Some(object_type) = types.object_type(&entry.api_version) else { continue };
        release(entry, comparisons.in_version(&entry.api_version, object_type)?);
    }
    let comparison = comparisons.own();
    if comparison.is_empty() {
        return Ok(());
    }
    let changed = comparison.modified.union(&comparison.added);
    let mine = without_unmanaged(&changed);
    let own = entries.iter_mut().find(|entry| is_own(entry));
    let Some(own) = own else {
        if !mine.is_empty() {
            let mut entry = Entry::of_writer(writer, Operation::Update, mine);
            entry.time = Some(writer.now);
            entries.push(entry);
        }
        return Ok(());
    };
    let keeps_set = match &own.fields {
        Fields::Encoded(raw) => {
            mine == changed && contains_all(raw, &mine) && !crate::field_set::intersects(raw, &comparison.removed)
        }
        Fields::Decoded(_) => false,
    };
    if !keeps_set {
        release(own, comparison);
        if !mine.is_empty() {
            let set = own.set().union(&mine);
            own.replace_set(set);
        }
    }
    if !mine.is_empty() {
        own.time = Some(writer.now);
    }
    Ok(())
}
