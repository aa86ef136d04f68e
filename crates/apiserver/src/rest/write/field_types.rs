//! What managed fields need to know about a resource: types and reset fields by version, conversion, path of replicas.

use api::json::JsonObject;
use api::{GroupVersion, GroupVersionKind, Status};
use kinds::{FeatureGates, types_of};
use managedfields::{ConversionUnavailable, FieldManager, FieldSet, ObjectType, ScalePaths, VersionedTypes};

use crate::resource::Resource;
use crate::rest::current_time;

/// The field manager of writes by the server itself.
const SERVER_MANAGER: &str = "kube-apiserver";

/// Records that the server updated the status of an object, as kube-apiserver does through its own API.
pub(crate) fn record_status_of_server(
    resource: &Resource,
    feature_gates: &FeatureGates,
    old: &JsonObject,
    new: &mut JsonObject,
) -> Result<(), Status> {
    let api_version = resource.group_version_kind().group_version().to_string();
    let manager =
        FieldManager { name: SERVER_MANAGER, api_version: &api_version, subresource: "status", now: current_time() };
    let types = ResourceTypes::new(resource, feature_gates, manager.subresource);
    managedfields::record_update(Some(old), new, &manager, &types)
        .map_err(|error| Status::service_unavailable(error.to_string()).with_retry_after(1))
}

/// The types of a resource at one endpoint: the object itself or a subresource with the same kind.
pub(in super::super) struct ResourceTypes<'a> {
    resource: &'a Resource,
    feature_gates: &'a FeatureGates,
    subresource: &'a str,
    reset_fields: FieldSet,
    /// For an endpoint that resets nothing.
    no_fields: FieldSet,
}

impl<'a> ResourceTypes<'a> {
    pub(in super::super) fn new(resource: &'a Resource, feature_gates: &'a FeatureGates, subresource: &'a str) -> Self {
        let reset_fields = match (resource.as_built_in(), subresource) {
            (Some(served), _) => FieldSet::of_names(served.reset_fields(subresource, feature_gates)),
            (None, "") => FieldSet::of_names(&[&["status"]]),
            (None, "status") => FieldSet::of_names(&[&["metadata"], &["spec"]]),
            (None, _) => FieldSet::default(),
        };
        Self { resource, feature_gates, subresource, reset_fields, no_fields: FieldSet::default() }
    }

    /// The kind of the resource in another version.
    fn kind_in<'v>(&'v self, group_version: GroupVersion<&'v str>) -> GroupVersionKind<&'v str> {
        let GroupVersion { group, version } = group_version;
        GroupVersionKind { group, version, kind: self.resource.group_version_kind().kind }
    }
}

impl VersionedTypes for ResourceTypes<'_> {
    fn kind(&self) -> &str {
        self.resource.group_version_kind().kind
    }

    fn has_same_fields(&self, one: &str, other: &str) -> bool {
        if one == other {
            return true;
        }
        match (self.resource.as_custom(), GroupVersion::parse(one), GroupVersion::parse(other)) {
            (None, Ok(one), Ok(other)) => (self.resource.strategy().conversion)(one, other).is_none(),
            // Versions of a custom resource have schemas of their own.
            _ => false,
        }
    }

    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let group_version = GroupVersion::parse(api_version).ok()?;
        match self.resource.as_custom() {
            Some((live, _)) => {
                let version = live.version_of_group(group_version)?;
                Some(match live.schema(version) {
                    Some(schema) => ObjectType::Custom { schema, object_meta: live.object_meta() },
                    None => ObjectType::Deduced,
                })
            }
            None => {
                types_of(self.feature_gates.release()).for_kind(self.kind_in(group_version)).map(ObjectType::BuiltIn)
            }
        }
    }

    fn convert(&self, object: &JsonObject, api_version: &str) -> Result<JsonObject, ConversionUnavailable> {
        let unknown = || ConversionUnavailable {
            api_version: api_version.to_owned(),
            reason: "the version is unknown".to_owned(),
        };
        let group_version = GroupVersion::parse(api_version).map_err(|_| unknown())?;
        let mut converted = object.clone();
        match self.resource.as_custom() {
            Some((live, _)) => {
                let version = live.version_of_group(group_version).ok_or_else(unknown)?;
                // A conversion that a webhook must perform first is missing now; the write is then decided again.
                live.convert(&mut converted, version, self.resource.conversions()).map_err(|status| {
                    ConversionUnavailable { api_version: api_version.to_owned(), reason: status.message }
                })?;
            }
            None => object::convert::convert(
                &mut converted,
                self.kind_in(group_version),
                self.resource.strategy().conversion,
            ),
        }
        Ok(converted)
    }

    /// By the version of the request, not by `_api_version`: the endpoint of the request decides what is not written.
    fn reset_fields(&self, _api_version: &str) -> &FieldSet {
        match self.resource.as_custom() {
            // A version of a custom resource without the subresource `status` keeps the status that a request sends.
            Some((_, version)) if self.subresource.is_empty() && !version.has_status() => &self.no_fields,
            Some(_) | None => &self.reset_fields,
        }
    }
}

impl ScalePaths for ResourceTypes<'_> {
    fn replicas_path(&self, api_version: &str) -> Option<Vec<String>> {
        let group_version = GroupVersion::parse(api_version).ok()?;
        match self.resource.as_custom() {
            Some((live, _)) => {
                let version = live.version_of_group(group_version)?;
                Some(version.scale().map(|scale| scale.spec_replicas().to_vec()).unwrap_or_default())
            }
            None => {
                types_of(self.feature_gates.release()).for_kind(self.kind_in(group_version))?;
                let path = self.resource.strategy().scale.spec_replicas;
                Some(path.iter().map(|name| (*name).to_owned()).collect())
            }
        }
    }
}

/// The types of the `Scale` of a resource.
pub(in super::super) struct ScaleTypes<'a> {
    feature_gates: &'a FeatureGates,
    no_fields: FieldSet,
}

impl<'a> ScaleTypes<'a> {
    pub(in super::super) fn new(feature_gates: &'a FeatureGates) -> Self {
        Self { feature_gates, no_fields: FieldSet::default() }
    }
}

impl VersionedTypes for ScaleTypes<'_> {
    fn kind(&self) -> &str {
        "Scale"
    }

    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let GroupVersion { group, version } = GroupVersion::parse(api_version).ok()?;
        let kind = GroupVersionKind { group, version, kind: "Scale" };
        types_of(self.feature_gates.release()).for_kind(kind).map(ObjectType::BuiltIn)
    }

    fn convert(&self, object: &JsonObject, _: &str) -> Result<JsonObject, ConversionUnavailable> {
        // There is one version.
        Ok(object.clone())
    }

    fn reset_fields(&self, _: &str) -> &FieldSet {
        &self.no_fields
    }
}
