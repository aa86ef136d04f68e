//! The lifecycle of one object.

use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::*;

#[test]
fn object_is_created_read_updated_and_deleted() {
    for_each_store_async(async |client| {
        let created = client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        assert_eq!(created.status, 201, "{created:?}");
        let created = created.json();
        assert!(created["metadata"]["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{created}");
        assert_eq!(created["metadata"]["namespace"], "default");

        let path = format!("{CONFIG_MAPS_PATH}/a");
        assert_eq!(client.get(&path).await.json(), created);

        let mut changed = created.clone();
        changed["data"]["a"] = "2".into();
        let updated = client.update(&path, &changed).await.json();
        assert_eq!(updated["data"]["a"], "2");
        assert_ne!(updated["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);

        let stale = client.update(&path, &changed).await;
        assert_eq!(
            stale.summary(),
            "409 Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
             changes to the latest version and try again"
        );

        let unchanged = client.update(&path, &updated).await.json();
        assert_eq!(
            unchanged["metadata"]["resourceVersion"], updated["metadata"]["resourceVersion"],
            "nothing was written"
        );

        let deleted = client.delete(&path).await.json();
        assert_eq!((&deleted["kind"], &deleted["status"]), (&"Status".into(), &"Success".into()));
        assert_eq!(client.get(&path).await.summary(), "404 configmaps \"a\" not found");
    });
}

#[test]
fn duplicate_create_conflicts_and_generated_names_are_unique() {
    for_each_store_async(async |client| {
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        assert_eq!(
            client.create(CONFIG_MAPS_PATH, &config_map("a")).await.summary(),
            "409 configmaps \"a\" already exists"
        );
        let generated = json!({"metadata": {"generateName": "x-"}});
        let first = client.create(CONFIG_MAPS_PATH, &generated).await.json();
        let second = client.create(CONFIG_MAPS_PATH, &generated).await.json();
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name(&first).starts_with("x-") && name(&first).len() == 7, "{first}");
        assert_ne!(name(&first), name(&second));
    });
}

#[test]
fn dry_run_persists_nothing() {
    for_each_store_async(async |client| {
        let tried = client.create(&format!("{CONFIG_MAPS_PATH}?dryRun=All"), &config_map("a")).await;
        assert_eq!(tried.status, 201);
        assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}/a")).await.status, 404);
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        assert_eq!(client.delete(&format!("{CONFIG_MAPS_PATH}/a?dryRun=All")).await.status, 200);
        assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}/a")).await.status, 200);
    });
}

#[test]
fn merge_and_json_patches_are_applied() {
    for_each_store_async(async |client| {
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        let path = format!("{CONFIG_MAPS_PATH}/a");
        let merge = r#"{"data":{"a":null,"b":"2"}}"#;
        let merged = client.send_body(Method::PATCH, &path, "application/merge-patch+json", merge.into()).await;
        assert_eq!(merged.json()["data"], json!({"b": "2"}));
        let operations = r#"[{"op":"add","path":"/data/c","value":"3"},{"op":"test","path":"/data/b","value":"2"}]"#;
        let patched = client.send_body(Method::PATCH, &path, "application/json-patch+json", operations.into()).await;
        assert_eq!(patched.json()["data"], json!({"b": "2", "c": "3"}));
        let missing = client
            .send_body(Method::PATCH, &format!("{CONFIG_MAPS_PATH}/none"), "application/merge-patch+json", merge.into())
            .await;
        assert_eq!(missing.status, 404);
        let apply = client.send_body(Method::PATCH, &path, "application/apply-patch+yaml", "{}".into()).await;
        assert_eq!(apply.status, 422, "an apply names its manager");
    });
}

