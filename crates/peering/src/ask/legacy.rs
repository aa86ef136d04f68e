//! The documents of a server without aggregated discovery, one request for each version.

use api::validation;
use discovery::Groups;
use discovery::legacy::{ApiResourceList, groups_of_api, groups_of_apis};
use discovery::parse::{parse_api_versions, parse_group_list, parse_resource_list};
use http::StatusCode;

use super::{AskFault, FaultKind, Half, Line};

impl Line<'_> {
    /// What a list of versions and the lists of their resources say together. All of them are needed: a version whose resources
    /// are not known would look as if it had none.
    pub(super) async fn ask_legacy(&self, half: Half, list: &[u8]) -> Result<Groups, AskFault> {
        let fault = |kind: FaultKind| AskFault { path: half.path().to_owned(), kind };
        match half {
            Half::Api => {
                let versions = parse_api_versions(list).map_err(|error| fault(error.into()))?;
                let paths: Result<Vec<_>, _> =
                    versions.versions.iter().map(|version| path_of(half, "", version)).collect();
                Ok(groups_of_api(&versions, &self.resource_lists(paths?).await?))
            }
            Half::Apis => {
                let groups = parse_group_list(list).map_err(|error| fault(error.into()))?;
                let mut paths = Vec::new();
                for group in &groups.groups {
                    for version in &group.versions {
                        paths.push(path_of(half, &group.name, &version.version)?);
                    }
                }
                Ok(groups_of_apis(&groups, &self.resource_lists(paths).await?))
            }
        }
    }

    async fn resource_lists(&self, paths: Vec<String>) -> Result<Vec<ApiResourceList>, AskFault> {
        let mut bytes_left = self.bytes_max;
        let mut lists = Vec::new();
        for path in paths {
            let answer = self.get(&path, "", bytes_left).await?;
            if answer.status != StatusCode::OK {
                return Err(AskFault { path, kind: FaultKind::Status(answer.status) });
            }
            bytes_left -= answer.body.len();
            let list = parse_resource_list(&answer.body);
            lists.push(list.map_err(|error| AskFault { path, kind: error.into() })?);
        }
        Ok(lists)
    }
}

/// Names come from the peer and go into a path, so they are checked.
fn path_of(half: Half, group: &str, version: &str) -> Result<String, AskFault> {
    let is_group = group.is_empty() || validation::dns1123_subdomain(group).is_empty();
    if !is_group || !validation::dns1123_label(version).is_empty() {
        let kind = FaultKind::Name { name: format!("{group}/{version}") };
        return Err(AskFault { path: half.path().to_owned(), kind });
    }
    Ok(match half {
        Half::Api => format!("/api/{version}"),
        Half::Apis => format!("/apis/{group}/{version}"),
    })
}
