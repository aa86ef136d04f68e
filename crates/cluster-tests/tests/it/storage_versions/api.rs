//! The StorageVersion API itself: permitted writes, validation and error messages.

use http::Method;

use super::*;
use crate::for_each_store_async;

fn storage_version_object(name: &str) -> Value {
    json!({
        "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": name}, "spec": {}, "status": {"commonEncodingVersion": "v1"},
    })
}

#[test]
fn storage_version_status_is_written_by_its_subresource_only() {
    for_each_store_async(async |client| {
        let created = client.create(STORAGE_VERSIONS_PATH, &storage_version_object("example.com.widgets")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let mut widgets = created.json();
        assert_eq!((&widgets["spec"], &widgets["status"]), (&json!({}), &json!({})), "dropped on create");
        let path = format!("{STORAGE_VERSIONS_PATH}/example.com.widgets");
        widgets["metadata"]["labels"] = json!({"a": "1"});
        widgets["status"] = json!({"commonEncodingVersion": "v1"});
        let mut updated = client.update(&path, &widgets).await.json();
        assert_eq!((&updated["metadata"]["labels"]["a"], &updated["status"]), (&json!("1"), &json!({})));
        let mut blind = updated.clone();
        blind["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let blind = client.update(&path, &blind).await;
        assert_eq!(blind.status, 422, "{}", blind.summary());
        updated["metadata"]["labels"] = json!({"a": "2"});
        let entry = json!({"apiServerID": "x", "encodingVersion": "v1", "decodableVersions": ["v1"]});
        updated["status"] = json!({"storageVersions": [entry], "commonEncodingVersion": "v1"});
        let status = client.update(&format!("{path}/status"), &updated).await;
        assert_eq!(status.status, 200, "{}", status.summary());
        let status = status.json();
        assert_eq!(status["metadata"]["labels"]["a"], "1", "metadata is unchanged");
        assert_eq!(status["status"]["storageVersions"][0]["apiServerID"], "x");
    });
}

#[test]
fn invalid_names_and_statuses_are_rejected_like_kubernetes() {
    for_each_store_async(async |client| {
        let refused = client.create(STORAGE_VERSIONS_PATH, &storage_version_object("widgets")).await;
        assert_eq!(
            refused.summary(),
            "422 StorageVersion.internal.apiserver.k8s.io \"widgets\" is invalid: metadata.name: Invalid value: \
             \"widgets\": name must be in the form of <group>.<resource>"
        );
        let mut pods = client.get(&format!("{STORAGE_VERSIONS_PATH}/core.pods")).await.json();
        pods["status"]["commonEncodingVersion"] = json!("v2");
        pods["status"]["storageVersions"][0]["servedVersions"] = json!(["v3"]);
        let refused = client.update(&format!("{STORAGE_VERSIONS_PATH}/core.pods/status"), &pods).await;
        assert_eq!(
            refused.summary(),
            "422 StorageVersion.internal.apiserver.k8s.io \"core.pods\" is invalid: \
             [status.storageVersions[0].servedVersions[0]: Invalid value: \"v3\": individual served version : v3 must be \
             included in decodableVersions : [v1], status.commonEncodingVersion: Invalid value: \"v2\": the actual common \
             encoding version is v1]"
        );
    });
}

#[test]
fn tampered_storage_version_entry_is_repaired() {
    for_each_store_async(async |client| {
        let path = format!("{STORAGE_VERSIONS_PATH}/core.pods");
        let before = client.get(&path).await.json();
        let mut tampered = before.clone();
        tampered["status"]["storageVersions"][0]["encodingVersion"] = json!("v9");
        tampered["status"]["storageVersions"][0]["decodableVersions"] = json!(["v1", "v9"]);
        tampered["status"]["commonEncodingVersion"] = json!("v9");
        let answer = client.update(&format!("{path}/status"), &tampered).await;
        assert_eq!(answer.status, 200, "{}", answer.summary());
        cluster_tests::wait::eventually("the entry is repaired", async || {
            let found = client.get(&path).await.json();
            let entries = |object: &Value| object["status"]["storageVersions"].clone();
            if entries(&found) == entries(&before) { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        assert_eq!(client.delete(&path).await.status, 200);
        cluster_tests::wait::eventually("the object is created again", async || {
            let found = client.get(&path).await;
            if found.status == 200 { Ok(()) } else { Err(found.summary()) }
        })
        .await;
    });
}

#[test]
fn storage_version_table_shows_encoding_versions() {
    for_each_store_async(async |client| {
        let request = client
            .request_builder(Method::GET, &format!("{STORAGE_VERSIONS_PATH}/core.pods"))
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table = client.send(request, "".into()).await.json();
        let columns: Vec<_> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
        assert_eq!(columns, ["Name", "CommonEncodingVersion", "StorageVersions", "Age"]);
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!((&cells[0], &cells[1]), (&json!("core.pods"), &json!("v1")));
        assert!(cells[2].as_str().unwrap().ends_with("=v1"), "{cells:?}");
    });
}
