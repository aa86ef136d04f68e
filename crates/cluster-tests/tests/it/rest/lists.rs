//! Lists: selectors, paging, resourceVersion and tables.

use cluster_tests::wait;

use crate::*;

async fn list_names(client: &Client, query: &str) -> Vec<String> {
    let list = client.get(&format!("{CONFIG_MAPS_PATH}?{query}")).await.json();
    let items = list["items"].as_array().unwrap_or_else(|| panic!("{query}: {list}"));
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn selectors_filter_and_unknown_fields_are_rejected() {
    for_each_store_async(async |client| {
        for (name, tier) in [("a", "front"), ("b", "back"), ("c", "back")] {
            let mut object = config_map(name);
            object["metadata"]["labels"] = json!({"tier": tier});
            client.create(CONFIG_MAPS_PATH, &object).await;
        }
        assert_eq!(list_names(&client, "labelSelector=tier%3Dback").await, ["b", "c"]);
        assert_eq!(list_names(&client, "labelSelector=tier%20in%20(front,other)").await, ["a"]);
        assert_eq!(list_names(&client, "fieldSelector=metadata.name%3Dc").await, ["c"]);
        assert_eq!(list_names(&client, "labelSelector=tier%3Dback&fieldSelector=metadata.name!%3Db").await, ["c"]);
        let refused = client.get(&format!("{CONFIG_MAPS_PATH}?fieldSelector=data.a%3D1")).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    });
}

#[test]
fn paged_list_is_consistent_at_one_revision() {
    for_each_store_async(async |client| {
        let create = |at: usize| {
            let client = &client;
            async move { client.create(CONFIG_MAPS_PATH, &config_map(&format!("m{at:04}"))).await.status }
        };
        for wave in 0..20 {
            let created = futures_util::future::join_all((wave * 50..(wave + 1) * 50).map(create)).await;
            assert!(created.iter().all(|status| *status == 201), "{created:?}");
        }
        let mut seen = Vec::new();
        let mut token = String::new();
        loop {
            let page = client.get(&format!("{CONFIG_MAPS_PATH}?limit=137&continue={token}")).await.json();
            for item in page["items"].as_array().unwrap() {
                seen.push(item["metadata"]["name"].as_str().unwrap().to_owned());
            }
            if seen.len() == 137 {
                assert_eq!(page["metadata"]["remainingItemCount"], 863);
                // Later writes do not appear in the pages that follow.
                client.delete(&format!("{CONFIG_MAPS_PATH}/m0999")).await;
                client.create(CONFIG_MAPS_PATH, &config_map("m0500a")).await;
            }
            match page["metadata"]["continue"].as_str() {
                Some(next) => next.clone_into(&mut token),
                None => break,
            }
        }
        let expected: Vec<String> = (0..1000).map(|at| format!("m{at:04}")).collect();
        assert_eq!(seen, expected);
    });
}

#[test]
fn page_of_a_compacted_revision_is_410_and_its_token_continues() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--etcd-compaction-interval=200ms"]);
    block_on(async {
        let client = server.admin();
        for name in ["a", "b", "c"] {
            client.create(CONFIG_MAPS_PATH, &config_map(name)).await;
        }
        let first = client.get(&format!("{CONFIG_MAPS_PATH}?limit=1")).await.json();
        let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        // Writes of another resource let compaction go on; the config maps stay as they are.
        let rest = format!("{CONFIG_MAPS_PATH}?limit=1&continue={token}");
        wait::eventually("the revision of the list is compacted", async || {
            client.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"generateName": "s-"}})).await;
            match client.get(&rest).await {
                gone if gone.status == 410 => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        })
        .await;
        let gone = client.get(&rest).await.json();
        assert_eq!(gone["reason"], "Expired", "{gone}");
        let token = gone["metadata"]["continue"].as_str().unwrap();
        assert_eq!(list_names(&client, &format!("continue={token}")).await, ["b", "c"]);
    });
}

