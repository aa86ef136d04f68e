//! Custom objects of definitions whose versions a webhook converts.

mod webhook;

use std::time::{Duration, Instant};

use cluster_tests::tools::{is_skipped, kubectl};
use cluster_tests::wait::metric_value;
use cluster_tests::{ControlPlane, WatchReader};

use tasks::Tasks;

use super::kubectl::edit;
use super::*;
use crate::{block_on, start_on_sqlite};
use webhook::{Behaviour, ConversionWebhook};

const ROUTES_V1: &str = "/apis/shop.example.com/v1/namespaces/default/routes";
const ROUTES_V2: &str = "/apis/shop.example.com/v2/namespaces/default/routes";
const ROUTES_CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/routes.shop.example.com";
const API_V2: &str = "shop.example.com/v2";

/// Definition of `routes.shop.example.com`, stored as `v1`; in `v2` the only field of `v1` is two.
fn routes_crd(conversion: &Value) -> Value {
    let version = |name: &str, properties: Value, selectable: &str| {
        let mut properties = properties;
        properties["replicas"] = json!({"type": "integer", "default": 1});
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": properties},
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            }}},
            "subresources": {"status": {}, "scale":
                {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "selectableFields": [{"jsonPath": selectable}],
            "additionalPrinterColumns": [{"name": "Where", "type": "string", "jsonPath": selectable}],
        })
    };
    let v2 = json!({"host": {"type": "string"}, "port": {"type": "integer"},
        "late": {"type": "string", "default": "only-in-v2"}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "routes.shop.example.com"},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced", "conversion": conversion,
            "names": {"plural": "routes", "singular": "route", "kind": "Route", "listKind": "RouteList"},
            "versions": [version("v1", json!({"hostPort": {"type": "string"}}), ".spec.hostPort"),
                version("v2", v2, ".spec.host")],
        },
    })
}

fn route_v1(name: &str, host_port: &str) -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Route", "metadata": {"name": name}, "spec": {"hostPort": host_port}})
}

fn route_v2(name: &str, host: &str, port: u16) -> Value {
    json!({"apiVersion": API_V2, "kind": "Route", "metadata": {"name": name}, "spec": {"host": host, "port": port}})
}

/// Reads an object that exists.
async fn get(client: &Client, path: &str) -> Value {
    let found = client.get(path).await;
    assert_eq!(found.status, 200, "{path}: {}", found.summary());
    found.json()
}

/// Names and hosts of a list in version 2.
async fn hosts(client: &Client, query: &str) -> Vec<String> {
    let list = get(client, &format!("{ROUTES_V2}{query}")).await;
    let items = list["items"].as_array().unwrap().iter();
    let shown = items.map(|item| {
        assert_eq!(item["apiVersion"], API_V2);
        format!("{} {}", item["metadata"]["name"].as_str().unwrap(), item["spec"]["host"].as_str().unwrap())
    });
    shown.collect()
}

