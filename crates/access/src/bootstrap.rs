//! The default roles and bindings of every cluster.
//!
//! Names, rules and subjects are those of a kube-apiserver of the release with the same feature gates, as far as the
//! releases 1.35 to 1.37 have them. [`VIEWER_ROLE`] is the only role of our own; the controllers that this server runs
//! itself have theirs whatever the gates.

mod components;
mod controllers;
mod namespaced;
mod reconcile;
mod rule_row;
mod user_facing;

use std::collections::BTreeMap;

use api::json::to_go_json;
use api::metadata::ObjectMeta;
use serde::Serialize;

pub use reconcile::{ReconcileAction, ReconcileError, SkipReason, reconcile};

use crate::rbac::{AggregationRule, LabelSelectorSpec, RBAC_GROUP, RbacKind, Role, RoleBinding, RoleRef, Subject};
use crate::user;
use rule_row::{RuleRow, path_rule};

/// Allows reading `/debug/peers` and `/metrics` of this server. Not bound to any subject by default.
pub const VIEWER_ROLE: &str = "unskew:viewer";

/// Objects with this annotation set to `true` are completed at every start; with `false` they are left unchanged.
pub const AUTOUPDATE_ANNOTATION: &str = "rbac.authorization.kubernetes.io/autoupdate";

const BOOTSTRAPPING_LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
const CONTROLLER_ROLE_PREFIX: &str = "system:controller:";

/// Roles that exist only while a feature gate is on, and so do their bindings.
const GATED_ROLES: &[(&str, &str)] = &[
    ("system:cluster-trust-bundle-discovery", "ClusterTrustBundle"),
    ("system:controller:device-taint-eviction-controller", "DRADeviceTaints"),
    ("system:controller:kube-apiserver-serving-clustertrustbundle-publisher", "ClusterTrustBundle"),
    ("system:controller:podcertificaterequestcleaner", "PodCertificateRequest"),
    ("system:controller:podgroup-protection-controller", "GenericWorkload"),
    ("system:controller:resource-claim-controller", "DynamicResourceAllocation"),
    ("system:controller:resourcepoolstatusrequest-controller", "DRAResourcePoolStatus"),
    ("system:controller:selinux-warning-controller", "SELinuxChangePolicy"),
    ("system:controller:service-cidrs-controller", "MultiCIDRServiceAllocator"),
    ("system:controller:storage-version-garbage-collector", "StorageVersionAPI"),
];

/// What a server offers, on which some default roles and rules depend.
#[derive(Clone, Copy)]
pub struct ServerFeatures<'a> {
    /// The minor release.
    pub minor: u32,
    /// True if what belongs to a feature gate is there.
    pub is_on: &'a dyn Fn(&str) -> bool,
}

/// A default role or binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultRbacObject {
    /// A Role or a ClusterRole.
    Role(Role),
    /// A RoleBinding or a ClusterRoleBinding.
    Binding(RoleBinding),
}

/// Returns all default objects of a server, roles before the bindings that refer to them.
pub fn default_rbac_objects(features: &ServerFeatures<'_>) -> Vec<DefaultRbacObject> {
    let exists = |role: &str| {
        let gate = GATED_ROLES.iter().find(|(name, _)| *name == role);
        gate.is_none_or(|(_, gate)| (features.is_on)(gate))
    };
    let roles = cluster_roles(features).filter(|role| exists(&role.metadata.name)).chain(
        namespaced::NAMESPACED_ROLES.iter().map(|(namespace, name, rows)| {
            let mut role = build_role(name, rows, features);
            (*namespace).clone_into(&mut role.metadata.namespace);
            role
        }),
    );
    roles
        .map(DefaultRbacObject::Role)
        .chain(cluster_role_bindings().filter(|binding| exists(&binding.role_ref.name)).map(DefaultRbacObject::Binding))
        .chain(role_bindings().map(DefaultRbacObject::Binding))
        .collect()
}

