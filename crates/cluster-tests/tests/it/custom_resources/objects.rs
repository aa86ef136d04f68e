//! Custom objects are watched, listed in pages and selected by their fields.

use cluster_tests::WatchReader;

use super::*;
use crate::{block_on, for_each_store_async, start_on_sqlite};

#[test]
fn watch_sees_changes_of_custom_objects_in_its_version() {
    for_each_store_async(async |client| {
        define(&client, &orders_crd()).await;
        let mut watch = WatchReader::open(&client, &format!("{ORDERS_V2}?watch=true")).await;
        let selector = "fieldSelector=spec.size%3Dlarge";
        let mut large = WatchReader::open(&client, &format!("{ORDERS}?watch=true&{selector}")).await;
        let one = format!("{ORDERS}/one");
        create(&client, ORDERS, &order("one")).await;
        for size in ["large", "medium"] {
            assert_eq!(merge_patch(&client, &one, &json!({"spec": {"size": size}})).await.status, 200);
        }
        assert_eq!(client.delete(&one).await.status, 200);
        for expected in ["ADDED one", "MODIFIED one", "MODIFIED one", "DELETED one"] {
            let event = watch.next_event().await;
            let found = format!(
                "{} {}",
                event["type"].as_str().unwrap(),
                event["object"]["metadata"]["name"].as_str().unwrap()
            );
            assert_eq!((&*found, event["object"]["apiVersion"].as_str()), (expected, Some("shop.example.com/v2")));
        }
        // An object that enters or leaves the selection appears and disappears.
        assert_eq!(large.next_event_summary().await, "ADDED one");
        assert_eq!(large.next_event_summary().await, "DELETED one");
    });
}

#[test]
fn custom_objects_are_listed_in_pages() {
    for_each_store_async(async |client| {
        define(&client, &orders_crd()).await;
        for at in 0..25 {
            create(&client, ORDERS, &order(&format!("o{at:02}"))).await;
        }
        let (mut names, mut token, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = client.get(&format!("{ORDERS_V2}?limit=10&continue={token}")).await;
            assert_eq!(page.status, 200, "{}", page.summary());
            let page = page.json();
            assert_eq!(
                (page["kind"].as_str(), page["apiVersion"].as_str()),
                (Some("OrderList"), Some("shop.example.com/v2"))
            );
            for item in page["items"].as_array().unwrap() {
                assert_eq!(item["apiVersion"], "shop.example.com/v2");
                names.push(item["metadata"]["name"].as_str().unwrap().to_owned());
            }
            pages += 1;
            match page["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => token = next.replace('=', "%3D").replace('+', "%2B"),
                _ => break,
            }
        }
        assert_eq!(names, (0..25).map(|at| format!("o{at:02}")).collect::<Vec<_>>());
        assert_eq!(pages, 3);
    });
}

#[test]
fn custom_objects_are_selected_by_selectable_fields() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        define(&client, &orders_crd()).await;
        for (name, size) in [("a", "small"), ("b", "large"), ("c", "large"), ("d", "medium")] {
            let mut object = order(name);
            object["spec"]["size"] = size.into();
            create(&client, ORDERS, &object).await;
        }
        let select = async |selector: &str| {
            let answer = client.get(&format!("{ORDERS}?fieldSelector={selector}")).await;
            let list = answer.json();
            let names =
                list["items"].as_array().into_iter().flatten().map(|item| item["metadata"]["name"].as_str().unwrap());
            if answer.status == 200 { names.collect::<Vec<_>>().join(" ") } else { answer.summary() }
        };
        for (selector, expected) in [
            ("spec.size%3Dlarge", "b c"),
            ("spec.size!%3Dlarge", "a d"),
            ("spec.size%3Dlarge,metadata.name%3Dc", "c"),
            ("metadata.namespace%3Ddefault,spec.size%3Dmedium", "d"),
            ("spec.item%3Dtea", "400 field label not supported: spec.item"),
        ] {
            assert_eq!(select(selector).await, expected, "{selector}");
        }
        assert_eq!(client.delete(&format!("{ORDERS}?fieldSelector=spec.size%3Dlarge")).await.status, 200);
        assert_eq!(select("").await, "a d");
    });
}