#[test]
fn writes_respond_in_the_accepted_representation() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    block_on(async {
        let client = server.admin();
        let send = async |path: &str, accept: &str, body: &serde_json::Value| {
            let request = client.request_builder(http::Method::POST, path).header("accept", accept);
            let request = request.header("content-type", "application/json");
            client.send(request, body.to_string().into()).await
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let created = send(CONFIG_MAPS_PATH, table, &config_map("a")).await;
        assert_eq!(
            (created.status.as_u16(), &created.json()["rows"][0]["cells"][0]),
            (201, &"a".into()),
            "{created:?}"
        );
        let refused = send(CONFIG_MAPS_PATH, "text/html", &config_map("b")).await;
        assert_eq!(refused.status, 406, "{refused:?}");
        assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}/b")).await.status, 404, "nothing was executed");
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let review = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}});
        assert_eq!(send(reviews, table, &review).await.status, 406, "a review has no table");
        let review_kind = async |accept: &str| send(reviews, accept, &review).await.json()["kind"].clone();
        assert_eq!(
            review_kind("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await,
            "PartialObjectMetadata"
        );
        assert_eq!(review_kind(&format!("{table},application/json")).await, "SelfSubjectAccessReview");
    });
}

#[test]
fn list_honours_resource_version_match() {
    for_each_store_async(async |client| {
        let first = client.create(CONFIG_MAPS_PATH, &config_map("a")).await.json();
        let version = first["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        client.create(CONFIG_MAPS_PATH, &config_map("b")).await;
        let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        assert_eq!(list_names(&client, &exact).await, ["a"]);
        let at_least = format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        assert_eq!(list_names(&client, &at_least).await, ["a", "b"]);
        let future = client.get(&format!("{CONFIG_MAPS_PATH}?resourceVersion=999999999")).await;
        assert_eq!(future.status, 504, "{future:?}");
        assert_eq!(future.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    });
}

#[test]
fn list_is_returned_as_table_or_partial_metadata() {
    for_each_store_async(async |client| {
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        let ask = async |kind: &str| {
            let accept = format!("application/json;as={kind};v=v1;g=meta.k8s.io,application/json");
            let request = client.request_builder(http::Method::GET, CONFIG_MAPS_PATH).header("accept", accept);
            client.send(request, bytes::Bytes::new()).await.json()
        };
        let table = ask("Table").await;
        assert_eq!(table["kind"], "Table");
        assert_eq!(table["rows"][0]["cells"][0], "a");
        let metadata = ask("PartialObjectMetadataList").await;
        assert_eq!(metadata["kind"], "PartialObjectMetadataList");
        assert!(metadata["items"][0]["data"].is_null());
    });
}

#[test]
fn items_of_built_in_kinds_have_neither_kind_nor_version() {
    for_each_store_async(async |client| {
        let mut object = config_map("a");
        object["data"] = json!({"kind": "x"});
        client.create(CONFIG_MAPS_PATH, &object).await;
        let created = client.get(&format!("{CONFIG_MAPS_PATH}/a")).await.json();
        let mut expected = created.clone();
        expected.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
        let list = client.get(&format!("{CONFIG_MAPS_PATH}?fieldSelector=metadata.name%3Da")).await.json();
        assert_eq!((&list["kind"], &list["items"]), (&json!("ConfigMapList"), &json!([expected])));
        let deleted = client.delete(&format!("{CONFIG_MAPS_PATH}?fieldSelector=metadata.name%3Da")).await.json();
        assert_eq!((&deleted["kind"], &deleted["items"]), (&json!("ConfigMapList"), &json!([expected])));
        // An object that is stored in another version.
        let event =
            json!({"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"namespace": "default"}});
        assert_eq!(client.create("/api/v1/namespaces/default/events", &event).await.status, 201);
        let list = client.get("/apis/events.k8s.io/v1/namespaces/default/events").await.json();
        assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("EventList"), &Value::Null), "{list}");
    });
}
