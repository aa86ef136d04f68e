//! An operation on a path, as OpenAPI 3.0 and as Swagger 2.0.

use api::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::types::Dialect;
use crate::{SpecialType, StructType, Types};

/// One operation on a path.
#[derive(Clone, Debug)]
pub struct OpenApiOperation<'a> {
    /// The action, which gives the method, the parameters and the body.
    pub action: OperationAction,
    /// The `operationId`.
    pub name: String,
    /// The tag of the group and version: `apps_v1`.
    pub tag: String,
    /// The kind of the objects.
    pub kind: GroupVersionKind<&'a str>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationAction {
    /// Lists the resources of a group-version.
    Resources,
    /// Lists objects.
    List,
    /// Creates an object.
    Create,
    /// Deletes all objects that are selected.
    DeleteCollection,
    /// Reads an object.
    Get,
    /// Replaces an object.
    Update,
    /// Patches an object.
    Patch,
    /// Deletes an object.
    Delete {
        /// True if the response is the deleted object, false if it is a Status.
        returns_object: bool,
    },
    /// Reads plain text: logs.
    Text,
    /// Opens a connection, by this method.
    Connect(&'static str),
}

const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
const META_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
/// Lists may be watched.
const LIST_MEDIA_TYPES: [&str; 5] = [
    "application/json",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/yaml",
];
const PATCH_MEDIA_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The parameters in the query of an action, with their types.
const LIST_PARAMETERS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE_PARAMETERS: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH_PARAMETERS: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const DELETE_COLLECTION_PARAMETERS: &[(&str, &str)] = &[
    ("continue", "string"),
    ("dryRun", "string"),
    ("fieldSelector", "string"),
    ("gracePeriodSeconds", "integer"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
];

impl OpenApiOperation<'_> {
    /// The list of resources of a group-version.
    pub fn list_resources(name: String, tag: String) -> Self {
        let kind = GroupVersionKind { group: "", version: "v1", kind: "APIResourceList" };
        Self { action: OperationAction::Resources, name, tag, kind }
    }

    /// The types it refers to.
    pub(super) fn definitions(&self, types: Types<'_>) -> impl Iterator<Item = String> {
        let body = self.body_type(types).map(|(definition, _)| definition);
        body.into_iter().chain(self.response_type(types)).chain([format!("{META_V1}.WatchEvent")])
    }

    fn method(&self) -> &'static str {
        match self.action {
            OperationAction::Resources
            | OperationAction::List
            | OperationAction::Get
            | OperationAction::Text
            | OperationAction::Connect("Get") => "get",
            OperationAction::Create | OperationAction::Connect("Post") => "post",
            OperationAction::Update | OperationAction::Connect("Put") => "put",
            OperationAction::Patch | OperationAction::Connect("Patch") => "patch",
            OperationAction::Delete { .. } | OperationAction::DeleteCollection | OperationAction::Connect(_) => {
                "delete"
            }
        }
    }

    /// Value of the extension `x-kubernetes-action`.
    fn kubernetes_action(&self) -> Option<&'static str> {
        match self.action {
            OperationAction::Resources => None,
            OperationAction::List => Some("list"),
            OperationAction::Create => Some("post"),
            OperationAction::DeleteCollection => Some("deletecollection"),
            OperationAction::Get | OperationAction::Text => Some("get"),
            OperationAction::Update => Some("put"),
            OperationAction::Patch => Some("patch"),
            OperationAction::Delete { .. } => Some("delete"),
            OperationAction::Connect(_) => Some("connect"),
        }
    }

    /// The parameters that not all releases have.
    fn release_parameters(&self, types: Types<'_>) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_list = matches!(self.action, OperationAction::List | OperationAction::DeleteCollection);
        let is_delete = matches!(self.action, OperationAction::Delete { .. } | OperationAction::DeleteCollection);
        let has_shards = is_list && types.for_definition(&format!("{META_V1}.ShardInfo")).is_some();
        let options = types.for_definition(&format!("{META_V1}.DeleteOptions")).filter(|_| is_delete);
        let ignores = options.is_some_and(|options| options.fields().any(|field| field.name() == IGNORE_READ_ERROR));
        let shards = has_shards.then_some(("shardSelector", "string"));
        shards.into_iter().chain(ignores.then_some((IGNORE_READ_ERROR, "boolean")))
    }

    fn query_parameters(&self) -> &'static [(&'static str, &'static str)] {
        match self.action {
            OperationAction::List => LIST_PARAMETERS,
            OperationAction::Create | OperationAction::Update => WRITE_PARAMETERS,
            OperationAction::Patch => PATCH_PARAMETERS,
            OperationAction::Delete { .. } => DELETE_PARAMETERS,
            OperationAction::DeleteCollection => DELETE_COLLECTION_PARAMETERS,
            OperationAction::Resources | OperationAction::Get | OperationAction::Text | OperationAction::Connect(_) => {
                &[]
            }
        }
    }

    /// The type of the body, and whether there must be one.
    fn body_type(&self, types: Types<'_>) -> Option<(String, bool)> {
        match self.action {
            OperationAction::Create | OperationAction::Update => {
                self.definition(types).map(|definition| (definition, true))
            }
            OperationAction::Patch => Some((SpecialType::Patch.definition().to_owned(), true)),
            OperationAction::Delete { .. } | OperationAction::DeleteCollection => {
                Some((format!("{META_V1}.DeleteOptions"), false))
            }
            OperationAction::Resources
            | OperationAction::List
            | OperationAction::Get
            | OperationAction::Text
            | OperationAction::Connect(_) => None,
        }
    }

    /// The type of a successful response; `None` for text.
    fn response_type(&self, types: Types<'_>) -> Option<String> {
        match self.action {
            OperationAction::Resources => Some(format!("{META_V1}.APIResourceList")),
            OperationAction::List => self.definition(types).map(|definition| format!("{definition}List")),
            OperationAction::Create
            | OperationAction::Get
            | OperationAction::Update
            | OperationAction::Patch
            | OperationAction::Delete { returns_object: true } => self.definition(types),
            OperationAction::Delete { returns_object: false } | OperationAction::DeleteCollection => {
                Some(format!("{META_V1}.Status"))
            }
            OperationAction::Text | OperationAction::Connect(_) => None,
        }
    }

    /// The media types of a response that is an object.
    fn media_types(&self) -> &'static [&'static str] {
        if self.action == OperationAction::List { &LIST_MEDIA_TYPES } else { &MEDIA_TYPES }
    }

    fn definition(&self, types: Types<'_>) -> Option<String> {
        types.for_kind(self.kind).map(StructType::definition)
    }
}