#[test]
fn reads_of_custom_objects_follow_every_change_of_the_schema() {
    for_each_store_async(async |client| {
        let definition = |properties: Value| {
            let mut definition = plain_crd("notes", "Note");
            let spec = json!({"type": "object", "properties": properties});
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
                json!({"type": "object", "properties": {"spec": spec}});
            definition
        };
        let text = json!({"type": "string"});
        define(&client, &definition(json!({"a": text, "b": text}))).await;
        let (notes, one) = (plain_path("notes"), format!("{}/one", plain_path("notes")));
        let note = json!({"apiVersion": "shop.example.com/v1", "kind": "Note", "metadata": {"name": "one"},
            "spec": {"a": "1", "b": "2"}});
        create(&client, &notes, &note).await;
        let stored = client.get(&one).await;
        let red = json!({"type": "string", "default": "red"});
        let blue = json!({"type": "string", "default": "blue"});
        for (properties, expected) in [
            (json!({"a": text, "b": text, "c": red}), r#"{"a":"1","b":"2","c":"red"}"#),
            (json!({"a": text, "b": text, "c": blue}), r#"{"a":"1","b":"2","c":"blue"}"#),
            (json!({"b": text, "c": blue}), r#"{"b":"2","c":"blue"}"#),
            (json!({"a": text}), r#"{"a":"1"}"#),
            (json!({"a": text, "b": text}), r#"{"a":"1","b":"2"}"#),
        ] {
            let patch = json!({"spec": {"versions": definition(properties)["spec"]["versions"]}});
            let patched = merge_patch(&client, &format!("{CRD_PATH}/notes.shop.example.com"), &patch).await;
            assert_eq!(patched.status, 200, "{}", patched.summary());
            eventually("reads follow the definition", async || {
                // The second read is served from what the first one found out.
                let [first, second] = [client.get(&one).await, client.get(&one).await];
                let listed = client.get(&notes).await.json();
                let found =
                    [first.json(), second.json(), listed["items"][0].clone()].map(|note| note["spec"].to_string());
                if found.iter().all(|found| found == expected) { Ok(()) } else { Err(format!("{found:?}")) }
            })
            .await;
        }
        assert_eq!(client.get(&one).await.body, stored.body, "the object was never written");
    });
}

#[test]
fn update_without_change_keeps_fields_that_its_version_lacks() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    let version = |name: &str, properties: Value| {
        let spec = json!({"type": "object", "properties": properties});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": spec}}}})
    };
    let text = json!({"type": "string"});
    let versions = [version("v1", json!({"old": text, "kept": text})), version("v2", json!({"old": text}))];
    let mut definition = plain_crd("notes", "Note");
    definition["spec"]["versions"] = json!(versions);
    block_on(async {
        define(&a, &definition).await;
        let group = definition["spec"]["group"].as_str().unwrap();
        let path = |version: &str| match definition["spec"]["scope"].as_str() {
            Some("Cluster") => format!("/apis/{group}/{version}/notes"),
            _ => format!("/apis/{group}/{version}/namespaces/default/notes"),
        };
        let note = json!({"apiVersion": format!("{group}/v1"), "kind": "Note", "metadata": {"name": "n"},
            "spec": {"old": "x", "kept": "y"}});
        create(&a, &path("v1"), &note).await;
        let narrow = a.get(&format!("{}/n", path("v2"))).await.json();
        assert_eq!(narrow["spec"], json!({"old": "x"}));
        assert_eq!(a.update(&format!("{}/n", path("v2")), &narrow).await.status, 200);
        let stored = a.get(&format!("{}/n", path("v1"))).await.json();
        assert_eq!(stored["spec"], json!({"old": "x", "kept": "y"}));
        assert_eq!(stored["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
    });
}

#[test]
fn owner_of_status_follows_what_is_written() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    let mut definition = plain_crd("notes", "Note");
    let mut without_status = definition["spec"]["versions"][0].clone();
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    without_status["name"] = "v2".into();
    without_status["storage"] = false.into();
    definition["spec"]["versions"].as_array_mut().unwrap().push(without_status);
    let path = |version: &str| format!("/apis/shop.example.com/{version}/namespaces/default/notes");
    let owners_of = |object: &Value, field: &str| {
        let entries = object["metadata"]["managedFields"].as_array().unwrap().clone();
        let owns = |entry: &Value| entry["fieldsV1"].pointer(field).is_some();
        let owners =
            entries.iter().filter(|entry| owns(entry)).map(|entry| entry["manager"].as_str().unwrap().to_owned());
        owners.collect::<Vec<_>>()
    };
    block_on(async {
        define(&a, &definition).await;
        let note = json!({"apiVersion": "shop.example.com/v2", "kind": "Note", "metadata": {"name": "n", "labels": {"x": "1"}}});
        create(&a, &format!("{}?fieldManager=anna", path("v2")), &note).await;
        let status = |text: &str| json!({"status": {"phase": text}});
        let of_status = format!("{}/n/status?fieldManager=ben", path("v1"));
        assert_eq!(merge_patch(&a, &of_status, &status("ready")).await.status, 200);
        let phase = "/f:status/f:phase";
        let mut stored = a.get(&format!("{}/n", path("v1"))).await.json();
        assert_eq!(owners_of(&stored, phase), ["ben"]);
        stored["metadata"].as_object_mut().unwrap().remove("labels");
        let without_labels = a.update(&of_status, &stored).await.json();
        assert_eq!(owners_of(&without_labels, "/f:metadata/f:labels/f:x"), ["anna"], "a status has no labels");
        let of_object = format!("{}/n?fieldManager=carl", path("v2"));
        let changed = merge_patch(&a, &of_object, &status("done")).await.json();
        assert_eq!(owners_of(&changed, phase), ["carl"]);
    });
}
