//! The attributes of a request that authorization decides on: user, verb, and resource or path.

use std::borrow::Cow;

use api::quote::Quoted;
use api::target::Target;

use crate::user::User;

/// One authorization query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// The authenticated user, after impersonation.
    pub user: &'a User,
    /// A resource verb such as `list`, or an HTTP method in lower case for a path.
    pub verb: &'a str,
    /// The resource or path that is requested.
    pub access_target: AccessTarget<'a>,
}

/// What the verb applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTarget<'a> {
    /// A resource, a subresource, or one object of them.
    Resource(ResourceAttributes<'a>),
    /// A path that is not a resource, such as `/healthz`.
    Path(&'a str),
}

/// The resource of an authorization query. Absent parts are empty strings, as in the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// Not used by any rule.
    pub version: &'a str,
    /// The plural name, such as `pods`.
    pub resource: &'a str,
    /// Empty if the request is for the resource itself.
    pub subresource: &'a str,
    /// Empty at cluster scope, and for lists over all namespaces.
    pub namespace: &'a str,
    /// Empty for create, list and deletecollection.
    pub name: &'a str,
}

impl<'a> Attributes<'a> {
    /// Builds a query for a resource.
    pub fn for_resource(user: &'a User, verb: &'a str, resource: ResourceAttributes<'a>) -> Self {
        Self { user, verb, access_target: AccessTarget::Resource(resource) }
    }

    /// Builds a query for a non-resource path.
    pub fn for_path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Self { user, verb, access_target: AccessTarget::Path(path) }
    }

    /// Derives the attributes from a parsed request line.
    pub fn from_target(user: &'a User, target: &'a Target<'_>) -> Self {
        let object = match target {
            Target::NonResource(target) => AccessTarget::Path(&target.path),
            Target::Resource(target) => AccessTarget::Resource(ResourceAttributes {
                group: &target.group,
                version: &target.version,
                resource: &target.resource,
                subresource: &target.subresource,
                namespace: &target.namespace,
                name: &target.name,
            }),
        };
        Self { user, verb: target.verb(), access_target: object }
    }

    /// Returns the requested namespace; empty for paths and at cluster scope.
    pub fn namespace(&self) -> &'a str {
        match self.access_target {
            AccessTarget::Resource(resource) => resource.namespace,
            AccessTarget::Path(_) => "",
        }
    }

    /// Returns the message of a 403 as kube-apiserver words it, HTML-escaped.
    pub fn denial_message(&self) -> String {
        let user = Quoted(&self.user.name);
        let verb = self.verb;
        let message = match &self.access_target {
            AccessTarget::Path(path) => format!("User {user} cannot {verb} path {}", Quoted(path)),
            AccessTarget::Resource(resource_attributes) => {
                let resource = resource_attributes.combined_resource();
                let (resource, group) = (Quoted(&resource), Quoted(resource_attributes.group));
                let scope = match resource_attributes.namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {}", Quoted(namespace)),
                };
                format!("User {user} cannot {verb} resource {resource} in API group {group} {scope}")
            }
        };
        escape_html(message)
    }
}

impl<'a> ResourceAttributes<'a> {
    /// Returns resource and subresource as rules name them: `pods/log`.
    pub fn combined_resource(&self) -> Cow<'a, str> {
        match self.subresource {
            "" => Cow::Borrowed(self.resource),
            subresource => Cow::Owned(format!("{}/{subresource}", self.resource)),
        }
    }
}

fn escape_html(message: String) -> String {
    if !message.contains(['&', '<', '>']) {
        return message;
    }
    message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(user: &str, verb: &str, object: AccessTarget<'_>, expected: &Expect) {
        expected.assert_eq(&Attributes { user: &User::named(user), verb, access_target: object }.denial_message());
    }

    #[test]
    fn denial_message_names_user_verb_resource_group_and_scope() {
        let pods = ResourceAttributes { version: "v1", resource: "pods", ..ResourceAttributes::default() };
        check(
            "alice",
            "list",
            AccessTarget::Resource(ResourceAttributes { namespace: "default", ..pods }),
            &expect![[r#"User "alice" cannot list resource "pods" in API group "" in the namespace "default""#]],
        );
        check(
            "alice",
            "list",
            AccessTarget::Resource(pods),
            &expect![[r#"User "alice" cannot list resource "pods" in API group "" at the cluster scope"#]],
        );
        check(
            "alice",
            "update",
            AccessTarget::Resource(ResourceAttributes {
                group: "apps",
                resource: "deployments",
                subresource: "scale",
                ..pods
            }),
            &expect![[
                r#"User "alice" cannot update resource "deployments/scale" in API group "apps" at the cluster scope"#
            ]],
        );
        check(
            "system:anonymous",
            "get",
            AccessTarget::Path("/metrics"),
            &expect![[r#"User "system:anonymous" cannot get path "/metrics""#]],
        );
    }

    #[test]
    fn attributes_from_target_match_request_line() {
        let user = User::named("alice");
        let denial = |method: &str, line: &str| {
            Attributes::from_target(&user, &Target::parse(method, line).unwrap()).denial_message()
        };
        expect![[r#"User "alice" cannot list resource "pods" in API group "" in the namespace "dev""#]]
            .assert_eq(&denial("GET", "/api/v1/namespaces/dev/pods?limit=500"));
        expect![[
            r#"User "alice" cannot update resource "deployments/scale" in API group "apps" in the namespace "dev""#
        ]]
        .assert_eq(&denial("PUT", "/apis/apps/v1/namespaces/dev/deployments/web/scale"));
        expect![[r#"User "alice" cannot get path "/healthz""#]].assert_eq(&denial("GET", "/healthz?verbose"));
        let target = Target::parse("GET", "/api/v1/namespaces/dev/pods/p?x=y").unwrap();
        let expected = ResourceAttributes {
            version: "v1",
            resource: "pods",
            namespace: "dev",
            name: "p",
            ..ResourceAttributes::default()
        };
        assert_eq!(Attributes::from_target(&user, &target), Attributes::for_resource(&user, "get", expected));
    }

    #[test]
    fn denial_message_escapes_html() {
        check(
            "<b>\"&",
            "get",
            AccessTarget::Path("/<script>"),
            &expect![[r#"User "&lt;b&gt;\"&amp;" cannot get path "/&lt;script&gt;""#]],
        );
    }
}
