//! The parsed request line, with the semantics of kube-apiserver's RequestInfo.
//!
//! Everything borrows from the line unless an escape must be decoded. The original line is kept, because requests are
//! forwarded byte for byte. Like RequestInfo, the parser splits the decoded path, so `%2F` separates segments.

mod list_query;
mod path;
mod route_check;
mod verb;

use std::borrow::Cow;

pub use path::{PathDepth, PathForm, VerbPrefix};
pub use route_check::{KindScope, RouteMismatch};
pub use verb::{HttpMethod, Verb};

use crate::names::{GroupResource, GroupVersion, GroupVersionResource};
use crate::quote::Quoted;

/// What a request addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A path outside of resources: discovery, health, metrics, or unknown.
    NonResource(NonResourceTarget<'a>),
    /// A resource, existing or not.
    Resource(ResourceTarget<'a>),
}

/// A request for a path outside of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonResourceTarget<'a> {
    /// The original path and query.
    pub path_and_query: Cow<'a, str>,
    /// The HTTP method in lower case.
    pub verb: Cow<'a, str>,
    /// The decoded path.
    pub path: Cow<'a, str>,
}

/// A request for a resource. Parts that the request does not name are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTarget<'a> {
    /// The original path and query.
    pub path_and_query: Cow<'a, str>,
    /// The request verb, as in authorization.
    pub verb: Verb,
    /// The HTTP method. The verb does not always determine it: behind `/watch/` every method is a watch.
    pub method: HttpMethod,
    /// The segments that the path has.
    pub path_form: PathForm,
    /// Empty for the core group.
    pub group: Cow<'a, str>,
    /// Such as `v1`.
    pub version: Cow<'a, str>,
    /// For a namespace object, its own name.
    pub namespace: Cow<'a, str>,
    /// The plural name.
    pub resource: Cow<'a, str>,
    /// Empty if the request is for the resource itself.
    pub subresource: Cow<'a, str>,
    /// From the path, or from a field selector that requires `metadata.name`.
    pub name: Cow<'a, str>,
    /// The path after the subresource (after the name for [`Verb::Proxy`]), without its leading slash.
    pub subpath: Cow<'a, str>,
    /// The field selector, for verbs that use it.
    pub field_selector: Cow<'a, str>,
    /// The label selector, for verbs that use it.
    pub label_selector: Cow<'a, str>,
}

/// A malformed request line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A `%` without two hexadecimal digits.
    #[error("invalid URL escape {}", Quoted(escape))]
    InvalidEscape {
        /// The malformed escape.
        escape: Box<str>,
    },
    /// The decoded path is not UTF-8.
    #[error("the path {} is not UTF-8 when decoded", Quoted(path))]
    NotUtf8 {
        /// The original path.
        path: Box<str>,
    },
    /// `/watch` or `/proxy` without a resource.
    #[error("unable to determine kind and namespace from url, {url}")]
    MissingResourceAfterVerb {
        /// The original path and query.
        url: Box<str>,
    },
}

impl<'a> Target<'a> {
    /// Parses a method and an escaped path with query, as in the request line.
    pub fn parse(method: &str, path_and_query: &'a str) -> Result<Self, TargetError> {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let path = path::decode_path(path)?;
        let parts = match &path {
            Cow::Borrowed(path) => {
                path::split_path(method, path).map(|parts| parts.map(|parts| parts.map(Cow::Borrowed)))
            }
            Cow::Owned(path) => path::split_path(method, path)
                .map(|parts| parts.map(|parts| parts.map(|part| Cow::Owned(part.to_owned())))),
        };
        let parts = parts.map_err(|_| TargetError::MissingResourceAfterVerb { url: path_and_query.into() })?;
        let raw = Cow::Borrowed(path_and_query);
        let Some(parts) = parts else {
            return Ok(Self::NonResource(NonResourceTarget {
                path_and_query: raw,
                verb: verb::non_resource_verb(method),
                path,
            }));
        };
        let mut resource = ResourceTarget {
            path_and_query: raw,
            verb: parts.verb,
            method: HttpMethod::parse(method),
            path_form: parts.form,
            group: parts.group,
            version: parts.version,
            namespace: parts.namespace,
            resource: parts.resource,
            subresource: parts.subresource,
            name: parts.name,
            subpath: parts.subpath,
            field_selector: Cow::Borrowed(""),
            label_selector: Cow::Borrowed(""),
        };
        if resource.path_form.prefix == VerbPrefix::None {
            list_query::apply_list_query(query, &mut resource);
        }
        Ok(Self::Resource(resource))
    }

    /// Returns the original path and query.
    pub fn path_and_query(&self) -> &str {
        match self {
            Self::NonResource(target) => &target.path_and_query,
            Self::Resource(target) => &target.path_and_query,
        }
    }

    /// Returns the verb as authorization rules name it.
    pub fn verb(&self) -> &str {
        match self {
            Self::NonResource(target) => &target.verb,
            Self::Resource(target) => target.verb.as_str(),
        }
    }

    /// Reports whether the request is long-running, so that no request timeout applies.
    pub fn is_long_running(&self) -> bool {
        match self {
            Self::NonResource(target) => {
                matches!(&*target.verb, "watch" | "proxy") || target.path.starts_with("/debug/pprof/")
            }
            Self::Resource(target) => target.verb == Verb::Watch || target.reaches_backend(),
        }
    }

    /// Clones borrowed strings.
    pub fn into_owned(self) -> Target<'static> {
        match self {
            Self::NonResource(NonResourceTarget { path_and_query: raw, verb, path }) => {
                Target::NonResource(NonResourceTarget {
                    path_and_query: into_static(raw),
                    verb: into_static(verb),
                    path: into_static(path),
                })
            }
            Self::Resource(target) => Target::Resource(target.into_owned()),
        }
    }
}

impl ResourceTarget<'_> {
    /// Returns group, version and resource.
    pub fn group_version_resource(&self) -> GroupVersionResource<&str> {
        GroupVersionResource { group: &self.group, version: &self.version, resource: &self.resource }
    }

    /// Returns group and version.
    pub fn group_version(&self) -> GroupVersion<&str> {
        GroupVersion { group: &self.group, version: &self.version }
    }

    /// Returns group and resource.
    pub fn group_resource(&self) -> GroupResource<&str> {
        GroupResource { group: &self.group, resource: &self.resource }
    }

    /// Reports whether the subresource connects the client to a backend. Routing matches such a subresource on any
    /// verb, because the backend decides which methods it supports.
    pub fn is_connect(&self) -> bool {
        matches!(&*self.subresource, "attach" | "exec" | "portforward" | "proxy")
    }

    /// Reports whether the response comes from another process: a kubelet, pod, service or node. Its status then
    /// tells nothing about the API server.
    pub fn reaches_backend(&self) -> bool {
        self.is_connect() || self.subresource == "log" || self.verb == Verb::Proxy
    }

    /// Clones borrowed strings.
    pub fn into_owned(self) -> ResourceTarget<'static> {
        ResourceTarget {
            path_and_query: into_static(self.path_and_query),
            verb: self.verb,
            method: self.method,
            path_form: self.path_form,
            group: into_static(self.group),
            version: into_static(self.version),
            namespace: into_static(self.namespace),
            resource: into_static(self.resource),
            subresource: into_static(self.subresource),
            name: into_static(self.name),
            subpath: into_static(self.subpath),
            field_selector: into_static(self.field_selector),
            label_selector: into_static(self.label_selector),
        }
    }
}

fn into_static(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

#[cfg(test)]
mod tests;
