//! Watches: from a revision, from now, with initial events and bookmarks, and resumed.

use cluster_tests::{WatchReader, wait};
use http::Method;

use crate::*;

async fn open_watch(client: &Client, query: &str) -> WatchReader {
    WatchReader::open(client, &format!("{CONFIG_MAPS_PATH}?watch=1&{query}")).await
}

fn resource_version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[test]
fn watch_sends_every_change_after_its_revision() {
    for_each_store_async(async |client| {
        let first = client.create(CONFIG_MAPS_PATH, &config_map("a")).await.json();
        let mut lines = open_watch(&client, &format!("resourceVersion={}", resource_version(&first))).await;
        let mut changed = first.clone();
        changed["data"]["a"] = "2".into();
        client.update(&format!("{CONFIG_MAPS_PATH}/a"), &changed).await;
        client.create(CONFIG_MAPS_PATH, &config_map("b")).await;
        client.delete(&format!("{CONFIG_MAPS_PATH}/a")).await;
        assert_eq!(lines.next_event_summary().await, "MODIFIED a");
        assert_eq!(lines.next_event_summary().await, "ADDED b");
        let deleted = lines.next_event().await;
        assert_eq!((&deleted["type"], &deleted["object"]["data"]["a"]), (&"DELETED".into(), &"2".into()));
    });
}

#[test]
fn watch_without_revision_starts_with_existing_objects() {
    for_each_store_async(async |client| {
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        let mut lines = open_watch(&client, "").await;
        assert_eq!(lines.next_event_summary().await, "ADDED a");
        client.create(CONFIG_MAPS_PATH, &config_map("b")).await;
        assert_eq!(lines.next_event_summary().await, "ADDED b");
    });
}

#[test]
fn initial_events_end_with_a_resumable_bookmark() {
    for_each_store_async(async |client| {
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        let query =
            "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=";
        let mut lines = open_watch(&client, query).await;
        assert_eq!(lines.next_event_summary().await, "ADDED a");
        let bookmark = lines.next_event().await;
        assert_eq!(bookmark["type"], "BOOKMARK", "{bookmark}");
        assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        drop(lines);
        client.create(CONFIG_MAPS_PATH, &config_map("b")).await;
        let mut resumed =
            open_watch(&client, &format!("resourceVersion={}", resource_version(&bookmark["object"]))).await;
        assert_eq!(resumed.next_event_summary().await, "ADDED b");
    });
}

