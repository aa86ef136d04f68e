//! Access to the objects that tokens are bound to, to check that they still exist.

use std::borrow::Cow;

use api::wire::{null_is_default, object, read};
use jiff::Timestamp;
use serde::Deserialize;

/// The kinds that tokens are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BoundObjectKind {
    /// The account itself.
    ServiceAccount,
    /// A pod in the account's namespace.
    Pod,
    /// A secret in the account's namespace.
    Secret,
    /// A node, which has no namespace.
    Node,
}

/// The current objects, as this server's caches have them. Every use of a token checks them, so a token becomes
/// invalid as soon as the deletion of its account is observed.
pub trait BoundObjects {
    /// Returns the object as JSON; `None` if it does not exist. The namespace is empty for nodes.
    fn get_json(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Returns uid and deletion time. Implementations with decoded metadata at hand should override this.
    fn get_state(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<BoundObjectState> {
        let json = self.get_json(kind, namespace, name)?;
        let object: WireBoundObject = read(&json).ok()?;
        let deletion = object.metadata.deletion_timestamp.map(api::time::Time::timestamp);
        Some(BoundObjectState { uid: object.metadata.uid, deletion_time: deletion })
    }
}

/// The part of a bound object that decides whether a token is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundObjectState {
    /// Differs if the object was deleted and recreated under the same name.
    pub uid: String,
    /// The deletion timestamp; `None` unless the object is being deleted.
    pub deletion_time: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
struct WireBoundObject {
    #[serde(default, deserialize_with = "object")]
    metadata: WireBoundObjectMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBoundObjectMetadata {
    #[serde(default, deserialize_with = "null_is_default")]
    uid: String,
    #[serde(default)]
    deletion_timestamp: Option<api::time::Time>,
}

impl BoundObjectKind {
    /// Returns the plural resource name.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ServiceAccount => "serviceaccounts",
            Self::Pod => "pods",
            Self::Secret => "secrets",
            Self::Node => "nodes",
        }
    }

    pub(super) fn display_name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "service account",
            Self::Pod => "pod",
            Self::Secret => "secret",
            Self::Node => "node",
        }
    }
}
