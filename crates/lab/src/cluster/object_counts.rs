//! How many objects of each resource a cluster serves: all that its API tells of its storage.

use serde_json::Value;

use super::{ClusterAccess, ClusterError};
use crate::client::AdminRequest;

const AGGREGATED_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const METADATA_LIST: &str = "application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadataList,application/json";

/// The objects of one resource, as a list with a limit of one counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCount {
    /// The API group; empty for core.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// The number of objects; `Err` holds the server's reason for refusing the list.
    pub objects: Result<u64, String>,
}

/// Lists one object of every listable resource, in its preferred version.
pub async fn fetch_object_counts(access: &ClusterAccess) -> Result<Vec<ObjectCount>, ClusterError> {
    let mut counts = Vec::new();
    for root in ["/api", "/apis"] {
        let request = AdminRequest::get(root).with_header("accept", AGGREGATED_DISCOVERY);
        let response = access.client.request(request).await?;
        if !response.status.is_success() {
            let message = response.json()["message"].as_str().unwrap_or_default().to_owned();
            return Err(ClusterError::Refused { path: root.to_owned(), code: response.status.as_u16(), message });
        }
        for (group, resource, path) in listable_resources(root, &response.json()) {
            let request = AdminRequest::get(format!("{path}?limit=1")).with_header("accept", METADATA_LIST);
            let response = access.client.request(request).await?;
            let objects = match response.status.is_success() {
                true => Ok(count_in_list(&response.json())),
                false => Err(response.json()["message"].as_str().unwrap_or("refused").to_owned()),
            };
            counts.push(ObjectCount { group, resource, objects });
        }
    }
    Ok(counts)
}

/// Group, resource and path of every resource that can be listed, each once: in the first version that has it.
fn listable_resources(root: &str, document: &Value) -> Vec<(String, String, String)> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found: Vec<(String, String, String)> = Vec::new();
    for group in items(&document["items"]) {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in items(&group["versions"]) {
            let of_version = version["version"].as_str().unwrap_or_default();
            for resource in items(&version["resources"]) {
                let plural = resource["resource"].as_str().unwrap_or_default();
                let is_listable = items(&resource["verbs"]).iter().any(|verb| verb == "list");
                let is_known = found.iter().any(|(group, resource, _)| group == name && resource == plural);
                if is_listable && !is_known {
                    let path = match name {
                        "" => format!("{root}/{of_version}/{plural}"),
                        _ => format!("{root}/{name}/{of_version}/{plural}"),
                    };
                    found.push((name.to_owned(), plural.to_owned(), path));
                }
            }
        }
    }
    found
}

fn count_in_list(list: &Value) -> u64 {
    let shown = list["items"].as_array().map_or(0, Vec::len) as u64;
    shown + list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_listable_resource_is_found_once_in_its_first_version() {
        let resource = |name: &str, verbs: &[&str]| json!({"resource": name, "verbs": verbs});
        let document = json!({"items": [{"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "resources": [resource("deployments", &["get", "list"]), resource("reviews", &["create"])]},
            {"version": "v1beta1", "resources": [resource("deployments", &["list"]), resource("olds", &["list"])]},
        ]}]});
        let found: Vec<String> = listable_resources("/apis", &document).into_iter().map(|(_, _, path)| path).collect();
        assert_eq!(found, ["/apis/apps/v1/deployments", "/apis/apps/v1beta1/olds"]);
        let core = json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [resource("pods", &["list"])]}]}]});
        assert_eq!(listable_resources("/api", &core)[0].2, "/api/v1/pods");
    }

    #[test]
    fn list_with_a_limit_is_counted_to_its_end() {
        assert_eq!(count_in_list(&json!({"items": [], "metadata": {}})), 0);
        assert_eq!(count_in_list(&json!({"items": [{}], "metadata": {"remainingItemCount": 41}})), 42);
    }
}