#[test]
fn webhook_converts_objects_between_versions() {
    let webhook = ConversionWebhook::start();
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        let client = plane.admin("a");
        block_on(async {
            define(&client, &routes_crd(&webhook.by_url())).await;
            webhook.take_calls();
            let created = create(&client, ROUTES_V1, &route_v1("one", "a.example:80")).await;
            assert_eq!(get(&client, &format!("{ROUTES_V1}/one")).await["spec"], created["spec"]);
            // No version other than the stored one was asked for.
            assert_eq!(webhook.take_calls(), []);
            let one = get(&client, &format!("{ROUTES_V2}/one")).await;
            // Defaults of the stored version, none of the target; unknown fields are pruned.
            assert_eq!(one["spec"], json!({"host": "a.example", "port": 80, "replicas": 1}));
            for field in ["uid", "generation", "creationTimestamp", "resourceVersion", "managedFields"] {
                assert_eq!(one["metadata"][field], created["metadata"][field], "{field}");
            }
            assert_eq!(one["metadata"]["labels"], json!({"shown-in": "v2"}));
            assert_eq!(get(&client, &format!("{ROUTES_V2}/one")).await, one);
            assert_eq!(webhook.take_calls(), [(API_V2.to_owned(), 1)], "the second read comes from the cache");

            let mut two = create(&client, ROUTES_V2, &route_v2("two", "b.example", 81)).await;
            assert_eq!(two["spec"], json!({"host": "b.example", "port": 81, "replicas": 1}));
            two["spec"]["port"] = 82.into();
            let put = client.update(&format!("{ROUTES_V2}/two"), &two).await;
            assert_eq!((put.status.as_u16(), &put.json()["spec"]["port"]), (200, &json!(82)), "{}", put.summary());
            assert_eq!(put.json()["metadata"]["generation"], 2);
            let patched =
                merge_patch(&client, &format!("{ROUTES_V2}/two"), &json!({"spec": {"host": "c.example"}})).await;
            assert_eq!(patched.status, 200, "{}", patched.summary());
            let status =
                merge_patch(&client, &format!("{ROUTES_V2}/two/status"), &json!({"status": {"replicas": 5}})).await;
            assert_eq!(status.status, 200, "{}", status.summary());
            let scale =
                merge_patch(&client, &format!("{ROUTES_V2}/two/scale"), &json!({"spec": {"replicas": 3}})).await;
            assert_eq!(scale.json()["spec"]["replicas"], 3, "{}", scale.summary());
            assert_eq!(get(&client, &format!("{ROUTES_V2}/two/scale")).await["status"]["replicas"], 5);
            let two = get(&client, &format!("{ROUTES_V1}/two")).await;
            assert_eq!(two["spec"], json!({"hostPort": "c.example:82", "replicas": 3}));
            for (key, object) in stored_objects(&plane).await {
                assert_eq!(object["apiVersion"], "shop.example.com/v1", "{key}");
            }

            let table = client.request_builder(Method::GET, ROUTES_V2);
            let table = table.header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
            let table = client.send(table, Vec::new().into()).await.json();
            assert_eq!(
                (&table["rows"][0]["cells"], &table["rows"][1]["cells"]),
                (&json!(["one", "a.example"]), &json!(["two", "c.example"]))
            );
            assert_eq!(hosts(&client, "?fieldSelector=spec.host%3Dc.example").await, ["two c.example"]);
            assert_eq!(hosts(&client, "?labelSelector=shown-in%3Dv2&limit=1").await, ["one a.example"]);
            assert_eq!(hosts(&client, "?labelSelector=shown-in%3Dv1").await, [""; 0]);
            watch_converts(&client).await;

            let path = format!("{ROUTES_V2}?fieldSelector=spec.host%3Da.example");
            assert_eq!(client.delete(&path).await.json()["items"].as_array().map(Vec::len), Some(1));
            assert_eq!(hosts(&client, "").await, ["two c.example"]);
            let dry = client.delete(&format!("{ROUTES_V2}/two?dryRun=All")).await;
            assert_eq!(dry.status, 200, "{}", dry.summary());
            assert_eq!(client.delete(&format!("{ROUTES_V2}/two")).await.status, 200);
            let metric = "apiserver_conversion_webhook_request_total{failure_type=\"\",result=\"success\"}";
            assert!(metric_value(&client, metric).await > 3);
        });
    });
}

/// A watch in version 2 shows the present objects and changes of both; one with a selector those that match.
async fn watch_converts(client: &Client) {
    let mut all = WatchReader::open(client, &format!("{ROUTES_V2}?watch=true")).await;
    let mut selected =
        WatchReader::open(client, &format!("{ROUTES_V2}?watch=true&fieldSelector=spec.host%3Dd.example")).await;
    create(client, ROUTES_V1, &route_v1("w", "d.example:80")).await;
    let moved = merge_patch(client, &format!("{ROUTES_V1}/w"), &json!({"spec": {"hostPort": "e.example:80"}})).await;
    assert_eq!(moved.status, 200, "{}", moved.summary());
    assert_eq!(client.delete(&format!("{ROUTES_V1}/w")).await.status, 200);
    for expected in [
        "ADDED one a.example",
        "ADDED two c.example",
        "ADDED w d.example",
        "MODIFIED w e.example",
        "DELETED w e.example",
    ] {
        let event = all.next_event().await;
        let (object, kind) = (&event["object"], event["type"].as_str().unwrap());
        let (name, host) = (object["metadata"]["name"].as_str().unwrap(), object["spec"]["host"].as_str().unwrap());
        assert_eq!(
            (format!("{kind} {name} {host}"), object["apiVersion"].as_str()),
            (expected.to_owned(), Some(API_V2))
        );
    }
    assert_eq!(selected.next_event_summary().await, "ADDED w");
    assert_eq!(selected.next_event_summary().await, "DELETED w");
}

