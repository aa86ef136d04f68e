//! Lists: selectors, paging, resourceVersion and tables.

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
