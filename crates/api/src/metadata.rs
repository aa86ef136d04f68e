//! The metadata of objects and lists.
//!
//! Fields are written in Go's order and omitted if empty, as in Go. Unknown fields are preserved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::RawJson;
use crate::time::Time;
use crate::wire::null_is_default;

/// The metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Unique per resource and namespace.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A prefix to which the server appends a random suffix to form the name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Empty for cluster-scoped objects.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Unique across all time, unlike the name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The revision of the last write, in decimal; omitted in storage.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Incremented by changes of the desired state.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// Releases before 1.34 write `null` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    /// Set while the object is being deleted: the time when the grace period ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    /// The grace period that the deletion timestamp results from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Selected by label selectors.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Free text for tools.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The objects this one depends on.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Must be empty before the object is removed.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// The unparsed list; only server-side apply interprets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_fields: Option<RawJson>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A reference to an owner; the garbage collector follows it by `uid`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// The `apiVersion` of the owner.
    #[serde(default)]
    pub api_version: String,
    /// The kind of the owner.
    #[serde(default)]
    pub kind: String,
    /// An object in the same namespace, or a cluster-scoped one.
    #[serde(default)]
    pub name: String,
    /// Identifies the owner even if another object takes its name.
    #[serde(default)]
    pub uid: String,
    /// True if the owner is the managing controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// True if foreground deletion of the owner waits for this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The metadata of a list or of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// The revision the list was read at, in decimal.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The token for the next page; empty on the last.
    #[serde(
        default,
        rename = "continue",
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub continue_token: String,
    /// The number of objects on later pages, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

impl ObjectMeta {
    /// Returns the reference to the managing controller.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }
}

pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::json::to_go_json;

    #[track_caller]
    fn check(read: &str, written: &Expect) {
        let metadata: ObjectMeta = serde_json::from_str(read).unwrap();
        written.assert_eq(&String::from_utf8(to_go_json(&metadata)).unwrap());
    }

    #[test]
    fn object_meta_omits_empty_fields() {
        check("{}", &expect!["{}"]);
        check(
            r#"{"name":null,"labels":null,"creationTimestamp":null,"generation":0,"finalizers":[],"ownerReferences":null}"#,
            &expect!["{}"],
        );
    }

    #[test]
    fn object_meta_keeps_go_field_order_and_unknown_fields() {
        check(
            r#"{"zeta":{"b":1,"a":[null]},"managedFields":[{"manager":"x", "fieldsV1":{"f:a":{}}}],"finalizers":["f"],
                "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true,"blockOwnerDeletion":false,"new":1}],
                "annotations":{"z":"<","a":""},"labels":{"l":"v"},"deletionGracePeriodSeconds":0,
                "deletionTimestamp":"2026-01-01T00:00:00Z","creationTimestamp":"2025-12-31T23:59:59Z","generation":2,
                "resourceVersion":"7","uid":"u","namespace":"ns","generateName":"g-","name":"n"}"#,
            &expect![[
                r#"{"name":"n","generateName":"g-","namespace":"ns","uid":"u","resourceVersion":"7","generation":2,"creationTimestamp":"2025-12-31T23:59:59Z","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"labels":{"l":"v"},"annotations":{"a":"","z":"\u003c"},"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true,"blockOwnerDeletion":false,"new":1}],"finalizers":["f"],"managedFields":[{"manager":"x","fieldsV1":{"f:a":{}}}],"zeta":{"a":[null],"b":1}}"#
            ]],
        );
    }

    #[test]
    fn controller_returns_owner_with_controller_flag() {
        let mut metadata = ObjectMeta::default();
        assert_eq!(metadata.controller(), None);
        metadata.owner_references.push(OwnerReference { uid: "a".to_owned(), ..Default::default() });
        metadata.owner_references.push(OwnerReference {
            uid: "b".to_owned(),
            controller: Some(true),
            ..Default::default()
        });
        assert_eq!(metadata.controller().map(|owner| owner.uid.as_str()), Some("b"));
    }

    #[test]
    fn object_meta_rejects_wrong_types_and_deep_nesting() {
        assert!(serde_json::from_str::<ObjectMeta>(r#"{"name":1}"#).is_err());
        let deep = format!(r#"{{"new":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(serde_json::from_str::<ObjectMeta>(&deep).is_err());
    }
}