#[test]
fn list_is_mixed_after_the_storage_version_changed() {
    let webhook = ConversionWebhook::start();
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        create(&client, "/api/v1/namespaces/default/services", &service).await;
        define(&client, &routes_crd(&webhook.by_service())).await;
        for at in 0..30 {
            create(&client, ROUTES_V1, &route_v1(&format!("old{at:02}"), "old.example:1")).await;
        }
        let mut definition = get(&client, ROUTES_CRD).await;
        for version in [0, 1] {
            definition["spec"]["versions"][version]["storage"] = (version == 1).into();
        }
        assert_eq!(client.update(ROUTES_CRD, &definition).await.status, 200);
        let created = create(&client, ROUTES_V1, &route_v1("new", "new.example:2")).await;
        assert_eq!(created["spec"], json!({"hostPort": "new.example:2", "replicas": 1}));
        webhook.take_calls();
        let listed = hosts(&client, "").await;
        assert_eq!((listed.len(), &*listed[0], &*listed[30]), (31, "new new.example", "old29 old.example"));
        // Those that are stored in the other version were converted together.
        assert_eq!(webhook.take_calls(), [(API_V2.to_owned(), 30)]);
        let items = get(&client, ROUTES_V1).await["items"].as_array().unwrap().clone();
        assert!(items.iter().all(|item| item["spec"]["hostPort"].is_string()), "{items:?}");
        // The only one that is not stored in version 1 was converted for the response to its creation.
        assert_eq!(webhook.take_calls(), []);
        // A write that changes nothing stores the object in the new version.
        let same = get(&client, &format!("{ROUTES_V1}/old00")).await;
        assert_eq!(client.update(&format!("{ROUTES_V1}/old00"), &same).await.status, 200);
        webhook.take_calls();
        get(&client, &format!("{ROUTES_V2}/old00")).await;
        assert_eq!(webhook.take_calls(), []);
        // A version that objects are stored in disappears from the definition.
        let mut definition = get(&client, ROUTES_CRD).await;
        definition["status"]["storedVersions"] = json!(["v2"]);
        let trimmed = client.update(&format!("{ROUTES_CRD}/status"), &definition).await;
        assert_eq!(trimmed.status, 200, "{}", trimmed.summary());
        let mut definition = trimmed.json();
        definition["spec"]["versions"].as_array_mut().unwrap().remove(0);
        let cut = client.update(ROUTES_CRD, &definition).await;
        assert_eq!(cut.status, 200, "{}", cut.summary());
        for path in [ROUTES_V2.to_owned(), format!("{ROUTES_V2}/old01")] {
            let refused = client.get(&path).await.json();
            let message = "request to convert CR from an invalid group/version: shop.example.com/v1";
            assert_eq!(
                (&refused["code"], refused["message"].as_str(), refused.get("reason")),
                (&json!(500), Some(message), None)
            );
        }
        // The definition goes all the same, with its objects.
        assert_eq!(client.delete(ROUTES_CRD).await.status, 200);
        wait_until_deleted(&client, ROUTES_CRD).await;
    });
}

#[test]
fn kubectl_edits_objects_in_a_version_that_a_webhook_converts() {
    if is_skipped("kubectl") {
        return;
    }
    let webhook = ConversionWebhook::start();
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let kubeconfig = server.kubeconfig();
    let client = server.admin();
    block_on(async {
        define(&client, &routes_crd(&webhook.by_url())).await;
        create(&client, ROUTES_V1, &route_v1("one", "a.example:80")).await;
    });
    edit(&kubeconfig, "routes.v2.shop.example.com", "one", "s/a.example/b.example/");
    let run = |args: &str| kubectl(&kubeconfig, &args.split(' ').collect::<Vec<_>>()).expect_success();
    assert_eq!(run("get routes.v1.shop.example.com one -o jsonpath={.spec.hostPort}"), "b.example:80");
    assert_eq!(run("get routes"), "NAME   WHERE\none    b.example\n");
}

