//! Merges encoded documents of several servers: one stays as it is, others add paths and the types that those need.
//!
//! Documents are cut into members and not parsed further, except for what is added: a whole document as `Value` would
//! take ten times the memory.

mod extension;

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::protobuf::SwaggerProtobuf;
use super::types::Dialect;

pub use extension::add_extension;

/// The members of a JSON object, sorted, each as encoded.
type Members<'b> = BTreeMap<String, &'b RawValue>;

/// The document of another server, and what is taken from it.
pub struct Addition<'a> {
    /// The encoded document, in JSON.
    pub body: &'a [u8],
    /// Returns whether a path of the document is taken, unless an earlier document has it.
    pub takes: &'a dyn Fn(&str) -> bool,
}

/// Why documents could not be merged.
#[derive(Debug, thiserror::Error)]
#[error("not an OpenAPI document: {0}")]
pub struct MergeError(#[from] serde_json::Error);

/// Adds paths of other documents, in order, and the types that those paths refer to. What an earlier document has stays.
pub fn merge(base: &[u8], additions: &[Addition<'_>], dialect: Dialect) -> Result<Vec<u8>, MergeError> {
    let mut merged = CutDocument::new(base, dialect)?;
    for addition in additions {
        let other = CutDocument::new(addition.body, dialect)?;
        let mut due = Vec::new();
        for (path, item) in other.paths {
            if !merged.paths.contains_key(&path) && (addition.takes)(&path) {
                collect_references(&serde_json::from_str(item.get())?, dialect, &mut due);
                merged.paths.insert(path, item);
            }
        }
        while let Some(reference) = due.pop() {
            let (name, from, to) = match reference {
                Reference::Definition(name) => (name, &other.definitions, &mut merged.definitions),
                Reference::Parameter(name) => (name, &other.parameters, &mut merged.parameters),
            };
            let Some(needed) = from.get(&name).filter(|_| !to.contains_key(&name)) else { continue };
            collect_references(&serde_json::from_str(needed.get())?, dialect, &mut due);
            to.insert(name, needed);
        }
    }
    Ok(merged.encode()?)
}

/// Encodes a Swagger 2.0 document in protobuf.
pub fn swagger_to_protobuf(json: &[u8]) -> Result<Vec<u8>, MergeError> {
    let document = CutDocument::new(json, Dialect::V2)?;
    let mut protobuf = SwaggerProtobuf::default();
    for (path, item) in &document.paths {
        let mut item: Value = serde_json::from_str(item.get())?;
        document.resolve_parameters(&mut item)?;
        protobuf.push_path(path, &item);
    }
    for (name, definition) in &document.definitions {
        protobuf.push_definition(name, &serde_json::from_str(definition.get())?);
    }
    let info = document.head.get("info").map_or(Ok(Value::Null), |info| serde_json::from_str(info.get()))?;
    Ok(protobuf.finish(&info))
}

/// What a path or a type refers to, by name.
enum Reference {
    Definition(String),
    /// kube-apiserver shares the parameters of many operations in Swagger 2.0.
    Parameter(String),
}

/// A document, cut into members.
struct CutDocument<'b> {
    dialect: Dialect,
    /// Everything but paths and types.
    head: Members<'b>,
    /// OpenAPI 3.0: the members of `components` but the types.
    components: Members<'b>,
    paths: Members<'b>,
    definitions: Members<'b>,
    /// Parameters that operations refer to. Their names end with a hash of their content.
    parameters: Members<'b>,
}

impl<'b> CutDocument<'b> {
    fn new(body: &'b [u8], dialect: Dialect) -> Result<Self, serde_json::Error> {
        let mut head: Members<'b> = serde_json::from_slice(body)?;
        let mut components = match dialect {
            Dialect::V2 => Members::new(),
            Dialect::V3 => members_of(&mut head, "components")?,
        };
        let paths = members_of(&mut head, "paths")?;
        let definitions = match dialect {
            Dialect::V2 => members_of(&mut head, "definitions")?,
            Dialect::V3 => members_of(&mut components, "schemas")?,
        };
        let parameters = match dialect {
            Dialect::V2 => members_of(&mut head, "parameters")?,
            Dialect::V3 => members_of(&mut components, "parameters")?,
        };
        Ok(Self { dialect, head, components, paths, definitions, parameters })
    }

    fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let (paths, definitions) = (to_raw(&self.paths)?, to_raw(&self.definitions)?);
        let parameters = to_raw(&self.parameters)?;
        let parameters = (!self.parameters.is_empty()).then(|| ("parameters".to_owned(), &*parameters));
        let mut document = self.head.clone();
        document.insert("paths".to_owned(), &paths);
        match self.dialect {
            Dialect::V2 => {
                document.insert("definitions".to_owned(), &definitions);
                document.extend(parameters);
                serde_json::to_vec(&document)
            }
            Dialect::V3 => {
                let mut components = self.components.clone();
                components.insert("schemas".to_owned(), &definitions);
                components.extend(parameters);
                let components = to_raw(&components)?;
                document.insert("components".to_owned(), &components);
                serde_json::to_vec(&document)
            }
        }
    }
}

