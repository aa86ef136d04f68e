//! Access matrix: every discovered resource, verb, path form and caller gets 403 exactly if RBAC does not allow the
//! request.
//!
//! An independent evaluator computes what RBAC allows from the stored objects. Requests have broken bodies or names
//! that do not exist, so that an allowed request fails later and changes nothing. Custom resources are among the resources.

mod evaluator;

use cluster_tests::{ControlPlane, tools};
use evaluator::{RbacObjects, RequestAttributes};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;
use crate::custom_resource::CRD_PATH;
use crate::peers::{MERGED_DISCOVERY_ACCEPT, NEW_FLAGS, OLD_FLAGS};

/// The namespace in which some callers have rights, and one in which they have none.
const TEAM: &str = "team";
const OTHER_NAMESPACE: &str = "elsewhere";
/// The name that roles with `resourceNames` allow, and one that they do not.
const ALLOWED_NAME: &str = "only";
const OTHER_NAME: &str = "another";
/// HTTP/2 connections, and concurrent requests on each: below the server's limits.
const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 32;
/// Selector that matches no object, so that deletecollection deletes nothing.
const MATCH_NOTHING: &str = "labelSelector=unskew.test%2Fmatrix%3Dnothing";
const RBAC_PATH: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The group of two custom resources: `gadgets` in namespaces, `vaults` outside.
const CUSTOM_GROUP: &str = "matrix.example.com";

/// A caller: a user identified by its token, optionally impersonating another.
#[derive(Clone, Copy, Debug)]
struct TestCaller {
    user: &'static str,
    impersonated: Option<&'static str>,
}

const fn test_caller(user: &'static str) -> TestCaller {
    TestCaller { user, impersonated: None }
}

const CALLERS: [TestCaller; 10] = [
    test_caller("norights"),
    test_caller("viewer"),
    test_caller("editor"),
    test_caller("nsadmin"),
    test_caller("nsowner"),
    test_caller("named"),
    test_caller("aggregated"),
    test_caller("impersonator"),
    TestCaller { impersonated: Some("viewer"), ..test_caller("impersonator") },
    TestCaller { impersonated: Some("viewer"), ..test_caller("norights") },
];

/// Callers of a case: three in rotation, so that every resource meets every caller; all of them in a soak.
fn callers_for_case(number: usize) -> Vec<TestCaller> {
    let turns: &[usize] = if tools::is_soak() { &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] } else { &[0, 3, 7] };
    turns.iter().map(|turn| CALLERS[(number + turn) % CALLERS.len()]).collect()
}

/// Callers whose rights, besides those of every user, are limited to one namespace.
fn namespace_callers(_number: usize) -> Vec<TestCaller> {
    vec![test_caller("nsadmin"), test_caller("nsowner")]
}

/// One request with its authorization attributes.
#[derive(Clone, Debug)]
struct AccessCase {
    method: Method,
    path: String,
    attributes: RequestAttributes,
    /// True if the resource is cluster-scoped, even if the path contains a namespace.
    is_cluster_scoped: bool,
}

/// A resource as discovery lists it.
struct MatrixResource {
    group: String,
    version: String,
    name: String,
    subresources: Vec<String>,
    is_cluster_scoped: bool,
}

fn start_servers() -> ControlPlane<'static> {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    let tokens = plane.folder().join("tokens.csv");
    let lines = CALLERS.map(|TestCaller { user, .. }| format!("{user}-token,{user},{user}-uid\n"));
    let lines: std::collections::BTreeSet<String> = lines.into();
    std::fs::write(&tokens, lines.into_iter().collect::<String>()).unwrap();
    let tokens = format!("--token-auth-file={}", tokens.display());
    plane.start("old", &[OLD_FLAGS[0], &tokens]);
    plane.start("new", &[NEW_FLAGS[0], NEW_FLAGS[1], &tokens]);
    plane
}

async fn create(admin: &Client, path: &str, object: Value) {
    let created = admin.create(path, &object).await;
    assert_eq!(created.status, 201, "{path}: {}", created.summary());
}

/// Creates definitions of both scopes with all subresources, and a role that belongs to the role `edit`.
async fn define_custom_kinds(admin: &Client) {
    for (plural, kind, scope) in [("gadgets", "Gadget", "Namespaced"), ("vaults", "Vault", "Cluster")] {
        let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": scale},
        });
        let definition = json!({
            "metadata": {"name": format!("{plural}.{CUSTOM_GROUP}")},
            "spec": {
                "group": CUSTOM_GROUP, "scope": scope, "names": {"plural": plural, "kind": kind}, "versions": [version],
            },
        });
        create(admin, CRD_PATH, definition).await;
    }
    let label = json!({"rbac.authorization.k8s.io/aggregate-to-edit": "true"});
    let rules = json!([{"apiGroups": [CUSTOM_GROUP], "resources": ["gadgets", "vaults/scale"], "verbs": ["*"]}]);
    let role = json!({"metadata": {"name": "matrix-gadgets-edit", "labels": label}, "rules": rules});
    create(admin, &format!("{RBAC_PATH}/clusterroles"), role).await;
}

