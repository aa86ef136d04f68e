//! The metadata every object and every list carries.
//!
//! Fields are written in Go's order and left out when empty, as Go does. Fields we do not know are kept and written back.

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
    /// Unique among the objects of its resource and namespace.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The start of a name that the server completes.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Empty for cluster-scoped objects.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Unlike the name, never used twice.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The revision of the last write, in decimal; absent in storage.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Counts the changes of the desired state.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When the object was created. Releases before 1.34 write `null` for absence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    /// When the object is to be gone, grace period included; set means that it is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    /// The grace period that led to the deletion timestamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// What selectors select by.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Free text for tools.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The objects this one depends on.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// What must be removed before the object may go.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Who manages which field: the list as it came, since only server-side apply looks inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_fields: Option<RawJson>,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A reference to an owner; the garbage collector follows it by `uid`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// Group and version of the owner, as in its own `apiVersion`.
    #[serde(default)]
    pub api_version: String,
    /// The kind of the owner.
    #[serde(default)]
    pub kind: String,
    /// The name of the owner, in the same namespace or cluster-scoped.
    #[serde(default)]
    pub name: String,
    /// The uid of the owner.
    #[serde(default)]
    pub uid: String,
    /// Whether the owner is the controller of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether foreground deletion of the owner waits for this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
    /// Fields of a newer release.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The metadata of a list, and of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// The revision the list was read at, in decimal.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The token that fetches the next page; empty on the last.
    #[serde(
        default,
        rename = "continue",
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub continue_token: String,
    /// How many objects follow, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

impl ObjectMeta {
    /// The owner that controls this object, if it has one.
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
