//! OpenAPI of custom resources: the models and paths of a version, and the document of a group-version.
//!
//! As for built-in types, descriptions of Kubernetes' own fields and parameters are left out; those of the definition
//! stay.

mod model;
mod paths;

use api::GroupVersionKind;
use schema::Types;
use schema::openapi::{Dialect, OpenApiDocument, definitions};
use serde_json::{Map, Value, json};

use crate::custom_resource::CustomResourceVersion;

pub(crate) const META_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
pub(crate) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The part of an OpenAPI document that describes one version of a custom resource.
#[derive(Clone, Debug, Default)]
pub struct OpenApiPart {
    /// Operations by path.
    pub paths: Map<String, Value>,
    /// Models by name; without the built-in types that they refer to.
    pub models: Map<String, Value>,
    /// Names of built-in types that paths and models refer to.
    pub built_in_types: Vec<String>,
}

/// Describes a version. `is_structural` is false for schemas that are not published: their objects are any objects.
pub fn describe(version: &CustomResourceVersion, is_structural: bool, dialect: Dialect) -> OpenApiPart {
    let (model, list) = (model_name(version.group_version_kind()), list_model_name(version));
    let mut built_in_types: Vec<String> =
        ["ObjectMeta", "ListMeta", "Status", "DeleteOptions", "Patch"].map(|name| format!("{META_V1}.{name}")).into();
    if version.scale().is_some() {
        built_in_types.push(SCALE.to_owned());
    }
    let models = Map::from_iter([
        (model, model::object_model(version, is_structural, dialect)),
        (list, model::list_model(version, dialect)),
    ]);
    OpenApiPart { paths: paths::paths(version, dialect), models, built_in_types }
}

/// The OpenAPI 3.0 document of a group-version, from all its parts. `types` has the built-in types of the release.
pub fn document(parts: impl IntoIterator<Item = OpenApiPart>, types: Types<'_>) -> OpenApiDocument {
    let (mut all_paths, mut schemas, mut named) = (Map::new(), Map::new(), Vec::new());
    for OpenApiPart { paths, models, built_in_types } in parts {
        all_paths.extend(paths);
        schemas.extend(models);
        named.extend(built_in_types);
    }
    schemas.extend(definitions(types, named.into_iter(), Dialect::V3, &[]));
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": all_paths,
        "components": {"schemas": schemas},
    });
    OpenApiDocument::new(document.to_string())
}

/// The name of a model: the reversed group, the version and the kind, such as `io.ex.v1.Foo`.
pub fn model_name(kind: GroupVersionKind<&str>) -> String {
    let group: Vec<&str> = kind.group.split('.').rev().collect();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

fn list_model_name(version: &CustomResourceVersion) -> String {
    model_name(GroupVersionKind { kind: version.list_kind(), ..version.group_version_kind() })
}

#[cfg(test)]
mod tests;
