//! Kubernetes' documented behaviours of garbage collection, one by one.

use super::*;

#[test]
fn background_deletion_takes_the_whole_tree() {
    on_both(async |client| {
        let root = create(&client, MAPS, &config_map("root")).await;
        let child = create_owned(&client, "child", &[owner("root", &root)]).await;
        create_owned(&client, "grandchild", &[owner("child", &child)]).await;
        create_owned(&client, "other", &[]).await;
        delete(&client, &map("root"), "Background").await;
        assert!(!is_there(&client, &map("root")).await, "it goes at once");
        wait_gone(&client, &map("child")).await;
        wait_gone(&client, &map("grandchild")).await;
        assert!(is_there(&client, &map("other")).await);
    });
}

#[test]
fn foreground_deletion_takes_what_blocks_first() {
    on_both(async |client| {
        let root = create(&client, MAPS, &config_map("root")).await;
        let mut held = config_map("child");
        held["metadata"]["ownerReferences"] = json!([blocking("root", &root)]);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        create(&client, MAPS, &held).await;
        create_owned(&client, "free", &[owner("root", &root)]).await;
        delete(&client, &map("root"), "Foreground").await;
        wait_gone(&client, &map("free")).await;
        eventually("the child is asked to go", async || {
            let child = client.get(&map("child")).await.json();
            let marked = child["metadata"]["deletionTimestamp"].is_string();
            if marked { Ok(()) } else { Err(child.to_string()) }
        })
        .await;
        let waiting = client.get(&map("root")).await.json();
        assert_eq!(
            waiting["metadata"]["finalizers"],
            json!(["foregroundDeletion"]),
            "it waits for the child: {waiting}"
        );
        merge(&client, &map("child"), &json!({"metadata": {"finalizers": null}})).await;
        wait_gone(&client, &map("child")).await;
        wait_gone(&client, &map("root")).await;
    });
}

#[test]
fn orphans_stay_and_name_their_owner_no_longer() {
    on_both(async |client| {
        let root = create(&client, MAPS, &config_map("root")).await;
        let other = create(&client, MAPS, &config_map("other")).await;
        create_owned(&client, "child", &[owner("root", &root)]).await;
        create_owned(&client, "shared", &[owner("root", &root), owner("other", &other)]).await;
        wait_for_collector(&client, "mark").await;
        delete(&client, &map("root"), "Orphan").await;
        wait_gone(&client, &map("root")).await;
        assert!(client.get(&map("child")).await.json()["metadata"]["ownerReferences"].is_null());
        assert_eq!(
            client.get(&map("shared")).await.json()["metadata"]["ownerReferences"],
            json!([owner("other", &other)])
        );
        wait_for_collector(&client, "later").await;
        assert!(is_there(&client, &map("child")).await);
    });
}

#[test]
fn one_of_several_owners_is_enough_to_stay() {
    on_sqlite(async |client| {
        let a = create(&client, MAPS, &config_map("a")).await;
        let b = create(&client, MAPS, &config_map("b")).await;
        create_owned(&client, "child", &[owner("a", &a), owner("b", &b)]).await;
        wait_for_collector(&client, "mark").await;
        delete(&client, &map("a"), "Background").await;
        eventually("the absent owner is struck", async || {
            let owners = client.get(&map("child")).await.json()["metadata"]["ownerReferences"].clone();
            if owners == json!([owner("b", &b)]) { Ok(()) } else { Err(owners.to_string()) }
        })
        .await;
        delete(&client, &map("b"), "Background").await;
        wait_gone(&client, &map("child")).await;
    });
}

#[test]
fn an_owner_that_never_was_or_is_another_by_now_is_absent() {
    on_sqlite(async |client| {
        create_owned(&client, "dangling", &[owner("nobody", "00000000-0000-0000-0000-000000000000")]).await;
        wait_gone(&client, &map("dangling")).await;
        let first = create(&client, MAPS, &config_map("reborn")).await;
        client.delete(&map("reborn")).await;
        create(&client, MAPS, &config_map("reborn")).await;
        create_owned(&client, "of-the-first", &[owner("reborn", &first)]).await;
        wait_gone(&client, &map("of-the-first")).await;
        assert!(is_there(&client, &map("reborn")).await);
    });
}

#[test]
fn circles_stay_until_one_of_them_is_deleted() {
    on_sqlite(async |client| {
        for policy in ["Background", "Foreground"] {
            let a = create(&client, MAPS, &config_map("a")).await;
            let b = create_owned(&client, "b", &[blocking("a", &a)]).await;
            let c = create_owned(&client, "c", &[blocking("b", &b)]).await;
            merge(&client, &map("a"), &json!({"metadata": {"ownerReferences": [blocking("c", &c)]}})).await;
            wait_for_collector(&client, "mark").await;
            for name in ["a", "b", "c"] {
                assert!(is_there(&client, &map(name)).await, "{name} has an owner");
            }
            delete(&client, &map("b"), policy).await;
            for name in ["a", "b", "c"] {
                wait_gone(&client, &map(name)).await;
            }
        }
    });
}

#[test]
fn an_owner_of_a_kind_that_nobody_serves_keeps_its_dependents() {
    on_sqlite(async |client| {
        let unknown = json!({"apiVersion": "example.com/v1", "kind": "Planet", "name": "p", "uid": "u"});
        create_owned(&client, "child", &[unknown.clone(), owner("nobody", "n")]).await;
        wait_for_collector(&client, "mark").await;
        let child = client.get(&map("child")).await.json();
        assert_eq!(child["metadata"]["ownerReferences"], json!([unknown, owner("nobody", "n")]), "it is left alone");
    });
}

#[test]
fn a_reference_into_another_namespace_counts_for_nothing_and_is_told() {
    on_sqlite(async |client| {
        create_namespace(&client, "elsewhere").await;
        let far = create(&client, "/api/v1/namespaces/elsewhere/configmaps", &config_map("far")).await;
        create_owned(&client, "child", &[owner("far", &far)]).await;
        wait_gone(&client, &map("child")).await;
        eventually("it is told", async || {
            let events = client.get("/api/v1/namespaces/default/events").await.json();
            let told = events["items"].as_array().unwrap().iter().any(|event| {
                event["reason"] == "OwnerRefInvalidNamespace"
                    && event["involvedObject"]["name"] == "child"
                    && event["message"].as_str().unwrap().ends_with("does not exist in namespace \"default\"")
            });
            if told { Ok(()) } else { Err(events.to_string()) }
        })
        .await;
        // A cluster-scoped object cannot be owned by a namespaced one, and is not collected.
        let mut class = json!({"metadata": {"name": "quick"}, "value": 1});
        class["metadata"]["ownerReferences"] = json!([owner("far", &far)]);
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        create(&client, classes, &class).await;
        client.delete("/api/v1/namespaces/elsewhere/configmaps/far").await;
        wait_for_collector(&client, "mark").await;
        assert!(is_there(&client, &format!("{classes}/quick")).await);
    });
}

#[test]
fn a_cluster_scoped_owner_takes_dependents_in_namespaces() {
    on_sqlite(async |client| {
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        let class = create(&client, classes, &json!({"metadata": {"name": "quick"}, "value": 1})).await;
        let reference =
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": "quick", "uid": class});
        create_owned(&client, "child", &[reference]).await;
        wait_for_collector(&client, "mark").await;
        assert!(is_there(&client, &map("child")).await);
        client.delete(&format!("{classes}/quick")).await;
        wait_gone(&client, &map("child")).await;
    });
}
