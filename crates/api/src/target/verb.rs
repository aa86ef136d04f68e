//! Request verbs and HTTP methods.

use std::borrow::Cow;
use std::fmt;

/// A request verb, as in authorization rules and discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Stream changes.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
    /// Proxy to the object's backend, by the deprecated `/proxy/` prefix.
    Proxy,
    /// A method without a verb for resources.
    Unknown,
}

/// The method of a request. Methods are case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of HTTP")]
pub enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    /// A method that no route accepts.
    Other,
}

impl HttpMethod {
    pub(super) fn parse(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }
}

impl Verb {
    /// All verbs except `Unknown`.
    pub const NAMED: [Self; 9] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
        Self::Proxy,
    ];

    /// Returns the name in rules and documents; empty for [`Verb::Unknown`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Proxy => "proxy",
            Self::Unknown => "",
        }
    }

    /// Parses a name from rules or documents.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Reports whether the verb is read-only, so that the request can be retried.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// Maps the method, before name and query are considered. Methods are case-sensitive.
    pub(super) fn from_method(method: &str) -> Self {
        match method {
            "GET" | "HEAD" => Self::Get,
            "POST" => Self::Create,
            "PUT" => Self::Update,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the verb of a non-resource path: the method in lower case.
pub(super) fn non_resource_verb(method: &str) -> Cow<'static, str> {
    Cow::Borrowed(match method {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => return Cow::Owned(method.to_lowercase()),
    })
}
