//! Garbage collection as Kubernetes documents it.

use super::*;

#[test]
fn background_deletion_removes_the_whole_tree() {
    with_controllers_on_each_store(async |client| {
        let root = create_object(&client, CONFIG_MAPS_PATH, &config_map("root")).await;
        let child = create_owned(&client, "child", &[owner_reference("root", &root)]).await;
        create_owned(&client, "grandchild", &[owner_reference("child", &child)]).await;
        create_owned(&client, "other", &[]).await;
        delete_with_propagation(&client, &config_map_path("root"), "Background").await;
        assert!(
            !object_exists(&client, &config_map_path("root")).await,
            "background deletion removes the owner at once"
        );
        wait_until_deleted(&client, &config_map_path("child")).await;
        wait_until_deleted(&client, &config_map_path("grandchild")).await;
        assert!(object_exists(&client, &config_map_path("other")).await);
    });
}

#[test]
fn foreground_deletion_removes_blocking_dependents_first() {
    with_controllers_on_each_store(async |client| {
        let root = create_object(&client, CONFIG_MAPS_PATH, &config_map("root")).await;
        let mut held = config_map("child");
        held["metadata"]["ownerReferences"] = json!([blocking_owner_reference("root", &root)]);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        create_object(&client, CONFIG_MAPS_PATH, &held).await;
        create_owned(&client, "free", &[owner_reference("root", &root)]).await;
        delete_with_propagation(&client, &config_map_path("root"), "Foreground").await;
        wait_until_deleted(&client, &config_map_path("free")).await;
        eventually("the child is being deleted", async || {
            let child = client.get(&config_map_path("child")).await.json();
            let marked = child["metadata"]["deletionTimestamp"].is_string();
            if marked { Ok(()) } else { Err(child.to_string()) }
        })
        .await;
        let waiting = client.get(&config_map_path("root")).await.json();
        assert_eq!(
            waiting["metadata"]["finalizers"],
            json!(["foregroundDeletion"]),
            "the owner waits for the child: {waiting}"
        );
        merge_patch(&client, &config_map_path("child"), &json!({"metadata": {"finalizers": null}})).await;
        wait_until_deleted(&client, &config_map_path("child")).await;
        wait_until_deleted(&client, &config_map_path("root")).await;
    });
}

#[test]
fn orphan_deletion_keeps_dependents_without_owner_reference() {
    with_controllers_on_each_store(async |client| {
        let root = create_object(&client, CONFIG_MAPS_PATH, &config_map("root")).await;
        let other = create_object(&client, CONFIG_MAPS_PATH, &config_map("other")).await;
        create_owned(&client, "child", &[owner_reference("root", &root)]).await;
        create_owned(&client, "shared", &[owner_reference("root", &root), owner_reference("other", &other)]).await;
        wait_for_collector(&client, "mark").await;
        delete_with_propagation(&client, &config_map_path("root"), "Orphan").await;
        wait_until_deleted(&client, &config_map_path("root")).await;
        assert!(client.get(&config_map_path("child")).await.json()["metadata"]["ownerReferences"].is_null());
        assert_eq!(
            client.get(&config_map_path("shared")).await.json()["metadata"]["ownerReferences"],
            json!([owner_reference("other", &other)])
        );
        wait_for_collector(&client, "later").await;
        assert!(object_exists(&client, &config_map_path("child")).await);
    });
}

#[test]
fn dependent_is_kept_while_one_of_its_owners_exists() {
    with_controllers_on_sqlite(async |client| {
        let a = create_object(&client, CONFIG_MAPS_PATH, &config_map("a")).await;
        let b = create_object(&client, CONFIG_MAPS_PATH, &config_map("b")).await;
        create_owned(&client, "child", &[owner_reference("a", &a), owner_reference("b", &b)]).await;
        wait_for_collector(&client, "mark").await;
        delete_with_propagation(&client, &config_map_path("a"), "Background").await;
        eventually("the absent owner is removed from the references", async || {
            let owners = client.get(&config_map_path("child")).await.json()["metadata"]["ownerReferences"].clone();
            if owners == json!([owner_reference("b", &b)]) { Ok(()) } else { Err(owners.to_string()) }
        })
        .await;
        delete_with_propagation(&client, &config_map_path("b"), "Background").await;
        wait_until_deleted(&client, &config_map_path("child")).await;
    });
}

