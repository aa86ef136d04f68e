//! Prevents privilege escalation: users cannot grant permissions they do not hold.
//!
//! Writing a role needs the role's permissions or the verb `escalate` on it; writing a binding needs the role's
//! permissions or the verb `bind` on it. An aggregation rule can collect any rule, so setting one needs all
//! permissions.

use std::fmt;

use api::quote::{Quoted, QuotedList};
use api::wire;
use serde_json::Value;

use super::rule_coverage::{TooManyPermissions, describe_permissions, uncovered_permissions};
use super::{PolicyRule, RBAC_GROUP, RbacIndex, RbacKind, RbacObjectError, Role, RoleBinding, UnresolvedRole};
use crate::attributes::{Attributes, ResourceAttributes};
use crate::authorization::{Authorizer, aggregate_messages};
use crate::user::{MASTERS_GROUP, User};

/// A create or update of a role or binding, about to be stored.
#[derive(Clone, Copy, Debug)]
pub struct RbacWrite<'a> {
    /// The user that writes.
    pub user: &'a User,
    /// The kind of the written object.
    pub kind: RbacKind,
    /// Empty for the cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name in the request path, hence empty for create.
    pub name: &'a str,
    /// The object to store, as JSON.
    pub new: &'a [u8],
    /// The stored object; `None` for create.
    pub old: Option<&'a [u8]>,
}

/// Why a role or binding must not be written.
#[derive(Debug, thiserror::Error)]
pub enum EscalationError {
    /// The object grants permissions that the user does not hold.
    #[error("{0}")]
    MissingPermissions(MissingPermissions),
    /// The object sets an aggregation rule and the user does not hold all permissions.
    #[error("must have cluster-admin privileges to use the aggregationRule")]
    AggregationRuleForbidden,
    /// The bound role does not exist, so its permissions are unknown.
    #[error(transparent)]
    UnresolvedRole(UnresolvedRole),
    /// The rules expand to more permissions than are compared.
    #[error(transparent)]
    TooManyPermissions(TooManyPermissions),
    /// The object cannot be decoded.
    #[error(transparent)]
    InvalidObject(RbacObjectError),
}

/// The missing permissions; displays as kube-apiserver's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPermissions {
    user: String,
    groups: Vec<String>,
    missing: Vec<String>,
    unresolved: Vec<UnresolvedRole>,
}

/// Rejects a write by which the user would grant permissions they do not hold.
pub fn check_escalation(
    authorizer: &Authorizer,
    index: &RbacIndex,
    write: &RbacWrite<'_>,
) -> Result<(), EscalationError> {
    if write.user.is_in_group(MASTERS_GROUP) {
        return Ok(());
    }
    let check = EscalationCheck { authorizer, index, write };
    match write.kind {
        RbacKind::Role | RbacKind::ClusterRole => check.check_role(),
        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => check.check_binding(),
    }
}

struct EscalationCheck<'a> {
    authorizer: &'a Authorizer,
    index: &'a RbacIndex,
    write: &'a RbacWrite<'a>,
}

