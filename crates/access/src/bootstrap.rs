//! The roles and bindings that every cluster has, so that real components find theirs.
//!
//! Names, rules and subjects are those of kube-apiserver 1.37 with its default feature gates, and of the controllers it knows
//! behind other gates; release 1.36 has a subset. One role is our own: [`VIEWER`].

mod components;
mod controllers;
mod namespaces;
mod people;
mod reconcile;
mod table;

use std::collections::BTreeMap;

use api::json::to_go_json;
use api::metadata::ObjectMeta;
use serde::Serialize;

pub use reconcile::{Change, ReconcileError, Skipped, reconcile};

use crate::rbac::{AggregationRule, Binding, GROUP, Kind, LabelSelector, Role, RoleRef, Subject};
use crate::user;
use table::{Row, paths};

/// The role to read this server's own pages. Nobody is bound to it by default.
pub const VIEWER: &str = "unskew:viewer";

/// The annotation by which an object asks to be completed at every start; `false` asks to be left alone.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

const BOOTSTRAPPING: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
const CONTROLLER: &str = "system:controller:";

/// An object that every cluster should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A Role or a ClusterRole.
    Role(Role),
    /// A RoleBinding or a ClusterRoleBinding.
    Binding(Binding),
}

/// All of them: roles before the bindings that need them.
pub fn wanted() -> Vec<Wanted> {
    let roles = cluster_roles().chain(namespaces::ROLES.iter().map(|(namespace, name, rows)| {
        let mut role = role(name, rows);
        (*namespace).clone_into(&mut role.metadata.namespace);
        role
    }));
    roles.map(Wanted::Role).chain(cluster_role_bindings().chain(role_bindings()).map(Wanted::Binding)).collect()
}

impl Wanted {
    /// Its kind; the namespace tells the two of a sort apart.
    pub fn kind(&self) -> Kind {
        match (self, self.metadata().namespace.is_empty()) {
            (Self::Role(_), true) => Kind::ClusterRole,
            (Self::Role(_), false) => Kind::Role,
            (Self::Binding(_), true) => Kind::ClusterRoleBinding,
            (Self::Binding(_), false) => Kind::RoleBinding,
        }
    }

    /// Name, namespace, labels and annotations.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Role(role) => &role.metadata,
            Self::Binding(binding) => &binding.metadata,
        }
    }

    /// The object as it is created.
    pub fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Object<'a, T> {
            kind: &'static str,
            api_version: &'static str,
            #[serde(flatten)]
            object: &'a T,
        }
        let (kind, api_version) = (self.kind().name(), "rbac.authorization.k8s.io/v1");
        match self {
            Self::Role(object) => to_go_json(&Object { kind, api_version, object }),
            Self::Binding(object) => to_go_json(&Object { kind, api_version, object }),
        }
    }
}

fn cluster_roles() -> impl Iterator<Item = Role> {
    static VIEWER_RULES: &[(&str, &[Row])] = &[(VIEWER, &[paths("get", "/debug/peers /debug/peers/* /metrics")])];
    let tables = [people::PEOPLE, components::COMPONENTS, VIEWER_RULES];
    let plain = tables.into_iter().flatten().map(|(name, rows)| {
        let mut role = role(name, rows);
        if let Some(to) = name.strip_prefix("system:").filter(|to| to.starts_with("aggregate-to-")) {
            role.metadata.labels.insert(aggregation_label(to), "true".to_owned());
        }
        role
    });
    let aggregated = [("admin", None), ("edit", Some("aggregate-to-admin")), ("view", Some("aggregate-to-edit"))];
    let aggregated = aggregated.into_iter().map(|(name, to)| aggregate(name, to));
    plain.chain(aggregated).chain(controllers().map(|(name, rows)| role(&format!("{CONTROLLER}{name}"), rows)))
}

fn controllers() -> impl Iterator<Item = &'static (&'static str, &'static [Row])> {
    [controllers::WORKLOADS, controllers::NETWORK, controllers::VOLUMES, controllers::CLUSTER].into_iter().flatten()
}