/// Creates roles and bindings for all callers.
async fn grant_all(admin: &Client) {
    let create = async |path: &str, object: Value| create(admin, path, object).await;
    for namespace in [TEAM, OTHER_NAMESPACE] {
        create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
    }
    let cluster_roles = format!("{RBAC_PATH}/clusterroles");
    create(&cluster_roles, json!({"metadata": {"name": "matrix-named"}, "rules": [
        {"apiGroups": ["*"], "resources": ["*"], "resourceNames": [ALLOWED_NAME], "verbs": ["get", "list", "watch", "update", "delete"]},
        {"apiGroups": ["apps", ""], "resources": ["*/status", "pods/log"], "resourceNames": [ALLOWED_NAME], "verbs": ["*"]},
    ]}))
    .await;
    create(&cluster_roles, json!({"metadata": {"name": "matrix-part", "labels": {"matrix": "yes"}}, "rules": [
        {"apiGroups": ["", "apps", "storage.k8s.io"], "resources": ["secrets", "nodes", "deployments", "*/scale"], "verbs": ["get", "list"]},
        {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["patch"]},
        {"apiGroups": ["storage.k8s.io", CUSTOM_GROUP], "resources": ["*"], "verbs": ["watch", "deletecollection"]},
    ]}))
    .await;
    let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {"matrix": "yes"}}]});
    create(&cluster_roles, json!({"metadata": {"name": "matrix-aggregated"}, "aggregationRule": selectors})).await;
    create(
        &cluster_roles,
        json!({"metadata": {"name": "matrix-impersonator"}, "rules": [
            {"apiGroups": [""], "resources": ["users"], "resourceNames": ["viewer"], "verbs": ["impersonate"]},
        ]}),
    )
    .await;
    let binding = |user: &str, role: &str| {
        json!({
            "metadata": {"name": format!("matrix-{user}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        })
    };
    for (user, role) in [
        ("viewer", "view"),
        ("editor", "edit"),
        ("named", "matrix-named"),
        ("aggregated", "matrix-aggregated"),
        ("impersonator", "matrix-impersonator"),
    ] {
        create(&format!("{RBAC_PATH}/clusterrolebindings"), binding(user, role)).await;
    }
    let inside = format!("{RBAC_PATH}/namespaces/{TEAM}/rolebindings");
    for (user, role) in [("nsadmin", "admin"), ("nsowner", "cluster-admin")] {
        create(&inside, binding(user, role)).await;
    }
}

/// Waits until a server has seen the last binding, then reads all RBAC objects.
async fn wait_and_read_rbac(admin: &Client, last: &Client) -> RbacObjects {
    wait_until(async || last.get(&format!("/api/v1/namespaces/{TEAM}/secrets")).await.status == 200).await;
    let list = async |path: &str| {
        let answer = admin.get(&format!("{RBAC_PATH}/{path}")).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.json()["items"].as_array().expect("the response is a list").clone()
    };
    RbacObjects {
        cluster_roles: list("clusterroles").await,
        roles: list("roles").await,
        cluster_role_bindings: list("clusterrolebindings").await,
        role_bindings: list("rolebindings").await,
    }
}

/// All resources of the merged discovery document, each in its preferred version.
async fn discover_resources(admin: &Client) -> Vec<MatrixResource> {
    let mut found: Vec<MatrixResource> = Vec::new();
    for path in ["/api", "/apis"] {
        let page = admin
            .send(admin.request_builder(Method::GET, path).header("accept", MERGED_DISCOVERY_ACCEPT), Bytes::new())
            .await
            .json();
        for group in page["items"].as_array().expect("the document lists groups") {
            for version in group["versions"].as_array().into_iter().flatten() {
                for resource in version["resources"].as_array().into_iter().flatten() {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let (group, name) = (text(&group["metadata"]["name"]), text(&resource["resource"]));
                    if found.iter().any(|known| known.group == group && known.name == name) {
                        continue;
                    }
                    let subresources = resource["subresources"].as_array().into_iter().flatten();
                    found.push(MatrixResource {
                        group,
                        version: text(&version["version"]),
                        name,
                        subresources: subresources.map(|sub| text(&sub["subresource"])).collect(),
                        is_cluster_scoped: resource["scope"] == "Cluster",
                    });
                }
            }
        }
    }
    found
}

/// Returns the requests to test for a resource.
fn cases_for_resource(resource: &MatrixResource) -> Vec<AccessCase> {
    let mut cases = Vec::new();
    // One path form is valid for the scope of the resource, the other is not; RBAC checks both alike.
    for namespace in ["", TEAM] {
        let collection = RequestPath { resource, namespace, name: "", subresource: "" };
        cases.extend([
            collection.new_case(Method::GET, "list", ""),
            collection.new_case(Method::GET, "watch", "watch=1"),
            collection.new_case(Method::POST, "create", ""),
            collection.new_case(Method::DELETE, "deletecollection", MATCH_NOTHING),
        ]);
        // RBAC treats a field selector on `metadata.name` as a name.
        let mut by_name =
            collection.new_case(Method::GET, "list", &format!("fieldSelector=metadata.name%3D{ALLOWED_NAME}"));
        by_name.attributes.name = ALLOWED_NAME.to_owned();
        cases.push(by_name);
        let item = RequestPath { name: ALLOWED_NAME, ..collection };
        cases.extend(item.cases_of_all_verbs().into_iter().filter(|case| case.attributes.verb != "create"));
        cases.push(RequestPath { name: OTHER_NAME, ..collection }.new_case(Method::GET, "get", ""));
        for subresource in &resource.subresources {
            cases.extend(RequestPath { subresource, ..item }.cases_of_all_verbs());
        }
    }
    let elsewhere = RequestPath { resource, namespace: OTHER_NAMESPACE, name: "", subresource: "" };
    cases.push(elsewhere.new_case(Method::GET, "list", ""));
    cases.push(RequestPath { name: ALLOWED_NAME, ..elsewhere }.new_case(Method::GET, "get", ""));
    if resource.name == "namespaces" {
        let team = RequestPath { resource, namespace: "", name: TEAM, subresource: "" };
        cases.push(team.new_case(Method::GET, "get", ""));
    }
    cases
}

/// The parts of a request path.
#[derive(Clone, Copy)]
struct RequestPath<'a> {
    resource: &'a MatrixResource,
    namespace: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl RequestPath<'_> {
    /// Returns a case for every verb on one object or its subresource.
    fn cases_of_all_verbs(&self) -> Vec<AccessCase> {
        let verbs = [
            (Method::GET, "get"),
            (Method::POST, "create"),
            (Method::PUT, "update"),
            (Method::PATCH, "patch"),
            (Method::DELETE, "delete"),
        ];
        verbs.into_iter().map(|(method, verb)| self.new_case(method, verb, "")).collect()
    }

    fn new_case(&self, method: Method, verb: &'static str, query: &str) -> AccessCase {
        let MatrixResource { group, version, name: resource, is_cluster_scoped, .. } = self.resource;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let mut path = root;
        if !self.namespace.is_empty() {
            path += &format!("/namespaces/{}", self.namespace);
        }
        for part in [resource.as_str(), self.name, self.subresource] {
            if !part.is_empty() {
                path += &format!("/{part}");
            }
        }
        if !query.is_empty() {
            path += &format!("?{query}");
        }
        // RBAC evaluates a request for a namespace in that namespace.
        let is_namespace = group.is_empty() && resource == "namespaces" && self.namespace.is_empty();
        let namespace = if is_namespace { self.name } else { self.namespace };
        let about = RequestAttributes {
            verb,
            group: group.clone(),
            resource: resource.clone(),
            subresource: self.subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: self.name.to_owned(),
        };
        AccessCase { method, path, attributes: about, is_cluster_scoped: *is_cluster_scoped }
    }
}

async fn connect(client: &Client) -> SendRequest<Full<Bytes>> {
    let stream = client.tls_stream(Some(b"h2")).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the task ends with the connection")]
    tokio::spawn(connection);
    sender
}

fn build_request(case: &AccessCase, caller: TestCaller) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(case.method.clone()).uri(format!("https://server{}", case.path));
    let builder = builder.header("authorization", format!("Bearer {}-token", caller.user));
    let builder = match caller.impersonated {
        Some(user) => builder.header("impersonate-user", user),
        None => builder,
    };
    let (kind, body) = match case.method {
        Method::PATCH => ("application/merge-patch+json", "{"),
        Method::POST | Method::PUT => ("application/json", "{"),
        _ => return builder.body(Full::default()).unwrap(),
    };
    builder.header("content-type", kind).body(Full::from(body)).unwrap()
}

/// Sends all cases and returns their status codes in order.
async fn statuses(server: &Client, cases: &[(AccessCase, TestCaller)]) -> Vec<u16> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(connect(server).await);
    }
    let sending = cases.iter().enumerate().map(|(number, (case, caller))| {
        let mut connection = connections[number % CONNECTIONS].clone();
        async move {
            // The body is not read, because a watch does not end.
            connection.send_request(build_request(case, *caller)).await.unwrap().status().as_u16()
        }
    });
    stream::iter(sending).buffered(CONNECTIONS * IN_FLIGHT).collect().await
}

