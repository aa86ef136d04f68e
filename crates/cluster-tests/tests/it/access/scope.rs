//! Rights in a namespace do not extend beyond it, on the receiving server and on the peer it forwards to.

use cluster_tests::ControlPlane;
use cluster_tests::wait::wait_within;

use super::*;
use crate::peers::{CLASSES_PATH, DEPLOYMENTS_PATH, NEW_FLAGS, OLD_FLAGS, volume_attributes_class};

const NOT_FOUND_RESPONSE: &str = "404 the server could not find the requested resource";
const NOT_ALLOWED_RESPONSE: &str = "405 the server does not allow this method on the requested resource";

/// Requests for cluster-scoped resources with a namespace in the path.
const CLUSTER_SCOPED_REQUESTS: [&str; 12] = [
    "GET /api/v1/namespaces/a/nodes",
    "GET /api/v1/namespaces/a/nodes?watch=true",
    "GET /api/v1/watch/namespaces/a/nodes",
    "PUT /api/v1/namespaces/a/nodes/x/status",
    "GET /api/v1/namespaces/a/namespaces",
    "DELETE /api/v1/namespaces/a/namespaces/victim",
    "DELETE /api/v1/namespaces%2Fa%2Fnamespaces%2Fvictim",
    "DELETE /api/v1/namespaces/a/persistentvolumes",
    "POST /apis/authentication.k8s.io/v1/namespaces/a/tokenreviews",
    "POST /apis/authorization.k8s.io/v1/namespaces/a/subjectaccessreviews",
    "POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/clusterrolebindings",
    "HEAD /api/v1/namespaces/a/nodes",
];

async fn send(client: &Client, request: &str) -> FullResponse {
    send_with(client, request, &[], &json!({})).await
}

async fn send_with(client: &Client, request: &str, headers: &[(&str, &str)], body: &Value) -> FullResponse {
    let (method, path) = request.split_once(' ').unwrap();
    let mut builder = client.request_builder(method.parse().unwrap(), path).header("content-type", "application/json");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    client.send(builder, Bytes::from(body.to_string())).await
}

/// Creates the namespaces `a` and `victim`, and binds the role to the user `bound-<role>` in `a`.
async fn bind_role_in_namespace_a(admin: &Client, user: &Client, role: &str) {
    let binding = json!({
        "metadata": {"name": role},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": format!("bound-{role}")}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings";
    for name in ["a", "victim"] {
        admin.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
    assert_eq!(admin.create(bindings, &binding).await.status, 201);
    let question = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "a"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    wait_until(async || user.create(reviews, &question).await.json()["status"]["allowed"] == true).await;
}

async fn create_role(admin: &Client, name: &str) {
    let rules = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    assert_eq!(admin.create(CLUSTER_ROLES, &json!({"metadata": {"name": name}, "rules": rules})).await.status, 201);
}

#[test]
fn namespace_rights_do_not_reach_cluster_scoped_resources() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        create_role(&admin, "everything").await;
        for role in ["everything", "view", "edit", "admin"] {
            let user = server.client_with(issue_client_certificate(&server, &format!("bound-{role}"), None));
            bind_role_in_namespace_a(&admin, &user, role).await;
            for request in CLUSTER_SCOPED_REQUESTS {
                let answer = send(&user, request).await;
                if request.starts_with("HEAD") && role == "everything" {
                    assert_eq!(answer.status, 404, "{request} by {role}");
                } else if role == "everything" {
                    assert_eq!(answer.summary(), NOT_FOUND_RESPONSE, "{request} by {role}");
                } else {
                    let is_refused = answer.status == 403 || answer.status == 404;
                    assert!(is_refused, "{request} by {role}: {}", answer.summary());
                }
            }
            assert_eq!(send(&user, "GET /api/v1/namespaces/a/configmaps").await.status, 200, "{role}");
            assert_eq!(send(&user, "GET /api/v1/nodes").await.status, 403, "{role}");
        }
        // Paths of the namespace itself count as inside it.
        let user = server.client_with(issue_client_certificate(&server, "bound-everything", None));
        assert_eq!(send(&user, "GET /api/v1/namespaces/a").await.status, 200);
        assert_eq!(send(&user, "GET /api/v1/namespaces/a/status").await.status, 200);
        assert_eq!(admin.get("/api/v1/namespaces/victim").await.json()["status"]["phase"], "Active");
    });
}

#[test]
fn resource_names_in_a_namespace_do_not_reach_cluster_scoped_resources() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (admin, user) = (server.admin(), server.client_with(issue_client_certificate(&server, "bound-named", None)));
    block_on(async {
        let rules = json!([
            {"verbs": ["delete", "get"], "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["victim", "a"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
        ]);
        assert_eq!(
            admin.create(CLUSTER_ROLES, &json!({"metadata": {"name": "named"}, "rules": rules})).await.status,
            201
        );
        bind_role_in_namespace_a(&admin, &user, "named").await;
        assert_eq!(send(&user, "DELETE /api/v1/namespaces/a/namespaces/victim").await.summary(), NOT_FOUND_RESPONSE);
        assert_eq!(send(&user, "DELETE /api/v1/namespaces/victim").await.status, 403);
        assert_eq!(send(&user, "GET /api/v1/namespaces/a").await.status, 200);
    });
}

