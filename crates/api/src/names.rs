//! API names: group, version, resource and kind, and their combinations.
//!
//! All are generic over the string type: `GroupVersion<&str>` borrows from a request or document, `GroupVersion` (of
//! `Arc<str>`) owns and is cheap to clone. The core group is the empty string, as on the wire.

mod version_order;

use std::fmt;
use std::sync::Arc;

pub use version_order::compare_kube_aware_versions;

/// A group and version. Displays as in `apiVersion`: `apps/v1`, or `v1` for the core group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion<S = Arc<str>> {
    /// Empty for the core group.
    pub group: S,
    /// Such as `v1beta1`.
    pub version: S,
}

/// A resource without version. Displays as in error messages: `deployments.apps`, or `pods`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource<S = Arc<str>> {
    /// Empty for the core group.
    pub group: S,
    /// The plural, lower-case name.
    pub resource: S,
}

/// A kind without version. Displays as in error messages: `Deployment.apps`, or `Pod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind<S = Arc<str>> {
    /// Empty for the core group.
    pub group: S,
    /// In CamelCase.
    pub kind: S,
}

/// A resource in one version: the key of the routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionResource<S = Arc<str>> {
    /// Empty for the core group.
    pub group: S,
    /// Such as `v1beta1`.
    pub version: S,
    /// The plural, lower-case name.
    pub resource: S,
}

/// A kind in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionKind<S = Arc<str>> {
    /// Empty for the core group.
    pub group: S,
    /// Such as `v1beta1`.
    pub version: S,
    /// In CamelCase.
    pub kind: S,
}

/// An `apiVersion` with more than one slash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {0}")]
pub struct GroupVersionError(pub Box<str>);

impl<'a> GroupVersion<&'a str> {
    /// Parses an `apiVersion`. The empty string and `/` give an empty group and version, as in Kubernetes.
    pub fn parse(text: &'a str) -> Result<Self, GroupVersionError> {
        if text == "/" {
            return Ok(Self { group: "", version: "" });
        }
        match text.split_once('/') {
            None => Ok(Self { group: "", version: text }),
            Some((group, version)) if !version.contains('/') => Ok(Self { group, version }),
            Some(_) => Err(GroupVersionError(text.into())),
        }
    }
}

impl<'a> GroupResource<&'a str> {
    /// Parses `resource.group`: the group starts after the first dot.
    pub fn parse(text: &'a str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group, resource }
    }
}

impl<S: AsRef<str>> GroupVersion<S> {
    /// Borrows the strings.
    pub fn borrowed(&self) -> GroupVersion<&str> {
        GroupVersion { group: self.group.as_ref(), version: self.version.as_ref() }
    }

    /// Clones the strings.
    pub fn owned(&self) -> GroupVersion {
        GroupVersion { group: self.group.as_ref().into(), version: self.version.as_ref().into() }
    }

    /// Adds a resource name.
    pub fn with_resource(self, resource: S) -> GroupVersionResource<S> {
        GroupVersionResource { group: self.group, version: self.version, resource }
    }

    /// Adds a kind.
    pub fn with_kind(self, kind: S) -> GroupVersionKind<S> {
        GroupVersionKind { group: self.group, version: self.version, kind }
    }
}

impl<S: AsRef<str>> GroupResource<S> {
    /// Borrows the strings.
    pub fn borrowed(&self) -> GroupResource<&str> {
        GroupResource { group: self.group.as_ref(), resource: self.resource.as_ref() }
    }

    /// Clones the strings.
    pub fn owned(&self) -> GroupResource {
        GroupResource { group: self.group.as_ref().into(), resource: self.resource.as_ref().into() }
    }
}

impl<S: AsRef<str>> GroupKind<S> {
    /// Borrows the strings.
    pub fn borrowed(&self) -> GroupKind<&str> {
        GroupKind { group: self.group.as_ref(), kind: self.kind.as_ref() }
    }

    /// Clones the strings.
    pub fn owned(&self) -> GroupKind {
        GroupKind { group: self.group.as_ref().into(), kind: self.kind.as_ref().into() }
    }
}

impl<S: AsRef<str>> GroupVersionResource<S> {
    /// Borrows the strings.
    pub fn borrowed(&self) -> GroupVersionResource<&str> {
        let Self { group, version, resource } = self;
        GroupVersionResource { group: group.as_ref(), version: version.as_ref(), resource: resource.as_ref() }
    }

