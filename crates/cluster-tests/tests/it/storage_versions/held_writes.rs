//! A resource whose storage version cannot be published: only its own writes wait.

use http::Method;
use store::{Key, Op, Transaction};

use super::history::open_store;
use super::*;
use crate::{CONFIG_MAPS_PATH, config_map};

const STORAGE_VERSION_KEY: &str = "/registry/storageversions/core.configmaps";
/// An object as a future release may write it; an unreadable object is never overwritten.
const FUTURE_STORAGE_VERSION: &[u8] =
    br#"{"kind":"StorageVersion","apiVersion":"internal.apiserver.k8s.io/v9","metadata":{"name":"core.configmaps"}}"#;

async fn commit_to_store(plane: &ControlPlane<'_>, op: Op) {
    let (store, tasks) = open_store(plane).await;
    store.commit(Transaction { compares: Vec::new(), ops: vec![op] }).await.unwrap();
    drop(store);
    tasks.stop(CONVERGENCE_TIMEOUT).await.unwrap();
}

#[test]
fn unpublished_resource_holds_only_its_own_writes() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        let a = plane.admin("a");
        let mut finalized = config_map("finalized");
        finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
        for object in [finalized, config_map("plain")] {
            assert_eq!(block_on(a.create(CONFIG_MAPS_PATH, &object)).status, 201);
        }
        plane.stop("a");
        let key = Key::from_static(STORAGE_VERSION_KEY.as_bytes());
        block_on(commit_to_store(
            &plane,
            Op::Put { key: key.clone(), value: FUTURE_STORAGE_VERSION.into(), ttl: None },
        ));
        plane.launch("a", &[]);
        block_on(check_writes_are_held(&a));
        block_on(check_other_requests_succeed(&a));
        assert!(!block_on(a.is_ready()));
        let hook = block_on(a.get("/readyz/poststarthook/built-in-resources-storage-version-updater"));
        assert_eq!(
            String::from_utf8_lossy(&hook.body).trim(),
            "internal server error: not finished: 1 resources are not published yet"
        );
        let metrics = block_on(a.get("/metrics"));
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        for page in ["healthz", "livez", "readyz"] {
            let name = "poststarthook/built-in-resources-storage-version-updater";
            let line = format!("kubernetes_healthcheck{{name=\"{name}\",type=\"{page}\"}} 0");
            assert!(metrics.contains(&line), "{line}");
        }
        // Deleting the unreadable object unblocks publication.
        block_on(commit_to_store(&plane, Op::Delete { key }));
        plane.server("a").wait_ready();
        assert_eq!(block_on(summarize_storage_version(&a, "core.configmaps")), "a=v1 | v1 | True True");
        assert_eq!(block_on(a.create(CONFIG_MAPS_PATH, &config_map("late"))).status, 201);
    });
}

async fn check_writes_are_held(client: &Client) {
    // The reason is known after the first attempt to publish.
    cluster_tests::wait::eventually("the message contains the reason", async || {
        let held = client.create(CONFIG_MAPS_PATH, &config_map("new")).await;
        if held.summary().contains("<nil>") { Err(held.summary()) } else { Ok(()) }
    })
    .await;
    let patch = json!({"data": {"a": "2"}}).to_string();
    let mut changed = config_map("plain");
    changed["data"]["a"] = json!("2");
    let plain = format!("{CONFIG_MAPS_PATH}/plain");
    for held in [
        client.create(CONFIG_MAPS_PATH, &config_map("new")).await,
        client.update(&plain, &changed).await,
        client.send_body(Method::PATCH, &plain, "application/merge-patch+json", patch.into()).await,
        client.delete(&plain).await,
        // Deleting an object with finalizers marks it, which is a write.
        client.delete(&format!("{CONFIG_MAPS_PATH}/finalized")).await,
        client.delete(CONFIG_MAPS_PATH).await,
    ] {
        assert_eq!(held.status, 503, "{}", held.summary());
        assert_eq!(held.headers["retry-after"], "1");
        let status = held.json();
        assert_eq!(status["reason"], "ServiceUnavailable");
        assert_eq!(status["details"]["causes"][0]["reason"], "PeerNotReady", "{status}");
        let message = status["message"].as_str().unwrap();
        let expected = "wait for storage version registration to complete for resource: configmaps, last seen error: ";
        assert!(message.starts_with(expected) && message.contains("core.configmaps"), "{message}");
    }
}

async fn check_other_requests_succeed(client: &Client) {
    assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}/plain")).await.status, 200);
    assert_eq!(client.get(CONFIG_MAPS_PATH).await.json()["items"].as_array().map(Vec::len).unwrap_or_default(), 2);
    // Dry runs and reviews are not persisted.
    let dry = client.create(&format!("{CONFIG_MAPS_PATH}?dryRun=All"), &config_map("dry")).await;
    assert_eq!(dry.status, 201, "{}", dry.summary());
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    });
    assert_eq!(client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.status, 201);
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}});
    assert_eq!(client.create(IDENTITY_LEASES, &lease("another")).await.status, 201);
    let widgets = json!({
        "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": "example.com.widgets"},
    });
    assert_eq!(client.create(STORAGE_VERSIONS_PATH, &widgets).await.status, 201);
    // Other resources are not affected.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}});
    let created = client.create("/api/v1/namespaces/default/secrets", &secret).await;
    assert_eq!(created.status, 201, "{}", created.summary());
}
