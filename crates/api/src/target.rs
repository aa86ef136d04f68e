//! What a request is about: a request line read as kube-apiserver's RequestInfo reads it.
//!
//! Everything borrows from the line unless an escape has to be decoded. The line itself is kept as it came, because what is
//! forwarded is forwarded byte for byte. Like RequestInfo, parsing splits the decoded path, so `%2F` separates segments.

mod fit;
mod list_query;
mod path;
mod verb;

use std::borrow::Cow;

pub use fit::{Misfit, Scope};
pub use path::{Depth, PathForm, Prefix};
pub use verb::{Method, Verb};

use crate::names::{GroupResource, GroupVersion, GroupVersionResource};
use crate::quote::Quoted;

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A path that names no resource: discovery, health, metrics, anything unknown.
    NonResource(NonResource<'a>),
    /// A resource, known or not.
    Resource(Resource<'a>),
}

/// A path that names no resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonResource<'a> {
    /// Path and query as they came.
    pub raw: Cow<'a, str>,
    /// The HTTP method in lower case.
    pub verb: Cow<'a, str>,
    /// The path, decoded.
    pub path: Cow<'a, str>,
}

/// A resource, and what is to be done with it. Whatever the request does not name is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Path and query as they came.
    pub raw: Cow<'a, str>,
    /// What is to be done.
    pub verb: Verb,
    /// The HTTP method, which the verb does not always follow from: behind `/watch/` every method is a watch.
    pub method: Method,
    /// Which segments the path has.
    pub form: PathForm,
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
    pub rest: Cow<'a, str>,
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
    Escape {
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
    NothingBehindVerb {
        /// Path and query as they came.
        url: Box<str>,
    },
}

impl<'a> Target<'a> {
    /// Reads a method and a path with its query, still escaped, as they stand in the request line.
    pub fn parse(method: &str, path_and_query: &'a str) -> Result<Self, TargetError> {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let path = path::decode(path)?;
        let parts = match &path {
            Cow::Borrowed(path) => path::split(method, path).map(|parts| parts.map(|parts| parts.map(Cow::Borrowed))),
            Cow::Owned(path) => {
                path::split(method, path).map(|parts| parts.map(|parts| parts.map(|part| Cow::Owned(part.to_owned()))))
            }
        };
        let parts = parts.map_err(|_| TargetError::NothingBehindVerb { url: path_and_query.into() })?;
        let raw = Cow::Borrowed(path_and_query);
        let Some(parts) = parts else {
            return Ok(Self::NonResource(NonResource { raw, verb: verb::of_non_resource(method), path }));
        };
        let mut resource = Resource {
            raw,
            verb: parts.verb,
            method: Method::of(method),
            form: parts.form,
            group: parts.group,
            version: parts.version,
            namespace: parts.namespace,
            resource: parts.resource,
            subresource: parts.subresource,
            name: parts.name,
            rest: parts.rest,
            field_selector: Cow::Borrowed(""),
            label_selector: Cow::Borrowed(""),
        };
        if resource.form.prefix == Prefix::None {
            list_query::apply(query, &mut resource);
        }
        Ok(Self::Resource(resource))
    }

    /// Path and query as they came.
    pub fn raw(&self) -> &str {
        match self {
            Self::NonResource(target) => &target.raw,
            Self::Resource(target) => &target.raw,
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
            Self::NonResource(NonResource { raw, verb, path }) => {
                Target::NonResource(NonResource { raw: owned(raw), verb: owned(verb), path: owned(path) })
            }
            Self::Resource(target) => Target::Resource(target.into_owned()),
        }
    }
}

impl Resource<'_> {
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
    pub fn into_owned(self) -> Resource<'static> {
        Resource {
            raw: owned(self.raw),
            verb: self.verb,
            method: self.method,
            form: self.form,
            group: owned(self.group),
            version: owned(self.version),
            namespace: owned(self.namespace),
            resource: owned(self.resource),
            subresource: owned(self.subresource),
            name: owned(self.name),
            rest: owned(self.rest),
            field_selector: owned(self.field_selector),
            label_selector: owned(self.label_selector),
        }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

#[cfg(test)]
mod tests;