#[test]
fn paths_without_a_namespace_list_and_watch_namespaced_resources_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        admin.create(CONFIG_MAPS_PATH, &config_map("kept")).await;
        for (request, expected) in [
            ("GET /api/v1/configmaps/kept", NOT_FOUND_RESPONSE),
            ("POST /api/v1/configmaps", NOT_ALLOWED_RESPONSE),
            ("DELETE /api/v1/configmaps", NOT_ALLOWED_RESPONSE),
            ("POST /api/v1/watch/configmaps", NOT_ALLOWED_RESPONSE),
            ("OPTIONS /api/v1/configmaps", NOT_ALLOWED_RESPONSE),
            ("PUT /api/v1/namespaces/default/configmaps", NOT_ALLOWED_RESPONSE),
            ("POST /api/v1/namespaces/default/configmaps/kept", NOT_ALLOWED_RESPONSE),
            ("GET /api/v1/proxy/namespaces/default/configmaps/kept", NOT_FOUND_RESPONSE),
            ("PUT /api/v1/namespaces/default/pods/x/status/more", NOT_FOUND_RESPONSE),
            ("GET /api/v1/namespaces/default/pods//status", "400 name must be provided"),
            ("GET /api/v1/namespaces//configmaps/kept", "400 Namespace parameter required."),
            ("PUT /apis/coordination.k8s.io/v1/namespaces//leases/x", "400 Namespace parameter required."),
            ("DELETE /api/v1/namespaces//configmaps", "400 Namespace parameter required."),
            ("POST /apis/authorization.k8s.io/v1/localsubjectaccessreviews", NOT_FOUND_RESPONSE),
            ("GET /apis/authentication.k8s.io/v1/tokenreviews", NOT_ALLOWED_RESPONSE),
        ] {
            assert_eq!(send(&admin, request).await.summary(), expected, "{request}");
        }
        assert_eq!(send(&admin, "HEAD /api/v1/configmaps").await.status, 405);
        for list in ["GET /api/v1/configmaps", "GET /api/v1/configmaps/", "GET /api/v1/namespaces//configmaps"] {
            let listed = send(&admin, list).await.json();
            let is_kept = |item: &Value| item["metadata"]["name"] == "kept";
            assert!(listed["items"].as_array().unwrap().iter().any(is_kept), "{list}: {listed}");
        }
        let outside = send(&admin, "GET //api/v1/configmaps").await;
        assert_eq!((outside.status.as_u16(), &*outside.body), (404, b"404 page not found\n".as_slice()));
    });
}

#[test]
fn peers_reject_route_mismatch_of_resource_of_another_release() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    plane.start("new", &NEW_FLAGS);
    let [old, new] = ["old", "new"].map(|name| plane.admin(name));
    wait_within(Duration::from_secs(2), "the servers discover each other", async || {
        let statuses = [old.get(CLASSES_PATH).await.status, new.get(DEPLOYMENTS_PATH).await.status];
        if statuses.iter().all(http::StatusCode::is_success) { Ok(()) } else { Err(format!("{statuses:?}")) }
    });
    let identity = issue_client_certificate(plane.server("old"), "bound-everything", None);
    let [user_of_old, user_of_new] = ["old", "new"].map(|name| plane.server(name).client_with(identity.clone()));
    let classes_in_a = "/apis/storage.k8s.io/v1/namespaces/a/volumeattributesclasses";
    block_on(async {
        create_role(&old, "everything").await;
        bind_role_in_namespace_a(&old, &user_of_old, "everything").await;
        assert_eq!(
            old.create(CLASSES_PATH, &volume_attributes_class("gold")).await.status,
            201,
            "through a server that does not serve the resource"
        );
        let forwarded = async |client: &Client| {
            let page = String::from_utf8_lossy(&client.get("/metrics").await.body).into_owned();
            page.lines()
                .filter(|line| line.starts_with("apiserver_rerouted_request_total{"))
                .map(str::to_owned)
                .collect()
        };
        let before: [Vec<String>; 2] = [forwarded(&old).await, forwarded(&new).await];
        for (client, request, expected) in [
            (&user_of_old, format!("GET {classes_in_a}"), NOT_FOUND_RESPONSE),
            (&user_of_old, format!("DELETE {classes_in_a}/gold"), NOT_FOUND_RESPONSE),
            (&user_of_old, format!("POST {classes_in_a}"), NOT_FOUND_RESPONSE),
            (&old, format!("GET {classes_in_a}?watch=true"), NOT_FOUND_RESPONSE),
            (&new, "GET /apis/apps/v1/deployments/x".to_owned(), NOT_FOUND_RESPONSE),
            (&new, "POST /apis/apps/v1/deployments".to_owned(), NOT_ALLOWED_RESPONSE),
            (&new, "DELETE /apis/apps/v1/deployments".to_owned(), NOT_ALLOWED_RESPONSE),
            (&user_of_new, "POST /apis/apps/v1/namespaces/a/deployments/x".to_owned(), NOT_ALLOWED_RESPONSE),
            (&user_of_new, "PUT /apis/apps/v1/namespaces/a/deployments/x/scale/more".to_owned(), NOT_FOUND_RESPONSE),
        ] {
            assert_eq!(send(client, &request).await.summary(), expected, "{request}");
        }
        assert_eq!(before, [forwarded(&old).await, forwarded(&new).await], "none of these is forwarded");
        // The receiving peer applies the same rule to a request that another server forwards nevertheless.
        let pki = plane.server("new").pki();
        let [certificate, key] = ["crt", "key"].map(|ending| pki.join(format!("front-proxy-client.{ending}")));
        let proxy = plane.server("new").client_with(ClientCredentials::Certificate { certificate, key });
        let headers = [("x-remote-user", "bound-everything"), ("x-kubernetes-peer-proxied", "true")];
        for request in [format!("DELETE {classes_in_a}/gold"), format!("GET {classes_in_a}")] {
            let answer = send_with(&proxy, &request, &headers, &json!({})).await;
            assert_eq!(answer.summary(), NOT_FOUND_RESPONSE, "{request}");
        }
        assert_eq!(old.get(&format!("{CLASSES_PATH}/gold")).await.status, 200);
    });
}

