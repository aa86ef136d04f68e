//! What a write through a subresource may change.
//!
//! One table for all kinds: what a row does not name stays as it is stored, whatever the request says. The next state then
//! passes the same checks of values and of immutable fields as a write to the object itself; a subresource that is not in the
//! table is not served.

use catalogue::Served;
use object::access::set;
use serde_json::json;

use super::name_of;
use crate::forms::Object;

/// A subresource through which objects are written.
pub(super) struct Part {
    /// The group and the plural of its kind; `None`: any kind that has it.
    of: Option<(&'static str, &'static str)>,
    name: &'static str,
    pub(super) changes: Changes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// These fields, as one or two names with a dot.
    Fields(&'static [&'static str]),
    /// `status`, and metadata where [`object::rules::StatusPart`] says so.
    Status,
    /// What its handler decides: the body is a request of a kind of its own.
    Request,
}

const PODS: Option<(&str, &str)> = Some(("", "pods"));
const SIGNING_REQUESTS: Option<(&str, &str)> = Some(("certificates.k8s.io", "certificatesigningrequests"));

static PARTS: &[Part] = &[
    part(None, "scale", Changes::Fields(&["spec.replicas"])),
    part(None, "status", Changes::Status),
    part(Some(("", "namespaces")), "finalize", Changes::Fields(&["metadata", "spec.finalizers"])),
    part(PODS, "binding", Changes::Request),
    part(PODS, "ephemeralcontainers", Changes::Fields(&["spec.ephemeralContainers"])),
    part(PODS, "eviction", Changes::Request),
    part(PODS, "resize", Changes::Fields(&["spec.containers", "spec.initContainers", "spec.resources"])),
    part(Some(("", "serviceaccounts")), "token", Changes::Request),
    part(SIGNING_REQUESTS, "approval", Changes::Fields(&["metadata", "status.conditions"])),
];

const fn part(of: Option<(&'static str, &'static str)>, name: &'static str, changes: Changes) -> Part {
    Part { of, name, changes }
}

/// The row of a subresource; `None` if objects are not written through it.
pub(super) fn of(served: &Served, subresource: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.name == subresource && part.of.is_none_or(|of| of == name_of(served)))
}

/// Whether objects of any kind are written through a subresource.
pub(crate) fn is_written(subresource: &str) -> bool {
    PARTS.iter().any(|part| part.name == subresource)
}

/// The stored object with these fields as the request has them, and with the uid and resourceVersion that the request names:
/// both are checked later.
pub(super) fn confine(old: &Object, new: &Object, fields: &[&str]) -> Object {
    let mut next = old.clone();
    for path in ["metadata.uid", "metadata.resourceVersion"].iter().chain(fields) {
        match path.split_once('.') {
            None => set(&mut next, path, new.get(*path).cloned()),
            Some((part, name)) => {
                let value = new.get(part).and_then(|part| part.get(name));
                if value.is_none() && !next.contains_key(part) {
                    continue;
                }
                if let Some(inner) = next.entry(part).or_insert_with(|| json!({})).as_object_mut() {
                    set(inner, name, value.cloned());
                }
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use catalogue::{Gates, Release, RuntimeConfig, Surface};

    use super::*;
    use crate::rest::is_built;

    fn everything(release: Release) -> Surface {
        let gates = Gates::parse(release, "AllAlpha=true,AllBeta=true").unwrap();
        Surface::new(&gates, &RuntimeConfig::parse(release, "api/all=true").unwrap())
    }

    #[test]
    fn every_writing_subresource_of_every_release_says_what_it_changes() {
        let mut used = BTreeSet::new();
        for release in Release::ALL {
            let surface = everything(release);
            for served in surface.served() {
                for subresource in served.kind.subresources.iter().filter(|subresource| subresource.built) {
                    let writes = ["create", "patch", "update"].iter().any(|verb| subresource.verbs.contains(verb));
                    let row = of(served, subresource.name);
                    let name = format!("{release} {}/{}", served.kind.plural, subresource.name);
                    assert_eq!(writes, row.is_some(), "{name}");
                    assert!(is_built(subresource), "{name}");
                    used.extend(row.map(|row| row.name));
                }
            }
        }
        assert_eq!(used.len(), PARTS.len(), "every row is of a subresource: {used:?}");
    }

    #[test]
    fn confined_writes_change_their_fields_and_nothing_else() {
        let object = |mark: &str| -> Object {
            let part = json!({"finalizers": mark, "replicas": mark, "ephemeralContainers": mark, "containers": mark,
                "initContainers": mark, "resources": mark, "conditions": mark, "other": mark});
            let metadata = json!({"name": "n", "uid": mark, "resourceVersion": mark, "labels": {"a": mark}});
            let all = [("metadata", metadata), ("spec", part.clone()), ("status", part), ("data", json!(mark))];
            all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        };
        let (old, new) = (object("old"), object("new"));
        for row in PARTS {
            let Changes::Fields(fields) = row.changes else { continue };
            let next = confine(&old, &new, fields);
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
            assert_eq!(confine(&old, &Object::new(), fields)["data"], "old", "{}", row.name);
        }
        assert_eq!(confine(&Object::new(), &Object::new(), &["spec.replicas"]), Object::new());
    }
}
