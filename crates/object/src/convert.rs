//! Conversion of an object between the versions of its kind.
//!
//! Most versions of a kind have the same fields, so only `apiVersion` changes. For versions whose fields differ, the
//! caller passes a conversion. Fields that neither version defines are kept.

use api::json::JsonObject;
use api::{GroupVersion, GroupVersionKind};
use serde_json::Value;

/// A conversion between versions whose fields differ.
pub type Conversion = fn(&mut JsonObject);

/// Converts an object to another version of its kind. `conversion_between` returns the conversion between two versions
/// whose fields differ.
pub fn convert(
    object: &mut JsonObject,
    target: GroupVersionKind<&str>,
    conversion_between: fn(GroupVersion<&str>, GroupVersion<&str>) -> Option<Conversion>,
) {
    object.insert("kind".to_owned(), target.kind.into());
    let stored_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let target_version = target.group_version();
    let stored_version = GroupVersion::parse(&stored_version).ok().filter(|stored| !stored.version.is_empty());
    let differing = stored_version.filter(|stored_version| *stored_version != target_version);
    if let Some(conversion) = differing.and_then(|stored_version| conversion_between(stored_version, target_version)) {
        conversion(object);
    }
    object.insert("apiVersion".to_owned(), target_version.to_string().into());
}