/// The end of the message for a behaviour that is refused by a fixed text.
fn refusal(behaviour: Behaviour, uid: &str) -> String {
    match behaviour {
        Behaviour::ServerError => {
            "failed: an error on the server (\"out of order\") has prevented the request from succeeding".to_owned()
        }
        Behaviour::Failure => "failed: no such port".to_owned(),
        Behaviour::ChangedUid => format!("returned invalid object: must have the same UID: {uid} != other"),
        Behaviour::ChangedName => "returned invalid object: must have the same name: one != other".to_owned(),
        Behaviour::WrongKind => {
            "returned invalid object at index 0: invalid kind (expected Route, received Other)".to_owned()
        }
        Behaviour::Unconverted => "returned invalid object at index 0: invalid groupVersion (expected \
                 shop.example.com/v2, received shop.example.com/v1)"
            .to_owned(),
        Behaviour::NoObjects => "returned 0 objects, expected 1".to_owned(),
        Behaviour::Garbage => "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, \
                 got /, Kind="
            .to_owned(),
        Behaviour::Convert | Behaviour::Hang | Behaviour::WrongUid => unreachable!("not refused by a fixed text"),
    }
}

#[test]
fn webhook_that_lies_or_fails_is_refused() {
    let webhook = ConversionWebhook::start();
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        define(&client, &routes_crd(&webhook.by_url())).await;
        let one = create(&client, ROUTES_V1, &route_v1("one", "a.example:80")).await;
        let uid = one["metadata"]["uid"].as_str().unwrap();
        for behaviour in [
            Behaviour::ServerError,
            Behaviour::Failure,
            Behaviour::ChangedUid,
            Behaviour::ChangedName,
            Behaviour::WrongKind,
            Behaviour::Unconverted,
            Behaviour::NoObjects,
            Behaviour::Garbage,
        ] {
            webhook.set(behaviour);
            let message = format!("conversion webhook for shop.example.com/v1, Kind=Route {}", refusal(behaviour, uid));
            for path in [format!("{ROUTES_V2}/one"), ROUTES_V2.to_owned()] {
                let refused = client.get(&path).await.json();
                assert_eq!(
                    (&refused["code"], refused["message"].as_str()),
                    (&json!(500), Some(&*message)),
                    "{behaviour:?}"
                );
                assert_eq!(refused.get("reason"), None);
            }
            let refused = client.delete(&format!("{ROUTES_V2}/one")).await;
            assert_eq!((refused.status.as_u16(), refused.json()["message"].as_str()), (500, Some(&*message)));
        }
        webhook.set(Behaviour::WrongUid);
        let refused = client.get(&format!("{ROUTES_V2}/one")).await.summary();
        assert!(
            refused.contains("failed: expected response.uid=\"") && refused.ends_with("got \"other\""),
            "{refused}"
        );
        let refused = client.create(ROUTES_V2, &route_v2("never", "x", 1)).await;
        assert!(
            refused.summary().contains("conversion webhook for shop.example.com/v2, Kind=Route failed"),
            "{}",
            refused.summary()
        );
        assert_eq!(client.get(&format!("{ROUTES_V1}/never")).await.status, 404);
        // A watch does not begin, and one that runs ends without an event.
        let not_started = client.get(&format!("{ROUTES_V2}?watch=true")).await;
        assert_eq!(not_started.status, 429, "{}", not_started.summary());
        assert!(
            not_started
                .summary()
                .contains("storage is (re)initializing: failed to list shop.example.com/v2, Kind=Route: ")
        );
        webhook.set(Behaviour::Convert);
        let mut watch = WatchReader::open(&client, &format!("{ROUTES_V2}?watch=true")).await;
        assert_eq!(watch.next_event_summary().await, "ADDED one");
        webhook.set(Behaviour::Failure);
        create(&client, ROUTES_V1, &route_v1("two", "b.example:80")).await;
        assert!(watch.try_next_event().await.is_err(), "the watch ends");
        // What was converted before is still served.
        assert_eq!(get(&client, &format!("{ROUTES_V2}/one")).await["spec"]["host"], "a.example");
        let failures = "apiserver_conversion_webhook_request_total{failure_type=\"conversion_webhook_partial_response_failure\",result=\"failure\"}";
        assert!(metric_value(&client, failures).await > 0);
    });
}

