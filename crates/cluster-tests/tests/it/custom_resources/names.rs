//! Names of definitions in one group are unique.

use cluster_tests::TestStore;

use super::*;
use crate::block_on;

/// Definition with the short name `ord`.
fn with_short_name(plural: &str, kind: &str) -> Value {
    let mut definition = plain_crd(plural, kind);
    definition["spec"]["names"]["shortNames"] = json!(["ord"]);
    definition
}

#[test]
fn definition_with_a_taken_short_name_waits_until_it_is_free() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    plane.start("b", &[]);
    let [a, b] = ["a", "b"].map(|name| plane.admin(name));
    block_on(async {
        define(&a, &with_short_name("orders", "Order")).await;
        create(&b, CRD_PATH, &with_short_name("ordinals", "Ordinal")).await;
        let second = "ordinals.shop.example.com";
        wait_for_condition(&b, second, "NamesAccepted", "False ShortNamesConflict").await;
        let definition = a.get(&format!("{CRD_PATH}/{second}")).await.json();
        assert_eq!(condition(&definition, "Established"), "False NotAccepted");
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        let message = conditions.iter().find(|known| known["type"] == "NamesAccepted").unwrap();
        assert_eq!(message["message"], "\"ord\" is already in use");
        assert_eq!(a.get(&plain_path("ordinals")).await.status, 404);
        let discovered = a.get("/apis/shop.example.com/v1").await.json();
        assert!(!discovered.to_string().contains("ordinals"), "{discovered}");
        assert_eq!(b.delete(ORDERS_CRD).await.status, 200);
        wait_for_condition(&a, second, "Established", "True InitialNamesAccepted").await;
        let object = json!({"apiVersion": "shop.example.com/v1", "kind": "Ordinal", "metadata": {"name": "a"}});
        create(&b, &plain_path("ordinals"), &object).await;
    });
}

#[test]
fn only_one_of_two_simultaneous_definitions_gets_a_name() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        let [a, b] = ["a", "b"].map(|name| plane.admin(name));
        block_on(async {
            for round in 0..10 {
                let definitions = [with_short_name("orders", "Order"), with_short_name("ordinals", "Ordinal")];
                tokio::join!(create(&a, CRD_PATH, &definitions[0]), create(&b, CRD_PATH, &definitions[1]));
                let names = ["orders", "ordinals"].map(|plural| format!("{CRD_PATH}/{plural}.shop.example.com"));
                let mut decided = Vec::new();
                for name in &names {
                    eventually("the names are decided", async || {
                        let found = condition(&a.get(name).await.json(), "NamesAccepted");
                        if found == "none" { Err(found) } else { Ok(()) }
                    })
                    .await;
                    decided.push(condition(&a.get(name).await.json(), "NamesAccepted"));
                }
                decided.sort();
                assert_eq!(decided, ["False ShortNamesConflict", "True NoConflicts"], "round {round}");
                for name in &names {
                    assert_eq!(b.delete(name).await.status, 200);
                }
                for name in &names {
                    wait_until_deleted(&a, name).await;
                }
            }
        });
    });
}
