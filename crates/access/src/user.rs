//! The authenticated user (name, uid, groups, extra values) and the user and group names that Kubernetes defines.

use std::collections::BTreeMap;

use api::validation;
use serde::Serialize;

/// The user of a request without credentials.
pub const ANONYMOUS_USER: &str = "system:anonymous";
/// The user that API servers authenticate as when they send requests to each other.
pub const API_SERVER_USER: &str = "system:apiserver";
/// The user of kube-scheduler.
pub const KUBE_SCHEDULER: &str = "system:kube-scheduler";
/// The user of kube-controller-manager.
pub const KUBE_CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The user of kube-proxy.
pub const KUBE_PROXY: &str = "system:kube-proxy";

/// Members of this group are allowed everything, before any authorization mode is consulted.
pub const MASTERS_GROUP: &str = "system:masters";
/// The group of every user that presented a valid credential.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";
/// The group of anonymous users.
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";
/// The group of the kubelets.
pub const NODES_GROUP: &str = "system:nodes";
/// The group that may read metrics and health endpoints.
pub const MONITORING_GROUP: &str = "system:monitoring";
/// The group of all service accounts.
pub const SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";

/// The prefix of every service account's user name; `<namespace>:<name>` follows.
pub const SERVICE_ACCOUNT_USER_PREFIX: &str = "system:serviceaccount:";
/// The prefix of the group of all service accounts in one namespace; the namespace follows.
pub const SERVICE_ACCOUNT_GROUP_PREFIX: &str = "system:serviceaccounts:";

/// The extra key for the credential's id: a token's `jti`, or a certificate's SHA-256 digest.
pub const CREDENTIAL_ID_KEY: &str = "authentication.kubernetes.io/credential-id";
/// The extra key for the name of the pod a token is bound to.
pub const POD_NAME_KEY: &str = "authentication.kubernetes.io/pod-name";
/// The extra key for the uid of the pod a token is bound to.
pub const POD_UID_KEY: &str = "authentication.kubernetes.io/pod-uid";
/// The extra key for the name of the node that a token, or the token's pod, is bound to.
pub const NODE_NAME_KEY: &str = "authentication.kubernetes.io/node-name";
/// The extra key for the uid of that node.
pub const NODE_UID_KEY: &str = "authentication.kubernetes.io/node-uid";

/// A user, as authentication identified it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Unique among the users that exist now.
    pub name: String,
    /// Unique across all time; often empty.
    pub uid: String,
    /// In the order in which the credential lists them.
    pub groups: Vec<String>,
    /// Further values, such as the pod of a token. Keys are lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns a user with this name and no groups.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns `system:anonymous`, a member of `system:unauthenticated`.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS_USER.to_owned(), groups: vec![UNAUTHENTICATED_GROUP.to_owned()], ..Self::default() }
    }

    /// Returns a service account's user, a member of its two groups.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            name: service_account_name(namespace, name),
            uid: uid.to_owned(),
            groups: service_account_groups(namespace).into(),
            extra: BTreeMap::new(),
        }
    }

    /// Compares names exactly, case included.
    pub fn is_in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|of_user| of_user == group)
    }

    /// True for a service account whose credential is bound to this node.
    pub fn is_service_account_on_node(&self, node: &str) -> bool {
        let nodes = self.extra.get(NODE_NAME_KEY).map(Vec::as_slice);
        split_service_account_name(&self.name).is_some() && matches!(nodes, Some([only]) if only == node)
    }

    /// Adds `system:authenticated`, unless the user is anonymous or already in one of the two groups. An anonymous
    /// user forwarded by a peer therefore stays anonymous.
    pub fn with_authenticated_group(mut self) -> Self {
        if self.name != ANONYMOUS_USER
            && !self.is_in_group(AUTHENTICATED_GROUP)
            && !self.is_in_group(UNAUTHENTICATED_GROUP)
        {
            self.groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        self
    }
}

/// A user as reviews and audit events serialize it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

impl<'a> From<&'a User> for UserInfo<'a> {
    fn from(user: &'a User) -> Self {
        let extra = Some(&user.extra).filter(|extra| !extra.is_empty());
        Self { username: &user.name, uid: &user.uid, groups: &user.groups, extra }
    }
}

/// Returns `system:serviceaccount:<namespace>:<name>`.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_USER_PREFIX}{namespace}:{name}")
}

/// Returns the two groups that every service account of the namespace is a member of.
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    [SERVICE_ACCOUNTS_GROUP.to_owned(), format!("{SERVICE_ACCOUNT_GROUP_PREFIX}{namespace}")]
}

/// Splits a service account's user name into namespace and name; `None` for other users and for malformed names.
pub fn split_service_account_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_USER_PREFIX)?.split_once(':')?;
    let is_valid = validation::validate_dns1123_label(namespace).is_empty()
        && validation::validate_dns1123_subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_user_has_name_and_two_groups() {
        let user = User::service_account("dev", "builder", "u1");
        assert_eq!(user.name, "system:serviceaccount:dev:builder");
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:dev"]);
        assert_eq!(user.uid, "u1");
    }

    #[test]
    fn split_service_account_name_rejects_malformed_names() {
        for (name, expected) in [
            ("system:serviceaccount:dev:builder", Some(("dev", "builder"))),
            ("system:serviceaccount:dev:a.b", Some(("dev", "a.b"))),
            ("system:serviceaccount:dev", None),
            ("system:serviceaccount:dev:a:b", None),
            ("system:serviceaccount:De:a", None),
            ("system:serviceaccount:a.b:a", None),
            ("system:serviceaccount::a", None),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccounts:a:b", None),
            ("alice", None),
        ] {
            assert_eq!(split_service_account_name(name), expected, "{name}");
        }
    }

    #[test]
    fn only_a_service_account_bound_to_one_node_is_on_it() {
        let is_on_a = |name: &str, nodes: &[&str]| {
            let nodes = nodes.iter().map(ToString::to_string).collect();
            let extra = BTreeMap::from([(NODE_NAME_KEY.to_owned(), nodes)]);
            User { extra, ..User::named(name) }.is_service_account_on_node("a")
        };
        assert!(is_on_a("system:serviceaccount:dev:driver", &["a"]));
        assert!(!is_on_a("system:serviceaccount:dev:driver", &["b"]));
        assert!(!is_on_a("system:serviceaccount:dev:driver", &["a", "b"]));
        assert!(!is_on_a("system:serviceaccount:dev:driver", &[]));
        assert!(!is_on_a("alice", &["a"]));
    }

    #[test]
    fn authenticated_group_is_added_unless_already_classified() {
        let groups = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(ToString::to_string).collect();
            User { groups, ..User::named(name) }.with_authenticated_group().groups
        };
        assert_eq!(groups("alice", &["dev"]), ["dev", AUTHENTICATED_GROUP]);
        assert_eq!(groups("alice", &[AUTHENTICATED_GROUP, "dev"]), [AUTHENTICATED_GROUP, "dev"]);
        assert_eq!(groups("alice", &[UNAUTHENTICATED_GROUP]), [UNAUTHENTICATED_GROUP]);
        assert_eq!(groups(ANONYMOUS_USER, &[]), [""; 0]);
        assert_eq!(User::anonymous().with_authenticated_group(), User::anonymous());
    }
}