impl CutDocument<'_> {
    /// Replaces references to parameters, of a path and of its operations, by the parameters.
    fn resolve_parameters(&self, item: &mut Value) -> Result<(), serde_json::Error> {
        let Some(members) = item.as_object_mut() else { return Ok(()) };
        for (name, member) in members {
            let parameters = if name == "parameters" { Some(member) } else { member.get_mut("parameters") };
            for parameter in parameters.and_then(Value::as_array_mut).into_iter().flatten() {
                let named = parameter.get("$ref").and_then(Value::as_str).and_then(|text| text.rsplit('/').next());
                if let Some(found) = named.and_then(|name| self.parameters.get(name)) {
                    *parameter = serde_json::from_str(found.get())?;
                }
            }
        }
        Ok(())
    }
}

/// Takes a member that is an object apart; empty if it is missing.
fn members_of<'b>(members: &mut Members<'b>, name: &str) -> Result<Members<'b>, serde_json::Error> {
    members.remove(name).map_or_else(|| Ok(Members::new()), |member| serde_json::from_str(member.get()))
}

fn to_raw(members: &Members<'_>) -> Result<Box<RawValue>, serde_json::Error> {
    RawValue::from_string(serde_json::to_string(members)?)
}

/// Adds everything that a value refers to.
fn collect_references(value: &Value, dialect: Dialect, references: &mut Vec<Reference>) {
    let mut due = vec![value];
    while let Some(value) = due.pop() {
        let reference = value.get("$ref").and_then(Value::as_str).and_then(|text| {
            let parameter = || text.rsplit_once("/parameters/").map(|(_, name)| Reference::Parameter(name.to_owned()));
            let definition = dialect.referenced_name(text).map(|name| Reference::Definition(name.to_owned()));
            definition.or_else(parameter)
        });
        references.extend(reference);
        due.extend(value.as_array().into_iter().flatten());
        due.extend(value.as_object().into_iter().flat_map(|members| members.values()));
    }
}

/// The resource that a path of a document belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentedResource<'p> {
    /// The group-version, as below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
    pub group_version: &'p str,
    /// The plural name; empty for the list of resources.
    pub resource: &'p str,
    /// Empty for the resource itself.
    pub subresource: &'p str,
}

