//! Valid manifests of every built-in kind, from which the cases are made.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Longer names are no DNS labels.
const NAMESPACE_LENGTH_MAX: usize = 63;

/// A kind and its manifests.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) manifests: Vec<Manifest>,
}

/// A valid object, as a user would send it.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) object: Value,
    /// False for an object that the server itself deletes, so that no update can start from it.
    pub(crate) is_stored: bool,
    /// For an object that is sent to a subresource of the first manifest's object.
    pub(crate) subresource: Option<Subresource>,
}

#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) is_update: bool,
}

impl Kind {
    /// The name of the kind's files, such as `apps_v1_Deployment`.
    pub(crate) fn file_stem(&self) -> String {
        format!("{}_{}", self.api_version.replace('/', "_"), self.kind)
    }

    /// The namespace of the objects that updates start from: that of the first manifest, or one for the kind alone, apart
    /// from quotas and limits of other kinds.
    pub(crate) fn namespace(&self) -> String {
        match self.manifests[0].object["metadata"]["namespace"].as_str() {
            Some(namespace) => namespace.to_owned(),
            None => {
                let name = format!("stored-{}", self.file_stem().replace(['_', '.'], "-").to_lowercase());
                name[..name.len().min(NAMESPACE_LENGTH_MAX)].trim_end_matches('-').to_owned()
            }
        }
    }
}

impl Manifest {
    pub(crate) fn name(&self) -> Option<&str> {
        self.object["metadata"]["name"].as_str()
    }
}

/// The folder of manifests and recorded responses.
pub(crate) fn data_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/validation")
}

/// `definitions.json` and `objects.json` have definitions in the manner of popular projects, and objects of them.
pub(crate) fn definitions_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/definitions")
}

/// All kinds, sorted by API version and kind.
pub(crate) fn load_kinds() -> Vec<Kind> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(data_folder().join("manifests")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    kinds_of(files.iter().flat_map(|file| read_manifests(file)))
}

/// The objects in a file: a list in JSON.
pub(crate) fn read_manifests(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The kinds of objects, sorted by API version and kind.
pub(crate) fn kinds_of(manifests: impl Iterator<Item = Value>) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    manifests.for_each(|manifest| add_manifest(&mut kinds, manifest));
    kinds.sort_by(|one, other| (&one.api_version, &one.kind).cmp(&(&other.api_version, &other.kind)));
    kinds
}

/// Keys that begin with `$` belong to the file, not to the object: `$parent` is the kind that has the `$subresource`, and
/// `$createOnly` keeps a manifest from being stored.
fn add_manifest(kinds: &mut Vec<Kind>, mut object: Value) {
    let mut take = |key: &str| object.as_object_mut().and_then(|fields| fields.remove(key));
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    let (parent, name, verb) = (text(take("$parent")), text(take("$subresource")), text(take("$verb")));
    let is_create_only = take("$createOnly").is_some();
    let subresource = name.map(|name| Subresource { name, is_update: verb.as_deref() == Some("update") });
    let (api_version, kind) = (text(Some(object["apiVersion"].clone())), text(Some(object["kind"].clone())));
    let (api_version, kind) = (api_version.unwrap(), kind.unwrap());
    let is_stored = !is_create_only && subresource.is_none() && object["metadata"]["name"].is_string();
    let manifest = Manifest { object, is_stored, subresource };
    let known = match &parent {
        Some(parent) => kinds.iter_mut().find(|known| known.kind == *parent),
        None => kinds.iter_mut().find(|known| known.kind == kind && known.api_version == api_version),
    };
    match known {
        Some(known) => known.manifests.push(manifest),
        None => {
            assert!(parent.is_none(), "{kind}: the manifests of {parent:?} come first");
            kinds.push(Kind { api_version, kind, manifests: vec![manifest] });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_manifest_of_its_own() {
        let kinds = load_kinds();
        assert!(kinds.len() >= 65, "{} kinds", kinds.len());
        for kind in &kinds {
            assert!(kind.manifests[0].subresource.is_none(), "{}", kind.file_stem());
        }
    }
}
