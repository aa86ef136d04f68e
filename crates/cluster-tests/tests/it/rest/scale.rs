//! The scale subresource.

use cluster_tests::client::FullResponse;
use http::Method;

use crate::*;

#[test]
fn scale_subresource_is_read_updated_and_patched() {
    for_each_store_async(async |client| {
        let object = |kind: &str, api_version: &str, selector: Value| {
            let template = json!({
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            });
            let spec = json!({"replicas": 2, "selector": selector, "template": template, "serviceName": "a"});
            json!({"kind": kind, "apiVersion": api_version, "metadata": {"name": "a"}, "spec": spec})
        };
        let labels = json!({"matchLabels": {"app": "a"}});
        for (collection, object) in [
            ("/apis/apps/v1/namespaces/default/deployments", object("Deployment", "apps/v1", labels.clone())),
            ("/apis/apps/v1/namespaces/default/replicasets", object("ReplicaSet", "apps/v1", labels.clone())),
            ("/apis/apps/v1/namespaces/default/statefulsets", object("StatefulSet", "apps/v1", labels)),
            (
                "/api/v1/namespaces/default/replicationcontrollers",
                object("ReplicationController", "v1", json!({"app": "a"})),
            ),
        ] {
            let created = client.create(collection, &object).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            check_scale(&client, &format!("{collection}/a")).await;
        }
    });
}

async fn check_scale(client: &Client, path: &str) {
    let scale_path = format!("{path}/scale");
    let patch = async |kind: &str, body: Value| {
        client.send_body(Method::PATCH, &scale_path, kind, body.to_string().into()).await
    };
    let shown = |answer: &FullResponse| {
        let scale = answer.json();
        format!(
            "{} {} {} {}",
            answer.status.as_u16(),
            scale["kind"],
            scale["spec"]["replicas"],
            scale["status"]["selector"]
        )
    };
    let mut scale = client.get(&scale_path).await.json();
    assert_eq!(shown(&client.get(&scale_path).await), r#"200 "Scale" 2 "app=a""#, "{path}");
    scale["spec"]["replicas"] = 5.into();
    assert_eq!(shown(&client.update(&scale_path, &scale).await), r#"200 "Scale" 5 "app=a""#);
    // The same resourceVersion again is stale.
    scale["spec"]["replicas"] = 6.into();
    assert_eq!(client.update(&scale_path, &scale).await.status, 409);
    scale["metadata"] = json!({"name": "b"});
    assert_eq!(client.update(&scale_path, &scale).await.status, 400);
    let merge = json!({"spec": {"replicas": 0}});
    for (kind, body, expected) in [
        ("application/merge-patch+json", merge.clone(), r#"200 "Scale" null "app=a""#),
        ("application/strategic-merge-patch+json", json!({"spec": {"replicas": 7}}), r#"200 "Scale" 7 "app=a""#),
        (
            "application/json-patch+json",
            json!([{"op": "replace", "path": "/spec/replicas", "value": 8}]),
            r#"200 "Scale" 8 "app=a""#,
        ),
    ] {
        assert_eq!(shown(&patch(kind, body).await), expected, "{kind} {path}");
    }
    let negative = patch("application/merge-patch+json", json!({"spec": {"replicas": -1}})).await;
    assert!(negative.summary().contains("must be greater than or equal to 0"), "{}", negative.summary());
    assert_eq!(negative.status, 422);
    let dry_path = format!("{scale_path}?dryRun=All");
    let dry =
        client.send_body(Method::PATCH, &dry_path, "application/merge-patch+json", merge.to_string().into()).await;
    assert_eq!(shown(&dry), r#"200 "Scale" null "app=a""#);
    let object = client.get(path).await.json();
    assert_eq!(
        (&object["spec"]["replicas"], object["metadata"]["generation"].as_u64()),
        (&8.into(), Some(5)),
        "{path}"
    );
    assert_eq!(client.delete(&scale_path).await.status, 405);
    assert_eq!(client.get(&path.replace("/a", "/missing")).await.status, 404);
}
