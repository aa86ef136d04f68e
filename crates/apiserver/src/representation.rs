//! The representation of objects in responses, negotiated by `Accept`: full objects, partial metadata, or a table.

use api::json::JsonObject;
use api::media::{
    MetaVersion, NegotiatedMediaType, ObjectOffer, Transform, TransformKind, negotiate, negotiate_stream,
};
use api::metadata::ListMeta;
use api::{Status, query};
use bytes::Bytes;
use object::table::{ColumnDefinitions, IncludeObject, TableOptions, build_table};
use object::{StoredObject, partial_object_metadata};
use serde_json::Value;
use store::Revision;

use crate::object_codec;
use crate::resource::Resource;
use crate::rest::current_time;

/// The negotiated representation of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectRepresentation {
    /// Full objects; the cached bytes if they are stored in the served version.
    Full,
    PartialMetadata(MetaVersion),
    Table(MetaVersion, IncludeObject),
}

impl ObjectRepresentation {
    /// Negotiates the representation of an object or list.
    pub(crate) fn negotiate(accept: &str, query: &str) -> Result<Self, Status> {
        Self::from_media_type(negotiate(accept, ObjectOffer::JSON)?, query)
    }

    /// Negotiates the representation of a review, which has no table.
    pub(crate) fn negotiate_review(accept: &str) -> Result<Self, Status> {
        Self::from_media_type(negotiate(accept, ObjectOffer::JSON_WITHOUT_TABLE)?, "")
    }

    /// Negotiates the representation of objects in watch events.
    pub(crate) fn negotiate_stream(accept: &str, query: &str) -> Result<Self, Status> {
        Self::from_media_type(negotiate_stream(accept, ObjectOffer::JSON)?, query)
    }

    fn from_media_type(accepted: NegotiatedMediaType, query: &str) -> Result<Self, Status> {
        let Some(Transform { kind, version }) = accepted.transform else { return Ok(Self::Full) };
        Ok(match kind {
            TransformKind::PartialObjectMetadata | TransformKind::PartialObjectMetadataList => {
                Self::PartialMetadata(version)
            }
            TransformKind::Table => {
                let include = query::first_value(query, "includeObject").unwrap_or_default();
                let include =
                    IncludeObject::parse(&include).map_err(|rejection| Status::bad_request(rejection.to_string()))?;
                Self::Table(version, include)
            }
        })
    }

    /// Encodes an object that is not stored and has no table, such as a review.
    pub(crate) fn encode_unstored(self, object: &JsonObject) -> Vec<u8> {
        match self {
            Self::PartialMetadata(version) => {
                api::json::to_go_json(&partial_object_metadata::object(object, meta_api_version(version)))
            }
            Self::Full | Self::Table(..) => api::json::to_go_json(object),
        }
    }

    /// Encodes one object. Fails like [`Resource::to_served`].
    pub(crate) fn encode_object(
        self,
        stored: &StoredObject,
        resource: &Resource,
        column_definitions: ColumnDefinitions,
    ) -> Result<Bytes, Status> {
        if self == Self::Full {
            return object_codec::encode_served(stored, resource);
        }
        let object = object_codec::decode_served(stored, resource)?;
        Ok(self.encode_decoded(object, Revision(stored.revision), resource, column_definitions))
    }

    /// Encodes the object of a bookmark: the resourceVersion alone and, after the initial events of a watch, the
    /// annotation that says so. It has the representation of all other objects of the watch.
    pub(crate) fn encode_bookmark(
        self,
        revision: Revision,
        ends_initial_events: bool,
        resource: &Resource,
        column_definitions: ColumnDefinitions,
    ) -> Bytes {
        let kind = resource.group_version_kind();
        let api_version = api::GroupVersion { group: kind.group, version: kind.version };
        let annotations =
            if ends_initial_events { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
        let object = format!(
            r#"{{"kind":"{}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{revision}"{annotations}}}}}"#,
            kind.kind
        );
        if self == Self::Full {
            return object.into();
        }
        let object = serde_json::from_str(&object).expect("the bookmark is an object");
        self.encode_decoded(object, revision, resource, column_definitions)
    }

    fn encode_decoded(
        self,
        object: JsonObject,
        revision: Revision,
        resource: &Resource,
        column_definitions: ColumnDefinitions,
    ) -> Bytes {
        let value = match self {
            Self::Full => Value::Object(object),
            Self::PartialMetadata(version) => partial_object_metadata::object(&object, meta_api_version(version)),
            Self::Table(version, include) => {
                let metadata = ListMeta { resource_version: revision.to_string(), ..ListMeta::default() };
                build_resource_table(&[object], &metadata, resource, version, include, column_definitions)
            }
        };
        api::json::to_go_json(&value).into()
    }

    /// Encodes a list; `None` for full objects, whose cached bytes the caller sends. `objects` is then not called.
    pub(crate) fn encode_list(
        self,
        objects: impl FnOnce() -> Result<Vec<JsonObject>, Status>,
        metadata: &ListMeta,
        resource: &Resource,
    ) -> Result<Option<Bytes>, Status> {
        let value: Value = match self {
            Self::Full => return Ok(None),
            Self::PartialMetadata(version) => {
                partial_object_metadata::list(&objects()?, metadata, meta_api_version(version))
            }
            Self::Table(version, include) => {
                build_resource_table(&objects()?, metadata, resource, version, include, ColumnDefinitions::Included)
            }
        };
        let mut bytes = api::json::to_go_json(&value);
        bytes.push(b'\n');
        Ok(Some(bytes.into()))
    }
}

fn meta_api_version(version: MetaVersion) -> &'static str {
    match version {
        MetaVersion::V1 => "meta.k8s.io/v1",
        MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
    }
}

/// Builds the table of objects with the columns of their resource.
fn build_resource_table(
    objects: &[JsonObject],
    metadata: &ListMeta,
    resource: &Resource,
    version: MetaVersion,
    include_object: IncludeObject,
    column_definitions: ColumnDefinitions,
) -> Value {
    let options = TableOptions {
        columns: resource.strategy().columns,
        row_condition: resource.strategy().row_condition,
        api_version: meta_api_version(version),
        include_object,
        column_definitions,
        now: current_time(),
    };
    match resource.as_custom() {
        None => build_table(objects, metadata, &options),
        Some((_, version)) => build_table(objects, metadata, &options.with_columns(version.columns())),
    }
}
