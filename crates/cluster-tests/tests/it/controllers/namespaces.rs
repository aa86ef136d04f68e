//! Namespace lifecycle.

use cluster_tests::tools;

use super::*;

const NAMESPACES: &str = "/api/v1/namespaces";
const SHOP: &str = "/api/v1/namespaces/shop";

#[test]
fn namespace_deletion_removes_all_its_objects() {
    with_controllers_on_each_store(async |client| {
        create_namespace(&client, "shop").await;
        for (path, object) in [
            ("/api/v1/namespaces/shop/configmaps", config_map("a")),
            ("/api/v1/namespaces/shop/secrets", json!({"metadata": {"name": "a"}})),
            ("/apis/coordination.k8s.io/v1/namespaces/shop/leases", json!({"metadata": {"name": "a"}, "spec": {}})),
            (
                "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles",
                json!({"metadata": {"name": "a"}, "rules": []}),
            ),
        ] {
            create_object(&client, path, &object).await;
        }
        assert_eq!(client.delete(SHOP).await.status, StatusCode::OK);
        wait_until_deleted(&client, SHOP).await;
        create_namespace(&client, "shop").await;
        for path in
            ["/api/v1/secrets", "/apis/coordination.k8s.io/v1/leases", "/apis/rbac.authorization.k8s.io/v1/roles"]
        {
            let list = client.get(path).await.json();
            let left = list["items"].as_array().unwrap().iter().any(|item| item["metadata"]["namespace"] == "shop");
            assert!(!left, "nothing reappears: {list}");
        }
    });
}

#[test]
fn kubectl_delete_namespace_returns_after_deletion() {
    if tools::is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &[ALL_CONTROLLERS]);
    let kubectl = |args: &[&str]| tools::kubectl(&server.kubeconfig(), args).expect_success();
    kubectl(&["create", "namespace", "shop"]);
    kubectl(&["-n", "shop", "create", "configmap", "a", "--from-literal=a=b"]);
    assert!(kubectl(&["delete", "namespace", "shop", "--timeout=60s"]).contains("deleted"));
    assert!(tools::kubectl(&server.kubeconfig(), &["get", "namespace", "shop"]).expect_failure().contains("NotFound"));
}

#[test]
fn finalizers_of_contents_delay_namespace_deletion_and_are_reported() {
    with_controllers_on_each_store(async |client| {
        create_namespace(&client, "shop").await;
        let mut held = config_map("held");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        create_object(&client, "/api/v1/namespaces/shop/configmaps", &held).await;
        client.delete(SHOP).await;
        let text = "example.com/hold in 1 resource instances";
        let since = wait_for_condition(&client, "shop", "NamespaceFinalizersRemaining", "True", text).await;
        assert_eq!(since["reason"], "SomeFinalizersRemain");
        let text = "configmaps. has 1 resource instances";
        wait_for_condition(&client, "shop", "NamespaceContentRemaining", "True", text).await;
        let text = "All resources successfully discovered";
        wait_for_condition(&client, "shop", "NamespaceDeletionDiscoveryFailure", "False", text).await;
        let late = client.create("/api/v1/namespaces/shop/configmaps", &config_map("late")).await;
        assert_eq!(late.status, StatusCode::FORBIDDEN, "{late:?}");
        let release = json!({"metadata": {"finalizers": null}});
        merge_patch(&client, "/api/v1/namespaces/shop/configmaps/held", &release).await;
        wait_until_deleted(&client, SHOP).await;
    });
}

#[test]
fn namespace_deletion_waits_for_pods_before_other_objects() {
    with_controllers_on_sqlite(async |client| {
        create_namespace(&client, "shop").await;
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 3600,
            "containers": [{"name": "c", "image": "i"}]}});
        create_object(&client, "/api/v1/namespaces/shop/pods", &pod).await;
        create_object(&client, "/api/v1/namespaces/shop/secrets", &json!({"metadata": {"name": "used"}})).await;
        client.delete(SHOP).await;
        let text = "pods. has 1 resource instances";
        wait_for_condition(&client, "shop", "NamespaceContentRemaining", "True", text).await;
        let pod = client.get("/api/v1/namespaces/shop/pods/p").await.json();
        assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 3600, "{pod}");
        assert!(object_exists(&client, "/api/v1/namespaces/shop/secrets/used").await, "the pod may still use it");
        client.delete("/api/v1/namespaces/shop/pods/p?gracePeriodSeconds=0").await;
        wait_until_deleted(&client, SHOP).await;
    });
}

#[test]
fn objects_created_during_namespace_deletion_are_removed() {
    with_controllers_on_sqlite(async |client| {
        create_namespace(&client, "shop").await;
        let mut held = config_map("held");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        create_object(&client, "/api/v1/namespaces/shop/configmaps", &held).await;
        client.delete(SHOP).await;
        wait_for_condition(&client, "shop", "NamespaceContentRemaining", "True", "configmaps").await;
        // A PUT may create a lease in a terminating namespace; such a lease must be deleted too.
        for number in 0..20 {
            let lease = json!({"metadata": {"name": format!("late-{number}")}, "spec": {}});
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/shop/leases/late-{number}");
            client.update(&path, &lease).await;
        }
        let release = json!({"metadata": {"finalizers": null}});
        merge_patch(&client, "/api/v1/namespaces/shop/configmaps/held", &release).await;
        wait_until_deleted(&client, SHOP).await;
        let leases = client.get("/apis/coordination.k8s.io/v1/leases").await.json();
        let left =
            leases["items"].as_array().unwrap().iter().filter(|item| item["metadata"]["namespace"] == "shop").count();
        assert_eq!(left, 0, "{leases}");
    });
}

