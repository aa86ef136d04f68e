//! Removal of what a manager applied before and applies no more.

use std::borrow::Cow;

use api::json::JsonObject;

use crate::entries::Entry;
use crate::ownership::typed_object;
use crate::typed::{remove_items, to_set, with_named_fields};
use crate::{ConversionUnavailable, FieldSet, ObjectType, VersionedTypes};

/// What a manager owned before the apply.
pub(crate) struct LastApplied<'a> {
    pub(crate) api_version: Cow<'a, str>,
    pub(crate) set: FieldSet,
}

/// An object as structured merge sees it, and its version.
#[derive(Clone)]
struct Versioned<'a> {
    object: JsonObject,
    api_version: Cow<'a, str>,
}

/// The merged object without the fields of `last` that no manager owns, `entries` being those after the apply.
///
/// A list item goes with all that is inside unless another manager owns the item itself.
pub(crate) fn prune(
    merged: JsonObject,
    last: Option<LastApplied<'_>>,
    entries: &[Entry<'_>],
    api_version: &str,
    types: &dyn VersionedTypes,
) -> Result<JsonObject, ConversionUnavailable> {
    let Some(last) = last.filter(|last| !last.set.is_empty()) else { return Ok(merged) };
    let Some(last_type) = types.object_type(&last.api_version) else { return Ok(merged) };
    let owned_in_last_version = owned_in(entries, &last.api_version);
    if last.set.difference(&owned_in_last_version).is_empty() {
        return Ok(merged);
    }
    let merged = Versioned { object: merged, api_version: api_version.into() };
    let merged = convert(merged, &last.api_version, last_type, types)?;
    let last_set = with_named_fields(&last.set, Some(last_type.into()));
    let removed = remove_items(&merged.object, &last_set, last_type.into());
    let removed = Versioned { object: removed, api_version: merged.api_version.clone() };
    let removed = add_back_owned(merged.clone(), removed, entries, types)?;
    // Fields outside the previous configuration stay, also those of other managers.
    let removed = convert(removed, &last.api_version, last_type, types)?;
    let fields = |object: &JsonObject| with_named_fields(&to_set(object, last_type.into()), Some(last_type.into()));
    let lost = fields(&merged.object).difference(&fields(&removed.object)).intersection(&last_set);
    let object = remove_items(&merged.object, &lost, last_type.into());
    let pruned = Versioned { object, api_version: merged.api_version };
    let Some(object_type) = types.object_type(api_version) else { return Ok(pruned.object) };
    Ok(convert(pruned, api_version, object_type, types)?.object)
}

fn owned_in(entries: &[Entry<'_>], api_version: &str) -> FieldSet {
    let of_version = entries.iter().filter(|entry| entry.api_version == api_version);
    of_version.fold(FieldSet::default(), |owned, entry| owned.union(&entry.set()))
}

/// Restores what a manager owns: first in the version in which it was removed, then in all others.
fn add_back_owned<'a>(
    mut merged: Versioned<'a>,
    mut removed: Versioned<'a>,
    entries: &[Entry<'_>],
    types: &dyn VersionedTypes,
) -> Result<Versioned<'a>, ConversionUnavailable> {
    let mut versions: Vec<String> = entries.iter().map(|entry| entry.api_version.to_string()).collect();
    versions.sort();
    versions.dedup();
    versions.sort_by_key(|version| *version != *merged.api_version);
    for version in versions {
        let Some(object_type) = types.object_type(&version) else { continue };
        merged = convert(merged, &version, object_type, types)?;
        removed = convert(removed, &version, object_type, types)?;
        let named = |set: &FieldSet| with_named_fields(set, Some(object_type.into()));
        let all = named(&to_set(&merged.object, object_type.into()));
        let kept = named(&to_set(&removed.object, object_type.into())).union(&named(&owned_in(entries, &version)));
        removed.object = remove_items(&merged.object, &all.difference(&kept), object_type.into());
    }
    Ok(removed)
}

fn convert<'a>(
    from: Versioned<'a>,
    api_version: &str,
    object_type: ObjectType<'_>,
    types: &dyn VersionedTypes,
) -> Result<Versioned<'a>, ConversionUnavailable> {
    if from.api_version == api_version {
        return Ok(from);
    }
    let object = types.convert(&from.object, api_version)?;
    Ok(Versioned { object: typed_object(&object, object_type), api_version: api_version.to_owned().into() })
}