#[test]
fn webhook_that_hangs_harms_only_its_own_resource() {
    let webhook = ConversionWebhook::start();
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--controllers=*"]);
    let client = server.admin();
    block_on(async {
        webhook.set(Behaviour::Hang);
        define(&client, &routes_crd(&webhook.by_url())).await;
        define(&client, &orders_crd()).await;
        create(&client, ROUTES_V1, &route_v1("one", "a.example:80")).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
        create(&client, "/api/v1/namespaces", &namespace).await;
        assert_eq!(client.delete("/api/v1/namespaces/other").await.status, 200);
        let hanging = [format!("{ROUTES_V2}/one"), ROUTES_V2.to_owned(), format!("{ROUTES_V2}/one?x=1")];
        let waiting = Tasks::new();
        for path in hanging {
            let client = server.admin();
            waiting.spawn_once("hanging-request", async move { drop(client.get(&path).await) });
        }
        let started = Instant::now();
        for at in 0..5 {
            create(&client, ORDERS, &order(&format!("o{at}"))).await;
            create(&client, ROUTES_V1, &route_v1(&format!("r{at}"), "b.example:80")).await;
        }
        assert_eq!(client.get("/readyz").await.status, 200);
        define(&client, &plain_crd("carts", "Cart")).await;
        assert_eq!(client.delete(&format!("{CRD_PATH}/carts.shop.example.com")).await.status, 200);
        wait_until_deleted(&client, &format!("{CRD_PATH}/carts.shop.example.com")).await;
        // It has no route, so that no conversion is needed to see that it is empty.
        wait_until_deleted(&client, "/api/v1/namespaces/other").await;
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        let slow = client.get(&format!("{ROUTES_V2}/one?timeout=1s")).await;
        assert!([500, 504].contains(&slow.status.as_u16()), "{}", slow.summary());
        // Its objects can go with their definition.
        assert_eq!(client.delete(ROUTES_CRD).await.status, 200);
        wait_until_deleted(&client, ROUTES_CRD).await;
    });
    let started = Instant::now();
    assert_eq!(server.stop(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

/// Responses to requests for objects that the webhook converts, with each of its behaviours: status, reason and message, or
/// what it converted. Without lists and watches: those of a kube-apiserver depend on the moment at which its watch cache of the
/// version fails.
pub(crate) async fn record_responses(client: &Client) -> Vec<String> {
    let webhook = ConversionWebhook::start();
    define(client, &routes_crd(&webhook.by_url())).await;
    let path = format!("{ROUTES_V2}/one");
    let created = eventually_created(client, ROUTES_V1, &route_v1("one", "a.example:80")).await;
    let uid = created["metadata"]["uid"].as_str().unwrap().to_owned();
    let mut recorded = Vec::new();
    for (round, behaviour) in Behaviour::ALL.into_iter().enumerate() {
        // An object that was not converted yet: ours are cached.
        let change = json!({"spec": {"hostPort": format!("a{round}.example:80")}});
        assert_eq!(merge_patch(client, &format!("{ROUTES_V1}/one"), &change).await.status, 200);
        webhook.set(behaviour);
        let patch = json!({"spec": {"port": 81}});
        let responses = [
            ("get", client.get(&path).await),
            ("scale", client.get(&format!("{path}/scale")).await),
            ("create", client.create(&format!("{ROUTES_V2}?dryRun=All"), &route_v2("two", "b.example", 2)).await),
            ("patch", merge_patch(client, &format!("{path}?dryRun=All"), &patch).await),
            ("delete", client.delete(&format!("{path}?dryRun=All")).await),
            ("short", client.get(&format!("{path}?timeout=3s")).await),
            ("deletecollection", client.delete(&format!("{ROUTES_V2}?dryRun=All")).await),
        ];
        for (verb, response) in responses {
            let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            let shown = match body["spec"].is_object() {
                true => format!("{} {}", body["spec"], body["metadata"]["labels"]),
                false => format!("{} {} {}", body["reason"], body["message"], body["details"]),
            };
            let shown = without_uids(&shown.replace(&uid, "<uid>"));
            recorded.push(format!("{behaviour:?} {verb}: {} {shown}", response.status.as_u16()));
        }
    }
    recorded
}

/// A real kube-apiserver serves a definition only some time after it is established.
async fn eventually_created(client: &Client, collection: &str, object: &Value) -> Value {
    eventually("the custom resource is served", async || {
        let created = client.create(collection, object).await;
        let is_done = [201, 409].contains(&created.status.as_u16());
        if is_done { Ok(()) } else { Err(created.summary()) }
    })
    .await;
    get(client, &format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap())).await
}

/// Replaces random uids of reviews.
fn without_uids(text: &str) -> String {
    let is_uid = |word: &str| word.len() == 36 && word.chars().filter(|letter| *letter == '-').count() == 4;
    let quoted = text.split(' ').map(|word| {
        let parts = word.split('"').map(|part| if is_uid(part.trim_end_matches('\\')) { "<uid>" } else { part });
        parts.collect::<Vec<_>>().join("\"")
    });
    quoted.collect::<Vec<_>>().join(" ")
}
