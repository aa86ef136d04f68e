//! The four RBAC kinds, reduced to the fields that decisions depend on.

use std::fmt;

use api::metadata::ObjectMeta;
use api::quote::Quoted;
use api::wire::{null_is_default, object, objects, optional_object};
use serde::{Deserialize, Serialize};

use super::{LabelSelectorSpec, PolicyRule};
use crate::user::{SERVICE_ACCOUNT_USER_PREFIX, User};

/// The API group of the four kinds.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// A Role or a ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// Labels select the role for aggregation.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// In an aggregated role these are the last written result, kept for readers of the object; decisions do not use
    /// them.
    #[serde(default, deserialize_with = "objects")]
    pub rules: Vec<PolicyRule>,
    /// If set, the role is the union of the selected ClusterRoles. Valid in ClusterRoles only.
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    pub aggregation_rule: Option<AggregationRule>,
}

/// Selects the ClusterRoles to aggregate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AggregationRule {
    /// A role is selected if any of these matches.
    #[serde(default, deserialize_with = "objects", skip_serializing_if = "Vec::is_empty")]
    pub cluster_role_selectors: Vec<LabelSelectorSpec>,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleBinding {
    /// The namespace is empty in a ClusterRoleBinding.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The users, groups and service accounts that get the role.
    #[serde(default, deserialize_with = "objects", skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,
    /// Immutable once the binding is stored.
    #[serde(default, deserialize_with = "object")]
    pub role_ref: RoleRef,
}

/// A user, group or service account in a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`; other kinds match no user.
    #[serde(default)]
    pub kind: String,
    /// The API group of the kind; not used for matching.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Interpreted according to `kind`.
    #[serde(default)]
    pub name: String,
    /// The namespace of a service account; if empty, that of the RoleBinding.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// The role that a binding grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleRef {
    /// Always the RBAC group; empty in objects that were never defaulted.
    #[serde(default, deserialize_with = "null_is_default")]
    pub api_group: String,
    /// `Role`, in the binding's namespace, or `ClusterRole`.
    #[serde(default)]
    pub kind: String,
    /// Matched exactly; a missing role grants nothing.
    #[serde(default)]
    pub name: String,
}

/// An RBAC object cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name} cannot be read and grants nothing: {source}")]
pub struct RbacObjectError {
    /// The kind that was expected.
    pub kind: super::RbacKind,
    /// Preceded by the namespace if the object has one.
    pub name: String,
    /// The decoding error.
    #[source]
    pub source: serde_json::Error,
}

impl Subject {
    /// Reports whether the subject is the user, in a binding of the namespace (empty for a ClusterRoleBinding).
    pub fn matches_user(&self, user: &User, binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user.name,
            "Group" => user.is_in_group(&self.name),
            "ServiceAccount" => {
                let namespace = self.effective_namespace(binding_namespace);
                !namespace.is_empty() && is_service_account(&user.name, namespace, &self.name)
            }
            _ => false,
        }
    }

    pub(in crate::rbac) fn effective_namespace<'a>(&'a self, binding_namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() { binding_namespace } else { &self.namespace }
    }
}

impl RoleBinding {
    /// Returns the first subject that matches the user.
    pub fn matching_subject(&self, user: &User) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.matches_user(user, &self.metadata.namespace))
    }

    /// Formats the grant for decision reasons: `ClusterRoleBinding "a" of ClusterRole "b" to User "c"`.
    pub(super) fn describe(&self, subject: Option<&Subject>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectMeta { name, namespace, .. } = &self.metadata;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {}", Quoted(name))?;
        } else {
            // Kubernetes puts the name before the namespace here.
            write!(f, "RoleBinding {}", Quoted(&format!("{name}/{namespace}")))?;
        }
        write!(f, " of {} {}", self.role_ref.kind, Quoted(&self.role_ref.name))?;
        let Some(subject) = subject else { return Ok(()) };
        if subject.kind == "ServiceAccount" {
            let name = format!("{}/{}", subject.name, subject.effective_namespace(namespace));
            return write!(f, " to {} {}", subject.kind, Quoted(&name));
        }
        write!(f, " to {} {}", subject.kind, Quoted(&subject.name))
    }
}

fn is_service_account(user: &str, namespace: &str, name: &str) -> bool {
    user.strip_prefix(SERVICE_ACCOUNT_USER_PREFIX)
        .and_then(|rest| rest.strip_prefix(namespace))
        .and_then(|rest| rest.strip_prefix(':'))
        .is_some_and(|rest| rest == name)
}