fn is_allowed(rbac: &RbacObjects, case: &AccessCase, caller: TestCaller) -> bool {
    let Some(target) = caller.impersonated else { return rbac.allows(caller.user, &case.attributes) };
    let wish = RequestAttributes {
        verb: "impersonate",
        group: String::new(),
        resource: "users".to_owned(),
        subresource: String::new(),
        namespace: String::new(),
        name: target.to_owned(),
    };
    rbac.allows(caller.user, &wish) && rbac.allows(target, &case.attributes)
}

/// Sends the cases to both servers, each of which forwards what only the other serves. Returns the RBAC objects and the
/// status codes.
fn responses_of_both_servers(
    callers_of: fn(usize) -> Vec<TestCaller>,
    is_wanted: fn(&AccessCase) -> bool,
) -> (RbacObjects, Vec<(AccessCase, TestCaller, u16)>) {
    let plane = start_servers();
    let admins = ["old", "new"].map(|name| plane.admin(name));
    // Callers use tokens, so the connection has no client certificate.
    let fronts = ["old", "new"].map(|name| plane.server(name).client_with(ClientCredentials::Anonymous));
    let last =
        ["old", "new"].map(|name| plane.server(name).client_with(ClientCredentials::Token("nsowner-token".to_owned())));
    block_on(async {
        define_custom_kinds(&admins[0]).await;
        grant_all(&admins[0]).await;
        let rbac = wait_and_read_rbac(&admins[0], &last[0]).await;
        wait_and_read_rbac(&admins[1], &last[1]).await;
        let mut answers = Vec::new();
        for (number, only) in [(0, None), (1, Some(["apps", CUSTOM_GROUP]))] {
            let admin = &admins[number];
            let count_custom =
                async || discover_resources(admin).await.iter().filter(|found| found.group == CUSTOM_GROUP).count();
            wait_until(async || count_custom().await == 2).await;
            let resources = discover_resources(admin).await;
            for needed in ["deployments", "volumeattributesclasses", "pods", "nodes", "gadgets"] {
                assert!(resources.iter().any(|resource| resource.name == needed), "{needed} is not listed");
            }
            let is_chosen = |found: &&MatrixResource| only.is_none_or(|groups| groups.contains(&&*found.group));
            let chosen = resources.iter().filter(is_chosen);
            let cases = chosen.flat_map(cases_for_resource).filter(is_wanted).enumerate();
            let cases = cases
                .flat_map(|(number, case)| callers_of(number).into_iter().map(move |caller| (case.clone(), caller)));
            let cases: Vec<_> = cases.collect();
            let found = statuses(&fronts[number], &cases).await;
            answers.extend(cases.into_iter().zip(found).map(|((case, caller), status)| (case, caller, status)));
        }
        (rbac, answers)
    })
}