/// All operations on one path, with the parameters that they share.
pub(super) fn path_item(path: &str, types: Types<'_>, operations: &[OpenApiOperation<'_>], dialect: Dialect) -> Value {
    let mut item = Map::new();
    let mut parameters: Vec<Value> = ["name", "namespace"]
        .into_iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| parameter(name, "path", "string", dialect))
        .collect();
    if !path.ends_with('/') {
        parameters.push(parameter("pretty", "query", "string", dialect));
        item.insert("parameters".to_owned(), parameters.into());
    }
    for operation in operations {
        item.insert(operation.method().to_owned(), operation_value(operation, types, dialect));
    }
    Value::Object(item)
}

fn parameter(name: &str, location: &str, kind: &str, dialect: Dialect) -> Value {
    let mut parameter = match dialect {
        Dialect::V2 => json!({"name": name, "in": location, "type": kind, "uniqueItems": true}),
        Dialect::V3 => json!({"name": name, "in": location, "schema": {"type": kind, "uniqueItems": true}}),
    };
    if location == "path" {
        parameter["required"] = true.into();
    }
    parameter
}

fn operation_value(operation: &OpenApiOperation<'_>, types: Types<'_>, dialect: Dialect) -> Value {
    let mut value = json!({"operationId": operation.name, "tags": [operation.tag]});
    let mut query: Vec<(&str, &str)> =
        operation.query_parameters().iter().copied().chain(operation.release_parameters(types)).collect();
    query.sort_unstable();
    let query = query.into_iter().map(|(name, kind)| parameter(name, "query", kind, dialect));
    let mut parameters: Vec<Value> = query.collect();
    let body = operation.body_type(types);
    match (dialect, &body) {
        (Dialect::V2, Some((definition, required))) => {
            let schema = dialect.reference(definition);
            let mut body = json!({"name": "body", "in": "body", "schema": schema});
            if *required {
                body["required"] = true.into();
            }
            parameters.push(body);
        }
        (Dialect::V3, Some((definition, required))) => {
            let medium = json!({"schema": dialect.reference(definition)});
            let media = if operation.action == OperationAction::Patch { &PATCH_MEDIA_TYPES[..] } else { &["*/*"] };
            let content: Map<String, Value> = media.iter().map(|name| ((*name).to_owned(), medium.clone())).collect();
            value["requestBody"] = json!({"content": content});
            if *required {
                value["requestBody"]["required"] = true.into();
            }
        }
        (_, None) => {}
    }
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    if dialect == Dialect::V2 {
        value["consumes"] =
            if operation.action == OperationAction::Patch { json!(PATCH_MEDIA_TYPES) } else { json!(["*/*"]) };
        value["produces"] = json!(operation.media_types());
    }
    value["responses"] = responses(operation, types, dialect);
    if let Some(word) = operation.kubernetes_action() {
        let GroupVersionKind { group, version, kind } = operation.kind;
        value["x-kubernetes-action"] = word.into();
        value["x-kubernetes-group-version-kind"] = json!({"group": group, "version": version, "kind": kind});
    }
    value
}

fn responses(operation: &OpenApiOperation<'_>, types: Types<'_>, dialect: Dialect) -> Value {
    let (schema, media) = match operation.response_type(types) {
        Some(definition) => (dialect.reference(&definition), operation.media_types()),
        None => (json!({"type": "string"}), &["*/*"][..]),
    };
    let mut success = json!({"description": "OK"});
    match dialect {
        Dialect::V2 => success["schema"] = schema,
        Dialect::V3 => {
            let content: Map<String, Value> =
                media.iter().map(|name| ((*name).to_owned(), json!({"schema": schema}))).collect();
            success["content"] = content.into();
        }
    }
    let mut responses = json!({"200": success, "401": {"description": "Unauthorized"}});
    let extra: &[(&str, &str)] = match operation.action {
        OperationAction::Create => &[("201", "Created"), ("202", "Accepted")],
        OperationAction::Update | OperationAction::Patch => &[("201", "Created")],
        OperationAction::Delete { .. } => &[("202", "Accepted")],
        OperationAction::Resources
        | OperationAction::List
        | OperationAction::DeleteCollection
        | OperationAction::Get
        | OperationAction::Text
        | OperationAction::Connect(_) => &[],
    };
    for (code, description) in extra {
        let mut response = responses["200"].clone();
        response["description"] = (*description).into();
        responses[*code] = response;
    }
    responses
}
