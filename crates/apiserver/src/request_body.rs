//! Reads request bodies: JSON, YAML or protobuf, decoded as an object of the expected kind.

use api::json::JsonObject;
use api::media::Encoding;
use api::{GroupVersionKind, Status, query};
use bytes::Bytes;
use edge::body::{ReadBodyError, read_body};
use edge::{Request, RequestRecord};
use http::header::CONTENT_TYPE;
use kinds::{Release, types_of};
use object::Rejection;
use object::decode::{self, Decoded};
use object::delete::DeleteOptions;
use schema::protobuf::{self, ProtobufError};

use crate::BODY_BYTES_MAX;
use crate::built_in_types::{self, CheckedObject, FieldValidation};
use crate::error_status::{self, StatusContext};

/// The kind that a body must have.
pub(crate) struct ExpectedBody<'a> {
    pub(crate) kind: GroupVersionKind<&'a str>,
    pub(crate) release: Release,
    /// The object that error messages name.
    pub(crate) status_context: StatusContext<'a>,
}

/// Reads a body as an object of the expected kind and checks its types.
pub(crate) async fn read_object(
    request: Request,
    record: &RequestRecord,
    expected: &ExpectedBody<'_>,
) -> Result<CheckedObject, Status> {
    let validation = FieldValidation::from_query(request.uri().query().unwrap_or_default())?;
    let encoding = request_encoding(&request)?;
    let body = read_bytes(request).await?;
    let decoded = decode_body(&body, encoding, expected);
    let decoded =
        decoded.map_err(|rejection| error_status::status_for_rejection(rejection, expected.status_context))?;
    record.set_request_object(|| serde_json::to_vec(&decoded.value).expect("a decoded object is valid JSON"));
    built_in_types::check_or_bad_request(decoded, expected.release, expected.kind, validation)
}

/// Reads `DeleteOptions` from the body or, if it is empty, from the query.
pub(crate) async fn read_delete_options(
    request: Request,
    record: &RequestRecord,
    release: Release,
    status_context: StatusContext<'_>,
) -> Result<DeleteOptions, Status> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let encoding = request_encoding(&request)?;
    let body = read_bytes(request).await?;
    if encoding == Encoding::Json && !body.is_empty() {
        record.set_request_object(|| body.to_vec());
    }
    let pairs: Vec<_> = query::pairs(&query).collect();
    let pairs = pairs.iter().map(|(key, value)| (&**key, &**value));
    let options = match encoding {
        Encoding::Json => DeleteOptions::parse(&body, decode::BodyEncoding::Json, pairs),
        Encoding::Yaml => DeleteOptions::parse(&body, decode::BodyEncoding::Yaml, pairs),
        Encoding::Protobuf if body.is_empty() => DeleteOptions::parse(&body, decode::BodyEncoding::Json, pairs),
        Encoding::Protobuf => decode_protobuf(&body, DELETE_OPTIONS, release).and_then(|object| {
            let body = serde_json::to_vec(&object).expect("an object has string keys");
            DeleteOptions::parse(&body, decode::BodyEncoding::Json, pairs)
        }),
    };
    options.map_err(|rejection| error_status::status_for_rejection(rejection, status_context))
}

const DELETE_OPTIONS: GroupVersionKind<&str> =
    GroupVersionKind { group: "meta.k8s.io", version: "v1", kind: "DeleteOptions" };

/// Reads the complete body, up to [`BODY_BYTES_MAX`].
pub(crate) async fn read_bytes(request: Request) -> Result<Bytes, Status> {
    match read_body(request.into_body(), BODY_BYTES_MAX).await {
        Ok(bytes) => Ok(bytes),
        Err(ReadBodyError::TooLarge { limit }) => Err(Status::request_entity_too_large(format!("limit is {limit}"))),
        Err(ReadBodyError::Interrupted(error)) => {
            Err(Status::bad_request(format!("the request body ended early: {error}")))
        }
    }
}

fn request_encoding(request: &Request) -> Result<Encoding, Status> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = Encoding::from_content_type(content_type);
    encoding.ok_or_else(|| Status::unsupported_media_type(&Encoding::ALL.map(Encoding::media_type)))
}

fn decode_body(body: &[u8], encoding: Encoding, expected: &ExpectedBody<'_>) -> Result<Decoded<JsonObject>, Rejection> {
    match encoding {
        Encoding::Json => decode::decode_object(body, decode::BodyEncoding::Json, expected.kind),
        Encoding::Yaml => decode::decode_object(body, decode::BodyEncoding::Yaml, expected.kind),
        Encoding::Protobuf => {
            let object = decode_protobuf(body, expected.kind, expected.release)?;
            Ok(Decoded { value: decode::expect_kind(object, body, expected.kind)?, duplicate_fields: Vec::new() })
        }
    }
}

fn decode_protobuf(body: &[u8], expected: GroupVersionKind<&str>, release: Release) -> Result<JsonObject, Rejection> {
    protobuf::decode(body, types_of(release), expected).map_err(|error| match &error {
        ProtobufError::Empty | ProtobufError::NoPrefix | ProtobufError::Envelope(_) => {
            decode::unrecognized_object(body, expected, &error.to_string())
        }
        ProtobufError::UnknownKind(kind) | ProtobufError::Message { kind, .. } => Rejection::BadRequest(format!(
            "{} in version {:?} cannot be handled as a {}: {error}",
            kind.kind, kind.version, expected.kind
        )),
    })
}
