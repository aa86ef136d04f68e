//! The representation of objects in responses, negotiated by `Accept`: full objects, partial metadata, or a table.

use api::json::JsonObject;
use api::media::{
    Encoding, MetaVersion, NegotiatedMediaType, ObjectOffer, Transform, TransformKind, negotiate, negotiate_stream,
};
use api::metadata::ListMeta;
use api::{Status, protobuf, query};
use bytes::Bytes;
use edge::{Body, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
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
    PartialMetadata(MetaVersion, MetadataEncoding),
    Table(MetaVersion, IncludeObject),
}

/// The encodings of metadata. YAML is made from JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataEncoding {
    Json,
    Protobuf,
}

impl ObjectRepresentation {
    /// Negotiates the representation of an object or list.
    pub(crate) fn negotiate(accept: &str, query: &str) -> Result<Self, Status> {
        Self::from_media_type(negotiate(accept, ObjectOffer::CUSTOM)?, query)
    }

    /// Negotiates the representation of a review, which has no table.
    pub(crate) fn negotiate_review(accept: &str) -> Result<Self, Status> {
        Self::from_media_type(negotiate(accept, ObjectOffer::JSON_WITHOUT_TABLE)?, "")
    }

    /// Negotiates the representation of objects in watch events.
    pub(crate) fn negotiate_stream(accept: &str, query: &str) -> Result<Self, Status> {
        Self::from_media_type(negotiate_stream(accept, ObjectOffer::CUSTOM)?, query)
    }

    fn from_media_type(accepted: NegotiatedMediaType, query: &str) -> Result<Self, Status> {
        let Some(Transform { kind, version }) = accepted.transform else { return Ok(Self::Full) };
        Ok(match kind {
            TransformKind::PartialObjectMetadata | TransformKind::PartialObjectMetadataList => {
                let encoding = match accepted.encoding {
                    Encoding::Json | Encoding::Yaml => MetadataEncoding::Json,
                    Encoding::Protobuf => MetadataEncoding::Protobuf,
                };
                Self::PartialMetadata(version, encoding)
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
            Self::PartialMetadata(version, _) => {
                api::json::to_go_json(&partial_object_metadata::object(object, version.api_version()))
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
            Self::PartialMetadata(version, MetadataEncoding::Json) => {
                partial_object_metadata::object(&object, version.api_version())
            }
            Self::PartialMetadata(version, MetadataEncoding::Protobuf) => {
                return protobuf::encode_partial_object_metadata(&object, version).into();
            }
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
            Self::PartialMetadata(version, MetadataEncoding::Json) => {
                partial_object_metadata::list(&objects()?, metadata, version.api_version())
            }
            Self::PartialMetadata(version, MetadataEncoding::Protobuf) => {
                let list = protobuf::encode_partial_object_metadata_list(&objects()?, metadata, version);
                return Ok(Some(list.into()));
            }
            Self::Table(version, include) => {
                build_resource_table(&objects()?, metadata, resource, version, include, ColumnDefinitions::Included)
            }
        };
        let mut bytes = api::json::to_go_json(&value);
        bytes.push(b'\n');
        Ok(Some(bytes.into()))
    }

    fn encoding(self) -> Encoding {
        match self {
            Self::PartialMetadata(_, MetadataEncoding::Protobuf) => Encoding::Protobuf,
            Self::PartialMetadata(_, MetadataEncoding::Json) | Self::Full | Self::Table(..) => Encoding::Json,
        }
    }

    /// The response with an encoded object or list.
    pub(crate) fn response(self, body: impl Into<Body>) -> Response {
        response_of_type(self.encoding().media_type(), body)
    }

    /// The response with a Status in the encoding of objects.
    pub(crate) fn status_response(self, status: &Status) -> Response {
        self.response(self.encode_status(status))
    }

    /// The response with the events of a watch.
    pub(crate) fn watch_response(self, events: Body) -> Response {
        let media_type = self.encoding().watch_media_type().expect("a watch has an encoding of streams");
        response_of_type(media_type, events)
    }

    fn encode_status(self, status: &Status) -> Vec<u8> {
        match self.encoding() {
            Encoding::Json | Encoding::Yaml => status.to_json(),
            Encoding::Protobuf => protobuf::encode_status(status),
        }
    }

    /// Encodes a watch event of an encoded object, in chunks that share large objects.
    pub(crate) fn encode_watch_event(self, event_type: &str, object: Bytes) -> impl Iterator<Item = Bytes> {
        let (json, protobuf) = match self.encoding() {
            Encoding::Json | Encoding::Yaml => (Some(object_codec::watch_event_chunks(event_type, object)), None),
            Encoding::Protobuf => (None, Some(Bytes::from(protobuf::encode_watch_event(event_type, &object)))),
        };
        json.into_iter().flatten().chain(protobuf)
    }

    /// Encodes the ERROR event that ends a watch.
    pub(crate) fn encode_error_event(self, status: &Status) -> impl Iterator<Item = Bytes> {
        let mut object = self.encode_status(status);
        if self.encoding() == Encoding::Json {
            object.truncate(object.trim_ascii_end().len());
        }
        self.encode_watch_event("ERROR", object.into())
    }
}

fn response_of_type(media_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
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
        api_version: version.api_version(),
        include_object,
        column_definitions,
        now: current_time(),
    };
    match resource.as_custom() {
        None => build_table(objects, metadata, &options),
        Some((_, version)) => build_table(objects, metadata, &options.with_columns(version.columns())),
    }
}
