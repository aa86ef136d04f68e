//! What is known about a write before its object is looked at.

use access::User;
use api::json::JsonObject;
use api::{GroupVersionKind, GroupVersionResource};
use object::unstructured::metadata_string;

/// What a request does with an object, in the words of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A create, or an update or apply of an object that does not exist.
    Create,
    /// An update, or any patch, of an object that exists.
    Update,
    /// A delete, also each one of a collection.
    Delete,
    /// A connection to a subresource such as `exec`.
    Connect,
}

impl Operation {
    pub(crate) const COUNT: usize = 4;
    pub(crate) const ALL: [Self; Self::COUNT] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// The name in rules of webhooks and in reviews.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A write without its object.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// What the request does.
    pub operation: Operation,
    /// The resource in the version of the request.
    pub resource: GroupVersionResource<&'a str>,
    /// The kind of the object; for a subresource, of its body: `Scale`, `Eviction`.
    pub kind: GroupVersionKind<&'a str>,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty for a create with a generated name, and for each delete of a collection.
    pub name: &'a str,
    /// Empty for cluster-scoped resources; of a Namespace its own name.
    pub namespace: &'a str,
    /// The authenticated user of the request.
    pub user: &'a User,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions` with kind and apiVersion; `None` for a connection.
    pub options: Option<&'a JsonObject>,
    /// True if nothing is going to be stored.
    pub is_dry_run: bool,
}

impl<'a> Attributes<'a> {
    /// True for the resource itself or one of its subresources, in any version.
    pub fn is_resource(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource
    }

    /// True for the resource itself, not a subresource, in any version.
    pub fn is_object(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.is_resource(group, resource)
    }

    /// The name that error messages show: that of the request or of the object, else what it is generated from.
    pub fn shown_name<'o>(&self, object: Option<&'o JsonObject>) -> &'o str
    where
        'a: 'o,
    {
        if !self.name.is_empty() {
            return self.name;
        }
        let Some(object) = object else { return "Unknown" };
        if !object.contains_key("metadata") {
            return "Unknown/errorGettingName";
        }
        match (metadata_string(object, "name"), metadata_string(object, "generateName")) {
            ("", "") => "Unknown",
            ("", prefix) => prefix,
            (name, _) => name,
        }
    }
}
