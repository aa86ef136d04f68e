//! Conditions of definitions, and definitions that cannot be read.

use std::time::Duration;

use store::{Op, Transaction};

use super::*;
use crate::block_on;

#[test]
fn approval_of_a_protected_group_is_a_condition() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        let mut definition = plain_crd("gears", "Gear");
        definition["metadata"]["name"] = "gears.tools.k8s.io".into();
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
        definition["spec"]["group"] = "tools.k8s.io".into();
        define(&a, &definition).await;
        let (name, approval) = ("gears.tools.k8s.io", "KubernetesAPIApprovalPolicyConformant");
        wait_for_condition(&a, name, approval, "False UnapprovedAnnotation").await;
        let approved =
            json!({"metadata": {"annotations": {"api-approved.kubernetes.io": "https://example.com/pull/1"}}});
        assert_eq!(merge_patch(&a, &format!("{CRD_PATH}/{name}"), &approved).await.status, 200);
        wait_for_condition(&a, name, approval, "True ApprovedAnnotation").await;
        define(&a, &orders_crd()).await;
        let orders = a.get(ORDERS_CRD).await.json();
        assert_eq!(
            (condition(&orders, approval), condition(&orders, "NonStructuralSchema")),
            ("none".into(), "none".into())
        );
    });
}

async fn put_raw(plane: &ControlPlane<'_>, name: &str, value: String) {
    let (store, tasks) = open_store(plane).await;
    let key = format!("/registry/apiextensions.k8s.io/customresourcedefinitions/{name}");
    let op = Op::Put { key: key.into(), value: value.into(), ttl: None };
    store.commit(Transaction { compares: Vec::new(), ops: vec![op] }).await.unwrap();
    drop(store);
    tasks.stop(Duration::from_secs(10)).await.unwrap();
}

#[test]
fn stored_definition_that_is_not_structural_is_marked() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        define(&a, &orders_crd()).await;
        let mut stored = a.get(ORDERS_CRD).await.json();
        stored["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        stored["metadata"]["generation"] = 2.into();
        let schema = json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}});
        stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        put_raw(&plane, "orders.shop.example.com", stored.to_string()).await;
        wait_for_condition(&a, "orders.shop.example.com", "NonStructuralSchema", "True Violations").await;
        let repaired = json!({"spec": {"versions": orders_crd()["spec"]["versions"]}});
        let patched = merge_patch(&a, ORDERS_CRD, &repaired).await;
        assert_eq!(patched.status, 200, "{}", patched.summary());
        eventually("the condition goes", async || {
            let definition = a.get(ORDERS_CRD).await.json();
            let found = condition(&definition, "NonStructuralSchema");
            if found == "none" { Ok(()) } else { Err(found) }
        })
        .await;
    });
}

#[test]
fn objects_of_a_definition_that_cannot_be_read_are_not_absent() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        define(&a, &orders_crd()).await;
        create(&a, ORDERS, &order("one")).await;
        let stored = a.get(ORDERS_CRD).await.json();
        let mut broken = stored.clone();
        broken["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        broken["spec"]["versions"] = "none".into();
        put_raw(&plane, "orders.shop.example.com", broken.to_string()).await;
        eventually("the definition is read", async || {
            let answer = a.get(&format!("{ORDERS}/one")).await;
            if answer.status == 200 { Err(answer.summary()) } else { Ok(()) }
        })
        .await;
        for path in [ORDERS.to_owned(), format!("{ORDERS}/one")] {
            let answer = a.get(&path).await;
            assert_eq!(answer.status, 500, "{}", answer.summary());
            assert!(answer.summary().contains("orders.shop.example.com cannot be read"), "{}", answer.summary());
        }
        // Repaired, its objects are still there.
        let mut repaired = stored;
        repaired["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        put_raw(&plane, "orders.shop.example.com", repaired.to_string()).await;
        eventually("the object is served again", async || {
            let answer = a.get(&format!("{ORDERS}/one")).await;
            if answer.status == 200 { Ok(()) } else { Err(answer.summary()) }
        })
        .await;
        create(&a, ORDERS, &order("two")).await;
    });
}

#[test]
fn server_owns_the_status_of_a_definition_that_it_accepts() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        define(&a, &orders_crd()).await;
        let entries = a.get(ORDERS_CRD).await.json()["metadata"]["managedFields"].clone();
        let of_server = entries.as_array().unwrap().iter().find(|entry| entry["manager"] == "kube-apiserver");
        let entry = of_server.expect("the server wrote the status");
        assert_eq!((&entry["operation"], &entry["subresource"]), (&json!("Update"), &json!("status")));
        let status = &entry["fieldsV1"]["f:status"];
        assert!(status["f:acceptedNames"]["f:kind"].is_object(), "{entry}");
        assert!(status["f:conditions"][r#"k:{"type":"Established"}"#]["f:status"].is_object(), "{entry}");
    });
}