impl<'p> DocumentedResource<'p> {
    /// Parses a path such as `/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale`; `None` if it is not below a
    /// group-version.
    pub fn from_path(path: &'p str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let slashes = match path.split('/').next()? {
            "api" => 2,
            "apis" => 3,
            _ => return None,
        };
        let end = path.match_indices('/').nth(slashes - 1)?.0;
        let (group_version, below) = (&path[..end], &path[end + 1..]);
        let below = below.strip_prefix("watch/").unwrap_or(below);
        let below = below.strip_prefix("namespaces/{namespace}/").unwrap_or(below);
        let (resource, below) = below.split_once('/').unwrap_or((below, ""));
        // What follows the name: a subresource, and perhaps the path behind a proxy.
        let subresource = below.split('/').nth(1).unwrap_or_default();
        Some(Self { group_version, resource, subresource })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(paths: &[(&str, &str)], types: &Value) -> Vec<u8> {
        let paths: BTreeMap<_, _> = paths
            .iter()
            .map(|(path, name)| (*path, json!({"get": {"schema": {"$ref": format!("#/components/schemas/{name}")}}})))
            .collect();
        json!({"openapi": "3.0.0", "paths": paths, "components": {"securitySchemes": {}, "schemas": types}})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn merge_adds_paths_with_needed_types_and_keeps_earlier_ones() {
        let base =
            document(&[("/apis/g/v1/as", "A")], &json!({"A": {"$ref": "#/components/schemas/Meta"}, "Meta": {"x": 1}}));
        let newer = document(
            &[("/apis/g/v1/as", "A2"), ("/apis/g/v1/bs", "B"), ("/apis/g/v1/cs", "C")],
            &json!({
                "A2": {}, "C": {}, "Meta": {"x": 2}, "Spec": {},
                "B": {"properties": {"m": {"$ref": "#/components/schemas/Meta"}, "s": {"$ref": "#/components/schemas/Spec"}}},
            }),
        );
        let addition = Addition { body: &newer, takes: &|path| !path.ends_with("/cs") };
        let merged = merge(&base, &[addition], Dialect::V3).unwrap();
        let merged: Value = serde_json::from_slice(&merged).unwrap();
        assert_eq!(merged["paths"].as_object().unwrap().keys().collect::<Vec<_>>(), ["/apis/g/v1/as", "/apis/g/v1/bs"]);
        assert_eq!(merged["paths"]["/apis/g/v1/as"]["get"]["schema"]["$ref"], "#/components/schemas/A");
        let schemas = merged["components"]["schemas"].as_object().unwrap();
        assert_eq!(schemas.keys().collect::<Vec<_>>(), ["A", "B", "Meta", "Spec"]);
        assert_eq!(schemas["Meta"]["x"], 1);
        assert_eq!(merged["components"]["securitySchemes"], json!({}));
    }

    #[test]
    fn merge_takes_each_path_from_the_first_document_that_has_it() {
        let base = document(&[], &json!({}));
        let [first, second] = [1, 2].map(|x| document(&[("/apis/g/v1/as", "A")], &json!({"A": {"x": x}})));
        let additions = [&first, &second].map(|body| Addition { body, takes: &|_| true });
        let merged: Value = serde_json::from_slice(&merge(&base, &additions, Dialect::V3).unwrap()).unwrap();
        assert_eq!(merged["components"]["schemas"], json!({"A": {"x": 1}}));
    }

    #[test]
    fn merge_adds_parameters_and_protobuf_resolves_them() {
        let document = |path: &str, parameter: &str| {
            let patch = json!({"parameters": [{"$ref": format!("#/parameters/{parameter}")}]});
            json!({
                "swagger": "2.0", "paths": {path: {"patch": patch}}, "definitions": {},
                "parameters": {parameter: {"name": parameter, "in": "query", "type": "string"}},
            })
            .to_string()
            .into_bytes()
        };
        let (base, newer) = (document("/apis/g/v1/as/{name}", "one-1"), document("/apis/g/v1/bs/{name}", "two-2"));
        let merged = merge(&base, &[Addition { body: &newer, takes: &|_| true }], Dialect::V2).unwrap();
        let value: Value = serde_json::from_slice(&merged).unwrap();
        assert_eq!(value["parameters"].as_object().unwrap().keys().collect::<Vec<_>>(), ["one-1", "two-2"]);
        let protobuf = swagger_to_protobuf(&merged).unwrap();
        for name in ["one-1", "two-2"] {
            assert!(protobuf.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn merge_rejects_what_is_no_document() {
        let base = document(&[], &json!({}));
        for body in ["", "[]", "{", r#"{"paths": 1}"#, r#"{"paths": {"/apis/g/v1/as": }}"#] {
            let addition = Addition { body: body.as_bytes(), takes: &|_| true };
            assert!(merge(&base, &[addition], Dialect::V3).is_err(), "{body}");
        }
    }

    #[test]
    fn documented_resource_is_read_from_its_path() {
        for (path, expected) in [
            ("/api/v1/", Some(("api/v1", "", ""))),
            ("/apis/apps/v1/", Some(("apis/apps/v1", "", ""))),
            ("/apis/apps/v1/deployments", Some(("apis/apps/v1", "deployments", ""))),
            ("/apis/apps/v1/watch/deployments", Some(("apis/apps/v1", "deployments", ""))),
            ("/apis/apps/v1/namespaces/{namespace}/deployments/{name}", Some(("apis/apps/v1", "deployments", ""))),
            (
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
                Some(("apis/apps/v1", "deployments", "scale")),
            ),
            ("/api/v1/namespaces/{name}/finalize", Some(("api/v1", "namespaces", "finalize"))),
            ("/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}", Some(("api/v1", "pods", "proxy"))),
            ("/apis/apps/", None),
            ("/version/", None),
            ("/apis/", None),
        ] {
            let found = DocumentedResource::from_path(path);
            let found = found.map(|found| (found.group_version, found.resource, found.subresource));
            assert_eq!(found, expected, "{path}");
        }
    }
}
