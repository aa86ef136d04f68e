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
    /// Parameters in the query beside those of the action, with their types.
    pub parameters: &'a [(&'a str, &'a str)],
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
    /// Watches one object, on a deprecated path.
    Watch,
    /// Watches many objects, on a deprecated path.
    WatchList,
    /// Reads plain text: logs.
    Text,
    /// Opens a connection, by this method.
    Connect(ConnectMethod),
    /// Reads a page that describes the server, such as its version.
    Page(ServerPage),
}

/// A page that describes the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPage {
    /// Discovery: the type of this name in `meta/v1`.
    Discovery(&'static str),
    /// `/version`.
    Version,
    /// Text of this media type.
    Text(&'static str),
}

/// A method that opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectMethod {
    /// `GET`.
    Get,
    /// `PUT`.
    Put,
    /// `POST`.
    Post,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `HEAD`.
    Head,
    /// `PATCH`.
    Patch,
}

impl ConnectMethod {
    /// The word in an operation's name: `Get`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "Get",
            Self::Put => "Put",
            Self::Post => "Post",
            Self::Delete => "Delete",
            Self::Options => "Options",
            Self::Head => "Head",
            Self::Patch => "Patch",
        }
    }

    fn member_name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Post => "post",
            Self::Delete => "delete",
            Self::Options => "options",
            Self::Head => "head",
            Self::Patch => "patch",
        }
    }
}

const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";
const META_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const TEXT_MEDIA_TYPES: [&str; 4] =
    ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml", "text/plain"];
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
        Self { action: OperationAction::Resources, name, tag, kind, parameters: &[] }
    }

    /// A page that describes the server.
    pub fn page(page: ServerPage, name: String, tag: String) -> Self {
        let kind = GroupVersionKind { group: "", version: "", kind: "" };
        Self { action: OperationAction::Page(page), name, tag, kind, parameters: &[] }
    }

    /// The types it refers to.
    pub(super) fn definitions(&self, types: Types<'_>) -> impl Iterator<Item = String> {
        let body = self.body_type(types).map(|(definition, _)| definition);
        body.into_iter().chain(self.response_type(types))
    }

    fn method(&self) -> &'static str {
        match self.action {
            OperationAction::Resources
            | OperationAction::List
            | OperationAction::Get
            | OperationAction::Watch
            | OperationAction::WatchList
            | OperationAction::Page(_)
            | OperationAction::Text => "get",
            OperationAction::Create => "post",
            OperationAction::Update => "put",
            OperationAction::Patch => "patch",
            OperationAction::Delete { .. } | OperationAction::DeleteCollection => "delete",
            OperationAction::Connect(method) => method.member_name(),
        }
    }

    /// Value of the extension `x-kubernetes-action`.
    fn kubernetes_action(&self) -> Option<&'static str> {
        match self.action {
            OperationAction::Resources | OperationAction::Page(_) => None,
            OperationAction::List => Some("list"),
            OperationAction::Create => Some("post"),
            OperationAction::DeleteCollection => Some("deletecollection"),
            OperationAction::Get | OperationAction::Text => Some("get"),
            OperationAction::Update => Some("put"),
            OperationAction::Patch => Some("patch"),
            OperationAction::Delete { .. } => Some("delete"),
            OperationAction::Watch => Some("watch"),
            OperationAction::WatchList => Some("watchlist"),
            OperationAction::Connect(_) => Some("connect"),
        }
    }

    /// The parameters that not all releases have.
    fn release_parameters(&self, types: Types<'_>) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_list = self.is_listing() || self.action == OperationAction::DeleteCollection;
        let is_delete = matches!(self.action, OperationAction::Delete { .. } | OperationAction::DeleteCollection);
        let has_shards = is_list && types.for_definition(&format!("{META_V1}.ShardInfo")).is_some();
        let options = types.for_definition(&format!("{META_V1}.DeleteOptions")).filter(|_| is_delete);
        let ignores = options.is_some_and(|options| options.fields().any(|field| field.name() == IGNORE_READ_ERROR));
        let shards = has_shards.then_some(("shardSelector", "string"));
        shards.into_iter().chain(ignores.then_some((IGNORE_READ_ERROR, "boolean")))
    }

    fn query_parameters(&self) -> &'static [(&'static str, &'static str)] {
        match self.action {
            OperationAction::List | OperationAction::Watch | OperationAction::WatchList => LIST_PARAMETERS,
            OperationAction::Create | OperationAction::Update => WRITE_PARAMETERS,
            OperationAction::Patch => PATCH_PARAMETERS,
            OperationAction::Delete { .. } => DELETE_PARAMETERS,
            OperationAction::DeleteCollection => DELETE_COLLECTION_PARAMETERS,
            OperationAction::Resources
            | OperationAction::Get
            | OperationAction::Text
            | OperationAction::Page(_)
            | OperationAction::Connect(_) => &[],
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
            | OperationAction::Watch
            | OperationAction::WatchList
            | OperationAction::Text
            | OperationAction::Page(_)
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
            OperationAction::Watch | OperationAction::WatchList => Some(format!("{META_V1}.WatchEvent")),
            OperationAction::Page(ServerPage::Discovery(name)) => Some(format!("{META_V1}.{name}")),
            OperationAction::Page(ServerPage::Version) => Some(VERSION_INFO.to_owned()),
            OperationAction::Text | OperationAction::Connect(_) | OperationAction::Page(ServerPage::Text(_)) => None,
        }
    }

    /// The media types of a response.
    fn media_types(&self) -> &[&'static str] {
        match &self.action {
            OperationAction::Text => &TEXT_MEDIA_TYPES,
            OperationAction::Connect(_) => &["*/*"],
            OperationAction::Page(ServerPage::Version) => &MEDIA_TYPES[..1],
            OperationAction::Page(ServerPage::Text(media_type)) => std::slice::from_ref(media_type),
            OperationAction::List | OperationAction::Watch | OperationAction::WatchList => &LIST_MEDIA_TYPES,
            OperationAction::Resources
            | OperationAction::Create
            | OperationAction::DeleteCollection
            | OperationAction::Get
            | OperationAction::Update
            | OperationAction::Patch
            | OperationAction::Delete { .. }
            | OperationAction::Page(ServerPage::Discovery(_)) => &MEDIA_TYPES,
        }
    }

    /// The media types of a body in Swagger 2.0, which states them of operations without a body too.
    fn consumed_media_types(&self) -> &[&'static str] {
        match &self.action {
            OperationAction::Patch => &PATCH_MEDIA_TYPES,
            OperationAction::Page(ServerPage::Text(_)) => &[],
            OperationAction::Resources | OperationAction::Page(_) => self.media_types(),
            OperationAction::List
            | OperationAction::Create
            | OperationAction::DeleteCollection
            | OperationAction::Get
            | OperationAction::Update
            | OperationAction::Delete { .. }
            | OperationAction::Watch
            | OperationAction::WatchList
            | OperationAction::Text
            | OperationAction::Connect(_) => &["*/*"],
        }
    }

    /// True if the response may be a stream of events.
    fn is_listing(&self) -> bool {
        matches!(self.action, OperationAction::List | OperationAction::Watch | OperationAction::WatchList)
    }

    fn definition(&self, types: Types<'_>) -> Option<String> {
        types.for_kind(self.kind).map(StructType::definition)
    }
}

