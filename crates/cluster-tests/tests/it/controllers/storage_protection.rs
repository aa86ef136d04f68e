//! Storage objects are deleted when they are no longer used.

use super::*;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";

async fn wait_until_gone(client: &Client, path: &str) {
    cluster_tests::wait::eventually("the object is gone", async || match client.get(path).await.status.as_u16() {
        404 => Ok(()),
        code => Err(format!("{path}: {code}")),
    })
    .await;
}

#[test]
fn claims_volumes_and_classes_go_when_nothing_uses_them() {
    with_controllers_on_each_store(async |client| {
        let claim = |name: &str| {
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                    "volumeAttributesClassName": "gold"}})
        };
        let volume = |name: &str| {
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}})
        };
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "gold"},
            "driverName": "csi.example.com", "parameters": {"a": "b"}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n",
            "serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]}});
        create_object(&client, CLASSES, &class).await;
        for (path, object) in
            [(CLAIMS, claim("used")), (CLAIMS, claim("unused")), (VOLUMES, volume("bound")), (VOLUMES, volume("free"))]
        {
            create_object(&client, path, &object).await;
        }
        create_object(&client, "/api/v1/namespaces/default/pods", &pod).await;
        let bound =
            merge_patch(&client, &format!("{VOLUMES}/bound/status"), &json!({"status": {"phase": "Bound"}})).await;
        assert_eq!(bound.status, 200, "{}", bound.summary());
        let [used, unused] = ["used", "unused"].map(|name| format!("{CLAIMS}/{name}"));
        let [taken, free] = ["bound", "free"].map(|name| format!("{VOLUMES}/{name}"));
        let gold = format!("{CLASSES}/gold");
        for path in [&gold, &used, &unused, &taken, &free] {
            assert_eq!(client.delete(path).await.status, 200, "{path}");
        }
        wait_until_gone(&client, &unused).await;
        wait_until_gone(&client, &free).await;
        for path in [&gold, &used, &taken] {
            let kept = client.get(path).await;
            assert_eq!(kept.status, 200, "{path}");
            assert_ne!(kept.json()["metadata"]["deletionTimestamp"], Value::Null, "{path}");
        }
        assert_eq!(client.delete("/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0").await.status, 200);
        wait_until_gone(&client, &used).await;
        wait_until_gone(&client, &gold).await;
        let released =
            merge_patch(&client, &format!("{taken}/status"), &json!({"status": {"phase": "Released"}})).await;
        assert_eq!(released.status, 200, "{}", released.summary());
        wait_until_gone(&client, &taken).await;
    });
}
