//! Metadata-only responses: `PartialObjectMetadata` and its list.

use api::metadata::ListMeta;
use serde_json::{Map, Value, json};

/// The `PartialObjectMetadata` of an object. `api_version` is `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
pub fn object(object: &Map<String, Value>, api_version: &str) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": metadata})
}

/// The `PartialObjectMetadataList` of several objects.
pub fn list<'o>(
    objects: impl IntoIterator<Item = &'o Map<String, Value>>,
    metadata: &ListMeta,
    api_version: &str,
) -> Value {
    let items: Vec<Value> = objects.into_iter().map(|item| object(item, api_version)).collect();
    json!({"kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": metadata, "items": items})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_list_keeps_only_metadata() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {}}).as_object().unwrap().clone();
        let bare = Map::new();
        let metadata = ListMeta { resource_version: "7".to_owned(), ..ListMeta::default() };
        assert_eq!(
            list([&pod, &bare], &metadata, "meta.k8s.io/v1"),
            json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": "7"},
                "items": [
                    {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}},
                    {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {}},
                ],
            })
        );
    }
}