impl DefaultRbacObject {
    /// Returns the kind; the namespace distinguishes Role from ClusterRole and RoleBinding from ClusterRoleBinding.
    pub fn kind(&self) -> RbacKind {
        match (self, self.metadata().namespace.is_empty()) {
            (Self::Role(_), true) => RbacKind::ClusterRole,
            (Self::Role(_), false) => RbacKind::Role,
            (Self::Binding(_), true) => RbacKind::ClusterRoleBinding,
            (Self::Binding(_), false) => RbacKind::RoleBinding,
        }
    }

    /// Returns name, namespace, labels and annotations.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Role(role) => &role.metadata,
            Self::Binding(binding) => &binding.metadata,
        }
    }

    /// Serializes the object for its creation.
    pub fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct WithTypeMeta<'a, T> {
            kind: &'static str,
            api_version: &'static str,
            #[serde(flatten)]
            object: &'a T,
        }
        let (kind, api_version) = (self.kind().name(), "rbac.authorization.k8s.io/v1");
        match self {
            Self::Role(object) => to_go_json(&WithTypeMeta { kind, api_version, object }),
            Self::Binding(object) => to_go_json(&WithTypeMeta { kind, api_version, object }),
        }
    }
}

fn cluster_roles<'f>(features: &'f ServerFeatures<'_>) -> impl Iterator<Item = Role> + use<'f> {
    static VIEWER_RULES: &[(&str, &[RuleRow])] =
        &[(VIEWER_ROLE, &[path_rule("get", "/debug/peers /debug/peers/* /metrics")])];
    let tables = [user_facing::USER_FACING_ROLES, components::COMPONENT_ROLES, VIEWER_RULES];
    let plain_roles = tables.into_iter().flatten().map(|(name, rows)| {
        let mut role = build_role(name, rows, features);
        if let Some(to) = name.strip_prefix("system:").filter(|to| to.starts_with("aggregate-to-")) {
            role.metadata.labels.insert(aggregation_label(to), "true".to_owned());
        }
        role
    });
    let aggregated = [("admin", None), ("edit", Some("aggregate-to-admin")), ("view", Some("aggregate-to-edit"))];
    let aggregated = aggregated.into_iter().map(|(name, to)| build_aggregated_role(name, to));
    plain_roles.chain(aggregated).chain(
        controller_roles().map(|(name, rows)| build_role(&format!("{CONTROLLER_ROLE_PREFIX}{name}"), rows, features)),
    )
}

fn controller_roles() -> impl Iterator<Item = &'static (&'static str, &'static [RuleRow])> {
    [
        controllers::WORKLOAD_CONTROLLER_ROLES,
        controllers::NETWORK_CONTROLLER_ROLES,
        controllers::VOLUME_CONTROLLER_ROLES,
        controllers::CLUSTER_CONTROLLER_ROLES,
    ]
    .into_iter()
    .flatten()
}

