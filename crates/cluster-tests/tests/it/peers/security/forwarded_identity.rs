//! A forwarded request is authorized as the user, not as the proxy, and has one audit ID on both servers.

use super::*;

const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources:
  - group: storage.k8s.io
- level: None
";

/// An old server that allows everything and a new one with RBAC, so that every 403 comes from the new one.
fn start_plane<'a>(store: TestStore<'a>) -> ControlPlane<'a> {
    let mut plane = ControlPlane::new(store);
    let policy = plane.folder().join("policy.yaml");
    std::fs::write(&policy, AUDIT_POLICY).unwrap();
    let policy = format!("--audit-policy-file={}", policy.display());
    let log = |name: &str| format!("--audit-log-path={}", audit_log(&plane, name).display());
    let (old, new) = (log("old"), log("new"));
    plane.start("new", &["--emulated-version=1.36", "--peer-response-headers", &policy, &new]);
    plane.start(
        "old",
        &["--emulated-version=1.33", "--peer-response-headers", "--authorization-mode=AlwaysAllow", &policy, &old],
    );
    plane
}

fn audit_log(plane: &ControlPlane<'_>, name: &str) -> std::path::PathBuf {
    plane.folder().join(format!("{name}-audit.json"))
}

/// Waits for the audit event of a request on one server.
async fn wait_for_audit_event(plane: &ControlPlane<'_>, name: &str, id: &str) -> Value {
    let find = || {
        let text = std::fs::read_to_string(audit_log(plane, name)).unwrap_or_default();
        let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.find(|event| event["auditID"] == id && event["stage"] == "ResponseComplete")
    };
    eventually("the request is recorded", async || find().map(drop).ok_or_else(|| format!("{id} by {name}"))).await;
    find().unwrap()
}

#[test]
fn forwarded_request_is_authorized_and_audited_for_the_user() {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let plane = start_plane(store);
        block_on(check_user_is_authorized_by_peer(&plane));
    }
}

async fn check_user_is_authorized_by_peer(plane: &ControlPlane<'_>) {
    let admin = plane.admin("old");
    let [jane, joe] = ["jane", "joe"].map(|name| client_of_user(plane, "old", name));
    eventually("the servers discover each other", async || expect_ok(&admin, CLASSES_PATH).await).await;
    let role = json!({
        "metadata": {"name": "classes"},
        "rules": [{"verbs": ["list"], "apiGroups": ["storage.k8s.io"], "resources": ["volumeattributesclasses"]}],
    });
    let created = admin.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
    assert_eq!(created.status, 201, "{}", created.summary());
    bind_cluster_role(&admin, "classes", "jane").await;
    eventually("jane is authorized", async || expect_ok(&jane, CLASSES_PATH).await).await;

    let refusal = "403 volumeattributesclasses.storage.k8s.io is forbidden: User \"joe\" cannot list resource \
                   \"volumeattributesclasses\" in API group \"storage.k8s.io\" at the cluster scope";
    let refused = get_with_headers(&joe, CLASSES_PATH, &[("audit-id", "of-joe")]).await;
    assert_eq!(refused.summary(), refusal, "the 403 comes from the new server");
    assert_eq!(refused.headers.get_all("audit-id").iter().collect::<Vec<_>>(), ["of-joe"], "each header once");
    assert_eq!(refused.headers.get_all("cache-control").iter().count(), 1);
    for name in ["old", "new"] {
        let event = wait_for_audit_event(plane, name, "of-joe").await;
        assert_eq!(
            (&event["user"]["username"], &event["responseStatus"]["code"]),
            (&json!("joe"), &json!(403)),
            "{name}"
        );
    }

    // The peer sees the impersonated user.
    let acting = [("impersonate-user", "joe"), ("impersonate-group", "system:authenticated"), ("audit-id", "as-joe")];
    let refused = get_with_headers(&admin, CLASSES_PATH, &acting).await;
    assert_eq!(refused.summary(), refusal);
    let (of_old, of_new) =
        (wait_for_audit_event(plane, "old", "as-joe").await, wait_for_audit_event(plane, "new", "as-joe").await);
    assert_eq!(
        (&of_old["user"]["username"], &of_old["impersonatedUser"]["username"]),
        (&json!("kubernetes-admin"), &json!("joe"))
    );
    assert_eq!((&of_new["user"]["username"], &of_new["impersonatedUser"]), (&json!("joe"), &Value::Null));
    let acting = [("impersonate-user", "jane"), ("impersonate-extra-team", "red"), ("audit-id", "as-jane")];
    assert_eq!(get_with_headers(&admin, CLASSES_PATH, &acting).await.status, 200);
    let of_new = wait_for_audit_event(plane, "new", "as-jane").await;
    assert_eq!((&of_new["user"]["username"], &of_new["user"]["extra"]["team"]), (&json!("jane"), &json!(["red"])));
}

