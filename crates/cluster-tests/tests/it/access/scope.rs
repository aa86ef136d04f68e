//! Rights in a namespace end at the namespace: on the server that is asked, and on the peer that it forwards to.

use cluster_tests::ControlPlane;
use cluster_tests::wait::within;

use super::*;
use crate::peers::{CLASSES, DEPLOYMENTS, NEW, OLD, class};

const NOT_FOUND: &str = "404 the server could not find the requested resource";
const NOT_ALLOWED: &str = "405 the server does not allow this method on the requested resource";

/// Requests on cluster-scoped resources with a namespace in the path.
const CLUSTER_SCOPED: [&str; 12] = [
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

async fn ask(client: &Client, request: &str) -> Answer {
    ask_with(client, request, &[], &json!({})).await
}

async fn ask_with(client: &Client, request: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let (method, path) = request.split_once(' ').unwrap();
    let mut builder = client.request(method.parse().unwrap(), path).header("content-type", "application/json");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    client.send(builder, Bytes::from(body.to_string())).await
}

/// Makes the namespace `a`, where the user `bound-<role>` gets the rules of the role, and the namespace `victim`.
async fn bind_in_a(admin: &Client, user: &Client, role: &str) {
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
    wait_for(async || user.create(reviews, &question).await.json()["status"]["allowed"] == true).await;
}

async fn create_role(admin: &Client, name: &str) {
    let rules = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    assert_eq!(admin.create(CLUSTER_ROLES, &json!({"metadata": {"name": name}, "rules": rules})).await.status, 201);
}

#[test]
fn namespace_rights_do_not_reach_cluster_scoped_resources() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        create_role(&admin, "everything").await;
        for role in ["everything", "view", "edit", "admin"] {
            let user = server.client(issue(&server, &format!("bound-{role}"), None));
            bind_in_a(&admin, &user, role).await;
            for request in CLUSTER_SCOPED {
                let answer = ask(&user, request).await;
                if request.starts_with("HEAD") && role == "everything" {
                    assert_eq!(answer.status, 404, "{request} by {role}");
                } else if role == "everything" {
                    assert_eq!(answer.brief(), NOT_FOUND, "{request} by {role}");
                } else {
                    let is_refused = answer.status == 403 || answer.status == 404;
                    assert!(is_refused, "{request} by {role}: {}", answer.brief());
                }
            }
            assert_eq!(ask(&user, "GET /api/v1/namespaces/a/configmaps").await.status, 200, "{role}");
            assert_eq!(ask(&user, "GET /api/v1/nodes").await.status, 403, "{role}");
        }
        // The paths of the namespace itself are in it.
        let user = server.client(issue(&server, "bound-everything", None));
        assert_eq!(ask(&user, "GET /api/v1/namespaces/a").await.status, 200);
        assert_eq!(ask(&user, "GET /api/v1/namespaces/a/status").await.status, 200);
        assert_eq!(admin.get("/api/v1/namespaces/victim").await.json()["status"]["phase"], "Active");
    });
}

#[test]
fn resource_names_in_a_namespace_do_not_reach_cluster_scoped_resources() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let (admin, user) = (server.admin(), server.client(issue(&server, "bound-named", None)));
    block_on(async {
        let rules = json!([
            {"verbs": ["delete", "get"], "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["victim", "a"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
        ]);
        assert_eq!(
            admin.create(CLUSTER_ROLES, &json!({"metadata": {"name": "named"}, "rules": rules})).await.status,
            201
        );
        bind_in_a(&admin, &user, "named").await;
        assert_eq!(ask(&user, "DELETE /api/v1/namespaces/a/namespaces/victim").await.brief(), NOT_FOUND);
        assert_eq!(ask(&user, "DELETE /api/v1/namespaces/victim").await.status, 403);
        assert_eq!(ask(&user, "GET /api/v1/namespaces/a").await.status, 200);
    });
}

