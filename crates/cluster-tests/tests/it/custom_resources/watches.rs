//! Watches of custom resources while their definition is edited and deleted.

use std::time::Duration;

use cluster_tests::WatchReader;

use super::*;
use crate::block_on;

const QUIET: Duration = Duration::from_millis(1500);

async fn watch_orders(client: &Client) -> WatchReader {
    let listed = client.get(ORDERS).await.json();
    let version = listed["metadata"]["resourceVersion"].as_str().unwrap();
    WatchReader::open(client, &format!("{ORDERS}?watch=true&resourceVersion={version}")).await
}

async fn edit_versions(client: &Client, edit: impl Fn(&mut Value)) {
    let mut versions = client.get(ORDERS_CRD).await.json()["spec"]["versions"].clone();
    edit(&mut versions);
    let patched = merge_patch(client, ORDERS_CRD, &json!({"spec": {"versions": versions}})).await;
    assert_eq!(patched.status, 200, "{}", patched.summary());
}

async fn next_name(watch: &mut WatchReader) -> String {
    let event = watch.next_event().await;
    format!("{} {}", event["type"].as_str().unwrap(), event["object"]["metadata"]["name"].as_str().unwrap())
}

#[test]
fn watch_survives_edits_that_do_not_change_what_it_shows() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        block_on(async {
            define(&a, &orders_crd()).await;
            let mut watch = watch_orders(&b).await;
            let labels = json!({"metadata": {"labels": {"team": "shop"}}});
            assert_eq!(merge_patch(&a, ORDERS_CRD, &labels).await.status, 200);
            // A description, a validation, a column, a new version and another storage version.
            edit_versions(&a, |versions| {
                versions[0]["schema"]["openAPIV3Schema"]["description"] = "An order.".into();
                let item = "/0/schema/openAPIV3Schema/properties/spec/properties/item/maxLength";
                *versions.pointer_mut(item).unwrap() = 30.into();
                versions[0]["additionalPrinterColumns"][0]["name"] = "How large".into();
                // Kubernetes refuses equal fields of different schemas.
                versions[1].as_object_mut().unwrap().remove("selectableFields");
            })
            .await;
            edit_versions(&a, |versions| {
                let mut third = versions[0].clone();
                (third["name"], third["storage"]) = ("v3".into(), true.into());
                third["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["gift"] =
                    json!({"type": "boolean"});
                versions[0]["storage"] = false.into();
                versions.as_array_mut().unwrap().push(third);
            })
            .await;
            let third = "/apis/shop.example.com/v3/namespaces/default/orders";
            let mut stored_as_third = order("one");
            stored_as_third["apiVersion"] = "shop.example.com/v3".into();
            stored_as_third["spec"]["gift"] = true.into();
            create(&a, third, &stored_as_third).await;
            let event = watch.next_event().await;
            assert_eq!(
                (&event["type"], &event["object"]["apiVersion"]),
                (&json!("ADDED"), &json!("shop.example.com/v1"))
            );
            assert_eq!(event["object"]["spec"]["gift"], Value::Null, "v1 has no such field: {event}");
        });
    });
}

#[test]
fn watch_ends_without_error_when_an_edit_changes_what_it_shows() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        block_on(async {
            define(&a, &orders_crd()).await;
            let mut full = watch_orders(&b).await;
            let version = b.get(ORDERS).await.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let path = format!("{ORDERS}?watch=true&resourceVersion={version}&fieldSelector=spec.size%3Dsmall");
            let mut selected = WatchReader::open(&b, &path).await;
            create(&a, ORDERS, &order("one")).await;
            // Another selectable field may change what a watch by fields shows, and nothing else.
            edit_versions(&a, |versions| {
                versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.size"}, {"jsonPath": ".spec.item"}]);
                // Kubernetes refuses different fields of equal schemas.
                versions[1]["schema"]["openAPIV3Schema"]["description"] = "An order.".into();
            })
            .await;
            assert_eq!(next_name(&mut selected).await, "ADDED one");
            let end = tokio::time::timeout(Duration::from_secs(5), selected.try_next_event()).await;
            assert!(end.expect("the watch ends").is_err(), "without an event");
            edit_versions(&a, |versions| {
                versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["gift"] =
                    json!({"type": "boolean", "default": false});
            })
            .await;
            create(&a, ORDERS, &order("two")).await;
            assert_eq!(next_name(&mut full).await, "ADDED one", "changes before the edit are sent");
            let end = tokio::time::timeout(Duration::from_secs(5), full.try_next_event()).await;
            assert!(end.expect("the watch ends").is_err(), "without an event");
            // Continued from where the first one ended, no change is lost.
            let one = b.get(&format!("{ORDERS}/one")).await.json();
            let version = one["metadata"]["resourceVersion"].as_str().unwrap();
            let mut next = WatchReader::open(&b, &format!("{ORDERS}?watch=true&resourceVersion={version}")).await;
            let event = next.next_event().await;
            assert_eq!(
                (&event["object"]["metadata"]["name"], &event["object"]["spec"]["gift"]),
                (&json!("two"), &json!(false))
            );
            // A version that is no longer served ends its watches too.
            edit_versions(&a, |versions| {
                versions[0]["served"] = false.into();
            })
            .await;
            let end = tokio::time::timeout(Duration::from_secs(5), next.try_next_event()).await;
            assert!(end.expect("the watch ends").is_err());
        });
    });
}

#[test]
fn deleted_definition_ends_watches_after_the_deletions_of_its_objects() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        block_on(async {
            define(&a, &orders_crd()).await;
            define(&a, &plain_crd("cups", "Cup")).await;
            for number in 0..20 {
                create(&a, ORDERS, &order(&format!("order-{number}"))).await;
            }
            let mut watches = [watch_orders(&a).await, watch_orders(&b).await];
            let cups = plain_path("cups");
            let mut other = WatchReader::open(&b, &format!("{cups}?watch=true")).await;
            assert_eq!(a.delete(ORDERS_CRD).await.status, 200);
            for watch in &mut watches {
                let mut deleted = 0;
                while let Ok(event) = watch.try_next_event().await {
                    assert_eq!(event["type"], "DELETED", "{event}");
                    deleted += 1;
                }
                assert_eq!(deleted, 20);
            }
            assert_eq!(b.get(ORDERS).await.status, 404);
            // The watch of another resource goes on.
            let ended = tokio::time::timeout(QUIET, other.try_next_event()).await;
            assert!(ended.is_err(), "{ended:?}");
        });
    });
}