fn cluster_role_bindings() -> impl Iterator<Item = Binding> {
    let to_groups: [(&str, &[&str]); 7] = [
        ("cluster-admin", &[user::MASTERS]),
        ("system:monitoring", &[user::MONITORING]),
        ("system:discovery", &[user::AUTHENTICATED]),
        ("system:basic-user", &[user::AUTHENTICATED]),
        ("system:public-info-viewer", &[user::AUTHENTICATED, user::UNAUTHENTICATED]),
        ("system:service-account-issuer-discovery", &[user::SERVICE_ACCOUNTS]),
        ("system:cluster-trust-bundle-discovery", &[user::SERVICE_ACCOUNTS]),
    ];
    let to_users = [
        ("system:node-proxier", user::KUBE_PROXY),
        ("system:kube-controller-manager", user::KUBE_CONTROLLER_MANAGER),
        ("system:kube-scheduler", user::KUBE_SCHEDULER),
        ("system:volume-scheduler", user::KUBE_SCHEDULER),
    ];
    let groups =
        to_groups.into_iter().map(|(role, groups)| (role.to_owned(), groups.iter().map(|name| group(name)).collect()));
    let users = to_users.into_iter().map(|(role, name)| (role.to_owned(), vec![subject(name)]));
    let others = [
        ("system:kube-dns".to_owned(), vec![subject("sa:kube-dns")]),
        // Nodes need it only where no Node authorizer runs; whoever runs such a cluster adds the subject.
        ("system:node".to_owned(), Vec::new()),
    ];
    let controllers =
        controllers().map(|(name, _)| (format!("{CONTROLLER}{name}"), vec![subject(&format!("sa:{name}"))]));
    groups.chain(users).chain(others).chain(controllers).map(|(role, subjects)| Binding {
        metadata: metadata(&role),
        subjects,
        role_ref: RoleRef { api_group: GROUP.to_owned(), kind: "ClusterRole".to_owned(), name: role },
    })
}

fn role_bindings() -> impl Iterator<Item = Binding> {
    namespaces::BINDINGS.iter().map(|(namespace, name, role, subjects)| Binding {
        metadata: ObjectMeta { namespace: (*namespace).to_owned(), ..metadata(name) },
        subjects: subjects.iter().map(|name| subject(name)).collect(),
        role_ref: RoleRef { api_group: GROUP.to_owned(), kind: "Role".to_owned(), name: (*role).to_owned() },
    })
}

fn role(name: &str, rows: &[Row]) -> Role {
    Role { metadata: metadata(name), rules: rows.iter().map(|row| row.to_rule()).collect(), aggregation_rule: None }
}

/// A role that gathers the rules labelled for it, and is itself gathered by a greater one.
fn aggregate(name: &str, to: Option<&str>) -> Role {
    let mut metadata = metadata(name);
    metadata.labels.extend(to.map(|to| (aggregation_label(to), "true".to_owned())));
    let match_labels = BTreeMap::from([(aggregation_label(&format!("aggregate-to-{name}")), "true".to_owned())]);
    let selector = LabelSelector { match_labels, ..LabelSelector::default() };
    let aggregation_rule = Some(AggregationRule { cluster_role_selectors: vec![selector] });
    Role { metadata, rules: Vec::new(), aggregation_rule }
}

fn aggregation_label(to: &str) -> String {
    format!("{GROUP}/{to}")
}

fn metadata(name: &str) -> ObjectMeta {
    let (label, value) = BOOTSTRAPPING;
    ObjectMeta {
        name: name.to_owned(),
        labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
        annotations: BTreeMap::from([(AUTOUPDATE.to_owned(), "true".to_owned())]),
        ..ObjectMeta::default()
    }
}

fn group(name: &str) -> Subject {
    Subject { kind: "Group".to_owned(), api_group: GROUP.to_owned(), name: name.to_owned(), namespace: String::new() }
}

/// A user, or with `sa:` a service account of kube-system.
fn subject(name: &str) -> Subject {
    match name.strip_prefix("sa:") {
        Some(account) => Subject {
            kind: "ServiceAccount".to_owned(),
            api_group: String::new(),
            name: account.to_owned(),
            namespace: "kube-system".to_owned(),
        },
        None => Subject { kind: "User".to_owned(), ..group(name) },
    }
}

#[cfg(test)]
mod tests;
