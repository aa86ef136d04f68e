//! Requests to an extension API server from every server of a cluster.

use cluster_tests::tools::{is_skipped, kubectl};
use cluster_tests::watch_reader::WatchReader;
use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::extension_server::{GADGETS, GROUP, NAME, gadget};
use super::*;

fn three_servers(store: TestStore<'_>) -> ControlPlane<'_> {
    let mut plane = ControlPlane::new(store);
    plane.start("a", &["--emulated-version=1.34"]);
    plane.start("b", &["--emulated-version=1.36"]);
    plane.start("c", &["--emulated-version=1.36"]);
    plane
}

#[test]
fn every_server_proxies_to_a_registered_extension_server() {
    ControlPlane::for_each_store(|empty| {
        let plane = three_servers(empty.store());
        let [a, b, c] = ["a", "b", "c"].map(|name| plane.admin(name));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let extension = runtime.block_on(async {
            let extension = ExtensionServer::start().await;
            extension.register(&a).await;
            // At once through another server, which has to see the APIService and check the extension server first.
            let found = c.get(GADGETS).await;
            assert_eq!(found.status, 200, "{}", found.summary());
            extension.take_proxied().await;
            for (number, client) in [&a, &b, &c].into_iter().enumerate() {
                let created = client.create(GADGETS, &gadget(&format!("g{number}"))).await;
                assert_eq!(created.status, 201, "{}", created.summary());
                let found = client.get(&format!("{GADGETS}/g{number}")).await;
                assert_eq!((found.status.as_u16(), &found.json()["size"]), (200, &json!(3)));
                let missing = client.get(&format!("{GADGETS}/none")).await;
                assert_eq!(missing.summary(), "404 gadgets.ext.example.com \"none\" not found");
                let unknown = client.get(&format!("/apis/{GROUP}/v1/namespaces/default/widgets")).await;
                assert_eq!((unknown.status.as_u16(), &*unknown.body), (404, b"404 page not found\n".as_slice()));
                let moved = client.get(&format!("/apis/{GROUP}/v1/moved")).await;
                assert_eq!(moved.status, 502, "{}", moved.summary());
                let version = client.get(&format!("/apis/{GROUP}/v1")).await.json();
                assert_eq!(version["resources"][0]["name"], "gadgets");
            }
            assert_eq!(extension.creates(), 3, "no create was sent twice");
            let mut watch = WatchReader::open(&b, &format!("{GADGETS}?watch=true")).await;
            assert_eq!(c.create(GADGETS, &gadget("seen")).await.status, 201);
            assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "seen");
            extension
        });
        for client in [&a, &b, &c] {
            wait_until_available(client, NAME, "True", "Passed");
            wait_until_listed(client, GROUP, &["v1 Current gadgets"]);
            let group = block_on(client.get(&format!("/apis/{GROUP}"))).json();
            assert_eq!(group["preferredVersion"]["groupVersion"], "ext.example.com/v1");
            let legacy = block_on(get_accepting(client, "/apis", "application/json")).to_string();
            assert!(legacy.contains("ext.example.com/v1"), "{legacy}");
        }
        assert_eq!(block_on(available(&b, NAME)).2, "all checks passed");
        let metrics = block_on(b.get("/metrics"));
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        assert!(metrics.contains("aggregator_unavailable_apiservice{name=\"v1.ext.example.com\"} 0"), "{metrics}");
        if !is_skipped("kubectl") {
            let table = kubectl(&plane.server("b").kubeconfig(), &["get", "gadgets"]).expect_success();
            assert!(table.starts_with("NAME   SIZE\n") && table.contains("g1     3"), "{table}");
        }
        drop(extension);
    });
}

#[test]
fn upgraded_connections_reach_the_extension_server_with_the_user() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let extension = ExtensionServer::start().await;
        extension.register(&a).await;
        let mut stream = a.tls_stream(None).await.unwrap();
        let request =
            format!("GET {GADGETS}/g/shell HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        stream.write_all(b"hello").await.unwrap();
        let mut answer = vec![0; "hello to you".len()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"hello to you");
        let seen = extension.take_proxied().await;
        assert_eq!(seen.last().unwrap().header("x-remote-user"), ["kubernetes-admin"]);
    });
}

#[test]
fn extension_server_learns_the_authenticated_user_and_no_other() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let extension = ExtensionServer::start().await;
        extension.register(&a).await;
        assert_eq!(a.get(GADGETS).await.status, 200);
        extension.take_proxied().await;
        let claimed = a
            .request_builder(Method::GET, GADGETS)
            .header("X-Remote-User", "mallory")
            .header("X-Remote-Group", "system:masters")
            .header("X-Remote-Extra-Scopes", "all")
            .header("X-Forwarded-For", "192.0.2.7")
            .header("Impersonate-User", "jane")
            .header("Impersonate-Group", "developers");
        assert_eq!(a.send(claimed, bytes::Bytes::new()).await.status, 403, "jane has no rights");
        assert!(extension.take_proxied().await.is_empty(), "a forbidden request is not proxied");
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "gadgets"},
            "rules": [{"apiGroups": [GROUP], "resources": ["gadgets"], "verbs": ["list"]}]});
        let roles = "/apis/rbac.authorization.k8s.io/v1";
        assert_eq!(a.create(&format!("{roles}/clusterroles"), &role).await.status, 201);
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "gadgets"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gadgets"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
        assert_eq!(a.create(&format!("{roles}/clusterrolebindings"), &binding).await.status, 201);
        let impersonating = || {
            a.request_builder(Method::GET, GADGETS)
                .header("X-Remote-User", "mallory")
                .header("Impersonate-User", "jane")
                .header("Impersonate-Group", "developers")
        };
        cluster_tests::wait::eventually("jane may list gadgets", async || {
            let found = a.send(impersonating(), bytes::Bytes::new()).await;
            if found.status == 200 { Ok(()) } else { Err(found.summary()) }
        })
        .await;
        let seen = extension.take_proxied().await;
        let request = seen.last().unwrap();
        assert_eq!(request.header("x-remote-user"), ["jane"]);
        assert_eq!(request.header("x-remote-group"), ["developers", "system:authenticated"]);
        assert!(request.header("x-remote-extra-scopes").is_empty() && request.header("impersonate-user").is_empty());
        assert_eq!(request.header("host"), [format!("localhost:{}", extension.peer.address.port())]);
        assert!(request.header("authorization").is_empty() && !request.header("audit-id").is_empty());
    });
}