#[test]
fn bookmark_has_the_representation_of_the_watch() {
    for_each_store_async(async |client| {
        let query = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
        let path = format!("{CONFIG_MAPS_PATH}?watch=true&labelSelector=a%3Db&{query}");
        for (kind, rows) in [("Table", json!([["", 0, "<unknown>"]])), ("PartialObjectMetadata", json!([]))] {
            let accept = format!("application/json;as={kind};v=v1;g=meta.k8s.io");
            let mut lines = WatchReader::open_accepting(&client, &path, &accept).await;
            let bookmark = lines.next_event().await;
            let object = &bookmark["object"];
            assert_eq!((&bookmark["type"], &object["kind"]), (&json!("BOOKMARK"), &json!(kind)), "{bookmark}");
            let found = object["rows"].as_array().into_iter().flatten().map(|row| row["cells"].clone()).collect();
            assert_eq!(Value::Array(found), rows);
            let with_annotation = if kind == "Table" { &object["rows"][0]["object"] } else { object };
            assert_eq!(with_annotation["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{bookmark}");
        }
    });
}

#[test]
fn selector_watch_sends_added_and_deleted_as_labels_change() {
    for_each_store_async(async |client| {
        let created = client.create(CONFIG_MAPS_PATH, &config_map("a")).await.json();
        let query = format!("labelSelector=tier%3Dback&resourceVersion={}", resource_version(&created));
        let mut lines = open_watch(&client, &query).await;
        for (label, expected) in [("back", "ADDED a"), ("front", "DELETED a")] {
            let patch = format!(r#"{{"metadata":{{"labels":{{"tier":"{label}"}}}}}}"#);
            let path = format!("{CONFIG_MAPS_PATH}/a");
            client.send_body(Method::PATCH, &path, "application/merge-patch+json", patch.into()).await;
            assert_eq!(lines.next_event_summary().await, expected);
        }
    });
}

#[test]
fn send_initial_events_controls_existing_objects() {
    for_each_store_async(async |client| {
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        let only_news = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        for version in ["", "&resourceVersion=0"] {
            let mut lines = open_watch(&client, &format!("{only_news}{version}")).await;
            let name = format!("b{}", version.len());
            client.create(CONFIG_MAPS_PATH, &config_map(&name)).await;
            assert_eq!(lines.next_event_summary().await, format!("ADDED {name}"));
        }
        let refused = client.get(&format!("{CONFIG_MAPS_PATH}?watch=1&sendInitialEvents=true")).await;
        assert_eq!(refused.status, 422, "{refused:?}");
    });
}

#[test]
fn watch_of_one_name_sends_that_object_only() {
    for_each_store_async(async |client| {
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        client.create(CONFIG_MAPS_PATH, &config_map("b")).await;
        let mut lines = WatchReader::open(&client, "/api/v1/watch/namespaces/default/configmaps/b").await;
        assert_eq!(lines.next_event_summary().await, "ADDED b");
        client.delete(&format!("{CONFIG_MAPS_PATH}/a")).await;
        client.delete(&format!("{CONFIG_MAPS_PATH}/b")).await;
        assert_eq!(lines.next_event_summary().await, "DELETED b");
    });
}

#[test]
fn watch_is_resumed_on_a_restarted_server() {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let first = RunningServer::start(folder.path(), store, &[]);
        let seen = block_on(async {
            let client = first.admin();
            let seen = client.create(CONFIG_MAPS_PATH, &config_map("a")).await.json();
            client.create(CONFIG_MAPS_PATH, &config_map("b")).await;
            client.delete(&format!("{CONFIG_MAPS_PATH}/a")).await;
            resource_version(&seen)
        });
        first.stop();
        let second = RunningServer::start(folder.path(), store, &[]);
        block_on(async {
            let client = second.admin();
            let mut lines = open_watch(&client, &format!("resourceVersion={seen}")).await;
            client.create(CONFIG_MAPS_PATH, &config_map("c")).await;
            assert_eq!(lines.next_event_summary().await, "ADDED b", "{store:?}");
            let deleted = lines.next_event().await;
            assert_eq!((&deleted["type"], &deleted["object"]["data"]["a"]), (&"DELETED".into(), &"1".into()));
            assert_eq!(lines.next_event_summary().await, "ADDED c", "{store:?}");
        });
    }
}

#[test]
fn watch_from_a_compacted_revision_is_410() {
    let folder = tempfile::tempdir().unwrap();
    let first = start_on_sqlite(folder.path(), &["--etcd-compaction-interval=200ms"]);
    block_on(async {
        let client = first.admin();
        let forgotten = format!("{CONFIG_MAPS_PATH}?resourceVersion=1&resourceVersionMatch=Exact");
        wait::eventually("the first revision is compacted", async || match client.get(&forgotten).await {
            gone if gone.status == 410 => Ok(()),
            answer => Err(format!("{answer:?}")),
        })
        .await;
    });
    first.stop();
    // The restarted server's history begins where the store's does.
    let server = start_on_sqlite(folder.path(), &[]);
    block_on(async {
        let answer =
            server.admin().get(&format!("{CONFIG_MAPS_PATH}?watch=1&resourceVersion=1&timeoutSeconds=5")).await;
        let status = answer.json();
        assert_eq!((answer.status.as_u16(), &status["reason"]), (410, &"Expired".into()), "{status}");
    });
}
