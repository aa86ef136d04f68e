//! Managed fields of the subresource `scale`: entries of the object seen in the coordinates of `autoscaling/v1` Scale,
//! and back.
//!
//! A manager is found again by name, operation and subresource. Kubernetes also compares the version, which is not the same
//! on both sides, and so splits the entry of an updater.

use serde_json::Value;

use crate::FieldSet;
use crate::entries::{Entry, Operation, decode_entries, encode_entries};

/// The version of the Scale.
const SCALE_API_VERSION: &str = "autoscaling/v1";

const REPLICAS_IN_SCALE: [&str; 2] = ["spec", "replicas"];

/// Where the objects of each version have their replicas.
pub trait ScalePaths {
    /// The path as field names: `["spec", "replicas"]`; empty if the version has no scale. `None` if the version is unknown:
    /// its entries are dropped.
    fn replicas_path(&self, api_version: &str) -> Option<Vec<String>>;
}

/// The entries of an object that has the subresource `scale`.
pub struct ScaleEntries<'a> {
    parent: Option<&'a Value>,
    api_version: &'a str,
    paths: &'a dyn ScalePaths,
}

impl<'a> ScaleEntries<'a> {
    /// `parent` is the `managedFields` of the object, `api_version` the version of the request.
    pub fn new(parent: Option<&'a Value>, api_version: &'a str, paths: &'a dyn ScalePaths) -> Self {
        Self { parent, api_version, paths }
    }

    /// The `managedFields` of the Scale; `None` if no entry owns the replicas.
    pub fn to_scale(&self) -> Result<Option<Value>, String> {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for mut entry in decode_entries(self.parent).map_err(|error| error.0)? {
            let Some(path) = self.paths.replicas_path(&entry.api_version).filter(|path| !path.is_empty()) else {
                continue;
            };
            if !entry.set().has_names(&path) {
                continue;
            }
            entry.api_version = SCALE_API_VERSION.into();
            entry.replace_set(FieldSet::of_names(&[REPLICAS_IN_SCALE]));
            entries.retain(|other| !is_same_manager(other, &entry));
            entries.push(entry);
        }
        Ok(encode_entries(entries))
    }

    /// The `managedFields` of the object after a write of the Scale, whose entries are now `scale`.
    pub fn to_parent(&self, scale: Option<&Value>) -> Result<Option<Value>, String> {
        let owners = decode_entries(scale).map_err(|error| error.0)?;
        let mut owners: Vec<Entry<'_>> =
            owners.into_iter().filter(|entry| entry.set().has_names(&REPLICAS_IN_SCALE)).collect();
        let mut entries = Vec::new();
        for mut entry in decode_entries(self.parent).map_err(|error| error.0)? {
            let Some(path) = self.paths.replicas_path(&entry.api_version) else { continue };
            if path.is_empty() || !entry.set().has_names(&path) {
                entries.push(entry);
                continue;
            }
            match owners.iter().position(|owner| is_same_manager(owner, &entry)) {
                Some(position) => {
                    let owner = owners.remove(position);
                    entry.time = owner.time.or(entry.time);
                }
                None => {
                    let rest = entry.set().difference(&FieldSet::of_names(&[path]));
                    entry.replace_set(rest);
                }
            }
            entries.push(entry);
        }
        let path = self.paths.replicas_path(self.api_version).unwrap_or_default();
        for mut owner in owners {
            let replicas = FieldSet::of_names(&[&path[..]]);
            let same = |entry: &&mut Entry<'_>| {
                is_same_manager(entry, &owner)
                    && (owner.operation == Operation::Apply || entry.api_version == self.api_version)
            };
            if let Some(entry) = entries.iter_mut().find(same) {
                let set = entry.set().union(&replicas);
                entry.replace_set(set);
                entry.time = owner.time.or(entry.time);
                continue;
            }
            owner.api_version = self.api_version.into();
            owner.replace_set(replicas);
            entries.push(owner);
        }
        Ok(encode_entries(entries))
    }
}

fn is_same_manager(one: &Entry<'_>, other: &Entry<'_>) -> bool {
    one.manager == other.manager && one.operation == other.operation && one.subresource == other.subresource
}
