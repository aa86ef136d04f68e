//! Watches: from a revision, from now, with initial events and bookmarks, and resumed.

use cluster_tests::{Lines, wait};
use http::Method;

use super::*;

async fn open(client: &Client, query: &str) -> Lines {
    Lines::open(client, &format!("{CONFIG_MAPS}?watch=1&{query}")).await
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[test]
fn a_watch_shows_every_change_after_its_revision() {
    on_both_async(async |client| {
        let first = client.create(CONFIG_MAPS, &config_map("a")).await.json();
        let mut lines = open(&client, &format!("resourceVersion={}", version(&first))).await;
        let mut changed = first.clone();
        changed["data"]["a"] = "2".into();
        client.update(&format!("{CONFIG_MAPS}/a"), &changed).await;
        client.create(CONFIG_MAPS, &config_map("b")).await;
        client.delete(&format!("{CONFIG_MAPS}/a")).await;
        assert_eq!(lines.brief().await, "MODIFIED a");
        assert_eq!(lines.brief().await, "ADDED b");
        let deleted = lines.next().await;
        assert_eq!((&deleted["type"], &deleted["object"]["data"]["a"]), (&"DELETED".into(), &"2".into()));
    });
}

#[test]
fn a_watch_without_a_revision_begins_with_what_is_there() {
    on_both_async(async |client| {
        client.create(CONFIG_MAPS, &config_map("a")).await;
        let mut lines = open(&client, "").await;
        assert_eq!(lines.brief().await, "ADDED a");
        client.create(CONFIG_MAPS, &config_map("b")).await;
        assert_eq!(lines.brief().await, "ADDED b");
    });
}

#[test]
fn initial_events_end_with_a_bookmark_that_can_be_resumed_from() {
    on_both_async(async |client| {
        client.create(CONFIG_MAPS, &config_map("a")).await;
        let query =
            "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=";
        let mut lines = open(&client, query).await;
        assert_eq!(lines.brief().await, "ADDED a");
        let bookmark = lines.next().await;
        assert_eq!(bookmark["type"], "BOOKMARK", "{bookmark}");
        assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        drop(lines);
        client.create(CONFIG_MAPS, &config_map("b")).await;
        let mut resumed = open(&client, &format!("resourceVersion={}", version(&bookmark["object"]))).await;
        assert_eq!(resumed.brief().await, "ADDED b");
    });
}

#[test]
fn objects_that_begin_or_cease_to_match_appear_and_disappear() {
    on_both_async(async |client| {
        let created = client.create(CONFIG_MAPS, &config_map("a")).await.json();
        let query = format!("labelSelector=tier%3Dback&resourceVersion={}", version(&created));
        let mut lines = open(&client, &query).await;
        for (label, expected) in [("back", "ADDED a"), ("front", "DELETED a")] {
            let patch = format!(r#"{{"metadata":{{"labels":{{"tier":"{label}"}}}}}}"#);
            let path = format!("{CONFIG_MAPS}/a");
            client.write(Method::PATCH, &path, "application/merge-patch+json", patch.into()).await;
            assert_eq!(lines.brief().await, expected);
        }
    });
}

#[test]
fn a_watch_says_whether_it_begins_with_what_is_there() {
    on_both_async(async |client| {
        client.create(CONFIG_MAPS, &config_map("a")).await;
        let only_news = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        for version in ["", "&resourceVersion=0"] {
            let mut lines = open(&client, &format!("{only_news}{version}")).await;
            let name = format!("b{}", version.len());
            client.create(CONFIG_MAPS, &config_map(&name)).await;
            assert_eq!(lines.brief().await, format!("ADDED {name}"));
        }
        let refused = client.get(&format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=true")).await;
        assert_eq!(refused.status, 422, "{refused:?}");
    });
}

#[test]
fn a_watch_of_one_name_shows_that_object_alone() {
    on_both_async(async |client| {
        client.create(CONFIG_MAPS, &config_map("a")).await;
        client.create(CONFIG_MAPS, &config_map("b")).await;
        let mut lines = Lines::open(&client, "/api/v1/watch/namespaces/default/configmaps/b").await;
        assert_eq!(lines.brief().await, "ADDED b");
        client.delete(&format!("{CONFIG_MAPS}/a")).await;
        client.delete(&format!("{CONFIG_MAPS}/b")).await;
        assert_eq!(lines.brief().await, "DELETED b");
    });
}

#[test]
fn a_watch_is_resumed_at_a_server_that_was_started_since() {
    let etcd = Etcd::start();
    for store in [Store::Sqlite, Store::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let first = Server::start(folder.path(), store, &[]);
        let seen = block_on(async {
            let client = first.admin();
            let seen = client.create(CONFIG_MAPS, &config_map("a")).await.json();
            client.create(CONFIG_MAPS, &config_map("b")).await;
            client.delete(&format!("{CONFIG_MAPS}/a")).await;
            version(&seen)
        });
        first.stop();
        let second = Server::start(folder.path(), store, &[]);
        block_on(async {
            let client = second.admin();
            let mut lines = open(&client, &format!("resourceVersion={seen}")).await;
            client.create(CONFIG_MAPS, &config_map("c")).await;
            assert_eq!(lines.brief().await, "ADDED b", "{store:?}");
            let deleted = lines.next().await;
            assert_eq!((&deleted["type"], &deleted["object"]["data"]["a"]), (&"DELETED".into(), &"1".into()));
            assert_eq!(lines.brief().await, "ADDED c", "{store:?}");
        });
    }
}

#[test]
fn a_watch_from_a_forgotten_revision_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let first = on_sqlite(folder.path(), &["--etcd-compaction-interval=200ms"]);
    block_on(async {
        let client = first.admin();
        let forgotten = format!("{CONFIG_MAPS}?resourceVersion=1&resourceVersionMatch=Exact");
        wait::eventually("compaction has come past the first revision", async || match client.get(&forgotten).await {
            gone if gone.status == 410 => Ok(()),
            answer => Err(format!("{answer:?}")),
        })
        .await;
    });
    first.stop();
    // Its memory begins where the store's does.
    let server = on_sqlite(folder.path(), &[]);
    block_on(async {
        let answer = server.admin().get(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=1&timeoutSeconds=5")).await;
        let status = answer.json();
        assert_eq!((answer.status.as_u16(), &status["reason"]), (410, &"Expired".into()), "{status}");
    });
}
