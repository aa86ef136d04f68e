//! Behaviour of whole writes that recorded sequences do not show.

mod applies;
mod scales;
mod updates;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use api::GroupVersionKind;
use api::json::JsonObject;
use schema::TypeTable;
use serde_json::{Value, json};

use crate::{ConversionUnavailable, FieldManager, FieldSet, ObjectType, VersionedTypes};

static TABLE: LazyLock<TypeTable> =
    LazyLock::new(|| TypeTable::parse(include_str!("../../kinds/src/types/schemas.txt")));

/// Deployments of `apps/v1`, and `apps/v2` with the same fields, whose conversion can fail.
#[derive(Default)]
struct Deployments {
    reset: FieldSet,
    is_conversion_unavailable: bool,
}

impl VersionedTypes for Deployments {
    fn kind(&self) -> &str {
        "Deployment"
    }

    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let kind = GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" };
        let is_known = matches!(api_version, "apps/v1" | "apps/v2");
        TABLE.in_release(36).for_kind(kind).filter(|_| is_known).map(ObjectType::BuiltIn)
    }

    fn convert(&self, object: &JsonObject, api_version: &str) -> Result<JsonObject, ConversionUnavailable> {
        if self.is_conversion_unavailable {
            return Err(ConversionUnavailable {
                api_version: api_version.to_owned(),
                reason: "webhook is down".to_owned(),
            });
        }
        let mut object = object.clone();
        object.insert("apiVersion".to_owned(), api_version.into());
        Ok(object)
    }

    fn reset_fields(&self, _: &str) -> &FieldSet {
        &self.reset
    }
}

fn object(value: &Value) -> JsonObject {
    value.as_object().expect("an object").clone()
}

/// A deployment with this spec.
fn deployment(spec: &Value) -> JsonObject {
    object(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}, "spec": spec,
    }))
}

fn writer(name: &str, minute: u8) -> FieldManager<'_> {
    let now = format!("2026-01-01T00:{minute:02}:00Z").parse().expect("a time");
    FieldManager { name, api_version: "apps/v1", subresource: "", now }
}

/// The entries as `manager operation version subresource minute` and their sets.
fn entries(object: &JsonObject) -> BTreeMap<String, Value> {
    let list = object["metadata"].get("managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or("-").to_owned();
    list.into_iter()
        .map(|entry| {
            let names = ["manager", "operation", "apiVersion", "subresource"].map(|name| text(&entry, name));
            let minute = text(&entry, "time").get(14..16).unwrap_or("-").to_owned();
            (format!("{} {minute}", names.join(" ")), entry["fieldsV1"].clone())
        })
        .collect()
}
