//! Deletes all objects of one resource in a namespace.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::findings::ContentDeletion;
use crate::client::{ApiClient, ApiError, METADATA_LIST_ONLY, PAGE_SIZE};
use crate::informer::{ObjectList, ObservedMetadata, ObservedObject, parse_list};
use crate::resources::DiscoveredResource;

/// Deletes all objects and lists what remains. Every list is consistent.
pub(super) async fn delete_all_objects(
    client: &ApiClient,
    resource: &DiscoveredResource,
    namespace: &str,
) -> ContentDeletion {
    match try_delete_all_objects(client, resource, namespace).await {
        Ok(emptied) => emptied,
        Err(error) => ContentDeletion::Failed(format!("{}: {error}", resource.group_resource())),
    }
}

async fn try_delete_all_objects(
    client: &ApiClient,
    resource: &DiscoveredResource,
    namespace: &str,
) -> Result<ContentDeletion, ApiError> {
    let found = list_objects(client, resource, namespace).await?;
    if found.items.is_empty() {
        return Ok(ContentDeletion::Empty);
    }
    if found.items.iter().all(|seen| seen.metadata.is_deleting) && found.metadata.continue_token.is_empty() {
        return Ok(remaining_objects(resource, &found));
    }
    delete_objects(client, resource, namespace, &found).await?;
    let found = list_objects(client, resource, namespace).await?;
    Ok(if found.items.is_empty() { ContentDeletion::Deleted } else { remaining_objects(resource, &found) })
}

async fn list_objects(
    client: &ApiClient,
    resource: &DiscoveredResource,
    namespace: &str,
) -> Result<ObjectList, ApiError> {
    let path = format!("{}?limit={PAGE_SIZE}", resource.path(namespace));
    parse_list(&client.get(&path, METADATA_LIST_ONLY).await?.body)
}

/// Deletes the whole collection if the resource supports it. Dependents need no foreground deletion: those in the
/// namespace are deleted anyway, others are the garbage collector's.
async fn delete_objects(
    client: &ApiClient,
    resource: &DiscoveredResource,
    namespace: &str,
    found: &ObjectList,
) -> Result<(), ApiError> {
    let options = |preconditions: Value| {
        json!({"kind": "DeleteOptions", "apiVersion": "v1",
        "propagationPolicy": "Background", "preconditions": preconditions})
    };
    if resource.supports("deletecollection") {
        return client.delete(&resource.path(namespace), &options(json!({}))).await.map(drop);
    }
    for ObservedObject { metadata: ObservedMetadata { name, uid, .. }, .. } in &found.items {
        let path = resource.object_path(namespace, name);
        match client.delete(&path, &options(json!({"uid": uid}))).await {
            Ok(_) => {}
            // Gone or replaced, which the next list shows.
            Err(error) if error.is_object_not_found(resource.name.borrowed(), name) || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn remaining_objects(resource: &DiscoveredResource, found: &ObjectList) -> ContentDeletion {
    let rest = found.metadata.remaining_item_count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for finalizer in found.items.iter().flat_map(|seen| &seen.metadata.finalizers) {
        *finalizers.entry(finalizer.to_string()).or_default() += 1;
    }
    // Pods get time to terminate; other objects without finalizers should be gone.
    let is_pod = &*resource.name.resource == "pods" && resource.name.group.is_empty();
    let is_unexpected = !is_pod && finalizers.is_empty();
    ContentDeletion::Remaining { count: found.items.len() + rest, finalizers, is_unexpected }
}
