//! Parses legacy discovery documents.

use api::GroupVersion;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::nullable_str::NullableStr;
use super::{ParseError, check_kind, parse_json, truncate_for_log};
use crate::legacy::{ApiGroup, ApiGroupList, ApiResourceList, ApiVersions};

/// Parses the response of `/api`.
pub fn parse_api_versions(bytes: &[u8]) -> Result<ApiVersions, ParseError> {
    let versions: ApiVersions = parse_expecting_kind(bytes, ApiVersions::KIND)?;
    match versions.versions.iter().position(|version| version.is_empty()) {
        Some(at) => Err(ParseError::MissingName { path: format!("versions[{at}]") }),
        None => Ok(versions),
    }
}

/// Parses the response of `/apis`.
pub fn parse_group_list(bytes: &[u8]) -> Result<ApiGroupList, ParseError> {
    let list: ApiGroupList = parse_expecting_kind(bytes, ApiGroupList::KIND)?;
    list.groups.iter().enumerate().try_for_each(|(at, group)| check_group(group, &format!("groups[{at}].")))?;
    Ok(list)
}

/// Parses the response of `/apis/<group>`.
pub fn parse_group(bytes: &[u8]) -> Result<ApiGroup, ParseError> {
    let group: ApiGroup = parse_expecting_kind(bytes, ApiGroup::KIND)?;
    check_group(&group, "")?;
    Ok(group)
}

/// Parses the response of `/apis/<group>/<version>` or `/api/v1`.
pub fn parse_resource_list(bytes: &[u8]) -> Result<ApiResourceList, ParseError> {
    let list: ApiResourceList = parse_expecting_kind(bytes, ApiResourceList::KIND)?;
    check_group_version(&list.group_version, || "groupVersion".to_owned())?;
    for (at, resource) in list.resources.iter().enumerate() {
        let (parent, subresource) = resource.name.split_once('/').unwrap_or((&resource.name, "-"));
        if parent.is_empty() || subresource.is_empty() {
            return Err(ParseError::MissingName { path: format!("resources[{at}].name") });
        }
    }
    Ok(list)
}

#[derive(Deserialize)]
struct DocumentKind<'a> {
    #[serde(default, borrow)]
    kind: NullableStr<'a>,
}

fn parse_expecting_kind<T: DeserializeOwned>(bytes: &[u8], kind: &'static str) -> Result<T, ParseError> {
    let head: DocumentKind<'_> = parse_json(bytes)?;
    check_kind(kind, &head.kind)?;
    parse_json(bytes)
}

fn check_group(group: &ApiGroup, path: &str) -> Result<(), ParseError> {
    if group.name.is_empty() {
        return Err(ParseError::MissingName { path: format!("{path}name") });
    }
    for (at, version) in group.versions.iter().enumerate() {
        if version.version.is_empty() {
            return Err(ParseError::MissingName { path: format!("{path}versions[{at}].version") });
        }
        check_group_version(&version.group_version, || format!("{path}versions[{at}].groupVersion"))?;
    }
    Ok(())
}

fn check_group_version(text: &str, path: impl Fn() -> String) -> Result<(), ParseError> {
    match GroupVersion::parse(text) {
        Ok(found) if !found.version.is_empty() => Ok(()),
        Ok(_) | Err(_) => Err(ParseError::InvalidGroupVersion { path: path(), found: truncate_for_log(text) }),
    }
}
