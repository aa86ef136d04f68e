//! What is to be done with a resource.

use std::borrow::Cow;
use std::fmt;

/// What is to be done with a resource, as authorization rules and discovery name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Follow changes.
    Watch,
    /// Write a new object.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Remove an object.
    Delete,
    /// Remove many.
    DeleteCollection,
    /// Pass the request on to what the object stands for, by the old `/proxy/` prefix.
    Proxy,
    /// A method that means nothing to a resource.
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
    /// A method that no route takes.
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
    /// All that have a name.
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

    /// As in rules and documents; empty for [`Verb::Unknown`].
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

    /// The verb of a name in rules and documents.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Whether nothing is changed, so that the request may be repeated.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// Before name and query are looked at. Methods are case-sensitive.
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

/// The verb of a path that names no resource: the method in lower case.
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