#[test]
fn paths_without_a_namespace_list_and_watch_namespaced_resources_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        admin.create(CONFIG_MAPS, &config_map("kept")).await;
        for (request, expected) in [
            ("GET /api/v1/configmaps/kept", NOT_FOUND),
            ("POST /api/v1/configmaps", NOT_ALLOWED),
            ("DELETE /api/v1/configmaps", NOT_ALLOWED),
            ("POST /api/v1/watch/configmaps", NOT_ALLOWED),
            ("OPTIONS /api/v1/configmaps", NOT_ALLOWED),
            ("PUT /api/v1/namespaces/default/configmaps", NOT_ALLOWED),
            ("POST /api/v1/namespaces/default/configmaps/kept", NOT_ALLOWED),
            ("GET /api/v1/proxy/namespaces/default/configmaps/kept", NOT_FOUND),
            ("PUT /api/v1/namespaces/default/pods/x/status/more", NOT_FOUND),
            ("GET /api/v1/namespaces/default/pods//status", "400 name must be provided"),
            ("GET /api/v1/namespaces//configmaps/kept", "400 Namespace parameter required."),
            ("PUT /apis/coordination.k8s.io/v1/namespaces//leases/x", "400 Namespace parameter required."),
            ("DELETE /api/v1/namespaces//configmaps", "400 Namespace parameter required."),
            ("POST /apis/authorization.k8s.io/v1/localsubjectaccessreviews", NOT_FOUND),
            ("GET /apis/authentication.k8s.io/v1/tokenreviews", NOT_ALLOWED),
        ] {
            assert_eq!(ask(&admin, request).await.brief(), expected, "{request}");
        }
        assert_eq!(ask(&admin, "HEAD /api/v1/configmaps").await.status, 405);
        for list in ["GET /api/v1/configmaps", "GET /api/v1/configmaps/", "GET /api/v1/namespaces//configmaps"] {
            let listed = ask(&admin, list).await.json();
            let is_kept = |item: &Value| item["metadata"]["name"] == "kept";
            assert!(listed["items"].as_array().unwrap().iter().any(is_kept), "{list}: {listed}");
        }
        let outside = ask(&admin, "GET //api/v1/configmaps").await;
        assert_eq!((outside.status.as_u16(), &*outside.body), (404, b"404 page not found\n".as_slice()));
    });
}

#[test]
fn peers_refuse_paths_that_do_not_fit_a_resource_of_another_release() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &OLD);
    plane.start("new", &NEW);
    let [old, new] = ["old", "new"].map(|name| plane.admin(name));
    within(Duration::from_secs(2), "the servers know of each other", async || {
        let statuses = [old.get(CLASSES).await.status, new.get(DEPLOYMENTS).await.status];
        if statuses.iter().all(http::StatusCode::is_success) { Ok(()) } else { Err(format!("{statuses:?}")) }
    });
    let identity = issue(plane.server("old"), "bound-everything", None);
    let [user_of_old, user_of_new] = ["old", "new"].map(|name| plane.server(name).client(identity.clone()));
    let classes_in_a = "/apis/storage.k8s.io/v1/namespaces/a/volumeattributesclasses";
    block_on(async {
        create_role(&old, "everything").await;
        bind_in_a(&old, &user_of_old, "everything").await;
        assert_eq!(old.create(CLASSES, &class("gold")).await.status, 201, "through a server that does not have it");
        let forwarded = async |client: &Client| {
            let page = String::from_utf8_lossy(&client.get("/metrics").await.body).into_owned();
            page.lines()
                .filter(|line| line.starts_with("apiserver_rerouted_request_total{"))
                .map(str::to_owned)
                .collect()
        };
        let before: [Vec<String>; 2] = [forwarded(&old).await, forwarded(&new).await];
        for (client, request, expected) in [
            (&user_of_old, format!("GET {classes_in_a}"), NOT_FOUND),
            (&user_of_old, format!("DELETE {classes_in_a}/gold"), NOT_FOUND),
            (&user_of_old, format!("POST {classes_in_a}"), NOT_FOUND),
            (&old, format!("GET {classes_in_a}?watch=true"), NOT_FOUND),
            (&new, "GET /apis/apps/v1/deployments/x".to_owned(), NOT_FOUND),
            (&new, "POST /apis/apps/v1/deployments".to_owned(), NOT_ALLOWED),
            (&new, "DELETE /apis/apps/v1/deployments".to_owned(), NOT_ALLOWED),
            (&user_of_new, "POST /apis/apps/v1/namespaces/a/deployments/x".to_owned(), NOT_ALLOWED),
            (&user_of_new, "PUT /apis/apps/v1/namespaces/a/deployments/x/scale/more".to_owned(), NOT_FOUND),
        ] {
            assert_eq!(ask(client, &request).await.brief(), expected, "{request}");
        }
        assert_eq!(before, [forwarded(&old).await, forwarded(&new).await], "none of these is forwarded");
        // A request that another server forwards nevertheless is refused by the same rule.
        let pki = plane.server("new").pki();
        let [certificate, key] = ["crt", "key"].map(|ending| pki.join(format!("front-proxy-client.{ending}")));
        let proxy = plane.server("new").client(Identity::Certificate { certificate, key });
        let headers = [("x-remote-user", "bound-everything"), ("x-kubernetes-peer-proxied", "true")];
        for request in [format!("DELETE {classes_in_a}/gold"), format!("GET {classes_in_a}")] {
            let answer = ask_with(&proxy, &request, &headers, &json!({})).await;
            assert_eq!(answer.brief(), NOT_FOUND, "{request}");
        }
        assert_eq!(old.get(&format!("{CLASSES}/gold")).await.status, 200);
    });
}