/// Identity headers of a request that a peer forwards.
const PEER_HEADERS: [(&str, &str); 3] = [
    ("x-remote-user", "system:apiserver"),
    ("x-remote-group", "system:masters"),
    ("x-kubernetes-peer-proxied", "true"),
];

#[test]
fn request_of_a_peer_is_served_locally_or_503() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    plane.start("new", &NEW_FLAGS);
    let (server, admin) = (plane.server("old"), plane.admin("old"));
    let [certificate, key] = ["crt", "key"].map(|ending| server.pki().join(format!("front-proxy-client.{ending}")));
    let peer = server.client_with(ClientCredentials::Certificate { certificate, key });
    block_on(async {
        eventually("the servers discover each other", async || expect_ok(&admin, CLASSES_PATH).await).await;
        let [[user, group, mark], rerouted] = [PEER_HEADERS, [("x-kubernetes-apiserver-rerouted", "true"); 3]];
        for mark in [mark, rerouted[0]] {
            let refused = get_with_headers(&peer, CLASSES_PATH, &[user, group, mark]).await;
            assert!(
                refused.summary().starts_with("503 ") && refused.summary().ends_with("(routing rule 2)"),
                "{}",
                refused.summary()
            );
            assert_eq!(refused.json()["details"]["causes"][0]["reason"], "NotServedByPeer");
            let served = get_with_headers(&peer, "/api/v1/namespaces", &[user, group, mark]).await;
            assert_eq!(served.status, 200, "its own resources are served to peers");
            // 1.33 and 1.34 fetch discovery without a profile.
            let accept = ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
            let [own, merged] = [
                get_with_headers(&peer, "/apis", &[user, group, mark, accept]).await,
                get_with_headers(&peer, "/apis", &[user, group, accept]).await,
            ];
            let has_new = |answer: &FullResponse| answer.json().to_string().contains("\"mutatingadmissionpolicies\"");
            assert!(!has_new(&own) && has_new(&merged));
        }
        let local = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=local";
        let own = get_with_headers(&admin, "/apis", &[("accept", local)]).await;
        assert!(!own.json().to_string().contains("\"mutatingadmissionpolicies\""), "the older name of the profile");
        // A front proxy without the peer header acts for its users, whose requests are forwarded as usual.
        assert_eq!(get_with_headers(&peer, CLASSES_PATH, &[user, group]).await.status, 200);
    });
}

/// The new server reads user names from one more header and publishes that in its settings.
#[test]
fn identity_header_of_the_peer_is_not_forwarded() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    // Allows everything, so that every 403 comes from the peer.
    plane.start("old", &["--emulated-version=1.33", "--authorization-mode=AlwaysAllow"]);
    let pki = plane.server("old").pki();
    let file = |name: &str, file: &str| format!("--{name}={}", pki.join(file).display());
    let files = [
        file("peer-ca-file", "ca.crt"),
        file("proxy-client-cert-file", "front-proxy-client.crt"),
        file("proxy-client-key-file", "front-proxy-client.key"),
        file("requestheader-client-ca-file", "front-proxy-ca.crt"),
        file("client-ca-file", "ca.crt"),
    ];
    let names = [
        "--emulated-version=1.36",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Other-User,X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ];
    let flags: Vec<&str> = files.iter().map(String::as_str).chain(names).collect();
    plane.start("new", &flags);
    let admin = plane.admin("old");
    let [jane, root] = ["jane", "root"].map(|name| client_of_user(&plane, "old", name));
    block_on(async {
        let rules =
            json!([{"apiGroups": ["storage.k8s.io"], "resources": ["volumeattributesclasses"], "verbs": ["list"]}]);
        let role = json!({"metadata": {"name": "classes"}, "rules": rules});
        let created = admin.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        bind_cluster_role(&admin, "classes", "root").await;
        eventually("root may list", async || expect_ok(&root, CLASSES_PATH).await).await;
        assert_eq!(jane.get(CLASSES_PATH).await.status, 403);
        let claim = [("x-other-user", "root")];
        eventually("forged header is dropped", async || match get_with_headers(&jane, CLASSES_PATH, &claim).await {
            refused if refused.status == 403 => Ok(()),
            other => Err(other.summary()),
        })
        .await;
        for _ in 0..10 {
            let refused = get_with_headers(&jane, CLASSES_PATH, &claim).await;
            assert!(refused.summary().contains("User \"jane\" cannot list"), "{}", refused.summary());
        }
    });
}
