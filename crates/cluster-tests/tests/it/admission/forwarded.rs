//! Admission of a write that is forwarded to the server that serves its resource.

use cluster_tests::ControlPlane;
use serde_json::json;

use super::webhooks::{VALIDATING, WebhookServers};
use crate::block_on;

/// Served in v1 from 1.34 on.
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";

#[test]
fn forwarded_write_is_admitted_once_where_it_is_executed() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("old", &["--emulated-version=1.33"]);
        plane.start("new", &["--emulated-version=1.36"]);
        let [old, new] = ["old", "new"].map(|name| plane.admin(name));
        block_on(async {
            let servers = WebhookServers::new();
            let webhook = servers.start(|_| json!({"allowed": true, "warnings": ["looked at it"]})).await;
            let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
                "resources": ["volumeattributesclasses"]}]);
            servers.register(&new, VALIDATING, "classes", &webhook, &json!({"rules": rules})).await;
            let class = |name: &str| {
                json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name},
                    "driverName": "d", "parameters": {"a": "b"}})
            };
            for (name, client) in [("through-new", &new), ("through-old", &old)] {
                let created = client.create(CLASSES, &class(name)).await;
                assert_eq!(created.status, 201, "{}", created.summary());
                let received = webhook.take_requests().await;
                assert_eq!(received.len(), 1, "{name}");
                assert!(received[0].body.contains(name), "{}", received[0].body);
                let warning = created.headers.get("warning").and_then(|value| value.to_str().ok());
                assert_eq!(warning, Some("299 - \"looked at it\""));
            }
        });
    });
}