    /// Clones the strings.
    pub fn owned(&self) -> GroupVersionResource {
        let GroupVersionResource { group, version, resource } = self.borrowed();
        GroupVersionResource { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// Drops the resource.
    pub fn group_version(&self) -> GroupVersion<&str> {
        GroupVersion { group: self.group.as_ref(), version: self.version.as_ref() }
    }

    /// Drops the version.
    pub fn group_resource(&self) -> GroupResource<&str> {
        GroupResource { group: self.group.as_ref(), resource: self.resource.as_ref() }
    }
}

impl<S: AsRef<str>> GroupVersionKind<S> {
    /// Borrows the strings.
    pub fn borrowed(&self) -> GroupVersionKind<&str> {
        let Self { group, version, kind } = self;
        GroupVersionKind { group: group.as_ref(), version: version.as_ref(), kind: kind.as_ref() }
    }

    /// Clones the strings.
    pub fn owned(&self) -> GroupVersionKind {
        let GroupVersionKind { group, version, kind } = self.borrowed();
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Drops the kind.
    pub fn group_version(&self) -> GroupVersion<&str> {
        GroupVersion { group: self.group.as_ref(), version: self.version.as_ref() }
    }

    /// Drops the version.
    pub fn group_kind(&self) -> GroupKind<&str> {
        GroupKind { group: self.group.as_ref(), kind: self.kind.as_ref() }
    }
}

impl<S: AsRef<str>> fmt::Display for GroupVersion<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupVersion { group, version } = self.borrowed();
        if group.is_empty() { f.write_str(version) } else { write!(f, "{group}/{version}") }
    }
}

impl<S: AsRef<str>> fmt::Display for GroupResource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupResource { group, resource } = self.borrowed();
        if group.is_empty() { f.write_str(resource) } else { write!(f, "{resource}.{group}") }
    }
}

impl<S: AsRef<str>> fmt::Display for GroupKind<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupKind { group, kind } = self.borrowed();
        if group.is_empty() { f.write_str(kind) } else { write!(f, "{kind}.{group}") }
    }
}

/// Formats like Kubernetes' logs and messages: `apps/v1, Resource=deployments`.
impl<S: AsRef<str>> fmt::Display for GroupVersionResource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupVersionResource { group, version, resource } = self.borrowed();
        write!(f, "{group}/{version}, Resource={resource}")
    }
}

/// Formats like Kubernetes' logs and messages: `apps/v1, Kind=Deployment`.
impl<S: AsRef<str>> fmt::Display for GroupVersionKind<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupVersionKind { group, version, kind } = self.borrowed();
        write!(f, "{group}/{version}, Kind={kind}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_version_parses_and_prints_api_version() {
        for (text, group, version) in
            [("v1", "", "v1"), ("apps/v1", "apps", "v1"), ("/v1", "", "v1"), ("", "", ""), ("/", "", "")]
        {
            assert_eq!(GroupVersion::parse(text), Ok(GroupVersion { group, version }), "{text}");
        }
        assert_eq!(GroupVersion { group: "apps", version: "v1" }.to_string(), "apps/v1");
        assert_eq!(GroupVersion { group: "", version: "v1" }.to_string(), "v1");
        assert_eq!(GroupVersion::parse("a/b/c").unwrap_err().to_string(), "unexpected GroupVersion string: a/b/c");
    }

    #[test]
    fn group_resource_parse_splits_at_first_dot() {
        assert_eq!(GroupResource::parse("pods"), GroupResource { group: "", resource: "pods" });
        let leases = GroupResource::parse("leases.coordination.k8s.io");
        assert_eq!(leases, GroupResource { group: "coordination.k8s.io", resource: "leases" });
        assert_eq!(leases.to_string(), "leases.coordination.k8s.io");
        assert_eq!(GroupResource::parse("pods").owned().to_string(), "pods");
    }

    #[test]
    fn gvr_and_gvk_display_match_kubernetes() {
        let deployments = GroupVersion::parse("apps/v1").unwrap().with_resource("deployments");
        assert_eq!(deployments.owned().to_string(), "apps/v1, Resource=deployments");
        assert_eq!(deployments.group_resource().to_string(), "deployments.apps");
        let pod = GroupVersion::parse("v1").unwrap().with_kind("Pod");
        assert_eq!(pod.owned().to_string(), "/v1, Kind=Pod");
        assert_eq!(pod.group_kind().to_string(), "Pod");
        assert_eq!(pod.group_version().to_string(), "v1");
    }
}
