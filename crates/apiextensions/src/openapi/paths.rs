//! The operations on the paths of a version.

use api::KindScope;
use schema::Types;
use schema::openapi::Dialect;
use serde_json::{Map, Value, json};

use super::{META_V1, SCALE, list_model_name, model_name};
use crate::custom_resource::CustomResourceVersion;

const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];
const PATCH_MEDIA_TYPES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// Query parameters, sorted by name; a letter is the type: string, boolean or integer.
const LIST: &str = "allowWatchBookmarks:b continue:s fieldSelector:s labelSelector:s limit:i resourceVersion:s \
                    resourceVersionMatch:s sendInitialEvents:b timeoutSeconds:i watch:b";
const WRITE: &str = "dryRun:s fieldManager:s fieldValidation:s";
const PATCH: &str = "dryRun:s fieldManager:s fieldValidation:s force:b";
const DELETE: &str = "dryRun:s gracePeriodSeconds:i orphanDependents:b propagationPolicy:s";

/// Query parameters that only some releases have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseParameters {
    /// `shardSelector` of lists.
    pub has_shard_selector: bool,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential` of deletes.
    pub has_ignore_store_read_error: bool,
}

impl ReleaseParameters {
    /// The parameters of a release, by its built-in types.
    pub fn of_types(types: Types<'_>) -> Self {
        let options = types.for_definition(&format!("{META_V1}.DeleteOptions"));
        let has_field = |name: &str| options.is_some_and(|options| options.fields().any(|field| field.name() == name));
        Self {
            has_shard_selector: types.for_definition(&format!("{META_V1}.ShardInfo")).is_some(),
            has_ignore_store_read_error: has_field(IGNORE_STORE_READ_ERROR),
        }
    }

    /// The parameters of an action that not all releases have.
    fn added_to(self, query: &str) -> String {
        match query {
            LIST if self.has_shard_selector => format!("{query} shardSelector:s"),
            DELETE if self.has_ignore_store_read_error => format!("{query} {IGNORE_STORE_READ_ERROR}:b"),
            _ => query.to_owned(),
        }
    }
}

const IGNORE_STORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// Method, action, word of the operation id, query parameters, and codes of success beside 200.
type Operation = (&'static str, &'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const COLLECTION: [Operation; 3] = [
    ("get", "list", "list", LIST, &[]),
    ("post", "post", "create", WRITE, &[("201", "Created"), ("202", "Accepted")]),
    ("delete", "deletecollection", "delete", LIST, &[]),
];
const OBJECT: [Operation; 4] = [
    ("get", "get", "read", "resourceVersion:s", &[]),
    ("put", "put", "replace", WRITE, &[("201", "Created")]),
    ("patch", "patch", "patch", PATCH, &[]),
    ("delete", "delete", "delete", DELETE, &[("202", "Accepted")]),
];

pub(super) fn paths(
    version: &CustomResourceVersion,
    dialect: Dialect,
    release_parameters: ReleaseParameters,
) -> Map<String, Value> {
    let group_version = version.group_version();
    let plural = &version.names().plural;
    let root = format!("/apis/{group_version}");
    let kind = version.group_version_kind();
    let (model, list) = (model_name(kind), list_model_name(version));
    let name = Names::new(version, release_parameters);
    let mut paths = Map::new();
    let mut collection = format!("{root}/{plural}");
    if version.scope() == KindScope::Namespaced {
        let id = format!("list{}{}ForAllNamespaces", name.version, kind.kind);
        let operation = name.operation(COLLECTION[0], &id, &list, None, dialect);
        // A path with one operation shares all its parameters.
        paths.insert(collection, path_item(&[], &release_parameters.added_to(LIST), vec![("get", operation)], dialect));
        collection = format!("{root}/namespaces/{{namespace}}/{plural}");
    }
    let operations = COLLECTION.map(|operation| {
        let (response, body, collected) = match operation.1 {
            "list" => (&list, None, ""),
            "post" => (&model, Some(&model), ""),
            _ => (&name.status, None, "Collection"),
        };
        let id = format!("{}{}{collected}{}", operation.2, name.version, name.object);
        (operation.0, name.operation(operation, &id, response, body, dialect))
    });
    let namespace: &[&str] = if version.scope() == KindScope::Namespaced { &["namespace"] } else { &[] };
    paths.insert(collection.clone(), path_item(namespace, "", operations.into(), dialect));
    let names: Vec<&str> = ["name"].iter().chain(namespace).copied().collect();
    let mut add_object = |part: &str, model: &str, count: usize| {
        let operations = OBJECT[..count].iter().map(|operation| {
            let (response, body) = match operation.1 {
                "put" => (model, Some(model.to_owned())),
                "patch" => (model, Some(format!("{META_V1}.Patch"))),
                "delete" => (&*name.status, Some(format!("{META_V1}.DeleteOptions"))),
                _ => (model, None),
            };
            let id = format!("{}{}{}{}", operation.2, name.version, name.object, capitalize(part));
            (operation.0, name.operation(*operation, &id, response, body.as_ref(), dialect))
        });
        let path =
            if part.is_empty() { format!("{collection}/{{name}}") } else { format!("{collection}/{{name}}/{part}") };
        paths.insert(path, path_item(&names, "", operations.collect(), dialect));
    };
    add_object("", &model, 4);
    if version.has_status() {
        add_object("status", &model, 3);
    }
    if version.scale().is_some() {
        add_object("scale", SCALE, 3);
    }
    paths
}

struct Names {
    /// `MyExIoV1`.
    version: String,
    /// `NamespacedFoo`.
    object: String,
    /// `myExIo_v1`.
    tag: String,
    /// The model of a Status.
    status: String,
    kind: Value,
    release_parameters: ReleaseParameters,
}

impl Names {
    fn new(version: &CustomResourceVersion, release_parameters: ReleaseParameters) -> Self {
        let kind = version.group_version_kind();
        let group = kind.group.strip_suffix(".k8s.io").unwrap_or(kind.group);
        let mut parts = group.split(['.', '-']);
        let first = parts.next().unwrap_or_default();
        let tail: String = parts.map(capitalize).collect();
        let scope = if version.scope() == KindScope::Namespaced { "Namespaced" } else { "" };
        Self {
            version: format!("{}{tail}{}", capitalize(first), capitalize(kind.version)),
            object: format!("{scope}{}", kind.kind),
            tag: format!("{first}{tail}_{}", kind.version),
            status: format!("{META_V1}.Status"),
            kind: json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
            release_parameters,
        }
    }

    fn operation(
        &self,
        (_, action, _, query, codes): Operation,
        id: &str,
        response: &str,
        body: Option<&String>,
        dialect: Dialect,
    ) -> Value {
        let mut operation = json!({"operationId": id, "tags": [self.tag], "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.kind});
        let consumed: &[&str] = if action == "patch" { &PATCH_MEDIA_TYPES } else { &MEDIA_TYPES };
        let mut parameters = parameters(&[], &self.release_parameters.added_to(query), dialect);
        if let Some(body) = body {
            let mut request = match dialect {
                Dialect::V2 => json!({"name": "body", "in": "body", "schema": dialect.reference(body)}),
                Dialect::V3 => json!({"content": content(consumed, body, dialect)}),
            };
            if action != "delete" {
                request["required"] = true.into();
            }
            match dialect {
                Dialect::V2 => parameters.insert(0, request),
                Dialect::V3 => operation["requestBody"] = request,
            }
        }
        operation["parameters"] = parameters.into();
        if dialect == Dialect::V2 {
            operation["consumes"] = json!(consumed);
            operation["produces"] = json!(MEDIA_TYPES);
            operation["schemes"] = json!(["https"]);
        }
        let mut responses = json!({"401": {"description": "Unauthorized"}});
        for (code, description) in [("200", "OK")].iter().chain(codes) {
            responses[*code] = match dialect {
                Dialect::V2 => json!({"description": description, "schema": dialect.reference(response)}),
                Dialect::V3 => {
                    json!({"description": description, "content": content(&MEDIA_TYPES, response, dialect)})
                }
            };
        }
        operation["responses"] = responses;
        operation
    }
}

fn content(media_types: &[&str], model: &str, dialect: Dialect) -> Map<String, Value> {
    let schema = json!({"schema": dialect.reference(model)});
    media_types.iter().map(|media_type| ((*media_type).to_owned(), schema.clone())).collect()
}

/// The item of a path. Parameters that all operations have are moved to the item.
fn path_item(names: &[&str], query: &str, operations: Vec<(&str, Value)>, dialect: Dialect) -> Value {
    let mut item = Map::new();
    item.insert("parameters".to_owned(), parameters(names, &format!("{query} pretty:s"), dialect).into());
    for (method, mut operation) in operations {
        if !query.is_empty()
            && let Some(operation) = operation.as_object_mut()
        {
            operation.remove("parameters");
        }
        item.insert(method.to_owned(), operation);
    }
    Value::Object(item)
}

fn parameters(names: &[&str], query: &str, dialect: Dialect) -> Vec<Value> {
    let parameter = |name: &str, location: &str, kind: &str| match dialect {
        Dialect::V2 => json!({"name": name, "in": location, "type": kind, "uniqueItems": true}),
        Dialect::V3 => json!({"name": name, "in": location, "schema": {"type": kind, "uniqueItems": true}}),
    };
    let mut query: Vec<(&str, &str)> = query.split_whitespace().filter_map(|text| text.split_once(':')).collect();
    query.sort_unstable();
    let query = query.into_iter().map(|(name, letter)| {
        parameter(
            name,
            "query",
            match letter {
                "b" => "boolean",
                "i" => "integer",
                _ => "string",
            },
        )
    });
    let path = names.iter().map(|name| {
        let mut parameter = parameter(name, "path", "string");
        parameter["required"] = true.into();
        parameter
    });
    path.chain(query).collect()
}

fn capitalize(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