impl EscalationCheck<'_> {
    /// Allows a role if the user may `escalate` it or holds its permissions; setting an aggregation rule needs all
    /// permissions.
    fn check_role(&self) -> Result<(), EscalationError> {
        let RbacWrite { namespace, name, kind, .. } = *self.write;
        if self.is_authorized(
            "escalate",
            ResourceAttributes { namespace, name, resource: kind.resource(), ..self.any_version_of(RBAC_GROUP) },
        ) {
            return Ok(());
        }
        let new: Role = self.decode(self.write.new)?;
        let old: Option<Role> = self.write.old.map(|old| self.decode(old)).transpose()?;
        if self.is_garbage_collector_update()? {
            return Ok(());
        }
        self.require_held(new.rules.iter())?;
        let aggregates =
            |role: &Role| role.aggregation_rule.as_ref().is_some_and(|rule| !rule.cluster_role_selectors.is_empty());
        if kind == RbacKind::ClusterRole && (aggregates(&new) || old.as_ref().is_some_and(aggregates)) {
            self.require_held(all_permissions().iter()).map_err(|_| EscalationError::AggregationRuleForbidden)?;
        }
        Ok(())
    }

    /// Allows a binding if the user may `bind` the role or holds its permissions.
    fn check_binding(&self) -> Result<(), EscalationError> {
        let new: RoleBinding = self.decode(self.write.new)?;
        if self.is_garbage_collector_update()? {
            return Ok(());
        }
        let namespace = self.write.namespace;
        let resource = match new.role_ref.kind.as_str() {
            "ClusterRole" => Some(RbacKind::ClusterRole.resource()),
            "Role" => Some(RbacKind::Role.resource()),
            _ => None,
        };
        // Writes are defaulted before this check; an empty group means the RBAC group.
        let group = if new.role_ref.api_group.is_empty() { RBAC_GROUP } else { &new.role_ref.api_group };
        let name = new.role_ref.name.as_str();
        let may_bind = |resource| {
            self.is_authorized("bind", ResourceAttributes { namespace, name, resource, ..self.any_version_of(group) })
        };
        if resource.is_some_and(may_bind) {
            return Ok(());
        }
        let rules = self.index.rules_of_role(&new.role_ref, namespace).map_err(EscalationError::UnresolvedRole)?;
        let rules: Vec<&PolicyRule> = rules.collect();
        self.require_held(rules.into_iter())
    }

    /// Fails unless the user holds every permission of the rules in the write's namespace.
    fn require_held<'b>(&self, rules: impl Iterator<Item = &'b PolicyRule> + Clone) -> Result<(), EscalationError> {
        let RbacWrite { user, namespace, .. } = *self.write;
        let held_rules = self.index.rules_for(user, namespace);
        let missing = uncovered_permissions(&held_rules, rules).map_err(EscalationError::TooManyPermissions)?;
        if missing.is_empty() {
            return Ok(());
        }
        Err(EscalationError::MissingPermissions(MissingPermissions {
            user: user.name.clone(),
            groups: user.groups.clone(),
            missing: describe_permissions(missing),
            unresolved: self.index.unresolved_roles_for(user, namespace),
        }))
    }

    fn is_authorized(&self, verb: &str, resource: ResourceAttributes<'_>) -> bool {
        self.authorizer.decide(self.index, &Attributes::for_resource(self.write.user, verb, resource)).is_allowed()
    }

    fn any_version_of<'b>(&self, group: &'b str) -> ResourceAttributes<'b> {
        ResourceAttributes { group, version: "*", ..ResourceAttributes::default() }
    }

    /// Reports whether the update changes only what the garbage collector changes, which is allowed for any role.
    fn is_garbage_collector_update(&self) -> Result<bool, EscalationError> {
        let Some(old) = self.write.old else { return Ok(false) };
        let (mut new, mut old): (Value, Value) = (self.decode(self.write.new)?, self.decode(old)?);
        for object in [&mut new, &mut old] {
            let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        Ok(new == old)
    }

    fn decode<Object: serde::de::DeserializeOwned>(&self, json: &[u8]) -> Result<Object, EscalationError> {
        wire::read(json).map_err(|source| {
            let RbacWrite { kind, name, .. } = *self.write;
            EscalationError::InvalidObject(RbacObjectError { kind, name: name.to_owned(), source })
        })
    }
}

/// The permissions that an aggregation rule can collect.
fn all_permissions() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

impl fmt::Display for MissingPermissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, groups, missing, unresolved } = self;
        let (user, groups) = (Quoted(user), QuotedList(groups));
        writeln!(f, "user {user} (groups={groups}) is attempting to grant RBAC permissions not currently held:")?;
        f.write_str(&missing.join("\n"))?;
        match aggregate_messages(unresolved) {
            None => Ok(()),
            Some(errors) => write!(f, "; resolution errors: [{errors}]"),
        }
    }
}
