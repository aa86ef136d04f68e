//! What tokens need to know of other objects: whether they still exist.

use std::borrow::Cow;

use api::wire::{null_is_default, object, read};
use jiff::Timestamp;
use serde::Deserialize;

/// The kinds that tokens are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BoundObjectKind {
    /// The account itself.
    ServiceAccount,
    /// A pod of its namespace.
    Pod,
    /// A secret of its namespace.
    Secret,
    /// A node; it has no namespace.
    Node,
}

/// The objects as they are now, as far as this server has seen. Every use of a token asks again, so that a token dies with
/// its account as soon as the deletion is seen here.
pub trait BoundObjects {
    /// The object as JSON; `None` if there is none. The namespace is empty for nodes.
    fn get_json(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<Cow<'_, [u8]>>;

    /// What of the object says that it is still the same. Worth its own implementation where metadata is at hand.
    fn get_state(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<BoundObjectState> {
        let json = self.get_json(kind, namespace, name)?;
        let object: WireBoundObject = read(&json).ok()?;
        let deletion = object.metadata.deletion_timestamp.map(api::time::Time::timestamp);
        Some(BoundObjectState { uid: object.metadata.uid, deletion_time: deletion })
    }
}

/// The identity and life of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundObjectState {
    /// Its uid: another one means another object of the same name.
    pub uid: String,
    /// When it is to be gone, if it is being deleted.
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
    /// As in paths.
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
