//! What things are called: group, version, resource and kind, alone and together.
//!
//! Every name is generic over its string: `GroupVersion<&str>` borrows from a request or a document, `GroupVersion` (of
//! `Arc<str>`) owns and is cheap to clone. The core group is the empty string, as on the wire.

mod version_order;

use std::fmt;
use std::sync::Arc;

pub use version_order::compare_kube_aware_versions;

/// A group and one of its versions, printed as in `apiVersion`: `apps/v1`, or `v1` for the core group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion<S = Arc<str>> {
    /// The group; empty for core.
    pub group: S,
    /// The version.
    pub version: S,
}

/// A resource whatever its version, printed as in error messages: `deployments.apps`, or `pods`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource<S = Arc<str>> {
    /// The group; empty for core.
    pub group: S,
    /// The plural, lower-case resource name.
    pub resource: S,
}

/// A kind whatever its version, printed as in error messages: `Deployment.apps`, or `Pod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind<S = Arc<str>> {
    /// The group; empty for core.
    pub group: S,
    /// The kind.
    pub kind: S,
}

/// One resource in one version: the key of routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionResource<S = Arc<str>> {
    /// The group; empty for core.
    pub group: S,
    /// The version.
    pub version: S,
    /// The plural, lower-case resource name.
    pub resource: S,
}

/// One kind in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionKind<S = Arc<str>> {
    /// The group; empty for core.
    pub group: S,
    /// The version.
    pub version: S,
    /// The kind.
    pub kind: S,
}

/// An `apiVersion` that holds more than one slash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {0}")]
pub struct GroupVersionError(pub Box<str>);

impl<'a> GroupVersion<&'a str> {
    /// Reads an `apiVersion`. The empty string and `/` are the empty group-version, as in Kubernetes.
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
    /// Reads `resource.group`: the group starts after the first dot.
    pub fn parse(text: &'a str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group, resource }
    }
}

impl<S: AsRef<str>> GroupVersion<S> {
    /// The same name, borrowed.
    pub fn borrowed(&self) -> GroupVersion<&str> {
        GroupVersion { group: self.group.as_ref(), version: self.version.as_ref() }
    }

    /// The same name, owned.
    pub fn owned(&self) -> GroupVersion {
        GroupVersion { group: self.group.as_ref().into(), version: self.version.as_ref().into() }
    }

    /// A resource of this group-version.
    pub fn with_resource(self, resource: S) -> GroupVersionResource<S> {
        GroupVersionResource { group: self.group, version: self.version, resource }
    }

    /// A kind of this group-version.
    pub fn with_kind(self, kind: S) -> GroupVersionKind<S> {
        GroupVersionKind { group: self.group, version: self.version, kind }
    }
}

impl<S: AsRef<str>> GroupResource<S> {
    /// The same name, borrowed.
    pub fn borrowed(&self) -> GroupResource<&str> {
        GroupResource { group: self.group.as_ref(), resource: self.resource.as_ref() }
    }

    /// The same name, owned.
    pub fn owned(&self) -> GroupResource {
        GroupResource { group: self.group.as_ref().into(), resource: self.resource.as_ref().into() }
    }
}

impl<S: AsRef<str>> GroupKind<S> {
    /// The same name, borrowed.
    pub fn borrowed(&self) -> GroupKind<&str> {
        GroupKind { group: self.group.as_ref(), kind: self.kind.as_ref() }
    }

    /// The same name, owned.
    pub fn owned(&self) -> GroupKind {
        GroupKind { group: self.group.as_ref().into(), kind: self.kind.as_ref().into() }
    }
}

impl<S: AsRef<str>> GroupVersionResource<S> {
    /// The same name, borrowed.
    pub fn borrowed(&self) -> GroupVersionResource<&str> {
        let Self { group, version, resource } = self;
        GroupVersionResource { group: group.as_ref(), version: version.as_ref(), resource: resource.as_ref() }
    }

    /// The same name, owned.
    pub fn owned(&self) -> GroupVersionResource {
        let GroupVersionResource { group, version, resource } = self.borrowed();
        GroupVersionResource { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// Without the resource.
    pub fn group_version(&self) -> GroupVersion<&str> {
        GroupVersion { group: self.group.as_ref(), version: self.version.as_ref() }
    }

    /// Without the version.
    pub fn group_resource(&self) -> GroupResource<&str> {
        GroupResource { group: self.group.as_ref(), resource: self.resource.as_ref() }
    }
}

impl<S: AsRef<str>> GroupVersionKind<S> {
    /// The same name, borrowed.
    pub fn borrowed(&self) -> GroupVersionKind<&str> {
        let Self { group, version, kind } = self;
        GroupVersionKind { group: group.as_ref(), version: version.as_ref(), kind: kind.as_ref() }
    }

    /// The same name, owned.
    pub fn owned(&self) -> GroupVersionKind {
        let GroupVersionKind { group, version, kind } = self.borrowed();
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Without the kind.
    pub fn group_version(&self) -> GroupVersion<&str> {
        GroupVersion { group: self.group.as_ref(), version: self.version.as_ref() }
    }

    /// Without the version.
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

/// As Kubernetes prints it in logs and messages: `apps/v1, Resource=deployments`.
impl<S: AsRef<str>> fmt::Display for GroupVersionResource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupVersionResource { group, version, resource } = self.borrowed();
        write!(f, "{group}/{version}, Resource={resource}")
    }
}

/// As Kubernetes prints it in logs and messages: `apps/v1, Kind=Deployment`.
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