#[test]
fn finalizers_delay_object_deletion() {
    for_each_store_async(async |client| {
        let mut object = config_map("held");
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        client.create(CONFIG_MAPS_PATH, &object).await;
        let path = format!("{CONFIG_MAPS_PATH}/held");
        client.delete(&path).await;
        let marked = client.get(&path).await.json();
        assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
        let release = r#"{"metadata":{"finalizers":null}}"#;
        client.send_body(Method::PATCH, &path, "application/merge-patch+json", release.into()).await;
        assert_eq!(client.get(&path).await.status, 404);
    });
}

#[test]
fn generation_counts_spec_changes_and_status_is_a_subresource() {
    for_each_store_async(async |client| {
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        let object = json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
            "status": {"replicas": 7},
        });
        let created = client.create(deployments, &object).await.json();
        assert_eq!(created["metadata"]["generation"], 1);
        assert!(created["status"]["replicas"].is_null(), "create ignores the client's status: {created}");
        let path = format!("{deployments}/web");
        let patch = async |path: &str, body: &'static str| {
            client.send_body(Method::PATCH, path, "application/merge-patch+json", body.into()).await.json()
        };
        assert_eq!(patch(&path, r#"{"spec":{"replicas":2}}"#).await["metadata"]["generation"], 2);
        let status = patch(&format!("{path}/status"), r#"{"spec":{"replicas":9},"status":{"replicas":2}}"#).await;
        assert_eq!((&status["spec"]["replicas"], &status["status"]["replicas"]), (&json!(2), &json!(2)));
        assert_eq!(status["metadata"]["generation"], 2);
    });
}

#[test]
fn create_in_terminating_namespace_is_forbidden() {
    for_each_store_async(async |client| {
        let namespace = json!({"metadata": {"name": "shop"}});
        let created = client.create("/api/v1/namespaces", &namespace).await.json();
        assert_eq!(created["metadata"]["labels"]["kubernetes.io/metadata.name"], "shop");
        assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
        client.delete("/api/v1/namespaces/shop").await;
        assert_eq!(client.get("/api/v1/namespaces/shop").await.json()["status"]["phase"], "Terminating");
        let late = client.create("/api/v1/namespaces/shop/configmaps", &config_map("late")).await;
        assert_eq!(late.status, 403, "{late:?}");
        let mut finished = client.get("/api/v1/namespaces/shop").await.json();
        finished["spec"]["finalizers"] = json!([]);
        client.update("/api/v1/namespaces/shop/finalize", &finished).await;
        assert_eq!(client.get("/api/v1/namespaces/shop").await.status, 404);
        let nowhere = client.create("/api/v1/namespaces/shop/configmaps", &config_map("a")).await;
        assert_eq!(nowhere.summary(), "404 namespaces \"shop\" not found");
        let protected = client.delete("/api/v1/namespaces/kube-system").await;
        assert_eq!(protected.status, 403);
    });
}

#[test]
fn head_on_a_resource_is_refused_without_a_body() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let path = "/api/v1/namespaces/default";
        let refused = client.send(client.request_builder(Method::OPTIONS, path), bytes::Bytes::new()).await;
        assert_eq!(refused.summary(), "405 the server does not allow this method on the requested resource");
        let whole = refused.body.len().to_string();
        let answer = client.send(client.request_builder(Method::HEAD, path), bytes::Bytes::new()).await;
        assert_eq!((answer.status.as_u16(), &answer.headers["content-length"]), (405, &whole.parse().unwrap()));

        let stream = TokioIo::new(client.tls_stream(Some(b"h2")).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake::<_, _, Full<bytes::Bytes>>(TokioExecutor::new(), stream)
                .await
                .unwrap();
        let asking = async {
            let request = http::Request::head(format!("https://{}{path}", server.address()));
            let response = sender.send_request(request.body(Full::default()).unwrap()).await.unwrap();
            assert_eq!(response.headers()["content-length"], whole.as_str());
            response.into_body().collect().await.expect("the stream ends cleanly").to_bytes()
        };
        let body = tokio::select! {
            body = asking => body,
            ended = connection => panic!("the connection ended first: {ended:?}"),
        };
        assert!(body.is_empty(), "{body:?}");
    });
}