#[test]
fn every_request_is_forbidden_exactly_if_rbac_does_not_allow_it() {
    let (rbac, answers) = responses_of_both_servers(callers_for_case, |_| true);
    let mut allowed = 0;
    let mut wrong = Vec::new();
    for (case, caller, status) in &answers {
        let expected = is_allowed(&rbac, case, *caller);
        allowed += usize::from(expected);
        if (*status != 403) != expected {
            wrong.push(format!("{caller:?} {} {}: {status}", case.method, case.path));
        }
    }
    // Both outcomes must be frequent, or the matrix proves nothing.
    let forbidden = answers.len() - allowed;
    assert!(allowed > 500 && forbidden > 500, "{allowed} allowed, {forbidden} forbidden");
    wrong.truncate(40);
    assert!(wrong.is_empty(), "of {}:\n{}", answers.len(), wrong.join("\n"));
}

#[test]
fn namespace_rights_never_reach_cluster_scoped_resources() {
    let (_, answers) = responses_of_both_servers(namespace_callers, |case| case.is_cluster_scoped);
    // RBAC evaluates a request for a namespace in that namespace, so its administrators may read it.
    let is_own_namespace = |case: &AccessCase| case.path == format!("/api/v1/namespaces/{TEAM}");
    let reached = answers.iter().filter(|(case, _, status)| (200..300).contains(status) && !is_own_namespace(case));
    let reached: Vec<_> = reached
        .map(|(case, caller, status)| format!("{} {} {}: {status}", caller.user, case.method, case.path))
        .collect();
    assert!(answers.len() > 500, "{} requests", answers.len());
    assert!(
        reached.is_empty(),
        "{} of {}:\n{}",
        reached.len(),
        answers.len(),
        reached[..40.min(reached.len())].join("\n")
    );
}
