//! What a write through a subresource may change.
//!
//! One table for all kinds: what a row does not name stays as it is stored, whatever the request says. The next state then
//! passes the same checks of values and of immutable fields as a write to the object itself; a subresource that is not in the
//! table is not served.

use api::json::JsonObject;
use catalogue::ServedResource;
use object::unstructured::set_or_remove;
use serde_json::json;

use super::group_and_plural;

/// A subresource through which objects are written.
pub(super) struct WritableSubresource {
    /// The group and the plural of its kind; `None`: any kind that has it.
    group_and_plural: Option<(&'static str, &'static str)>,
    name: &'static str,
    pub(super) writable_fields: WritableFields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WritableFields {
    /// These fields, as one or two names with a dot.
    Fields(&'static [&'static str]),
    /// `status`, and metadata where [`object::rules::StatusSubresource`] says so.
    Status,
    /// What its handler decides: the body is a request of a kind of its own.
    HandlerDefined,
}

const PODS: Option<(&str, &str)> = Some(("", "pods"));
const SIGNING_REQUESTS: Option<(&str, &str)> = Some(("certificates.k8s.io", "certificatesigningrequests"));

static WRITABLE_SUBRESOURCES: &[WritableSubresource] = &[
    writable_subresource(None, "scale", WritableFields::Fields(&["spec.replicas"])),
    writable_subresource(None, "status", WritableFields::Status),
    writable_subresource(
        Some(("", "namespaces")),
        "finalize",
        WritableFields::Fields(&["metadata", "spec.finalizers"]),
    ),
    writable_subresource(PODS, "binding", WritableFields::HandlerDefined),
    writable_subresource(PODS, "ephemeralcontainers", WritableFields::Fields(&["spec.ephemeralContainers"])),
    writable_subresource(PODS, "eviction", WritableFields::HandlerDefined),
    writable_subresource(
        PODS,
        "resize",
        WritableFields::Fields(&["spec.containers", "spec.initContainers", "spec.resources"]),
    ),
    writable_subresource(Some(("", "serviceaccounts")), "token", WritableFields::HandlerDefined),
    writable_subresource(SIGNING_REQUESTS, "approval", WritableFields::Fields(&["metadata", "status.conditions"])),
];

const fn writable_subresource(
    of: Option<(&'static str, &'static str)>,
    name: &'static str,
    changes: WritableFields,
) -> WritableSubresource {
    WritableSubresource { group_and_plural: of, name, writable_fields: changes }
}

/// The row of a subresource; `None` if objects are not written through it.
pub(super) fn find_writable_subresource(
    served: &ServedResource,
    subresource: &str,
) -> Option<&'static WritableSubresource> {
    WRITABLE_SUBRESOURCES
        .iter()
        .find(|part| part.name == subresource && part.group_and_plural.is_none_or(|of| of == group_and_plural(served)))
}

/// Whether objects of any kind are written through a subresource.
pub(crate) fn is_writable_subresource(subresource: &str) -> bool {
    WRITABLE_SUBRESOURCES.iter().any(|part| part.name == subresource)
}

/// The stored object with these fields as the request has them, and with the uid and resourceVersion that the request names:
/// both are checked later.
pub(super) fn restrict_to_fields(old: &JsonObject, new: &JsonObject, fields: &[&str]) -> JsonObject {
    let mut next = old.clone();
    for path in ["metadata.uid", "metadata.resourceVersion"].iter().chain(fields) {
        match path.split_once('.') {
            None => set_or_remove(&mut next, path, new.get(*path).cloned()),
            Some((part, name)) => {
                let value = new.get(part).and_then(|part| part.get(name));
                if value.is_none() && !next.contains_key(part) {
                    continue;
                }
                if let Some(inner) = next.entry(part).or_insert_with(|| json!({})).as_object_mut() {
                    set_or_remove(inner, name, value.cloned());
                }
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use catalogue::{FeatureGates, Release, RuntimeConfig, ServedResources};

    use super::*;
    use crate::rest::is_subresource_implemented;

    fn served_with_everything_enabled(release: Release) -> ServedResources {
        let feature_gates = FeatureGates::parse(release, "AllAlpha=true,AllBeta=true").unwrap();
        ServedResources::new(&feature_gates, &RuntimeConfig::parse(release, "api/all=true").unwrap())
    }

    #[test]
    fn every_writable_subresource_of_every_release_is_in_the_table() {
        let mut used = BTreeSet::new();
        for release in Release::ALL {
            let served_resources = served_with_everything_enabled(release);
            for served in served_resources.resources() {
                for subresource in served.kind.subresources.iter().filter(|subresource| subresource.is_implemented) {
                    let writes = ["create", "patch", "update"].iter().any(|verb| subresource.verbs.contains(verb));
                    let row = find_writable_subresource(served, subresource.name);
                    let name = format!("{release} {}/{}", served.kind.plural, subresource.name);
                    assert_eq!(writes, row.is_some(), "{name}");
                    assert!(is_subresource_implemented(subresource), "{name}");
                    used.extend(row.map(|row| row.name));
                }
            }
        }
        assert_eq!(used.len(), WRITABLE_SUBRESOURCES.len(), "every row is of a subresource: {used:?}");
    }

    #[test]
    fn restrict_to_fields_changes_only_listed_fields() {
        let object = |mark: &str| -> JsonObject {
            let part = json!({"finalizers": mark, "replicas": mark, "ephemeralContainers": mark, "containers": mark,
                "initContainers": mark, "resources": mark, "conditions": mark, "other": mark});
            let metadata = json!({"name": "n", "uid": mark, "resourceVersion": mark, "labels": {"a": mark}});
            let all = [("metadata", metadata), ("spec", part.clone()), ("status", part), ("data", json!(mark))];
            all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        };
        let (old, new) = (object("old"), object("new"));
        for row in WRITABLE_SUBRESOURCES {
            let WritableFields::Fields(fields) = row.writable_fields else { continue };
            let next = restrict_to_fields(&old, &new, fields);
            for (part, value) in &next {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let path = format!("{part}.{name}");
                    let is_free = fields.contains(&&*path) || fields.contains(&&**part);
                    let is_named = ["metadata.uid", "metadata.resourceVersion"].contains(&&*path);
                    let expected = if is_free || is_named { &new } else { &old };
                    assert_eq!(*value, expected[part][name], "{} {path}", row.name);
                }
            }
            assert_eq!(next["data"], "old", "{}", row.name);
            assert_eq!(restrict_to_fields(&old, &JsonObject::new(), fields)["data"], "old", "{}", row.name);
        }
        assert_eq!(restrict_to_fields(&JsonObject::new(), &JsonObject::new(), &["spec.replicas"]), JsonObject::new());
    }
}
