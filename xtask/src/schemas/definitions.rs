//! The definitions of all releases, joined: each type once, each field once for every form it had.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::row::{Field, Releases, is_special};

/// The types of one Go package.
#[derive(Debug, Default)]
pub(crate) struct Package {
    /// `apps/v1`, `v1`; empty if no type of it is a kind.
    pub(crate) group_version: String,
    pub(crate) types: BTreeMap<String, Type>,
}

#[derive(Debug, Default)]
pub(crate) struct Type {
    pub(crate) releases: Releases,
    /// Whether objects say their kind, and it is this.
    pub(crate) is_kind: bool,
    /// `atomic` or `granular`, if said.
    pub(crate) map_type: Option<String>,
    pub(crate) fields: BTreeMap<Field, Releases>,
}

/// Adds the definitions of one release.
pub(crate) fn add(packages: &mut BTreeMap<String, Package>, document: &Value, position: usize) -> Result<()> {
    let definitions = document["$defs"].as_object().context("there is no $defs in it")?;
    for (definition, schema) in definitions {
        if is_special(definition) {
            continue;
        }
        let (package, name) = definition.rsplit_once('.').with_context(|| format!("{definition} has no package"))?;
        let home = packages.entry(package.to_owned()).or_default();
        let known = home.types.entry(name.to_owned()).or_default();
        known.releases.insert(position);
        known.map_type = schema["x-kubernetes-map-type"].as_str().map(str::to_owned);
        if let Some(group_version) = group_version_of(schema, name) {
            home.group_version = group_version;
            known.is_kind = true;
        }
        add_fields(known, package, schema, position).with_context(|| definition.clone())?;
    }
    Ok(())
}

fn add_fields(known: &mut Type, package: &str, schema: &Value, position: usize) -> Result<()> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let field = Field::of(package, name, property, required.contains(&name.as_str()))
            .with_context(|| format!("field {name}"))?;
        known.fields.entry(field).or_default().insert(position);
    }
    Ok(())
}

/// The one group and version of a kind. A type of every group, such as DeleteOptions, is not a kind of its own.
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
    fn a_field_that_changes_is_kept_in_each_form() {
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
            add(&mut packages, &document(kind), position).unwrap();
        }
        let package = &packages["io.k8s.api.apps.v1"];
        assert_eq!(package.group_version, "apps/v1");
        let fields = &package.types["Scale"].fields;
        let shown: Vec<_> = fields.iter().map(|(field, releases)| format!("{} {releases}", field.shape)).collect();
        assert_eq!(shown, ["bytes 33", "int32 31-32"]);
        assert!(fields.keys().all(|field| field.is_required));
    }
}