/// Checks that PUT of an absent object (lease or event) needs the right to create, for a user with rights in namespace
/// `a`.
async fn check_put_that_creates(admin: &Client, user: &Client, resource: (&str, &str), object: impl Fn(&str) -> Value) {
    let (group, plural) = resource;
    let rules = json!([
        {"verbs": ["update", "get"], "apiGroups": [group], "resources": [plural]},
        {"verbs": ["create"], "apiGroups": [group], "resources": [plural], "resourceNames": ["allowed"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
    ]);
    assert_eq!(admin.create(CLUSTER_ROLES, &json!({"metadata": {"name": "puts"}, "rules": rules})).await.status, 201);
    bind_role_in_namespace_a(admin, user, "puts").await;
    let path = |name: &str| format!("/apis/{group}/v1/namespaces/a/{plural}/{name}");
    let refused = |name: &str| {
        format!(
            "403 {plural}.{group} \"{name}\" is forbidden: User \"bound-puts\" cannot create resource \"{plural}\" in API group \
             \"{group}\" in the namespace \"a\""
        )
    };
    assert_eq!(user.update(&path("other"), &object("other")).await.summary(), refused("other"));
    let dry = format!("{}?dryRun=All", path("other"));
    assert_eq!(user.update(&dry, &object("other")).await.summary(), refused("other"));
    assert_eq!(admin.get(&path("other")).await.status, 404, "nothing was created");
    let allowed = user.update(&path("allowed"), &object("allowed")).await;
    assert_eq!(allowed.status, 201, "{}", allowed.summary());
    // The right to update is enough for an existing object.
    assert_eq!(admin.update(&path("other"), &object("other")).await.status, 201);
    let mut wanted = user.get(&path("other")).await.json();
    wanted["metadata"]["labels"] = json!({"by": "puts"});
    let updated = user.update(&path("other"), &wanted).await;
    assert_eq!(updated.status, 200, "{}", updated.summary());
}

#[test]
fn put_that_creates_needs_the_right_to_create() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (admin, user) = (server.admin(), server.client_with(issue_client_certificate(&server, "bound-puts", None)));
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": "x"}});
    block_on(check_put_that_creates(&admin, &user, ("coordination.k8s.io", "leases"), lease));
}

#[test]
fn put_that_creates_on_a_peer_needs_the_right_to_create() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("with", &["--emulated-version=1.33"]);
    plane.start("without", &["--emulated-version=1.36", "--runtime-config=events.k8s.io/v1=false"]);
    let admin = plane.admin("without");
    wait_within(Duration::from_secs(2), "the servers discover each other", async || {
        let answer = admin.get("/apis/events.k8s.io/v1/events").await;
        if answer.status == 200 { Ok(()) } else { Err(answer.summary()) }
    });
    let user =
        plane.server("without").client_with(issue_client_certificate(plane.server("without"), "bound-puts", None));
    let event = |name: &str| {
        json!({
            "metadata": {"name": name}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "r", "action": "a",
            "reportingController": "example.com/c", "reportingInstance": "i", "type": "Normal",
            "regarding": {"kind": "Pod", "namespace": "a", "name": "p"},
        })
    };
    block_on(check_put_that_creates(&admin, &user, ("events.k8s.io", "events"), event));
}
