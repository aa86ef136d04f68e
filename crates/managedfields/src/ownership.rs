//! Ownership of entries in their own versions.

use std::borrow::Cow;

use api::json::JsonObject;
use serde_json::Value;

use crate::entries::{Entry, Fields};
use crate::field_set::intersects;
use crate::typed::{Comparison, Form, Type, compare, go_form, reconcile};
use crate::{ConversionUnavailable, FieldSet, ObjectType, VersionedTypes};

/// Fields without managers, whatever the kind: the server sets them.
const UNMANAGED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// The set without the fields that the server sets.
pub(crate) fn without_unmanaged(set: &FieldSet) -> FieldSet {
    use std::sync::LazyLock;
    static UNMANAGED_SET: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_names(&UNMANAGED));
    set.difference(&UNMANAGED_SET)
}

/// The old and the new object of a write, in one version.
pub(crate) struct Change<'a> {
    pub(crate) old: Cow<'a, JsonObject>,
    pub(crate) new: Cow<'a, JsonObject>,
    pub(crate) form: Form,
}

/// The comparisons of a write by version, made when the first entry of a version needs one.
pub(crate) struct Comparisons<'a> {
    types: &'a dyn VersionedTypes,
    api_version: &'a str,
    change: Change<'a>,
    /// The first is that of the request's version.
    by_version: Vec<(String, Comparison)>,
}

impl<'a> Comparisons<'a> {
    /// The comparison in the request's version, whose type must be known.
    pub(crate) fn new(
        types: &'a dyn VersionedTypes,
        api_version: &'a str,
        object_type: ObjectType<'a>,
        change: Change<'a>,
    ) -> Self {
        let comparison = compare(&change.old, &change.new, object_type.into(), change.form);
        let by_version = vec![(api_version.to_owned(), managed_changes(comparison, types.reset_fields(api_version)))];
        Self { types, api_version, change, by_version }
    }

    /// The comparison in the request's version.
    pub(crate) fn own(&self) -> &Comparison {
        &self.by_version[0].1
    }

    /// The comparison in a version that [`VersionedTypes::object_type`] knows.
    pub(crate) fn in_version(
        &mut self,
        api_version: &str,
        object_type: ObjectType<'_>,
    ) -> Result<&Comparison, ConversionUnavailable> {
        let found = self.by_version.iter().position(|(version, _)| version == api_version);
        let position = match found {
            Some(position) => position,
            None => {
                let comparison = self.compare_in_version(api_version, object_type)?;
                let comparison = managed_changes(comparison, self.types.reset_fields(api_version));
                self.by_version.push((api_version.to_owned(), comparison));
                self.by_version.len() - 1
            }
        };
        Ok(&self.by_version[position].1)
    }

    fn compare_in_version(
        &self,
        api_version: &str,
        object_type: ObjectType<'_>,
    ) -> Result<Comparison, ConversionUnavailable> {
        let Change { old, new, form } = &self.change;
        if self.types.has_same_fields(self.api_version, api_version) {
            return Ok(compare(old, new, object_type.into(), *form));
        }
        if old == new {
            return Ok(Comparison::default());
        }
        // The object of a create has no version yet.
        let old = if old.is_empty() { JsonObject::new() } else { self.types.convert(old, api_version)? };
        let new = self.types.convert(new, api_version)?;
        Ok(compare(&old, &new, object_type.into(), Form::of(object_type)))
    }
}

/// The changes that concern managers.
fn managed_changes(mut comparison: Comparison, reset_fields: &FieldSet) -> Comparison {
    if comparison.is_empty() {
        return comparison;
    }
    comparison = comparison.without(reset_fields);
    // The old object has its entries, the new one does not.
    if comparison.removed.has_names(&["metadata", "managedFields"]) {
        comparison.removed = comparison.removed.difference(&FieldSet::of_names(&[["metadata", "managedFields"]]));
    }
    comparison
}

/// Adapts entries to the current schema and drops those of versions that the server does not know.
pub(crate) fn reconcile_entries(entries: &mut Vec<Entry<'_>>, types: &dyn VersionedTypes) {
    entries.retain_mut(|entry| {
        let Some(object_type) = types.object_type(&entry.api_version) else { return false };
        let needs_decoding = match &entry.fields {
            Fields::Encoded(raw) => may_need_reconciling(raw, object_type.into()),
            Fields::Decoded(_) => true,
        };
        if needs_decoding && let Some(set) = reconcile(&entry.set(), object_type.into()) {
            entry.replace_set(set);
        }
        true
    });
}

/// True unless the raw set certainly fits the schema.
fn may_need_reconciling(raw: &Value, set_type: Type<'_>) -> bool {
    crate::typed::has_fields_below_atomic(raw, set_type)
}

/// Takes the changed fields from an entry of another manager.
pub(crate) fn release(entry: &mut Entry<'_>, comparison: &Comparison) {
    if let Fields::Encoded(raw) = &entry.fields
        && ![&comparison.removed, &comparison.modified, &comparison.added].iter().any(|set| intersects(raw, set))
    {
        return;
    }
    let set = entry.set();
    let rest = set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed);
    if rest != *set {
        entry.replace_set(rest);
    }
}

/// The object as structured merge sees it.
pub(crate) fn typed_object(object: &JsonObject, object_type: ObjectType<'_>) -> JsonObject {
    match object_type {
        ObjectType::BuiltIn(kind) => go_form(kind, object),
        ObjectType::Custom { .. } | ObjectType::Deduced => object.clone(),
    }
}
