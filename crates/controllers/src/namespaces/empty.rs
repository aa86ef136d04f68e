//! Emptying one resource of a namespace.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::findings::Emptied;
use crate::client::{CallError, Client, METADATA_LIST_ONLY, PAGE};
use crate::follow::{List, Metadata, Seen, parse_list};
use crate::resources::Resource;

/// Deletes what there is, and sees whether that was all. Every look is a consistent list.
pub(super) async fn empty(client: &Client, resource: &Resource, namespace: &str) -> Emptied {
    match try_to_empty(client, resource, namespace).await {
        Ok(emptied) => emptied,
        Err(error) => Emptied::Failed(format!("{}: {error}", resource.group_resource())),
    }
}

async fn try_to_empty(client: &Client, resource: &Resource, namespace: &str) -> Result<Emptied, CallError> {
    let found = look(client, resource, namespace).await?;
    if found.items.is_empty() {
        return Ok(Emptied::Empty);
    }
    if found.items.iter().all(|seen| seen.metadata.is_deleting) && found.metadata.continue_token.is_empty() {
        return Ok(left(resource, &found));
    }
    delete(client, resource, namespace, &found).await?;
    let found = look(client, resource, namespace).await?;
    Ok(if found.items.is_empty() { Emptied::Cleared } else { left(resource, &found) })
}

async fn look(client: &Client, resource: &Resource, namespace: &str) -> Result<List, CallError> {
    let path = format!("{}?limit={PAGE}", resource.path(namespace));
    parse_list(&client.get(&path, METADATA_LIST_ONLY).await?.body)
}

/// All at once where that is offered. Dependents need no care: they are in the same namespace, or others' business.
async fn delete(client: &Client, resource: &Resource, namespace: &str, found: &List) -> Result<(), CallError> {
    let options = |preconditions: Value| {
        json!({"kind": "DeleteOptions", "apiVersion": "v1",
        "propagationPolicy": "Background", "preconditions": preconditions})
    };
    if resource.can("deletecollection") {
        return client.delete(&resource.path(namespace), &options(json!({}))).await.map(drop);
    }
    for Seen { metadata: Metadata { name, uid, .. }, .. } in &found.items {
        let path = resource.object_path(namespace, name);
        match client.delete(&path, &options(json!({"uid": uid}))).await {
            Ok(_) => {}
            // Gone, or another one by now, which the next look shows.
            Err(error) if error.is_absent(resource.name.borrowed(), name) || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(resource: &Resource, found: &List) -> Emptied {
    let rest = found.metadata.remaining_item_count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for finalizer in found.items.iter().flat_map(|seen| &seen.metadata.finalizers) {
        *finalizers.entry(finalizer.to_string()).or_default() += 1;
    }
    // Pods are given time to end; anything else that is neither kept nor about to go should have gone.
    let is_pod = &*resource.name.resource == "pods" && resource.name.group.is_empty();
    let is_unexpected = !is_pod && finalizers.is_empty();
    Emptied::Left { count: found.items.len() + rest, finalizers, is_unexpected }
}
