//! Every resource that discovery lists, every verb, form of path and kind of caller: 403 exactly if RBAC does not allow it.
//!
//! What RBAC allows is computed from the objects by an evaluator of the test's own. Bodies are broken and names are of nothing, so
//! that no request changes anything: what matters is only whether it gets as far as that.

mod evaluator;

use cluster_tests::{ControlPlane, tools};
use evaluator::{Attributes, Rbac};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;
use crate::peers::{MERGED, NEW, OLD};

/// The namespace in which some callers have rights, and one in which they have none.
const TEAM: &str = "team";
const ELSEWHERE: &str = "elsewhere";
/// The name that roles with `resourceNames` allow, and one that they do not.
const NAMED: &str = "only";
const UNNAMED: &str = "another";
/// HTTP/2 connections, and requests under way on each: fewer than a server allows.
const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 32;
/// Matches nothing, so that a deletion of all that match deletes nothing.
const NOTHING: &str = "labelSelector=unskew.test%2Fmatrix%3Dnothing";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A kind of caller: a user by its token, and whom it asks to act as.
#[derive(Clone, Copy, Debug)]
struct Caller {
    user: &'static str,
    acts_as: Option<&'static str>,
}

const fn caller(user: &'static str) -> Caller {
    Caller { user, acts_as: None }
}

const CALLERS: [Caller; 10] = [
    caller("norights"),
    caller("viewer"),
    caller("editor"),
    caller("nsadmin"),
    caller("nsowner"),
    caller("named"),
    caller("aggregated"),
    caller("impersonator"),
    Caller { acts_as: Some("viewer"), ..caller("impersonator") },
    Caller { acts_as: Some("viewer"), ..caller("norights") },
];

/// The callers of a case: some of them in turn, so that every resource meets every caller; in a soak all of them.
fn callers_of(number: usize) -> Vec<Caller> {
    let turns: &[usize] = if tools::is_soak() { &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] } else { &[0, 3, 7] };
    turns.iter().map(|turn| CALLERS[(number + turn) % CALLERS.len()]).collect()
}

/// Callers whose rights, but for those that every user has, are all in one namespace.
fn confined(_number: usize) -> Vec<Caller> {
    vec![caller("nsadmin"), caller("nsowner")]
}

/// One request and what it is about.
#[derive(Clone, Debug)]
struct Case {
    method: Method,
    path: String,
    about: Attributes,
    /// Whether the resource is in no namespace, wherever the path puts it.
    is_cluster_scoped: bool,
}

/// A resource as discovery lists it.
struct Resource {
    group: String,
    version: String,
    name: String,
    subresources: Vec<String>,
    is_cluster_scoped: bool,
}

fn servers() -> ControlPlane<'static> {
    let mut plane = ControlPlane::new(Store::Sqlite);
    let tokens = plane.folder().join("tokens.csv");
    let lines = CALLERS.map(|Caller { user, .. }| format!("{user}-token,{user},{user}-uid\n"));
    let lines: std::collections::BTreeSet<String> = lines.into();
    std::fs::write(&tokens, lines.into_iter().collect::<String>()).unwrap();
    let tokens = format!("--token-auth-file={}", tokens.display());
    plane.start("old", &[OLD[0], &tokens]);
    plane.start("new", &[NEW[0], NEW[1], &tokens]);
    plane
}

