//! One operation on a path, in the two dialects of OpenAPI.

use api::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::types::Dialect;
use crate::release::Release;
use crate::schema::{Special, Struct};

/// What one may do with a path.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) action: Action,
    pub(super) name: String,
    pub(super) tag: String,
    /// What it is about.
    pub(super) kind: GroupVersionKind<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The resources of a group-version.
    Resources,
    List,
    Create,
    DeleteCollection,
    Get,
    Update,
    Patch,
    Delete,
    /// Plain text: logs.
    Text,
    /// A connection, by this method.
    Connect(&'static str),
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

const JSON: [&str; 2] = ["application/json", "application/yaml"];
const PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];

/// The parameters in the query of an action, with their types.
const LIST: &[(&str, &str)] = &[
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
const WRITE: &[(&str, &str)] = &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const DELETE_COLLECTION: &[(&str, &str)] = &[
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

impl Operation {
    pub(super) fn resources(name: String, tag: String) -> Self {
        let kind = GroupVersionKind { group: "", version: "v1", kind: "APIResourceList" };
        Self { action: Action::Resources, name, tag, kind }
    }

    /// The types that it names.
    pub(super) fn definitions(&self, release: Release) -> impl Iterator<Item = String> {
        let body = self.body(release).map(|(definition, _)| definition);
        body.into_iter().chain(self.answer(release)).chain([format!("{META}.WatchEvent")])
    }

    fn method(&self) -> &'static str {
        match self.action {
            Action::Resources | Action::List | Action::Get | Action::Text | Action::Connect("Get") => "get",
            Action::Create | Action::Connect("Post") => "post",
            Action::Update | Action::Connect("Put") => "put",
            Action::Patch | Action::Connect("Patch") => "patch",
            Action::Delete | Action::DeleteCollection | Action::Connect(_) => "delete",
        }
    }

    /// As the extension of Kubernetes names it.
    fn word(&self) -> Option<&'static str> {
        match self.action {
            Action::Resources => None,
            Action::List => Some("list"),
            Action::Create => Some("post"),
            Action::DeleteCollection => Some("deletecollection"),
            Action::Get | Action::Text => Some("get"),
            Action::Update => Some("put"),
            Action::Patch => Some("patch"),
            Action::Delete => Some("delete"),
            Action::Connect(_) => Some("connect"),
        }
    }

    fn query(&self) -> &'static [(&'static str, &'static str)] {
        match self.action {
            Action::List => LIST,
            Action::Create | Action::Update => WRITE,
            Action::Patch => PATCH,
            Action::Delete => DELETE,
            Action::DeleteCollection => DELETE_COLLECTION,
            Action::Resources | Action::Get | Action::Text | Action::Connect(_) => &[],
        }
    }

    /// The type of the body, and whether there must be one.
    fn body(&self, release: Release) -> Option<(String, bool)> {
        match self.action {
            Action::Create | Action::Update => self.definition(release).map(|definition| (definition, true)),
            Action::Patch => Some((Special::Patch.definition().to_owned(), true)),
            Action::Delete | Action::DeleteCollection => Some((format!("{META}.DeleteOptions"), false)),
            Action::Resources | Action::List | Action::Get | Action::Text | Action::Connect(_) => None,
        }
    }

    /// The type of a successful answer; `None` for text.
    fn answer(&self, release: Release) -> Option<String> {
        match self.action {
            Action::Resources => Some(format!("{META}.APIResourceList")),
            Action::List => self.definition(release).map(|definition| format!("{definition}List")),
            Action::Create | Action::Get | Action::Update | Action::Patch => self.definition(release),
            Action::Delete | Action::DeleteCollection => Some(format!("{META}.Status")),
            Action::Text | Action::Connect(_) => None,
        }
    }

    fn definition(&self, release: Release) -> Option<String> {
        Struct::of_kind(release, self.kind).map(Struct::definition)
    }
}

/// All operations on one path, with the parameters that they share.
pub(super) fn path_item(path: &str, release: Release, operations: &[Operation], dialect: Dialect) -> Value {
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
        item.insert(operation.method().to_owned(), operation_value(operation, release, dialect));
    }
    Value::Object(item)
}

fn parameter(name: &str, place: &str, kind: &str, dialect: Dialect) -> Value {
    let mut parameter = match dialect {
        Dialect::V2 => json!({"name": name, "in": place, "type": kind, "uniqueItems": true}),
        Dialect::V3 => json!({"name": name, "in": place, "schema": {"type": kind, "uniqueItems": true}}),
    };
    if place == "path" {
        parameter["required"] = true.into();
    }
    parameter
}

fn operation_value(operation: &Operation, release: Release, dialect: Dialect) -> Value {
    let mut value = json!({"operationId": operation.name, "tags": [operation.tag]});
    let mut parameters: Vec<Value> =
        operation.query().iter().map(|(name, kind)| parameter(name, "query", kind, dialect)).collect();
    let body = operation.body(release);
    match (dialect, &body) {
        (Dialect::V2, Some((definition, required))) => {
            let schema = dialect.reference(definition);
            parameters.push(json!({"name": "body", "in": "body", "required": required, "schema": schema}));
        }
        (Dialect::V3, Some((definition, required))) => {
            let medium = json!({"schema": dialect.reference(definition)});
            let media = if operation.action == Action::Patch { &PATCHES[..] } else { &["*/*"] };
            let content: Map<String, Value> = media.iter().map(|name| ((*name).to_owned(), medium.clone())).collect();
            value["requestBody"] = json!({"content": content, "required": required});
        }
        (_, None) => {}
    }
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    if dialect == Dialect::V2 {
        value["consumes"] = if operation.action == Action::Patch { json!(PATCHES) } else { json!(["*/*"]) };
        value["produces"] = json!(JSON);
    }
    value["responses"] = responses(operation, release, dialect);
    if let Some(word) = operation.word() {
        let GroupVersionKind { group, version, kind } = operation.kind;
        value["x-kubernetes-action"] = word.into();
        value["x-kubernetes-group-version-kind"] = json!({"group": group, "version": version, "kind": kind});
    }
    value
}

fn responses(operation: &Operation, release: Release, dialect: Dialect) -> Value {
    let (schema, media) = match operation.answer(release) {
        Some(definition) => (dialect.reference(&definition), &JSON[..]),
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
        Action::Create => &[("201", "Created"), ("202", "Accepted")],
        Action::Update | Action::Patch => &[("201", "Created")],
        Action::Delete => &[("202", "Accepted")],
        Action::Resources
        | Action::List
        | Action::DeleteCollection
        | Action::Get
        | Action::Text
        | Action::Connect(_) => &[],
    };
    for (code, description) in extra {
        let mut response = responses["200"].clone();
        response["description"] = (*description).into();
        responses[*code] = response;
    }
    responses
}
