//! One version of a custom resource as one value, built once from its definition and shared.

use std::sync::{Arc, OnceLock};

use api::{GroupVersion, GroupVersionKind, KindScope, compare_kube_aware_versions};
use object::KindRules;
use object::rules::{GenerateNameRule, StatusSubresource};

use crate::columns::{CustomColumn, columns_of_scale, columns_of_version};
use crate::definition::{Definition, DefinitionVersion, ResourceNames};
use crate::scale::CustomScale;
use crate::selectable_fields::CustomSelectableFields;

/// A version of a custom resource, with all that serving it needs.
///
/// What is expensive is built at the first use: a version that no request names costs its names and the definition,
/// which all versions share.
#[derive(Debug)]
pub struct CustomResourceVersion {
    definition: Arc<Definition>,
    /// Position in the versions of the definition.
    position: usize,
    rules: KindRules,
    columns: OnceLock<Vec<CustomColumn>>,
    scale_columns: OnceLock<Vec<CustomColumn>>,
    selectable_fields: OnceLock<CustomSelectableFields>,
    scale: Option<CustomScale>,
    deprecation_warning: Option<String>,
}

impl CustomResourceVersion {
    /// The version of this name, served or not; `None` if the definition has none.
    pub fn new(definition: &Arc<Definition>, version: &str) -> Option<Self> {
        let position = definition.spec.versions.iter().position(|found| found.name == version)?;
        let found = &definition.spec.versions[position];
        let status = match found.subresources.status {
            Some(_) => StatusSubresource::StatusOnly,
            None => StatusSubresource::None,
        };
        Some(Self {
            definition: definition.clone(),
            position,
            rules: KindRules {
                scope: definition.scope(),
                status,
                allows_unconditional_update: false,
                generate_name: GenerateNameRule::OnCreate,
                ..KindRules::NAMESPACED
            },
            columns: OnceLock::new(),
            scale_columns: OnceLock::new(),
            selectable_fields: OnceLock::new(),
            scale: found.subresources.scale.as_ref().map(CustomScale::new),
            deprecation_warning: deprecation_warning(definition, found),
        })
    }

    /// The definition, in the state from which this value was built.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// The version as the definition has it.
    pub fn version(&self) -> &DefinitionVersion {
        &self.definition.spec.versions[self.position]
    }

    /// Group and version in paths and in `apiVersion`.
    pub fn group_version(&self) -> GroupVersion<&str> {
        GroupVersion { group: &self.definition.spec.group, version: &self.version().name }
    }

    /// The kind of the objects.
    pub fn group_version_kind(&self) -> GroupVersionKind<&str> {
        let GroupVersion { group, version } = self.group_version();
        GroupVersionKind { group, version, kind: &self.names().kind }
    }

    /// The names that are served.
    pub fn names(&self) -> &ResourceNames {
        &self.definition.status.accepted_names
    }

    /// The kind of lists.
    pub fn list_kind(&self) -> &str {
        &self.names().list_kind
    }

    /// The scope of the objects.
    pub fn scope(&self) -> KindScope {
        self.rules.scope
    }

    /// The rules of objects, for crate `object`.
    pub fn rules(&self) -> &KindRules {
        &self.rules
    }

    /// The columns of a table.
    pub fn columns(&self) -> &[CustomColumn] {
        self.columns.get_or_init(|| columns_of_version(self.version()))
    }

    /// The columns of a table of scales.
    pub fn scale_columns(&self) -> &[CustomColumn] {
        self.scale_columns.get_or_init(columns_of_scale)
    }

    /// The fields that field selectors may name.
    pub fn selectable_fields(&self) -> &CustomSelectableFields {
        self.selectable_fields
            .get_or_init(|| CustomSelectableFields::new(self.scope(), &self.version().selectable_fields))
    }

    /// The `scale` subresource, if the version has one.
    pub fn scale(&self) -> Option<&CustomScale> {
        self.scale.as_ref()
    }

    /// True if `status` is written by its own subresource only.
    pub fn has_status(&self) -> bool {
        self.rules.status != StatusSubresource::None
    }

    /// The warning that every response of a deprecated version carries.
    pub fn deprecation_warning(&self) -> Option<&str> {
        self.deprecation_warning.as_deref()
    }
}

/// The definition's text, or one that names the highest served version that is not deprecated and ranks above this one.
fn deprecation_warning(definition: &Definition, version: &DefinitionVersion) -> Option<String> {
    if !version.deprecated {
        return None;
    }
    if let Some(warning) = &version.deprecation_warning {
        return Some(warning.clone());
    }
    let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
    let warning = format!("{group}/{} {kind} is deprecated", version.name);
    let better = definition.spec.versions.iter().filter(|other| {
        other.served && !other.deprecated && compare_kube_aware_versions(&other.name, &version.name).is_lt()
    });
    Some(match better.map(|other| &other.name).min_by(|a, b| compare_kube_aware_versions(a, b)) {
        Some(better) => format!("{warning}; use {group}/{better} {kind}"),
        None => warning,
    })
}

#[cfg(test)]
mod tests {
    use api::json::JsonObject;
    use serde_json::{Value, json};

    use super::*;

    fn definition(spec: &Value) -> Arc<Definition> {
        let mut object = json!({"metadata": {"name": "foos.ex.io"}, "status": {"acceptedNames": spec["names"]}});
        object["spec"] = spec.clone();
        let object: &JsonObject = object.as_object().unwrap();
        Arc::new(Definition::from_object(object).expect("test value is a definition"))
    }

    fn spec(versions: &Value) -> Value {
        json!({"group": "ex.io", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}})
    }

    #[test]
    fn version_has_names_rules_and_subresources() {
        let definition = definition(&spec(&json!([
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}},
            {"name": "v1beta1", "served": true},
        ])));
        let version = CustomResourceVersion::new(&definition, "v1").unwrap();
        assert_eq!(version.group_version_kind().to_string(), "ex.io/v1, Kind=Foo");
        assert_eq!((version.list_kind(), version.scope()), ("FooList", KindScope::Namespaced));
        assert_eq!(version.rules().status, StatusSubresource::StatusOnly);
        assert!(!version.rules().allows_unconditional_update && !version.rules().allows_create_on_update);
        assert!(version.scale().is_some() && version.has_status() && version.deprecation_warning().is_none());
        let beta = CustomResourceVersion::new(&definition, "v1beta1").unwrap();
        assert!(beta.scale().is_none() && !beta.has_status());
        assert_eq!(beta.columns().len(), 2);
        assert!(CustomResourceVersion::new(&definition, "v2").is_none());
    }

    #[test]
    fn deprecated_version_warns() {
        let definition = definition(&spec(&json!([
            {"name": "v1alpha1", "served": true, "deprecated": true},
            {"name": "v1beta1", "served": true},
            {"name": "v1beta2", "served": true},
            {"name": "v1", "served": false},
            {"name": "v1beta3", "served": true, "deprecated": true, "deprecationWarning": "gone soon"},
            {"name": "v2", "served": true, "deprecated": true},
        ])));
        let warning = |name: &str| {
            CustomResourceVersion::new(&definition, name).unwrap().deprecation_warning().map(str::to_owned)
        };
        assert_eq!(warning("v1alpha1").unwrap(), "ex.io/v1alpha1 Foo is deprecated; use ex.io/v1beta2 Foo");
        assert_eq!(warning("v1beta1"), None);
        assert_eq!(warning("v1beta3").unwrap(), "gone soon");
        assert_eq!(warning("v2").unwrap(), "ex.io/v2 Foo is deprecated");
    }
}