/// Roles and bindings for all callers.
async fn grant_all(admin: &Client) {
    let create = async |path: &str, object: Value| {
        let created = admin.create(path, &object).await;
        assert_eq!(created.status, 201, "{path}: {}", created.brief());
    };
    for namespace in [TEAM, ELSEWHERE] {
        create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
    }
    let cluster_roles = format!("{RBAC}/clusterroles");
    create(&cluster_roles, json!({"metadata": {"name": "matrix-named"}, "rules": [
        {"apiGroups": ["*"], "resources": ["*"], "resourceNames": [NAMED], "verbs": ["get", "list", "watch", "update", "delete"]},
        {"apiGroups": ["apps", ""], "resources": ["*/status", "pods/log"], "resourceNames": [NAMED], "verbs": ["*"]},
    ]}))
    .await;
    create(&cluster_roles, json!({"metadata": {"name": "matrix-part", "labels": {"matrix": "yes"}}, "rules": [
        {"apiGroups": ["", "apps", "storage.k8s.io"], "resources": ["secrets", "nodes", "deployments", "*/scale"], "verbs": ["get", "list"]},
        {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["patch"]},
        {"apiGroups": ["storage.k8s.io"], "resources": ["*"], "verbs": ["watch", "deletecollection"]},
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
        create(&format!("{RBAC}/clusterrolebindings"), binding(user, role)).await;
    }
    let inside = format!("{RBAC}/namespaces/{TEAM}/rolebindings");
    for (user, role) in [("nsadmin", "admin"), ("nsowner", "cluster-admin")] {
        create(&inside, binding(user, role)).await;
    }
}

/// Waits until a server has seen the last binding, and reads all of them.
async fn rbac_of(admin: &Client, last: &Client) -> Rbac {
    wait_for(async || last.get(&format!("/api/v1/namespaces/{TEAM}/secrets")).await.status == 200).await;
    let list = async |path: &str| {
        let answer = admin.get(&format!("{RBAC}/{path}")).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.json()["items"].as_array().expect("it is a list").clone()
    };
    Rbac {
        cluster_roles: list("clusterroles").await,
        roles: list("roles").await,
        cluster_role_bindings: list("clusterrolebindings").await,
        role_bindings: list("rolebindings").await,
    }
}

/// Every resource that a server lists for the cluster, in the version that it prefers.
async fn discovered(admin: &Client) -> Vec<Resource> {
    let mut found: Vec<Resource> = Vec::new();
    for path in ["/api", "/apis"] {
        let page = admin.send(admin.request(Method::GET, path).header("accept", MERGED), Bytes::new()).await.json();
        for group in page["items"].as_array().expect("it lists groups") {
            for version in group["versions"].as_array().into_iter().flatten() {
                for resource in version["resources"].as_array().into_iter().flatten() {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let (group, name) = (text(&group["metadata"]["name"]), text(&resource["resource"]));
                    if found.iter().any(|known| known.group == group && known.name == name) {
                        continue;
                    }
                    let subresources = resource["subresources"].as_array().into_iter().flatten();
                    found.push(Resource {
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

/// The requests about a resource.
fn cases_of(resource: &Resource) -> Vec<Case> {
    let mut cases = Vec::new();
    // One of these is the right form of a path, the other the wrong one; they mean the same to RBAC.
    for namespace in ["", TEAM] {
        let collection = Place { resource, namespace, name: "", subresource: "" };
        cases.extend([
            collection.case(Method::GET, "list", ""),
            collection.case(Method::GET, "watch", "watch=1"),
            collection.case(Method::POST, "create", ""),
            collection.case(Method::DELETE, "deletecollection", NOTHING),
        ]);
        // A selector by name is a name to RBAC.
        let mut by_name = collection.case(Method::GET, "list", &format!("fieldSelector=metadata.name%3D{NAMED}"));
        by_name.about.name = NAMED.to_owned();
        cases.push(by_name);
        let item = Place { name: NAMED, ..collection };
        cases.extend(item.all().into_iter().filter(|case| case.about.verb != "create"));
        cases.push(Place { name: UNNAMED, ..collection }.case(Method::GET, "get", ""));
        for subresource in &resource.subresources {
            cases.extend(Place { subresource, ..item }.all());
        }
    }
    let elsewhere = Place { resource, namespace: ELSEWHERE, name: "", subresource: "" };
    cases.push(elsewhere.case(Method::GET, "list", ""));
    cases.push(Place { name: NAMED, ..elsewhere }.case(Method::GET, "get", ""));
    if resource.name == "namespaces" {
        let team = Place { resource, namespace: "", name: TEAM, subresource: "" };
        cases.push(team.case(Method::GET, "get", ""));
    }
    cases
}

/// A path and what it names.
#[derive(Clone, Copy)]
struct Place<'a> {
    resource: &'a Resource,
    namespace: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl Place<'_> {
    /// Every verb of one object, or of its subresource.
    fn all(&self) -> Vec<Case> {
        let verbs = [
            (Method::GET, "get"),
            (Method::POST, "create"),
            (Method::PUT, "update"),
            (Method::PATCH, "patch"),
            (Method::DELETE, "delete"),
        ];
        verbs.into_iter().map(|(method, verb)| self.case(method, verb, "")).collect()
    }

    fn case(&self, method: Method, verb: &'static str, query: &str) -> Case {
        let Resource { group, version, name: resource, is_cluster_scoped, .. } = self.resource;
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
        // A namespace is in itself.
        let is_namespace = group.is_empty() && resource == "namespaces" && self.namespace.is_empty();
        let namespace = if is_namespace { self.name } else { self.namespace };
        let about = Attributes {
            verb,
            group: group.clone(),
            resource: resource.clone(),
            subresource: self.subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: self.name.to_owned(),
        };
        Case { method, path, about, is_cluster_scoped: *is_cluster_scoped }
    }
}

async fn connect(client: &Client) -> SendRequest<Full<Bytes>> {
    let stream = client.stream(Some(b"h2")).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with the connection, and tests do not outlive it")]
    tokio::spawn(connection);
    sender
}

fn request_of(case: &Case, caller: Caller) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(case.method.clone()).uri(format!("https://server{}", case.path));
    let builder = builder.header("authorization", format!("Bearer {}-token", caller.user));
    let builder = match caller.acts_as {
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

/// Sends every case as every caller, and returns the statuses in order.
async fn statuses(server: &Client, cases: &[(Case, Caller)]) -> Vec<u16> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(connect(server).await);
    }
    let sending = cases.iter().enumerate().map(|(number, (case, caller))| {
        let mut connection = connections[number % CONNECTIONS].clone();
        async move {
            // The body is not read: a watch would not end.
            connection.send_request(request_of(case, *caller)).await.unwrap().status().as_u16()
        }
    });
    stream::iter(sending).buffered(CONNECTIONS * IN_FLIGHT).collect().await
}

fn is_allowed(rbac: &Rbac, case: &Case, caller: Caller) -> bool {
    let Some(target) = caller.acts_as else { return rbac.allows(caller.user, &case.about) };
    let wish = Attributes {
        verb: "impersonate",
        group: String::new(),
        resource: "users".to_owned(),
        subresource: String::new(),
        namespace: String::new(),
        name: target.to_owned(),
    };
    rbac.allows(caller.user, &wish) && rbac.allows(target, &case.about)
}

/// What callers get at both servers; each serves what the other does not, and forwards that.
fn answers(callers_of: fn(usize) -> Vec<Caller>, is_wanted: fn(&Case) -> bool) -> (Rbac, Vec<(Case, Caller, u16)>) {
    let plane = servers();
    let admins = ["old", "new"].map(|name| plane.admin(name));
    // Callers are known by their tokens, so that a connection shows no certificate.
    let fronts = ["old", "new"].map(|name| plane.server(name).client(Identity::Nobody));
    let last = ["old", "new"].map(|name| plane.server(name).client(Identity::Token("nsowner-token".to_owned())));
    block_on(async {
        grant_all(&admins[0]).await;
        let rbac = rbac_of(&admins[0], &last[0]).await;
        rbac_of(&admins[1], &last[1]).await;
        let mut answers = Vec::new();
        for (number, only) in [(0, None), (1, Some("apps"))] {
            let admin = &admins[number];
            let resources = discovered(admin).await;
            for needed in ["deployments", "volumeattributesclasses", "pods", "nodes"] {
                assert!(resources.iter().any(|resource| resource.name == needed), "{needed} is not listed");
            }
            let chosen = resources.iter().filter(|resource| only.is_none_or(|group| resource.group == group));
            let cases = chosen.flat_map(cases_of).filter(is_wanted).enumerate();
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
    let (rbac, answers) = answers(callers_of, |_| true);
    let mut allowed = 0;
    let mut wrong = Vec::new();
    for (case, caller, status) in &answers {
        let expected = is_allowed(&rbac, case, *caller);
        allowed += usize::from(expected);
        if (*status != 403) != expected {
            wrong.push(format!("{caller:?} {} {}: {status}", case.method, case.path));
        }
    }
    // A matrix of one colour would prove nothing.
    let forbidden = answers.len() - allowed;
    assert!(allowed > 500 && forbidden > 500, "{allowed} allowed, {forbidden} forbidden");
    wrong.truncate(40);
    assert!(wrong.is_empty(), "of {}:\n{}", answers.len(), wrong.join("\n"));
}

#[test]
fn rights_in_a_namespace_never_reach_a_cluster_scoped_resource() {
    let (_, answers) = answers(confined, |case| case.is_cluster_scoped);
    // A namespace is in itself, and its administrators may read it.
    let is_own_namespace = |case: &Case| case.path == format!("/api/v1/namespaces/{TEAM}");
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
