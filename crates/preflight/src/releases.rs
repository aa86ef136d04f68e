//! What releases know of built-in kinds: the only module that uses `kinds`.

use std::collections::BTreeSet;

use api::GroupVersionKind;
pub use kinds::Release;
use kinds::groups::GROUPS;
use kinds::{BuiltInGroup, BuiltInKind, FeatureGates, ServedResources, types_of};
use schema::protobuf::ProtobufError;
use schema::{StructType, TypeForm, ValueType};
use serde_json::{Map, Value};

use crate::flags::{CheckedFlags, ServerFlags, StartRefusal};

/// How deep objects may nest; serde_json's own limit is 128.
const DEPTH_MAX: usize = 128;

/// A built-in resource with a place in storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredKind {
    /// The API group; empty for core.
    pub group: &'static str,
    /// The plural, `pods`.
    pub resource: &'static str,
    /// The key after the prefix, `services/specs`.
    pub key_prefix: &'static str,
}

/// Every built-in resource of every release, once for each place in storage.
pub fn stored_kinds() -> impl Iterator<Item = StoredKind> {
    let kinds = GROUPS.into_iter().flat_map(|group| group.kinds.iter().map(move |kind| (group, kind)));
    kinds.filter(|(_, kind)| is_stored_under_own_group(kind)).map(|(group, kind)| stored_kind(group, kind))
}

fn is_stored_under_own_group(kind: &BuiltInKind) -> bool {
    let has_place = Release::ALL.into_iter().any(|release| kind.storage_version(release).is_some());
    has_place && kind.storage_group().is_none()
}

fn stored_kind(group: &BuiltInGroup, kind: &BuiltInKind) -> StoredKind {
    StoredKind { group: group.name, resource: kind.plural, key_prefix: kind.key_prefix() }
}

/// The built-in part of a kube-apiserver of one release, started with these flags.
#[derive(Debug)]
pub struct TargetServer {
    release: Release,
    /// Of the release that the server emulates.
    gates: FeatureGates,
    served: ServedResources,
}

/// How a server of the target release meets a stored form of a built-in resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readability {
    /// It serves the resource and decodes the version.
    Readable,
    /// It serves the resource and cannot decode the version: every list of the resource fails.
    Unreadable,
    /// It does not serve the resource in any version: objects stay in storage and no client sees them.
    NotServed,
}

impl TargetServer {
    /// A server with these flags, and why it would not start with them. Refused flags count as not given.
    pub fn new(release: Release, flags: &ServerFlags) -> (Self, Vec<StartRefusal>) {
        let CheckedFlags { gates, runtime_config, refusals } = flags.check(release);
        let served = ServedResources::new(&gates, &runtime_config);
        (Self { release, gates, served }, refusals)
    }

    /// The release of the server's program.
    pub fn release(&self) -> Release {
        self.release
    }

    /// The feature gates of the server.
    pub fn gates(&self) -> &FeatureGates {
        &self.gates
    }

    /// How the server meets objects of a resource that are stored in `api_version`.
    pub fn readability(&self, group: &str, resource: &str, api_version: &str) -> Readability {
        let mut stored = self.served.stored_resources().iter();
        let found = stored.find(|stored| stored.encoding.group == group && stored.resource == resource);
        let Some(found) = found else { return Readability::NotServed };
        // Emulation changes what is served. What can be decoded is a matter of the program.
        let is_readable = match self.gates.release() == self.release {
            true => found.decodable_versions.iter().any(|version| version.to_string() == api_version),
            false => releases_that_read(group, resource, api_version).contains(&self.release),
        };
        match is_readable {
            true => Readability::Readable,
            false => Readability::Unreadable,
        }
    }

    /// The version in which the server stores a resource.
    pub fn storage_version(&self, group: &str, resource: &str) -> Option<String> {
        let mut stored = self.served.stored_resources().iter();
        let found = stored.find(|stored| stored.encoding.group == group && stored.resource == resource)?;
        Some(found.encoding.group_version().to_string())
    }

    /// True if the server serves this resource in this version. Unknown groups are unknown here.
    pub fn serves(&self, group: &str, version: &str, resource: &str) -> bool {
        self.served.get(group, version, resource).is_some()
    }
}