/// An update of a lease or event that is absent, and what a user with these rules in the namespace `a` is told.
async fn check_put_that_creates(admin: &Client, user: &Client, resource: (&str, &str), object: impl Fn(&str) -> Value) {
    let (group, plural) = resource;
    let rules = json!([
        {"verbs": ["update", "get"], "apiGroups": [group], "resources": [plural]},
        {"verbs": ["create"], "apiGroups": [group], "resources": [plural], "resourceNames": ["allowed"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
    ]);
    assert_eq!(admin.create(CLUSTER_ROLES, &json!({"metadata": {"name": "puts"}, "rules": rules})).await.status, 201);
    bind_in_a(admin, user, "puts").await;
    let path = |name: &str| format!("/apis/{group}/v1/namespaces/a/{plural}/{name}");
    let refused = |name: &str| {
        format!(
            "403 {plural}.{group} \"{name}\" is forbidden: User \"bound-puts\" cannot create resource \"{plural}\" in API group \
             \"{group}\" in the namespace \"a\""
        )
    };
    assert_eq!(user.update(&path("other"), &object("other")).await.brief(), refused("other"));
    let dry = format!("{}?dryRun=All", path("other"));
    assert_eq!(user.update(&dry, &object("other")).await.brief(), refused("other"));
    assert_eq!(admin.get(&path("other")).await.status, 404, "nothing was created");
    let allowed = user.update(&path("allowed"), &object("allowed")).await;
    assert_eq!(allowed.status, 201, "{}", allowed.brief());
    // What is there may be updated.
    assert_eq!(admin.update(&path("other"), &object("other")).await.status, 201);
    let mut wanted = user.get(&path("other")).await.json();
    wanted["metadata"]["labels"] = json!({"by": "puts"});
    let updated = user.update(&path("other"), &wanted).await;
    assert_eq!(updated.status, 200, "{}", updated.brief());
}

#[test]
fn put_that_creates_needs_the_right_to_create() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let (admin, user) = (server.admin(), server.client(issue(&server, "bound-puts", None)));
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": "x"}});
    block_on(check_put_that_creates(&admin, &user, ("coordination.k8s.io", "leases"), lease));
}

#[test]
fn put_that_creates_on_a_peer_needs_the_right_to_create() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("with", &["--emulated-version=1.33"]);
    plane.start("without", &["--emulated-version=1.36", "--runtime-config=events.k8s.io/v1=false"]);
    let admin = plane.admin("without");
    within(Duration::from_secs(2), "the servers know of each other", async || {
        let answer = admin.get("/apis/events.k8s.io/v1/events").await;
        if answer.status == 200 { Ok(()) } else { Err(answer.brief()) }
    });
    let user = plane.server("without").client(issue(plane.server("without"), "bound-puts", None));
    let event = |name: &str| {
        json!({
            "metadata": {"name": name}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "r", "action": "a",
            "reportingController": "example.com/c", "reportingInstance": "i", "type": "Normal",
            "regarding": {"kind": "Pod", "namespace": "a", "name": "p"},
        })
    };
    block_on(check_put_that_creates(&admin, &user, ("events.k8s.io", "events"), event));
}
