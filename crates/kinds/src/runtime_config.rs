//! `--runtime-config`: enables and disables versions and resources.

use std::collections::{BTreeMap, BTreeSet};

use api::{GroupVersion, GroupVersionResource};

use crate::flag::parse_bool;
use crate::groups::{is_group_registered, is_version_registered};
use crate::kind::{KindVersion, StabilityLevel};
use crate::release::Release;

/// The value of `--runtime-config`, checked against a release.
///
/// The narrower key wins: `group/version/resource`, then `group/version`, then `api/alpha`, `api/beta` and `api/ga`,
/// then `api/all`, then the default of the release. The core group's version is written `/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    all: Option<bool>,
    stable: Option<bool>,
    beta: Option<bool>,
    alpha: Option<bool>,
    /// Each key once; usually a handful.
    versions: Vec<(GroupVersion, bool)>,
    /// Each key once.
    resources: Vec<(GroupVersionResource, bool)>,
}

/// Error of a `--runtime-config` value, with kube-apiserver's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// Every version is disabled.
    #[error("invalid runtime-config with only api/all=false")]
    EverythingDisabled,
    /// A key that is neither `api/…` nor made of two or three parts.
    #[error("runtime-config invalid key {0}")]
    InvalidKey(Box<str>),
    /// Groups that no release has, or this one does not.
    #[error("unknown api groups {}", .0.join(","))]
    UnknownGroups(Vec<String>),
    /// A version that its group does not have in this release.
    #[error("group version {0} that has not been registered")]
    UnknownVersion(GroupVersion),
    /// `api/…` with a value other than `true` and `false`.
    #[error("invalid value {key}={value}")]
    InvalidStabilityValue {
        /// The key.
        key: Box<str>,
        /// Its value as given.
        value: Box<str>,
    },
    /// A version or resource with a value that is not a truth value.
    #[error("invalid value of {key}: {value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    InvalidValue {
        /// The key.
        key: Box<str>,
        /// Its value as given.
        value: Box<str>,
    },
    /// A resource that is not in lower case.
    #[error("invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}")]
    UppercaseResource {
        /// The key.
        key: Box<str>,
        /// Its third part.
        resource: Box<str>,
    },
}

impl RuntimeConfig {
    /// Parses the value of `--runtime-config`, `key=value,…`; values of repeated flags are joined by commas.
    ///
    /// A key without a value is enabled. For a key that is given twice, the last value applies.
    pub fn parse(release: Release, text: &str) -> Result<Self, RuntimeConfigError> {
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        let pairs: BTreeMap<&str, &str> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        if pairs.len() == 1 && pairs.get("api/all") == Some(&"false") {
            return Err(RuntimeConfigError::EverythingDisabled);
        }
        check_groups(release, pairs.keys().copied())?;
        let mut config = Self::default();
        for (key, value) in pairs {
            match config.stability_setting(key) {
                Some(level) => *level = Some(parse_stability_value(key, value)?),
                None => config.set_version_or_resource(release, key, value)?,
            }
        }
        Ok(config)
    }

    /// True if the resource is enabled in this version; `enabled_by_default` applies if no key matches.
    pub(crate) fn is_enabled(&self, group: &str, version: &KindVersion, resource: &str, by_default: bool) -> bool {
        let name = version.name;
        let level = match StabilityLevel::of_version(name) {
            StabilityLevel::Alpha => self.alpha,
            StabilityLevel::Beta => self.beta,
            StabilityLevel::Stable => self.stable,
        };
        let key = GroupVersion { group, version: name };
        let of_version = self.versions.iter().find(|(named, _)| named.borrowed() == key).map(|(_, value)| *value);
        let key = key.with_resource(resource);
        let of_resource = self.resources.iter().find(|(named, _)| named.borrowed() == key).map(|(_, value)| *value);
        of_resource.or(of_version).or(level).or(self.all).unwrap_or(by_default)
    }

    fn stability_setting(&mut self, key: &str) -> Option<&mut Option<bool>> {
        match key {
            "api/all" => Some(&mut self.all),
            "api/ga" => Some(&mut self.stable),
            "api/beta" => Some(&mut self.beta),
            "api/alpha" => Some(&mut self.alpha),
            _ => None,
        }
    }

    fn set_version_or_resource(&mut self, release: Release, key: &str, value: &str) -> Result<(), RuntimeConfigError> {
        let RuntimeConfigKey { group, version, resource } = RuntimeConfigKey::parse(key)?;
        if !is_version_registered(release, group, version) {
            return Err(RuntimeConfigError::UnknownVersion(GroupVersion { group, version }.owned()));
        }
        let value = match value {
            "" => true,
            _ => parse_bool(value)
                .ok_or_else(|| RuntimeConfigError::InvalidValue { key: key.into(), value: value.into() })?,
        };
        match resource {
            None => self.versions.push((GroupVersion { group, version }.owned(), value)),
            Some(resource) if resource.to_lowercase() == resource => {
                self.resources.push((GroupVersionResource { group, version, resource }.owned(), value));
            }
            Some(resource) => {
                return Err(RuntimeConfigError::UppercaseResource { key: key.into(), resource: resource.into() });
            }
        }
        Ok(())
    }
}

struct RuntimeConfigKey<'a> {
    group: &'a str,
    version: &'a str,
    resource: Option<&'a str>,
}

impl<'a> RuntimeConfigKey<'a> {
    fn parse(key: &'a str) -> Result<Self, RuntimeConfigError> {
        let mut parts = key.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(group), Some(version), resource, None) => Ok(Self { group, version, resource }),
            _ => Err(RuntimeConfigError::InvalidKey(key.into())),
        }
    }
}

fn check_groups<'a>(release: Release, keys: impl Iterator<Item = &'a str>) -> Result<(), RuntimeConfigError> {
    let mut unknown = BTreeSet::new();
    for key in keys.filter(|key| RuntimeConfig::default().stability_setting(key).is_none()) {
        let RuntimeConfigKey { group, version, .. } = RuntimeConfigKey::parse(key)?;
        if !is_group_registered(release, group) {
            unknown.insert(GroupVersion { group, version }.to_string());
        }
    }
    if unknown.is_empty() { Ok(()) } else { Err(RuntimeConfigError::UnknownGroups(unknown.into_iter().collect())) }
}

fn parse_stability_value(key: &str, value: &str) -> Result<bool, RuntimeConfigError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(RuntimeConfigError::InvalidStabilityValue { key: key.into(), value: value.into() }),
    }
}

#[cfg(test)]
mod tests;