/// Removes the fields of an object that a server of the release drops when it writes the object, and returns those that some
/// other release knows. Lists are written without an index: `spec.containers[].restartPolicyRules`. `None` if the fields of
/// that version are not known, as for versions that are stored and never served.
pub fn drop_fields(
    release: Release,
    object: &mut Map<String, Value>,
    kind: GroupVersionKind<&str>,
) -> Option<BTreeSet<String>> {
    let target = types_of(release).for_kind(kind)?;
    let mut dropped = BTreeSet::new();
    walk_struct(object, target, "", 0, &mut dropped);
    Some(dropped)
}

/// True if some known release can serve it.
pub fn is_built_in(group: &str, version: &str, resource: &str) -> bool {
    kinds::may_be_built_in(group, version, resource)
}

/// Releases that have a storage version for the resource, oldest first; none if it is not built in.
pub fn releases_that_store(group: &str, resource: &str) -> Vec<Release> {
    let Some(kind) = kinds::groups::find_kind(group, resource) else { return Vec::new() };
    Release::ALL.into_iter().filter(|release| kind.storage_version(*release).is_some()).collect()
}

/// Releases that decode `api_version` of the resource, oldest first.
pub fn releases_that_read(group: &str, resource: &str, api_version: &str) -> Vec<Release> {
    let Some(kind) = kinds::groups::find_kind(group, resource) else { return Vec::new() };
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let reads = |release: &Release| kind.decodable_versions(*release).any(|known| known.name == version);
    Release::ALL.into_iter().filter(reads).collect()
}

/// Decodes a stored protobuf value with the fields of the newest release that has the kind, and so of all older ones but a few;
/// `None` if no release has it.
pub fn decode_protobuf(
    value: &[u8],
    kind: GroupVersionKind<&str>,
) -> Option<Result<Map<String, Value>, ProtobufError>> {
    let mut tables = Release::ALL.into_iter().rev().map(types_of);
    let types = tables.find(|types| types.for_kind(kind).is_some())?;
    Some(schema::protobuf::decode(value, types, kind))
}

/// Why a server of the release cannot decode an object of a kind; `None` if it can, or does not have the kind.
pub fn decoding_error(release: Release, object: &Map<String, Value>, kind: GroupVersionKind<&str>) -> Option<String> {
    let shape = types_of(release).for_kind(kind)?;
    schema::check_types(object, shape).err().map(|error| error.to_string())
}

fn walk_struct(
    object: &mut Map<String, Value>,
    target: StructType<'_>,
    path: &str,
    depth: usize,
    dropped: &mut BTreeSet<String>,
) {
    if depth > DEPTH_MAX {
        return;
    }
    object.retain(|name, value| {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let Some(field) = target.field(name) else {
            let is_dropped = !value.is_null() && is_known_to_some_release(target, name);
            if is_dropped {
                dropped.insert(path);
            }
            return !is_dropped;
        };
        walk_value(value, field.value_type(), &path, depth + 1, dropped);
        true
    });
}

fn walk_value(value: &mut Value, shape: ValueType<'_>, path: &str, depth: usize, dropped: &mut BTreeSet<String>) {
    match (shape.form(), value) {
        (TypeForm::Struct(inner), Value::Object(object)) => walk_struct(object, inner, path, depth, dropped),
        (TypeForm::List(items), Value::Array(list)) => {
            let path = format!("{path}[]");
            list.iter_mut().for_each(|item| walk_value(item, items, &path, depth + 1, dropped));
        }
        (TypeForm::Map(values), Value::Object(map)) => {
            let path = format!("{path}{{}}");
            map.values_mut().for_each(|value| walk_value(value, values, &path, depth + 1, dropped));
        }
        _ => {}
    }
}

fn is_known_to_some_release(target: StructType<'_>, field: &str) -> bool {
    let definition = target.definition();
    let has_field = |release| types_of(release).for_definition(&definition).and_then(|known| known.field(field));
    Release::ALL.into_iter().any(|release| has_field(release).is_some())
}

/// `1.33 to 1.36`, `1.31`, `no known release`.
pub(crate) fn release_list(releases: &[Release]) -> String {
    match (releases.first(), releases.last()) {
        (Some(first), Some(last)) if first == last => first.to_string(),
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => "no known release".to_owned(),
    }
}

#[cfg(test)]
mod tests;
