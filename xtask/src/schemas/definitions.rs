//! Merges the definitions of all releases: each type once, each field once per form it had.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::row::{FieldDefinition, ReleaseSet, is_scalar};

/// The types of one Go package.
#[derive(Debug, Default)]
pub(crate) struct GoPackage {
    /// Group-version such as `apps/v1` or `v1`; empty if the package has no kinds.
    pub(crate) group_version: String,
    pub(crate) types: BTreeMap<String, TypeDefinition>,
}

#[derive(Debug, Default)]
pub(crate) struct TypeDefinition {
    pub(crate) releases: ReleaseSet,
    /// True if the type is a kind with its own apiVersion and kind.
    pub(crate) is_kind: bool,
    /// `x-kubernetes-map-type`: `atomic` or `granular`.
    pub(crate) map_type: Option<String>,
    pub(crate) fields: BTreeMap<FieldDefinition, ReleaseSet>,
}

/// Merges the definitions of one release.
pub(crate) fn add_release(
    packages: &mut BTreeMap<String, GoPackage>,
    document: &Value,
    release_index: usize,
) -> Result<()> {
    let definitions = document["$defs"].as_object().context("the document has no $defs")?;
    for (definition, schema) in definitions {
        if is_scalar(definition) {
            continue;
        }
        let (package, name) = definition.rsplit_once('.').with_context(|| format!("{definition} has no package"))?;
        let go_package = packages.entry(package.to_owned()).or_default();
        let type_definition = go_package.types.entry(name.to_owned()).or_default();
        type_definition.releases.insert(release_index);
        type_definition.map_type = schema["x-kubernetes-map-type"].as_str().map(str::to_owned);
        if let Some(group_version) = group_version_of(schema, name) {
            go_package.group_version = group_version;
            type_definition.is_kind = true;
        }
        add_fields(type_definition, package, schema, release_index).with_context(|| definition.clone())?;
    }
    Ok(())
}

fn add_fields(type_definition: &mut TypeDefinition, package: &str, schema: &Value, release_index: usize) -> Result<()> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let field = FieldDefinition::parse(package, name, property, required.contains(&name.as_str()))
            .with_context(|| format!("field {name}"))?;
        type_definition.fields.entry(field).or_default().insert(release_index);
    }
    Ok(())
}

/// The group-version of a kind. A type that belongs to every group, such as DeleteOptions, has none.
fn group_version_of(schema: &Value, name: &str) -> Option<String> {
    let [one] = schema["x-kubernetes-group-version-kind"].as_array()?.as_slice() else { return None };
    let (group, version) = (one["group"].as_str()?, one["version"].as_str()?);
    (one["kind"].as_str()? == name)
        .then(|| if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_field_is_kept_once_per_form() {
        let document = |kind: &str| {
            json!({"$defs": {"io.k8s.api.apps.v1.Scale": {
                "type": "object",
                "properties": {"count": {"type": kind, "format": if kind == "string" { "byte" } else { "int32" }}},
                "required": ["count"],
                "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Scale"}],
            }}})
        };
        let mut packages = BTreeMap::new();
        for (position, kind) in ["integer", "integer", "string"].into_iter().enumerate() {
            add_release(&mut packages, &document(kind), position).unwrap();
        }
        let package = &packages["io.k8s.api.apps.v1"];
        assert_eq!(package.group_version, "apps/v1");
        let fields = &package.types["Scale"].fields;
        let shown: Vec<_> = fields.iter().map(|(field, releases)| format!("{} {releases}", field.shape)).collect();
        assert_eq!(shown, ["bytes 33", "int32 31-32"]);
        assert!(fields.keys().all(|field| field.is_required));
    }
}
