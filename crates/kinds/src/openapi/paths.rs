//! Operations by path.

use std::collections::BTreeMap;

use api::GroupVersionKind;
use schema::openapi::{ConnectMethod, OpenApiOperation, OperationAction};

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
        let (words, group_tag) = group_words(resource.group.name);
        let version = resource.version.name;
        let scope = match resource.kind.scope {
            KindScope::Namespaced => "Namespaced",
            KindScope::Cluster => "",
        };
        Self {
            version: format!("{words}{}", capitalize(version)),
            object: format!("{scope}{}", resource.kind.name),
            tag: format!("{group_tag}_{version}"),
        }
    }
}

/// A group in an operation's name and in a tag: `RbacAuthorization`, `rbacAuthorization`.
pub(super) fn group_words(group: &str) -> (String, String) {
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    let group = if group.is_empty() { "core" } else { group };
    let (first, rest) = group.split_once('.').unwrap_or((group, ""));
    let rest: String = rest.split('.').map(capitalize).collect();
    (format!("{}{rest}", capitalize(first)), format!("{first}{rest}"))
}

pub(super) fn capitalize(word: &str) -> String {
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
            let operation = OpenApiOperation { action, name, tag: tag.clone(), kind, parameters: &[] };
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
    let root = group_version_path(resource);
    let watched = collection.replacen(&root, &format!("{root}/watch"), 1);
    add(&watched, "watch", OperationAction::WatchList, format!("watch{version}{object}List"));
    add(&format!("{watched}/{{name}}"), "watch", OperationAction::Watch, format!("watch{version}{object}"));
    if resource.kind.scope == KindScope::Namespaced {
        let everywhere = format!("{root}/watch/{}", resource.kind.plural);
        let name = format!("watch{version}{}ListForAllNamespaces", resource.kind.name);
        add(&everywhere, "watch", OperationAction::WatchList, name);
    }
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
    let parameters = option_parameters(kind.kind, subresource.name);
    let mut add = |path: &str, action, name| {
        let operation = OpenApiOperation { action, name, tag: tag.clone(), kind, parameters };
        operations.entry(path.to_owned()).or_default().push(operation);
    };
    if subresource.is_connect {
        let is_proxy = subresource.name == "proxy";
        for method in if is_proxy { &PROXY_METHODS[..] } else { &STREAM_METHODS } {
            let name = format!("connect{version}{}{object}{part}", method.word());
            if is_proxy {
                let below = format!("{path}/{{path}}");
                add(&below, OperationAction::Connect(*method), format!("{name}WithPath"));
            }
            add(&path, OperationAction::Connect(*method), name);
        }
        return;
    }
    for (verb, action, word) in [
        ("get", OperationAction::Get, "read"),
        ("create", OperationAction::Create, "create"),
        ("update", OperationAction::Update, "replace"),
        ("patch", OperationAction::Patch, "patch"),
        ("delete", OperationAction::Delete { returns_object: false }, "delete"),
    ] {
        if subresource.verbs.contains(verb) {
            let action = if subresource.name == "log" { OperationAction::Text } else { action };
            add(&path, action, format!("{word}{version}{object}{part}"));
        }
    }
}

/// The methods of connections that carry streams: exec, attach, portforward.
const STREAM_METHODS: [ConnectMethod; 2] = [ConnectMethod::Get, ConnectMethod::Post];
const PROXY_METHODS: [ConnectMethod; 7] = [
    ConnectMethod::Get,
    ConnectMethod::Put,
    ConnectMethod::Post,
    ConnectMethod::Delete,
    ConnectMethod::Options,
    ConnectMethod::Head,
    ConnectMethod::Patch,
];

/// The parameters of connections and logs, from their option types, which no document describes.
fn option_parameters(kind: &str, subresource: &str) -> &'static [(&'static str, &'static str)] {
    match (kind, subresource) {
        (_, "log") => &[
            ("container", "string"),
            ("follow", "boolean"),
            ("insecureSkipTLSVerifyBackend", "boolean"),
            ("limitBytes", "integer"),
            ("previous", "boolean"),
            ("sinceSeconds", "integer"),
            ("stream", "string"),
            ("tailLines", "integer"),
            ("timestamps", "boolean"),
        ],
        ("PodExecOptions", _) => &[
            ("command", "string"),
            ("container", "string"),
            ("stderr", "boolean"),
            ("stdin", "boolean"),
            ("stdout", "boolean"),
            ("tty", "boolean"),
        ],
        ("PodAttachOptions", _) => &[
            ("container", "string"),
            ("stderr", "boolean"),
            ("stdin", "boolean"),
            ("stdout", "boolean"),
            ("tty", "boolean"),
        ],
        ("PodPortForwardOptions", _) => &[("ports", "integer")],
        (_, "proxy") => &[("path", "string")],
        _ => &[],
    }
}
