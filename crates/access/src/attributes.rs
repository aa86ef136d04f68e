//! What is asked: may this user do this verb to this resource or path?

use std::borrow::Cow;

use api::quote::Quoted;
use api::target::Target;

use crate::user::User;

/// One question to authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// A resource verb such as `list`, or an HTTP method in lower case for a path.
    pub verb: &'a str,
    /// What it is asked of.
    pub object: Asked<'a>,
}

/// What a verb is asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A resource, a subresource, or one object of them.
    Resource(Resource<'a>),
    /// A path that is not a resource, such as `/healthz`.
    Path(&'a str),
}

/// A resource in a question. Empty strings stand for absence, as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource<'a> {
    /// The group; empty for core.
    pub group: &'a str,
    /// The version; rules never look at it.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource, if one is asked for.
    pub subresource: &'a str,
    /// The namespace; empty at the cluster scope, and for lists over all namespaces.
    pub namespace: &'a str,
    /// The object's name; empty for create, list and deletecollection.
    pub name: &'a str,
}

impl<'a> Attributes<'a> {
    /// A question about a resource.
    pub fn resource(user: &'a User, verb: &'a str, resource: Resource<'a>) -> Self {
        Self { user, verb, object: Asked::Resource(resource) }
    }

    /// A question about a path.
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Self { user, verb, object: Asked::Path(path) }
    }

    /// The question that a request asks.
    pub fn of(user: &'a User, target: &'a Target<'_>) -> Self {
        let object = match target {
            Target::NonResource(target) => Asked::Path(&target.path),
            Target::Resource(target) => Asked::Resource(Resource {
                group: &target.group,
                version: &target.version,
                resource: &target.resource,
                subresource: &target.subresource,
                namespace: &target.namespace,
                name: &target.name,
            }),
        };
        Self { user, verb: target.verb(), object }
    }

    /// The namespace asked about; empty for paths and at the cluster scope.
    pub fn namespace(&self) -> &'a str {
        match self.object {
            Asked::Resource(resource) => resource.namespace,
            Asked::Path(_) => "",
        }
    }

    /// What a 403 says the user cannot do, in Kubernetes' words, made safe to be shown as HTML.
    pub fn refusal(&self) -> String {
        let user = Quoted(&self.user.name);
        let verb = self.verb;
        let message = match &self.object {
            Asked::Path(path) => format!("User {user} cannot {verb} path {}", Quoted(path)),
            Asked::Resource(asked) => {
                let resource = asked.combined();
                let (resource, group) = (Quoted(&resource), Quoted(asked.group));
                let scope = match asked.namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {}", Quoted(namespace)),
                };
                format!("User {user} cannot {verb} resource {resource} in API group {group} {scope}")
            }
        };
        without_html(message)
    }
}

impl<'a> Resource<'a> {
    /// Resource and subresource as rules name them: `pods/log`.
    pub fn combined(&self) -> Cow<'a, str> {
        match self.subresource {
            "" => Cow::Borrowed(self.resource),
            subresource => Cow::Owned(format!("{}/{subresource}", self.resource)),
        }
    }
}

fn without_html(message: String) -> String {
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
    fn check(user: &str, verb: &str, object: Asked<'_>, expected: &Expect) {
        expected.assert_eq(&Attributes { user: &User::named(user), verb, object }.refusal());
    }

    #[test]
    fn a_refusal_names_user_verb_resource_group_and_scope() {
        let pods = Resource { version: "v1", resource: "pods", ..Resource::default() };
        check(
            "alice",
            "list",
            Asked::Resource(Resource { namespace: "default", ..pods }),
            &expect![[r#"User "alice" cannot list resource "pods" in API group "" in the namespace "default""#]],
        );
        check(
            "alice",
            "list",
            Asked::Resource(pods),
            &expect![[r#"User "alice" cannot list resource "pods" in API group "" at the cluster scope"#]],
        );
        check(
            "alice",
            "update",
            Asked::Resource(Resource { group: "apps", resource: "deployments", subresource: "scale", ..pods }),
            &expect![[
                r#"User "alice" cannot update resource "deployments/scale" in API group "apps" at the cluster scope"#
            ]],
        );
        check(
            "system:anonymous",
            "get",
            Asked::Path("/metrics"),
            &expect![[r#"User "system:anonymous" cannot get path "/metrics""#]],
        );
    }

    #[test]
    fn a_request_asks_what_its_line_says() {
        let user = User::named("alice");
        let refusal = |method: &str, line: &str| Attributes::of(&user, &Target::parse(method, line).unwrap()).refusal();
        expect![[r#"User "alice" cannot list resource "pods" in API group "" in the namespace "dev""#]]
            .assert_eq(&refusal("GET", "/api/v1/namespaces/dev/pods?limit=500"));
        expect![[
            r#"User "alice" cannot update resource "deployments/scale" in API group "apps" in the namespace "dev""#
        ]]
        .assert_eq(&refusal("PUT", "/apis/apps/v1/namespaces/dev/deployments/web/scale"));
        expect![[r#"User "alice" cannot get path "/healthz""#]].assert_eq(&refusal("GET", "/healthz?verbose"));
        let target = Target::parse("GET", "/api/v1/namespaces/dev/pods/p?x=y").unwrap();
        let asked = Resource { version: "v1", resource: "pods", namespace: "dev", name: "p", ..Resource::default() };
        assert_eq!(Attributes::of(&user, &target), Attributes::resource(&user, "get", asked));
    }

    #[test]
    fn a_refusal_cannot_be_read_as_html() {
        check(
            "<b>\"&",
            "get",
            Asked::Path("/<script>"),
            &expect![[r#"User "&lt;b&gt;\"&amp;" cannot get path "/&lt;script&gt;""#]],
        );
    }
}
