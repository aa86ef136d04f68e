//! Nobody may grant what they do not have.
//!
//! Writing a role needs the role's own permissions or the verb `escalate` on it; writing a binding needs the permissions of
//! the role or the verb `bind` on it. An aggregation rule can gather anything, so it needs everything.

use std::fmt;

use api::quote::{Quoted, QuotedList};
use api::wire;
use api::{GroupResource, Status};
use serde_json::Value;

use super::covers::{TooManyParts, describe, uncovered};
use super::{Binding, GROUP, Index, Kind, ObjectError, PolicyRule, Role, Unresolved};
use crate::attributes::{Attributes, Resource};
use crate::authorize::{Authorizer, aggregate};
use crate::user::{MASTERS, User};

/// One create or update of a role or binding, as it is about to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Who writes.
    pub user: &'a User,
    /// What is written.
    pub kind: Kind,
    /// The namespace of the request; empty for the cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name in the request's path, hence empty for create.
    pub name: &'a str,
    /// The object to be stored.
    pub new: &'a [u8],
    /// The object it replaces.
    pub old: Option<&'a [u8]>,
}

/// Why a role or binding may not be written.
#[derive(Debug, thiserror::Error)]
pub enum EscalationError {
    /// It grants something the user does not have.
    #[error("{0}")]
    NotHeld(NotHeld),
    /// It would gather rules from other roles.
    #[error("must have cluster-admin privileges to use the aggregationRule")]
    Aggregation,
    /// The role to be bound does not exist, so nobody can say what it grants.
    #[error(transparent)]
    Unresolved(Unresolved),
    /// The rules are too many to compare.
    #[error(transparent)]
    TooManyParts(TooManyParts),
    /// The object is not what its kind says.
    #[error(transparent)]
    Unreadable(ObjectError),
}

/// The permissions that were missing, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotHeld {
    user: String,
    groups: Vec<String>,
    missing: Vec<String>,
    unresolved: Vec<Unresolved>,
}

/// Refuses a write by which the user would grant more than they have.
pub fn check(authorizer: &Authorizer, index: &Index, write: &Write<'_>) -> Result<(), EscalationError> {
    if write.user.is_in(MASTERS) {
        return Ok(());
    }
    let gate = Gate { authorizer, index, write };
    match write.kind {
        Kind::Role | Kind::ClusterRole => gate.role(),
        Kind::RoleBinding | Kind::ClusterRoleBinding => gate.binding(),
    }
}

impl EscalationError {
    /// The answer to the client.
    pub fn to_status(&self, kind: Kind, name: &str) -> Status {
        let resource = GroupResource { group: GROUP, resource: kind.resource() };
        match self {
            Self::NotHeld(_) | Self::Aggregation | Self::TooManyParts(_) => Status::forbidden(resource, name, self),
            Self::Unresolved(Unresolved::NotFound { resource, name }) => {
                Status::not_found(GroupResource { group: GROUP, resource }, name)
            }
            Self::Unresolved(Unresolved::UnsupportedKind { .. }) => Status::internal_error(self),
            Self::Unreadable(_) => Status::bad_request(self.to_string()),
        }
    }
}

struct Gate<'a> {
    authorizer: &'a Authorizer,
    index: &'a Index,
    write: &'a Write<'a>,
}

impl Gate<'_> {
    fn role(&self) -> Result<(), EscalationError> {
        let Write { namespace, name, kind, .. } = *self.write;
        if self.may("escalate", Resource { namespace, name, resource: kind.resource(), ..self.any_version(GROUP) }) {
            return Ok(());
        }
        let new: Role = self.read(self.write.new)?;
        let old: Option<Role> = self.write.old.map(|old| self.read(old)).transpose()?;
        if self.is_garbage_collection()? {
            return Ok(());
        }
        self.confirm(new.rules.iter())?;
        let aggregates =
            |role: &Role| role.aggregation_rule.as_ref().is_some_and(|rule| !rule.cluster_role_selectors.is_empty());
        if kind == Kind::ClusterRole && (aggregates(&new) || old.as_ref().is_some_and(aggregates)) {
            self.confirm(everything().iter()).map_err(|_| EscalationError::Aggregation)?;
        }
        Ok(())
    }

    fn binding(&self) -> Result<(), EscalationError> {
        let new: Binding = self.read(self.write.new)?;
        if self.is_garbage_collection()? {
            return Ok(());
        }
        let namespace = self.write.namespace;
        let resource = match new.role_ref.kind.as_str() {
            "ClusterRole" => Some(Kind::ClusterRole.resource()),
            "Role" => Some(Kind::Role.resource()),
            _ => None,
        };
        // Objects come here defaulted; a reference that never was means the same group.
        let group = if new.role_ref.api_group.is_empty() { GROUP } else { &new.role_ref.api_group };
        let name = new.role_ref.name.as_str();
        let may_bind = |resource| self.may("bind", Resource { namespace, name, resource, ..self.any_version(group) });
        if resource.is_some_and(may_bind) {
            return Ok(());
        }
        let rules = self.index.rules_of_role(&new.role_ref, namespace).map_err(EscalationError::Unresolved)?;
        let rules: Vec<&PolicyRule> = rules.collect();
        self.confirm(rules.into_iter())
    }

    fn confirm<'b>(&self, rules: impl Iterator<Item = &'b PolicyRule> + Clone) -> Result<(), EscalationError> {
        let Write { user, namespace, .. } = *self.write;
        let held = self.index.rules_for(user, namespace);
        let missing = uncovered(&held, rules).map_err(EscalationError::TooManyParts)?;
        if missing.is_empty() {
            return Ok(());
        }
        Err(EscalationError::NotHeld(NotHeld {
            user: user.name.clone(),
            groups: user.groups.clone(),
            missing: describe(missing),
            unresolved: self.index.unresolved_for(user, namespace),
        }))
    }

    fn may(&self, verb: &str, resource: Resource<'_>) -> bool {
        self.authorizer.decide(self.index, &Attributes::resource(self.write.user, verb, resource)).is_allowed()
    }

    fn any_version<'b>(&self, group: &'b str) -> Resource<'b> {
        Resource { group, version: "*", ..Resource::default() }
    }

    /// The garbage collector must be able to finish off a role whatever the role grants.
    fn is_garbage_collection(&self) -> Result<bool, EscalationError> {
        let Some(old) = self.write.old else { return Ok(false) };
        let (mut new, mut old): (Value, Value) = (self.read(self.write.new)?, self.read(old)?);
        for object in [&mut new, &mut old] {
            let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        Ok(new == old)
    }

    fn read<Object: serde::de::DeserializeOwned>(&self, json: &[u8]) -> Result<Object, EscalationError> {
        wire::read(json).map_err(|source| {
            let Write { kind, name, .. } = *self.write;
            EscalationError::Unreadable(ObjectError { kind, name: name.to_owned(), source })
        })
    }
}

/// What an aggregation rule can gather.
fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, groups, missing, unresolved } = self;
        let (user, groups) = (Quoted(user), QuotedList(groups));
        writeln!(f, "user {user} (groups={groups}) is attempting to grant RBAC permissions not currently held:")?;
        f.write_str(&missing.join("\n"))?;
        match aggregate(unresolved) {
            None => Ok(()),
            Some(errors) => write!(f, "; resolution errors: [{errors}]"),
        }
    }
}