fn cluster_role_bindings() -> impl Iterator<Item = RoleBinding> {
    let to_groups: [(&str, &[&str]); 7] = [
        ("cluster-admin", &[user::MASTERS_GROUP]),
        ("system:monitoring", &[user::MONITORING_GROUP]),
        ("system:discovery", &[user::AUTHENTICATED_GROUP]),
        ("system:basic-user", &[user::AUTHENTICATED_GROUP]),
        ("system:public-info-viewer", &[user::AUTHENTICATED_GROUP, user::UNAUTHENTICATED_GROUP]),
        ("system:service-account-issuer-discovery", &[user::SERVICE_ACCOUNTS_GROUP]),
        ("system:cluster-trust-bundle-discovery", &[user::SERVICE_ACCOUNTS_GROUP]),
    ];
    let to_users = [
        ("system:node-proxier", user::KUBE_PROXY),
        ("system:kube-controller-manager", user::KUBE_CONTROLLER_MANAGER),
        ("system:kube-scheduler", user::KUBE_SCHEDULER),
        ("system:volume-scheduler", user::KUBE_SCHEDULER),
    ];
    let groups = to_groups
        .into_iter()
        .map(|(role, groups)| (role.to_owned(), groups.iter().map(|name| group_subject(name)).collect()));
    let users = to_users.into_iter().map(|(role, name)| (role.to_owned(), vec![user_or_account_subject(name)]));
    let others = [
        ("system:kube-dns".to_owned(), vec![user_or_account_subject("sa:kube-dns")]),
        // Only clusters without a Node authorizer need this binding; their administrators add the subject.
        ("system:node".to_owned(), Vec::new()),
    ];
    let controllers = controller_roles().map(|(name, _)| {
        (format!("{CONTROLLER_ROLE_PREFIX}{name}"), vec![user_or_account_subject(&format!("sa:{name}"))])
    });
    groups.chain(users).chain(others).chain(controllers).map(|(role, subjects)| RoleBinding {
        metadata: metadata(&role),
        subjects,
        role_ref: RoleRef { api_group: RBAC_GROUP.to_owned(), kind: "ClusterRole".to_owned(), name: role },
    })
}

fn role_bindings() -> impl Iterator<Item = RoleBinding> {
    namespaced::NAMESPACED_BINDINGS.iter().map(|(namespace, name, role, subjects)| RoleBinding {
        metadata: ObjectMeta { namespace: (*namespace).to_owned(), ..metadata(name) },
        subjects: subjects.iter().map(|name| user_or_account_subject(name)).collect(),
        role_ref: RoleRef { api_group: RBAC_GROUP.to_owned(), kind: "Role".to_owned(), name: (*role).to_owned() },
    })
}

fn build_role(name: &str, rows: &[RuleRow], features: &ServerFeatures<'_>) -> Role {
    let rules = rows.iter().filter(|row| row.exists(features)).map(|row| row.to_rule()).collect();
    Role { metadata: metadata(name), rules, aggregation_rule: None }
}

/// Builds a role that aggregates the roles labelled for it, and is itself aggregated into `aggregates_into`.
fn build_aggregated_role(name: &str, aggregates_into: Option<&str>) -> Role {
    let mut metadata = metadata(name);
    metadata.labels.extend(aggregates_into.map(|to| (aggregation_label(to), "true".to_owned())));
    let match_labels = BTreeMap::from([(aggregation_label(&format!("aggregate-to-{name}")), "true".to_owned())]);
    let selector = LabelSelectorSpec { match_labels, ..LabelSelectorSpec::default() };
    let aggregation_rule = Some(AggregationRule { cluster_role_selectors: vec![selector] });
    Role { metadata, rules: Vec::new(), aggregation_rule }
}

fn aggregation_label(target_role: &str) -> String {
    format!("{RBAC_GROUP}/{target_role}")
}

fn metadata(name: &str) -> ObjectMeta {
    let (label, value) = BOOTSTRAPPING_LABEL;
    ObjectMeta {
        name: name.to_owned(),
        labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
        annotations: BTreeMap::from([(AUTOUPDATE_ANNOTATION.to_owned(), "true".to_owned())]),
        ..ObjectMeta::default()
    }
}

fn group_subject(name: &str) -> Subject {
    Subject {
        kind: "Group".to_owned(),
        api_group: RBAC_GROUP.to_owned(),
        name: name.to_owned(),
        namespace: String::new(),
    }
}

/// Returns a user subject or, for names with the prefix `sa:`, a service account of kube-system.
fn user_or_account_subject(name: &str) -> Subject {
    match name.strip_prefix("sa:") {
        Some(account) => Subject {
            kind: "ServiceAccount".to_owned(),
            api_group: String::new(),
            name: account.to_owned(),
            namespace: "kube-system".to_owned(),
        },
        None => Subject { kind: "User".to_owned(), ..group_subject(name) },
    }
}

#[cfg(test)]
pub(crate) mod tests;
