//! Operations by path.

use std::collections::BTreeMap;

use api::GroupVersionKind;
use schema::openapi::{OpenApiOperation, OperationAction};

use crate::kind::{BuiltInSubresource, KindScope, ResponseKind};
use crate::served_resources::ServedResource;

/// `/api/v1`, `/apis/apps/v1`.
pub(super) fn group_version_path(resource: &ServedResource) -> String {
    match resource.group.name {
        "" => format!("/api/{}", resource.version.name),
        group => format!("/apis/{group}/{}", resource.version.name),
    }
}

/// Every operation on these resources, by path.
pub(super) fn operations_by_path<'s>(
    resources: impl IntoIterator<Item = &'s ServedResource>,
) -> BTreeMap<String, Vec<OpenApiOperation<'static>>> {
    let mut operations = BTreeMap::new();
    for served in resources {
        let names = OperationNames::from_served(served);
        let listing = OpenApiOperation::list_resources(format!("get{}APIResources", names.version), names.tag.clone());
        operations.entry(format!("{}/", group_version_path(served))).or_insert_with(|| vec![listing]);
        add_resource(&mut operations, served, &names);
        for subresource in &served.subresources {
            add_subresource(&mut operations, served, subresource, &names);
        }
    }
    operations
}

/// The parts of an operation's name, and its tag.
struct OperationNames {
    /// `AppsV1`.
    version: String,
    /// `NamespacedDeployment`.
    object: String,
    /// `apps_v1`.
    tag: String,
}

impl OperationNames {
    fn from_served(resource: &ServedResource) -> Self {
        let group = resource.group.name.strip_suffix(".k8s.io").unwrap_or(resource.group.name);
        let group = if group.is_empty() { "core" } else { group };
        let words: String = group.split('.').map(capitalize).collect();
        let version = resource.version.name;
        let scope = match resource.kind.scope {
            KindScope::Namespaced => "Namespaced",
            KindScope::Cluster => "",
        };
        let tag: Vec<String> = group
            .split('.')
            .enumerate()
            .map(|(at, word)| if at == 0 { word.to_owned() } else { capitalize(word) })
            .collect();
        Self {
            version: format!("{words}{}", capitalize(version)),
            object: format!("{scope}{}", resource.kind.name),
            tag: format!("{}_{version}", tag.concat()),
        }
    }
}

fn capitalize(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn collection_path(resource: &ServedResource) -> String {
    let root = group_version_path(resource);
    match resource.kind.scope {
        KindScope::Namespaced => format!("{root}/namespaces/{{namespace}}/{}", resource.kind.plural),
        KindScope::Cluster => format!("{root}/{}", resource.kind.plural),
    }
}

fn add_resource(
    operations: &mut BTreeMap<String, Vec<OpenApiOperation<'static>>>,
    resource: &ServedResource,
    names: &OperationNames,
) {
    let kind = resource.group_version_kind();
    let OperationNames { version, object, tag } = names;
    let collection = collection_path(resource);
    let one = format!("{collection}/{{name}}");
    let mut add = |path: &str, verb: &str, action: OperationAction, name: String| {
        if resource.kind.verbs.contains(verb) {
            let operation = OpenApiOperation { action, name, tag: tag.clone(), kind };
            operations.entry(path.to_owned()).or_default().push(operation);
        }
    };
    if resource.kind.scope == KindScope::Namespaced {
        let everywhere = format!("{}/{}", group_version_path(resource), resource.kind.plural);
        add(&everywhere, "list", OperationAction::List, format!("list{version}{}ForAllNamespaces", resource.kind.name));
    }
    add(&collection, "list", OperationAction::List, format!("list{version}{object}"));
    add(&collection, "create", OperationAction::Create, format!("create{version}{object}"));
    add(
        &collection,
        "deletecollection",
        OperationAction::DeleteCollection,
        format!("delete{version}Collection{object}"),
    );
    add(&one, "get", OperationAction::Get, format!("read{version}{object}"));
    add(&one, "update", OperationAction::Update, format!("replace{version}{object}"));
    add(&one, "patch", OperationAction::Patch, format!("patch{version}{object}"));
    let delete = OperationAction::Delete { returns_object: resource.kind.strategy.returns_deleted_object };
    add(&one, "delete", delete, format!("delete{version}{object}"));
}

fn add_subresource(
    operations: &mut BTreeMap<String, Vec<OpenApiOperation<'static>>>,
    resource: &ServedResource,
    subresource: &BuiltInSubresource,
    names: &OperationNames,
) {
    let OperationNames { version, object, tag } = names;
    let parent = resource.group_version_kind();
    let kind = match subresource.kind {
        ResponseKind::Parent => parent,
        ResponseKind::Sibling(kind) => GroupVersionKind { kind, ..parent },
        ResponseKind::Foreign(group, version, kind) => GroupVersionKind { group, version, kind },
    };
    let part = capitalize(subresource.name);
    let path = format!("{}/{{name}}/{}", collection_path(resource), subresource.name);
    for (verb, action, word, method) in [
        ("get", OperationAction::Get, "read", "Get"),
        ("create", OperationAction::Create, "create", "Post"),
        ("update", OperationAction::Update, "replace", "Put"),
        ("patch", OperationAction::Patch, "patch", "Patch"),
        ("delete", OperationAction::Delete { returns_object: false }, "delete", "Delete"),
    ] {
        if !subresource.verbs.contains(verb) {
            continue;
        }
        let (action, name) = match (subresource.is_connect, subresource.name) {
            (true, _) => (OperationAction::Connect(method), format!("connect{version}{method}{object}{part}")),
            (false, "log") => (OperationAction::Text, format!("{word}{version}{object}{part}")),
            (false, _) => (action, format!("{word}{version}{object}{part}")),
        };
        operations.entry(path.clone()).or_default().push(OpenApiOperation { action, name, tag: tag.clone(), kind });
    }
}