#[test]
fn concurrent_creates_leave_nothing_in_a_deleted_namespace() {
    let rounds = if tools::is_soak() { 100 } else { 6 };
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[ALL_CONTROLLERS]);
    plane.start("b", &[]);
    let (a, b) = (plane.admin("a"), plane.admin("b"));
    for round in 0..rounds {
        let name = format!("shop-{round}");
        let path = format!("{NAMESPACES}/{name}");
        block_on(async {
            create_namespace(&a, &name).await;
            // Creates through the other server, which sees the deletion slightly later.
            let fill = async |creator: usize| {
                for number in 0.. {
                    let map = config_map(&format!("m-{creator}-{number}"));
                    let created = b.create(&format!("{path}/configmaps"), &map).await;
                    if created.status == StatusCode::NOT_FOUND && number > 0 {
                        return;
                    }
                }
            };
            let end = async {
                eventually("the namespace is being filled", async || {
                    let maps = a.get(&format!("{path}/configmaps")).await.json();
                    let count = maps["items"].as_array().map_or(0, Vec::len);
                    if count > 5 { Ok(()) } else { Err(count.to_string()) }
                })
                .await;
                assert_eq!(a.delete(&path).await.status, StatusCode::OK);
                wait_until_deleted(&a, &path).await;
            };
            tokio::join!(fill(0), fill(1), fill(2), fill(3), end);
        });
        assert_eq!(stored_keys(&plane, &name), Vec::<String>::new(), "round {round}");
    }
}

#[test]
fn unlistable_resource_delays_namespace_deletion_and_is_reported() {
    with_controllers_on_sqlite(async |client| {
        create_namespace(&client, "shop").await;
        create_object(&client, "/api/v1/namespaces/shop/secrets", &json!({"metadata": {"name": "hidden"}})).await;
        let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:namespace-controller";
        let rules = client.get(role).await.json()["rules"].clone();
        let blind = json!([
            {"verbs": ["get", "list", "watch", "delete"], "apiGroups": [""], "resources": ["namespaces"]},
            {"verbs": ["update"], "apiGroups": [""], "resources": ["namespaces/finalize", "namespaces/status"]},
            {"verbs": ["get", "list", "watch", "delete", "deletecollection"], "apiGroups": ["apps", "batch"], "resources": ["*"]},
        ]);
        merge_patch(&client, role, &json!({"rules": blind})).await;
        eventually("the controller may not list secrets", async || {
            let review = json!({"spec": {"user": "system:serviceaccount:kube-system:namespace-controller",
                "resourceAttributes": {"verb": "list", "resource": "secrets", "namespace": "shop"}}});
            let review = client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.json();
            if review["status"]["allowed"] == false { Ok(()) } else { Err(review.to_string()) }
        })
        .await;
        client.delete(SHOP).await;
        let sort = "NamespaceDeletionContentFailure";
        let condition = wait_for_condition(&client, "shop", sort, "True", "pods: ").await;
        assert_eq!(condition["reason"], "ContentDeletionFailed", "{condition}");
        assert!(object_exists(&client, "/api/v1/namespaces/shop/secrets/hidden").await);
        merge_patch(&client, role, &json!({"rules": rules})).await;
        wait_until_deleted(&client, SHOP).await;
        assert!(!object_exists(&client, "/api/v1/namespaces/shop/secrets/hidden").await);
    });
}

#[test]
fn every_namespace_has_default_account_and_root_ca() {
    with_controllers_on_each_store(async |client| {
        create_namespace(&client, "shop").await;
        for namespace in ["default", "kube-system", "shop"] {
            let account = format!("{NAMESPACES}/{namespace}/serviceaccounts/default");
            let authority = format!("{NAMESPACES}/{namespace}/configmaps/kube-root-ca.crt");
            wait_until_exists(&client, &account).await;
            wait_until_exists(&client, &authority).await;
            let pem = client.get(&authority).await.json()["data"]["ca.crt"].as_str().unwrap().to_owned();
            assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
            merge_patch(&client, &authority, &json!({"data": {"ca.crt": "forged"}})).await;
            eventually("the root CA ConfigMap is restored", async || {
                let found = client.get(&authority).await.json()["data"]["ca.crt"].clone();
                if found == pem { Ok(()) } else { Err(found.to_string()) }
            })
            .await;
            client.delete(&account).await;
            wait_until_exists(&client, &account).await;
        }
    });
}

async fn wait_until_exists(client: &Client, path: &str) {
    eventually(&format!("{path} exists"), async || {
        let answer = client.get(path).await;
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.summary()) }
    })
    .await;
}
