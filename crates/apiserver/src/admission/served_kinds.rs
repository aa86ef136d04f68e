//! Versions of resources as webhooks need them.

use ::admission::{EquivalentResource, ServedKinds};
use api::json::JsonObject;
use api::{GroupVersionKind, GroupVersionResource};
use kinds::types_of;
use managedfields::{ObjectType, merge_unowned};
use object::convert::convert;
use object::decode::Decoded;
use schema::semantic_equality::is_object_equal;

use crate::ApiServer;
use crate::built_in_types::{self, FieldValidation, TypeCheckFailure};
use crate::resource::Resource;

/// The kinds of one server, seen from the resource of a request.
pub(super) struct RequestKinds<'a> {
    pub(super) server: &'a ApiServer,
    pub(super) resource: &'a Resource,
}

impl ServedKinds for RequestKinds<'_> {
    fn equivalents(&self, resource: GroupVersionResource<&str>, subresource: &str) -> Vec<EquivalentResource> {
        if let Some((live, _)) = self.resource.as_custom() {
            let served = live.versions.iter().map(|version| {
                let kind = version.group_version_kind();
                let kind = if subresource == "scale" { SCALE } else { kind };
                let resource = GroupVersionResource { version: version.group_version_kind().version, ..resource };
                EquivalentResource { resource: resource.owned(), kind: kind.owned() }
            });
            return served.collect();
        }
        let Some(served) = self.resource.as_built_in() else { return Vec::new() };
        let Some(stored) = &served.stored_resource else { return Vec::new() };
        let shares_storage = |other: &&kinds::ServedResource| {
            let has_part = subresource.is_empty() || other.subresource(subresource).is_some();
            let prefix = other.stored_resource.as_ref().map(|stored| stored.key_prefix);
            has_part && prefix == Some(stored.key_prefix)
        };
        let others = self.server.served_resources.resources().iter().filter(shares_storage);
        others
            .map(|other| {
                let kind = if subresource == "scale" { SCALE } else { other.group_version_kind() };
                EquivalentResource { resource: other.group_version_resource().owned(), kind: kind.owned() }
            })
            .collect()
    }

    fn convert(&self, object: &JsonObject, kind: GroupVersionKind<&str>) -> Result<JsonObject, String> {
        let mut object = object.clone();
        let own = self.resource.group_version_kind();
        if kind.kind != own.kind || object.get("kind").and_then(|kind| kind.as_str()) != Some(own.kind) {
            // The body of a subresource has one version.
            return Ok(object);
        }
        match self.resource.as_custom() {
            None => convert(&mut object, kind, self.resource.strategy().conversion),
            Some((live, _)) => {
                let version = live.version(kind.version);
                let version = version.ok_or_else(|| format!("{kind} is not served"))?;
                // A conversion by a webhook may be missing; it is then performed before the decision is made again.
                let converted = live.convert(&mut object, version, self.resource.conversions());
                converted.map_err(|status| status.message)?;
            }
        }
        Ok(object)
    }

    fn read_patched(
        &self,
        object: JsonObject,
        kind: GroupVersionKind<&str>,
        is_strict: bool,
    ) -> Result<JsonObject, String> {
        let decoded = Decoded { value: object, duplicate_fields: Vec::new() };
        let reason = |TypeCheckFailure { reason, .. }| reason;
        if let Some((live, _)) = self.resource.as_custom()
            && kind.kind == self.resource.group_version_kind().kind
        {
            let Decoded { value: mut object, .. } = decoded;
            let version = live.version(kind.version).ok_or_else(|| format!("{kind} is not served"))?;
            live.decode_request(&mut object, version).map_err(|error| error.to_string())?;
            return Ok(object);
        }
        let gates = &self.server.feature_gates;
        let validation = if is_strict { FieldValidation::Strict } else { FieldValidation::Ignore };
        let checked = built_in_types::check_body_types(decoded, None, gates.release(), kind, validation);
        let mut object = checked.map_err(reason)?.object;
        built_in_types::set_defaults(&mut object, gates, kind);
        Ok(object)
    }

    fn merge(
        &self,
        object: &JsonObject,
        configuration: &JsonObject,
        kind: GroupVersionKind<&str>,
    ) -> Result<JsonObject, String> {
        let custom = self.resource.as_custom().filter(|_| kind.kind == self.resource.group_version_kind().kind);
        let object_type = match custom {
            Some((live, _)) => {
                let version = live.version(kind.version).ok_or_else(|| format!("{kind} is not served"))?;
                live.schema(version).map_or(ObjectType::Deduced, |schema| ObjectType::Custom {
                    schema,
                    object_meta: live.object_meta(),
                })
            }
            None => types_of(self.server.feature_gates.release())
                .for_kind(kind)
                .map(ObjectType::BuiltIn)
                .ok_or_else(|| format!("no schema for {kind}"))?,
        };
        merge_unowned(object, configuration, object_type)
    }

    fn is_equal(&self, left: &JsonObject, right: &JsonObject, kind: GroupVersionKind<&str>) -> bool {
        match types_of(self.server.feature_gates.release()).for_kind(kind) {
            Some(struct_type) if self.resource.as_custom().is_none() => is_object_equal(struct_type, left, right),
            Some(_) | None => left == right,
        }
    }
}

const SCALE: GroupVersionKind<&str> = GroupVersionKind { group: "autoscaling", version: "v1", kind: "Scale" };
