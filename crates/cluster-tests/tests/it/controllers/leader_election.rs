//! Leader election, selection and idle cost of the controllers.

use std::time::Instant;

use cluster_tests::tools;
use cluster_tests::wait::metric_value;

use super::*;

const LEADER_METRIC: &str = r#"leader_election_master_status{name="garbage-collector-controller"}"#;

#[test]
fn second_server_becomes_leader_when_the_first_stops() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    for name in ["a", "b"] {
        plane.start(name, &[ALL_CONTROLLERS]);
    }
    let [a, b] = ["a", "b"].map(|name| plane.admin(name));
    let leads = async || [metric_value(&a, LEADER_METRIC).await, metric_value(&b, LEADER_METRIC).await];
    block_on(eventually("one of the servers leads", async || match leads().await {
        [0, 1] | [1, 0] => Ok(()),
        other => Err(format!("{other:?}")),
    }));
    let [first, second] = if block_on(leads()) == [1, 0] { ["a", "b"] } else { ["b", "a"] };
    plane.stop(first);
    let client = plane.admin(second);
    block_on(async {
        eventually("the other server leads", async || match metric_value(&client, LEADER_METRIC).await {
            1 => Ok(()),
            other => Err(other.to_string()),
        })
        .await;
        wait_for_collector(&client, "mark").await;
    });
}

#[test]
fn disabled_controllers_do_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &["--controllers=*,-namespace"]);
    let client = server.admin();
    block_on(async {
        create_namespace(&client, "shop").await;
        client.delete("/api/v1/namespaces/shop").await;
        wait_for_collector(&client, "mark").await;
        let namespace = client.get("/api/v1/namespaces/shop").await.json();
        assert_eq!(namespace["status"], json!({"phase": "Terminating"}), "no namespace controller runs");
    });
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &["--controllers=*,-garbagecollector"]);
    let client = server.admin();
    block_on(async {
        create_owned(&client, "child", &[owner_reference("absent", "n")]).await;
        create_namespace(&client, "shop").await;
        client.delete("/api/v1/namespaces/shop").await;
        wait_until_deleted(&client, "/api/v1/namespaces/shop").await;
        assert!(object_exists(&client, &config_map_path("child")).await, "no garbage collector runs");
    });
}

#[test]
fn controllers_work_with_external_serving_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let made = RunningServer::start(folder.path(), TestStore::Sqlite, &[]);
    let pki = made.pki();
    assert_eq!(made.stop(), Some(0));
    let file = |name: &str| pki.join(name).display().to_string();
    let serving = [
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
    ];
    let authority = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    for (root_ca, is_published) in [(None, false), (Some(format!("--root-ca-file={}", file("ca.crt"))), true)] {
        let flags: Vec<&str> = serving.iter().chain(&root_ca).map(String::as_str).chain([ALL_CONTROLLERS]).collect();
        let server = RunningServer::start(folder.path(), TestStore::Sqlite, &flags);
        let client = server.admin();
        block_on(async {
            create_namespace(&client, "shop").await;
            client.delete("/api/v1/namespaces/shop").await;
            wait_until_deleted(&client, "/api/v1/namespaces/shop").await;
            eventually("the default service account exists", async || {
                let account = client.get("/api/v1/namespaces/default/serviceaccounts/default").await;
                if account.status == StatusCode::OK { Ok(()) } else { Err(account.summary()) }
            })
            .await;
            if is_published {
                eventually("the root CA ConfigMap exists", async || {
                    if object_exists(&client, authority).await { Ok(()) } else { Err("not yet".to_owned()) }
                })
                .await;
            } else {
                assert!(!object_exists(&client, authority).await, "no root CA is known");
            }
        });
    }
}

#[test]
fn idle_controllers_send_only_lease_renewals() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n").unwrap();
    let log = folder.path().join("audit.log");
    let flags = [
        ALL_CONTROLLERS.to_owned(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &flags);
    let client = server.admin();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/unskew-garbage-collector-controller";
    block_on(async {
        wait_for_collector(&client, "mark").await;
        eventually("every namespace has its default objects", async || {
            let path = "/api/v1/namespaces/kube-node-lease/configmaps/kube-root-ca.crt";
            if object_exists(&client, path).await { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        let renewed = async || client.get(lease).await.json()["spec"]["renewTime"].clone();
        // Hints that discovery changed are processed within a second or two; lease renewals serve as the clock.
        for _ in 0..2 {
            let before = renewed().await;
            eventually("the lease is renewed", async || {
                let now = renewed().await;
                if now == before { Err(now.to_string()) } else { Ok(()) }
            })
            .await;
        }
        let seen = std::fs::read_to_string(&log).unwrap().lines().count();
        for _ in 0..2 {
            let before = renewed().await;
            eventually("the lease is renewed", async || {
                let now = renewed().await;
                if now == before { Err(now.to_string()) } else { Ok(()) }
            })
            .await;
        }
        let events = std::fs::read_to_string(&log).unwrap();
        let asked: Vec<String> = events
            .lines()
            .skip(seen)
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|event| event["user"]["username"] != "kubernetes-admin")
            .filter(|event| event["objectRef"]["resource"] != "leases")
            .map(|event| format!("{} {}", event["verb"], event["requestURI"]))
            .collect();
        assert_eq!(asked, Vec::<String>::new());
    });
}

/// `cargo xtask bench controllers` measures the duration on an idle machine.
#[test]
fn many_full_namespaces_are_deleted_concurrently() {
    let (namespaces, objects) = if tools::is_soak() { (200, 50) } else { (10, 10) };
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &[ALL_CONTROLLERS]);
    let client = server.admin();
    block_on(async {
        for namespace in 0..namespaces {
            create_namespace(&client, &format!("n-{namespace}")).await;
            let path = format!("/api/v1/namespaces/n-{namespace}/configmaps");
            let creating = (0..objects).map(|number| {
                let (client, path) = (client.clone(), path.clone());
                async move { create_object(&client, &path, &config_map(&format!("m-{number}"))).await }
            });
            futures_util::future::join_all(creating).await;
        }
        let begun = Instant::now();
        for namespace in 0..namespaces {
            client.delete(&format!("/api/v1/namespaces/n-{namespace}")).await;
        }
        eventually("all namespaces are gone", async || {
            let list = client.get("/api/v1/namespaces").await.json();
            let left = list["items"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|item| item["metadata"]["name"].as_str().unwrap().starts_with("n-"));
            match left.count() {
                0 => Ok(()),
                count => Err(format!("{count} are left")),
            }
        })
        .await;
        let took = begun.elapsed();
        println!(
            "{namespaces} namespaces with {objects} objects each: {took:?}, {} MB resident",
            server.resident_bytes() >> 20
        );
    });
}