/// All operations on one path. The parameters that all of them have stand beside the operations, except bodies.
pub(super) fn path_item(path: &str, types: Types<'_>, operations: &[OpenApiOperation<'_>], dialect: Dialect) -> Value {
    let parameters: Vec<Vec<Value>> =
        operations.iter().map(|operation| parameters_of(path, operation, types, dialect)).collect();
    let is_shared =
        |parameter: &Value| parameter["in"] != "body" && parameters.iter().all(|all| all.contains(parameter));
    let (shared, _): (Vec<Value>, _) = parameters.first().cloned().unwrap_or_default().into_iter().partition(is_shared);
    let mut item = Map::new();
    for (operation, all) in operations.iter().zip(&parameters) {
        let own: Vec<Value> = all.iter().filter(|parameter| !shared.contains(parameter)).cloned().collect();
        item.insert(operation.method().to_owned(), operation_value(operation, own, types, dialect));
    }
    if !shared.is_empty() {
        item.insert("parameters".to_owned(), shared.into());
    }
    Value::Object(item)
}

/// The parameters of an operation in path, query and, in Swagger 2.0, body, sorted by name.
fn parameters_of(path: &str, operation: &OpenApiOperation<'_>, types: Types<'_>, dialect: Dialect) -> Vec<Value> {
    let in_path = ["name", "namespace", "path"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
    let mut all: Vec<(&str, &str, &str)> = in_path.map(|name| (name, "path", "string")).collect();
    let has_pretty = !matches!(
        operation.action,
        OperationAction::Resources | OperationAction::Page(_) | OperationAction::Connect(_)
    );
    all.extend(has_pretty.then_some(("pretty", "query", "string")));
    let in_query = |(name, kind)| (name, "query", kind);
    all.extend(operation.query_parameters().iter().copied().map(in_query));
    all.extend(operation.parameters.iter().map(|(name, kind)| (*name, "query", *kind)));
    all.extend(operation.release_parameters(types).map(in_query));
    all.sort_unstable();
    let mut values: Vec<Value> =
        all.into_iter().map(|(name, location, kind)| parameter(name, location, kind, dialect)).collect();
    if let (Dialect::V2, Some((definition, is_required))) = (dialect, operation.body_type(types)) {
        let mut body = json!({"name": "body", "in": "body", "schema": dialect.reference(&definition)});
        if is_required {
            body["required"] = true.into();
        }
        values.push(body);
    }
    values
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

fn operation_value(
    operation: &OpenApiOperation<'_>,
    parameters: Vec<Value>,
    types: Types<'_>,
    dialect: Dialect,
) -> Value {
    let mut value = json!({"operationId": operation.name, "tags": [operation.tag]});
    if let (Dialect::V3, Some((definition, is_required))) = (dialect, operation.body_type(types)) {
        let medium = json!({"schema": dialect.reference(&definition)});
        let media = if operation.action == OperationAction::Patch { &PATCH_MEDIA_TYPES[..] } else { &["*/*"] };
        let content: Map<String, Value> = media.iter().map(|name| ((*name).to_owned(), medium.clone())).collect();
        value["requestBody"] = json!({"content": content});
        if is_required {
            value["requestBody"]["required"] = true.into();
        }
    }
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    if dialect == Dialect::V2 {
        let consumed = operation.consumed_media_types();
        if !consumed.is_empty() {
            value["consumes"] = json!(consumed);
        }
        value["produces"] = json!(operation.media_types());
        value["schemes"] = json!(["https"]);
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
    let schema = match operation.response_type(types) {
        Some(definition) => dialect.reference(&definition),
        None => json!({"type": "string"}),
    };
    let media = operation.media_types();
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
        | OperationAction::Watch
        | OperationAction::WatchList
        | OperationAction::Text
        | OperationAction::Page(_)
        | OperationAction::Connect(_) => &[],
    };
    for (code, description) in extra {
        let mut response = responses["200"].clone();
        response["description"] = (*description).into();
        responses[*code] = response;
    }
    responses
}
