//! What a request is about: a request line read as kube-apiserver's RequestInfo reads it.
//!
//! Everything borrows from the line unless an escape has to be decoded. The line itself is kept as it came, because what is
//! forwarded is forwarded byte for byte. Like RequestInfo, parsing splits the decoded path, so `%2F` separates segments.

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

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A path that names no resource: discovery, health, metrics, anything unknown.
    NonResource(NonResourceTarget<'a>),
    /// A resource, known or not.
    Resource(ResourceTarget<'a>),
}

/// A path that names no resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonResourceTarget<'a> {
    /// Path and query as they came.
    pub path_and_query: Cow<'a, str>,
    /// The HTTP method in lower case.
    pub verb: Cow<'a, str>,
    /// The path, decoded.
    pub path: Cow<'a, str>,
}

/// A resource, and what is to be done with it. Whatever the request does not name is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTarget<'a> {
    /// Path and query as they came.
    pub path_and_query: Cow<'a, str>,
    /// What is to be done.
    pub verb: Verb,
    /// The HTTP method, which the verb does not always follow from: behind `/watch/` every method is a watch.
    pub method: HttpMethod,
    /// Which segments the path has.
    pub path_form: PathForm,
    /// The group; empty for core.
    pub group: Cow<'a, str>,
    /// The version.
    pub version: Cow<'a, str>,
    /// The namespace; for a namespace object itself, its own name.
    pub namespace: Cow<'a, str>,
    /// The resource, plural.
    pub resource: Cow<'a, str>,
    /// The subresource.
    pub subresource: Cow<'a, str>,
    /// The object, by the path or by a field selector that demands `metadata.name`.
    pub name: Cow<'a, str>,
    /// The path behind the subresource (or behind the name for [`Verb::Proxy`]), without the slash before it.
    pub subpath: Cow<'a, str>,
    /// The field selector as given, for verbs that heed it.
    pub field_selector: Cow<'a, str>,
    /// The label selector as given, for verbs that heed it.
    pub label_selector: Cow<'a, str>,
}

/// A request line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A `%` without two hexadecimal digits.
    #[error("invalid URL escape {}", Quoted(escape))]
    InvalidEscape {
        /// The escape at fault.
        escape: Box<str>,
    },
    /// Escapes that do not decode to UTF-8.
    #[error("the path {} is not UTF-8 when decoded", Quoted(path))]
    NotUtf8 {
        /// The path as it came.
        path: Box<str>,
    },
    /// `/watch` or `/proxy` with nothing behind.
    #[error("unable to determine kind and namespace from url, {url}")]
    MissingResourceAfterVerb {
        /// Path and query as they came.
        url: Box<str>,
    },
}

impl<'a> Target<'a> {
    /// Reads a method and a path with its query, still escaped, as they stand in the request line.
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

    /// Path and query as they came.
    pub fn path_and_query(&self) -> &str {
        match self {
            Self::NonResource(target) => &target.path_and_query,
            Self::Resource(target) => &target.path_and_query,
        }
    }

    /// What is to be done, as authorization rules name it.
    pub fn verb(&self) -> &str {
        match self {
            Self::NonResource(target) => &target.verb,
            Self::Resource(target) => target.verb.as_str(),
        }
    }

    /// Whether the request is expected to stay open, so that no request timeout applies.
    pub fn is_long_running(&self) -> bool {
        match self {
            Self::NonResource(target) => {
                matches!(&*target.verb, "watch" | "proxy") || target.path.starts_with("/debug/pprof/")
            }
            Self::Resource(target) => target.verb == Verb::Watch || target.reaches_backend(),
        }
    }

    /// The same target, borrowing nothing.
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
    /// Group, version and resource.
    pub fn group_version_resource(&self) -> GroupVersionResource<&str> {
        GroupVersionResource { group: &self.group, version: &self.version, resource: &self.resource }
    }

    /// Group and version.
    pub fn group_version(&self) -> GroupVersion<&str> {
        GroupVersion { group: &self.group, version: &self.version }
    }

    /// Group and resource.
    pub fn group_resource(&self) -> GroupResource<&str> {
        GroupResource { group: &self.group, resource: &self.resource }
    }

    /// Whether the subresource hands the connection over to something else. Such a subresource is served for whatever method
    /// its backend understands, so routing matches it on any verb.
    pub fn is_connect(&self) -> bool {
        matches!(&*self.subresource, "attach" | "exec" | "portforward" | "proxy")
    }

    /// True if the server relays the response of another process: a kubelet, pod, service or node. Such a response says nothing
    /// about the server, whatever its status.
    pub fn reaches_backend(&self) -> bool {
        self.is_connect() || self.subresource == "log" || self.verb == Verb::Proxy
    }

    /// The same resource, borrowing nothing.
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
