//! OpenAPI of custom resources: the models and paths of a version, and the document of a group-version.
//!
//! As for built-in types, descriptions of Kubernetes' own fields and parameters are left out; those of the definition
//! stay.

mod model;
mod paths;

use std::collections::BTreeSet;

use api::{GroupVersionKind, KindScope};
use schema::Types;
use schema::openapi::{Dialect, JsonMembers, OpenApiPart, definitions, hash};
use schema::structural::StructuralSchema;
use serde_json::{Map, json};

pub use paths::ReleaseParameters;

use crate::custom_resource::CustomResourceVersion;
use crate::definition::SchemaJson;

pub(crate) const META_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
pub(crate) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// Describes a version. `is_structural` is false for schemas that are not published: their objects are any objects.
pub fn describe(
    version: &CustomResourceVersion,
    is_structural: bool,
    dialect: Dialect,
    release_parameters: ReleaseParameters,
) -> OpenApiPart {
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
    OpenApiPart { paths: paths::paths(version, dialect, release_parameters), models, built_in_types }
}

/// True if the schema of a version is published.
pub fn is_structural(version: &CustomResourceVersion) -> bool {
    let schema = version.version().schema.open_api_v3_schema.as_ref();
    !version.definition().has_condition("NonStructuralSchema")
        && schema.is_some_and(|schema| StructuralSchema::from_json(&schema.to_value()).is_ok())
}

/// The hash of everything in a definition that the description of a version depends on. The caller adds what of the
/// server it depends on: the built-in types.
pub fn input_hash(version: &CustomResourceVersion) -> Box<str> {
    let names = version.names();
    let inputs = json!([
        version.group_version_kind().to_string(),
        [&names.plural, &names.list_kind],
        version.scope() == KindScope::Namespaced,
        [version.has_status(), version.scale().is_some()],
        [version.definition().spec.preserve_unknown_fields, version.definition().has_condition("NonStructuralSchema")],
        version.version().selectable_fields.iter().map(|field| &field.json_path).collect::<Vec<_>>(),
    ]);
    let schema = version.version().schema.open_api_v3_schema.as_ref().map(SchemaJson::as_bytes);
    hash([inputs.to_string().as_bytes(), schema.unwrap_or_default()])
}

/// The body of the OpenAPI 3.0 document of a group-version, from all its parts. `types` has the built-in types of the
/// release, `group_versions` the built-in ones of the server.
pub fn document(
    parts: impl IntoIterator<Item = OpenApiPart>,
    types: Types<'_>,
    group_versions: &[(&str, &str)],
) -> String {
    let [mut all_paths, mut schemas] = <[JsonMembers; 2]>::default();
    let [mut named, mut known] = <[BTreeSet<String>; 2]>::default();
    for OpenApiPart { paths, models, built_in_types } in parts {
        all_paths.extend(paths);
        // A kind may have the name of a built-in type in this document: the first one stays.
        schemas.extend(models.into_iter().filter(|(name, _)| known.insert(name.clone())));
        named.extend(built_in_types);
    }
    let built_in = definitions(types, named.into_iter(), Dialect::V3, group_versions);
    schemas.extend(built_in.into_iter().filter(|(name, _)| !known.contains(name)));
    let mut body =
        r#"{"openapi":"3.0.0","info":{"title":"Kubernetes CRD Swagger","version":"v0.1.0"},"paths":"#.to_owned();
    all_paths.push_to(&mut body);
    body.push_str(r#","components":{"schemas":"#);
    schemas.push_to(&mut body);
    body.push_str("}}");
    body
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
