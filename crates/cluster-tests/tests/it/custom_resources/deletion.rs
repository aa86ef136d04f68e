//! With a definition go its objects.

use cluster_tests::TestStore;

use super::*;
use crate::block_on;

#[test]
fn deletion_of_a_definition_deletes_its_objects() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        let [a, b] = ["a", "b"].map(|name| plane.admin(name));
        block_on(async {
            define(&a, &orders_crd()).await;
            let elsewhere = ORDERS.replace("/default/", "/kube-system/");
            for collection in [ORDERS, &elsewhere] {
                for name in ["one", "two"] {
                    create(&b, collection, &order(name)).await;
                }
            }
            assert_eq!(stored_keys(&plane).await.len(), 4);
            assert_eq!(b.delete(ORDERS_CRD).await.status, 200);
            wait_until_deleted(&a, ORDERS_CRD).await;
            assert_eq!(stored_keys(&plane).await, [""; 0]);
            for client in [&a, &b] {
                assert_eq!(client.get(ORDERS).await.status, 404);
            }
            // Nothing reappears with a new definition.
            define(&b, &orders_crd()).await;
            assert_eq!(a.get(ORDERS).await.json()["items"], json!([]));
        });
    });
}

#[test]
fn deletion_of_a_collection_of_definitions_deletes_their_objects() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        for (plural, kind) in [("cups", "Cup"), ("mugs", "Mug"), ("pots", "Pot")] {
            let mut definition = plain_crd(plural, kind);
            definition["metadata"]["labels"] = json!({"drop": (plural != "pots").to_string()});
            define(&a, &definition).await;
            let object = json!({"apiVersion": "shop.example.com/v1", "kind": kind, "metadata": {"name": "a"}});
            create(&a, &plain_path(plural), &object).await;
        }
        let deleted = a.delete(&format!("{CRD_PATH}?labelSelector=drop%3Dtrue")).await;
        assert_eq!(deleted.status, 200, "{}", deleted.summary());
        for plural in ["cups", "mugs"] {
            wait_until_deleted(&a, &format!("{CRD_PATH}/{plural}.shop.example.com")).await;
        }
        assert_eq!(stored_keys(&plane).await, ["pots/default/a"]);
    });
}

#[test]
fn finalizer_of_an_object_keeps_its_definition() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        let [a, b] = ["a", "b"].map(|name| plane.admin(name));
        block_on(async {
            define(&a, &orders_crd()).await;
            let mut held = order("held");
            held["metadata"]["finalizers"] = json!(["example.com/hold"]);
            create(&a, ORDERS, &held).await;
            create(&a, ORDERS, &order("free")).await;
            assert_eq!(a.delete(ORDERS_CRD).await.status, 200);
            // From the response on, no server creates objects.
            for client in [&b, &a] {
                let refused = client.create(ORDERS, &order("late")).await;
                assert_eq!(
                    refused.summary(),
                    "403 orders.shop.example.com \"late\" is forbidden: create not allowed while custom resource \
                     definition is terminating"
                );
            }
            wait_until_deleted(&b, &format!("{ORDERS}/free")).await;
            eventually("the held object is marked", async || {
                let held = b.get(&format!("{ORDERS}/held")).await;
                if held.json()["metadata"]["deletionTimestamp"].is_string() { Ok(()) } else { Err(held.summary()) }
            })
            .await;
            let definition = a.get(ORDERS_CRD).await;
            assert_eq!(definition.status, 200, "{}", definition.summary());
            assert!(condition(&definition.json(), "Terminating").starts_with("True "), "{}", definition.json());
            let released = merge_patch(&b, &format!("{ORDERS}/held"), &json!({"metadata": {"finalizers": null}})).await;
            assert_eq!(released.status, 200, "{}", released.summary());
            wait_until_deleted(&a, ORDERS_CRD).await;
            assert_eq!(stored_keys(&plane).await, [""; 0]);
        });
    });
}

/// Creates race with the deletion of their definition: an object is created and deleted with it, or refused.
#[test]
fn creates_during_deletion_leave_no_objects() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b", "c"] {
            plane.start(name, &[]);
        }
        let clients = ["a", "b", "c"].map(|name| plane.admin(name));
        block_on(async {
            for round in 0..3 {
                define(&clients[round], &orders_crd()).await;
                let creates = clients.iter().enumerate().map(async |(at, client)| {
                    for number in 0.. {
                        let answer = client.create(ORDERS, &order(&format!("o{at}-{number}"))).await;
                        match answer.status.as_u16() {
                            201 => {}
                            403 | 404 => return number,
                            _ => panic!("{}", answer.summary()),
                        }
                    }
                    0
                });
                let delete = async {
                    eventually("every server has created objects", async || {
                        let count = clients[round].get(ORDERS).await.json()["items"].as_array().map_or(0, Vec::len);
                        if count >= 5 { Ok(()) } else { Err(count.to_string()) }
                    })
                    .await;
                    assert_eq!(clients[(round + 1) % 3].delete(ORDERS_CRD).await.status, 200);
                };
                let (created, ()) = tokio::join!(futures_util::future::join_all(creates), delete);
                assert!(created.iter().sum::<usize>() >= 5, "{created:?}");
                wait_until_deleted(&clients[round], ORDERS_CRD).await;
                assert_eq!(stored_keys(&plane).await, [""; 0]);
            }
        });
    });
}

#[test]
fn deletion_of_a_collection_deletes_no_more_than_its_limit() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        define(&a, &orders_crd()).await;
        for name in ["one", "three", "two"] {
            create(&a, ORDERS, &order(name)).await;
        }
        let deleted = a.delete(&format!("{ORDERS}?limit=2")).await.json();
        assert_eq!(deleted["metadata"]["remainingItemCount"], 1);
        let left = a.get(ORDERS).await.json();
        let names: Vec<_> = left["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
        assert_eq!(names, ["two"]);
    });
}
