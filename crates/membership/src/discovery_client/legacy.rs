//! The documents of a server without aggregated discovery, one request for each version.

use api::validation;
use discovery::GroupDiscoveryList;
use discovery::legacy::{ApiResourceList, groups_from_api, groups_from_apis};
use discovery::parse::{parse_api_versions, parse_group_list, parse_resource_list};
use http::StatusCode;

use super::{DiscoveryRoot, DocumentFetchError, DocumentFetchErrorKind, PeerDiscoveryClient};

impl PeerDiscoveryClient<'_> {
    /// Combines the list of versions with the resource lists of each. All of them are needed: a version whose resources are
    /// unknown would look empty.
    pub(super) async fn fetch_legacy(
        &self,
        root: DiscoveryRoot,
        list: &[u8],
    ) -> Result<GroupDiscoveryList, DocumentFetchError> {
        let fault = |kind: DocumentFetchErrorKind| DocumentFetchError { path: root.path().to_owned(), kind };
        match root {
            DiscoveryRoot::Api => {
                let versions = parse_api_versions(list).map_err(|error| fault(error.into()))?;
                let paths: Result<Vec<_>, _> =
                    versions.versions.iter().map(|version| resource_list_path(root, "", version)).collect();
                Ok(groups_from_api(&versions, &self.fetch_resource_lists(paths?).await?))
            }
            DiscoveryRoot::Apis => {
                let groups = parse_group_list(list).map_err(|error| fault(error.into()))?;
                let mut paths = Vec::new();
                for group in &groups.groups {
                    for version in &group.versions {
                        paths.push(resource_list_path(root, &group.name, &version.version)?);
                    }
                }
                Ok(groups_from_apis(&groups, &self.fetch_resource_lists(paths).await?))
            }
        }
    }

    async fn fetch_resource_lists(&self, paths: Vec<String>) -> Result<Vec<ApiResourceList>, DocumentFetchError> {
        let mut bytes_left = self.bytes_max;
        let mut lists = Vec::new();
        for path in paths {
            let response = self.get(&path, "", bytes_left).await?;
            if response.status != StatusCode::OK {
                return Err(DocumentFetchError { path, kind: DocumentFetchErrorKind::Status(response.status) });
            }
            bytes_left -= response.body.len();
            let list = parse_resource_list(&response.body);
            lists.push(list.map_err(|error| DocumentFetchError { path, kind: error.into() })?);
        }
        Ok(lists)
    }
}

/// Validates names of the peer that become part of a path.
fn resource_list_path(root: DiscoveryRoot, group: &str, version: &str) -> Result<String, DocumentFetchError> {
    let is_group = group.is_empty() || validation::validate_dns1123_subdomain(group).is_empty();
    if !is_group || !validation::validate_dns1123_label(version).is_empty() {
        let kind = DocumentFetchErrorKind::InvalidVersionName { name: format!("{group}/{version}") };
        return Err(DocumentFetchError { path: root.path().to_owned(), kind });
    }
    Ok(match root {
        DiscoveryRoot::Api => format!("/api/{version}"),
        DiscoveryRoot::Apis => format!("/apis/{group}/{version}"),
    })
}
