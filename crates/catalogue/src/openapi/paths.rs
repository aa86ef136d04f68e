//! Which operations there are on which paths.

use std::collections::BTreeMap;

use api::GroupVersionKind;

use super::operation::{Action, Operation};
use crate::kind::{ResponseKind, Scope, Subresource};
use crate::surface::Served;

/// `/api/v1`, `/apis/apps/v1`.
pub(super) fn root_of(served: &Served) -> String {
    match served.group.name {
        "" => format!("/api/{}", served.version.name),
        group => format!("/apis/{group}/{}", served.version.name),
    }
}

/// Every operation on these resources, by path.
pub(super) fn operations(served: &[&Served]) -> BTreeMap<String, Vec<Operation>> {
    let mut operations = BTreeMap::new();
    for served in served {
        let names = Names::of(served);
        let listing = Operation::resources(format!("get{}APIResources", names.version), names.tag.clone());
        operations.entry(format!("{}/", root_of(served))).or_insert_with(|| vec![listing]);
        add_resource(&mut operations, served, &names);
        for subresource in &served.subresources {
            add_subresource(&mut operations, served, subresource, &names);
        }
    }
    operations
}

/// The parts of an operation's name, and its tag.
struct Names {
    /// `AppsV1`.
    version: String,
    /// `NamespacedDeployment`.
    object: String,
    /// `apps_v1`.
    tag: String,
}

impl Names {
    fn of(served: &Served) -> Self {
        let group = served.group.name.strip_suffix(".k8s.io").unwrap_or(served.group.name);
        let group = if group.is_empty() { "core" } else { group };
        let words: String = group.split('.').map(capitalized).collect();
        let version = served.version.name;
        let scope = match served.kind.scope {
            Scope::Namespaced => "Namespaced",
            Scope::Cluster => "",
        };
        let tag: Vec<String> = group
            .split('.')
            .enumerate()
            .map(|(at, word)| if at == 0 { word.to_owned() } else { capitalized(word) })
            .collect();
        Self {
            version: format!("{words}{}", capitalized(version)),
            object: format!("{scope}{}", served.kind.name),
            tag: format!("{}_{version}", tag.concat()),
        }
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn collection_path(served: &Served) -> String {
    let root = root_of(served);
    match served.kind.scope {
        Scope::Namespaced => format!("{root}/namespaces/{{namespace}}/{}", served.kind.plural),
        Scope::Cluster => format!("{root}/{}", served.kind.plural),
    }
}

fn add_resource(operations: &mut BTreeMap<String, Vec<Operation>>, served: &Served, names: &Names) {
    let kind = served.response_kind();
    let Names { version, object, tag } = names;
    let collection = collection_path(served);
    let one = format!("{collection}/{{name}}");
    let mut add = |path: &str, verb: &str, action: Action, name: String| {
        if served.kind.verbs.contains(verb) {
            let operation = Operation { action, name, tag: tag.clone(), kind };
            operations.entry(path.to_owned()).or_default().push(operation);
        }
    };
    if served.kind.scope == Scope::Namespaced {
        let everywhere = format!("{}/{}", root_of(served), served.kind.plural);
        add(&everywhere, "list", Action::List, format!("list{version}{}ForAllNamespaces", served.kind.name));
    }
    add(&collection, "list", Action::List, format!("list{version}{object}"));
    add(&collection, "create", Action::Create, format!("create{version}{object}"));
    add(&collection, "deletecollection", Action::DeleteCollection, format!("delete{version}Collection{object}"));
    add(&one, "get", Action::Get, format!("read{version}{object}"));
    add(&one, "update", Action::Update, format!("replace{version}{object}"));
    add(&one, "patch", Action::Patch, format!("patch{version}{object}"));
    add(&one, "delete", Action::Delete, format!("delete{version}{object}"));
}

fn add_subresource(
    operations: &mut BTreeMap<String, Vec<Operation>>,
    served: &Served,
    subresource: &Subresource,
    names: &Names,
) {
    let Names { version, object, tag } = names;
    let parent = served.response_kind();
    let kind = match subresource.kind {
        ResponseKind::Parent => parent,
        ResponseKind::Sibling(kind) => GroupVersionKind { kind, ..parent },
        ResponseKind::Foreign(group, version, kind) => GroupVersionKind { group, version, kind },
    };
    let part = capitalized(subresource.name);
    let path = format!("{}/{{name}}/{}", collection_path(served), subresource.name);
    for (verb, action, word, method) in [
        ("get", Action::Get, "read", "Get"),
        ("create", Action::Create, "create", "Post"),
        ("update", Action::Update, "replace", "Put"),
        ("patch", Action::Patch, "patch", "Patch"),
        ("delete", Action::Delete, "delete", "Delete"),
    ] {
        if !subresource.verbs.contains(verb) {
            continue;
        }
        let (action, name) = match (subresource.connect, subresource.name) {
            (true, _) => (Action::Connect(method), format!("connect{version}{method}{object}{part}")),
            (false, "log") => (Action::Text, format!("{word}{version}{object}{part}")),
            (false, _) => (action, format!("{word}{version}{object}{part}")),
        };
        operations.entry(path.clone()).or_default().push(Operation { action, name, tag: tag.clone(), kind });
    }
}