#[test]
fn dependent_of_missing_or_recreated_owner_is_deleted() {
    with_controllers_on_sqlite(async |client| {
        create_owned(&client, "dangling", &[owner_reference("absent", "00000000-0000-0000-0000-000000000000")]).await;
        wait_until_deleted(&client, &config_map_path("dangling")).await;
        let first = create_object(&client, CONFIG_MAPS_PATH, &config_map("reborn")).await;
        client.delete(&config_map_path("reborn")).await;
        create_object(&client, CONFIG_MAPS_PATH, &config_map("reborn")).await;
        create_owned(&client, "of-the-first", &[owner_reference("reborn", &first)]).await;
        wait_until_deleted(&client, &config_map_path("of-the-first")).await;
        assert!(object_exists(&client, &config_map_path("reborn")).await);
    });
}

#[test]
fn ownership_cycle_is_kept_until_a_member_is_deleted() {
    with_controllers_on_sqlite(async |client| {
        for policy in ["Background", "Foreground"] {
            let a = create_object(&client, CONFIG_MAPS_PATH, &config_map("a")).await;
            let b = create_owned(&client, "b", &[blocking_owner_reference("a", &a)]).await;
            let c = create_owned(&client, "c", &[blocking_owner_reference("b", &b)]).await;
            merge_patch(
                &client,
                &config_map_path("a"),
                &json!({"metadata": {"ownerReferences": [blocking_owner_reference("c", &c)]}}),
            )
            .await;
            wait_for_collector(&client, "mark").await;
            for name in ["a", "b", "c"] {
                assert!(object_exists(&client, &config_map_path(name)).await, "{name} has an owner");
            }
            delete_with_propagation(&client, &config_map_path("b"), policy).await;
            for name in ["a", "b", "c"] {
                wait_until_deleted(&client, &config_map_path(name)).await;
            }
        }
    });
}

#[test]
fn dependents_of_an_unserved_owner_kind_are_kept() {
    with_controllers_on_sqlite(async |client| {
        let unknown = json!({"apiVersion": "example.com/v1", "kind": "Planet", "name": "p", "uid": "u"});
        create_owned(&client, "child", &[unknown.clone(), owner_reference("absent", "n")]).await;
        wait_for_collector(&client, "mark").await;
        let child = client.get(&config_map_path("child")).await.json();
        assert_eq!(
            child["metadata"]["ownerReferences"],
            json!([unknown, owner_reference("absent", "n")]),
            "the dependent is kept"
        );
    });
}

#[test]
fn cross_namespace_owner_reference_is_invalid_and_reported() {
    with_controllers_on_sqlite(async |client| {
        create_namespace(&client, "elsewhere").await;
        let far = create_object(&client, "/api/v1/namespaces/elsewhere/configmaps", &config_map("far")).await;
        create_owned(&client, "child", &[owner_reference("far", &far)]).await;
        wait_until_deleted(&client, &config_map_path("child")).await;
        eventually("an event is recorded", async || {
            let events = client.get("/api/v1/namespaces/default/events").await.json();
            let told = events["items"].as_array().unwrap().iter().any(|event| {
                event["reason"] == "OwnerRefInvalidNamespace"
                    && event["involvedObject"]["name"] == "child"
                    && event["message"].as_str().unwrap().ends_with("does not exist in namespace \"default\"")
            });
            if told { Ok(()) } else { Err(events.to_string()) }
        })
        .await;
        // A namespaced object cannot own a cluster-scoped one; the latter is not collected.
        let mut class = json!({"metadata": {"name": "quick"}, "value": 1});
        class["metadata"]["ownerReferences"] = json!([owner_reference("far", &far)]);
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        create_object(&client, classes, &class).await;
        client.delete("/api/v1/namespaces/elsewhere/configmaps/far").await;
        wait_for_collector(&client, "mark").await;
        assert!(object_exists(&client, &format!("{classes}/quick")).await);
    });
}

#[test]
fn deleting_a_cluster_scoped_owner_deletes_namespaced_dependents() {
    with_controllers_on_sqlite(async |client| {
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        let class = create_object(&client, classes, &json!({"metadata": {"name": "quick"}, "value": 1})).await;
        let reference =
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": "quick", "uid": class});
        create_owned(&client, "child", &[reference]).await;
        wait_for_collector(&client, "mark").await;
        assert!(object_exists(&client, &config_map_path("child")).await);
        client.delete(&format!("{classes}/quick")).await;
        wait_until_deleted(&client, &config_map_path("child")).await;
    });
}
