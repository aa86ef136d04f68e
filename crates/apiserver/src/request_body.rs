//! Reads request bodies: JSON, YAML or protobuf, decoded as an object of the expected kind.

use api::json::JsonObject;
use api::media::Encoding;
use api::{GroupVersion, GroupVersionKind, Status, query};
use bytes::Bytes;
use edge::body::{ReadBodyError, read_body};
use edge::{Request, RequestRecord};
use http::header::CONTENT_TYPE;
use kinds::{Release, types_of};
use object::Rejection;
use object::decode::{self, Decoded};
use object::delete::DeleteOptions;
use schema::protobuf::{self, ProtobufError};
use serde_json::Value;

use crate::BODY_BYTES_MAX;
use crate::built_in_types::{self, CheckedObject};
use crate::error_status::{self, StatusContext};
use crate::request_options;
use crate::resource::Resource;

/// A request with its complete body. A write may be decided several times, so it must not depend on the connection.
pub(crate) type BufferedRequest = http::Request<Bytes>;

/// The kind that a body must have.
pub(crate) struct ExpectedBody<'a> {
    pub(crate) kind: GroupVersionKind<&'a str>,
    pub(crate) release: Release,
    /// The resource, if it is a custom one and the body one of its objects.
    pub(crate) custom: Option<&'a Resource>,
    /// The object that error messages name.
    pub(crate) status_context: StatusContext<'a>,
}

/// Reads a body as an object of the expected kind and checks its types.
pub(crate) fn read_object(
    request: BufferedRequest,
    record: &RequestRecord,
    expected: &ExpectedBody<'_>,
) -> Result<CheckedObject, Status> {
    let validation = request_options::field_validation(&request)?;
    let encoding = request_encoding(&request)?;
    if expected.custom.is_some() && encoding == Encoding::Protobuf {
        return Err(Status::unsupported_media_type(&[Encoding::Json.media_type(), Encoding::Yaml.media_type()]));
    }
    let body = request.into_body();
    let decoded = match expected.custom {
        Some(_) => decode_custom_body(&body, encoding, expected),
        None => decode_body(&body, encoding, expected),
    };
    let decoded = decoded.map_err(|rejection| {
        let unregistered = if expected.custom.is_none() { unregistered_kind(&body, encoding, expected) } else { None };
        let rejection = unregistered.map_or(rejection, Rejection::BadRequest);
        error_status::status_for_rejection(rejection, expected.status_context)
    })?;
    record.set_request_object(|| serde_json::to_vec(&decoded.value).expect("a decoded object is valid JSON"));
    let checked = match expected.custom {
        Some(resource) => built_in_types::check_custom_body(decoded, resource, validation),
        None => {
            let source = (encoding == Encoding::Json).then_some(&*body);
            built_in_types::check_body_types(decoded, source, expected.release, expected.kind, validation)
        }
    };
    built_in_types::or_bad_request(checked, expected.kind)
}

/// Versions that kube-apiserver no longer serves, but still decodes.
const REMOVED_VERSIONS: &[(&str, &[&str])] = &[
    ("extensions", &["v1beta1"]),
    ("admissionregistration.k8s.io", &["v1alpha1", "v1beta1"]),
    ("apiextensions.k8s.io", &["v1beta1"]),
    ("apiregistration.k8s.io", &["v1beta1"]),
    ("apps", &["v1beta1", "v1beta2"]),
    ("batch", &["v1beta1"]),
    ("coordination.k8s.io", &["v1beta1"]),
    ("discovery.k8s.io", &["v1beta1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1beta1", "v1beta2", "v1beta3"]),
    ("networking.k8s.io", &["v1beta1"]),
    ("policy", &["v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1alpha1", "v1beta1"]),
    ("scheduling.k8s.io", &["v1alpha1", "v1beta1"]),
    ("storage.k8s.io", &["v1alpha1", "v1beta1"]),
];

/// True for another version of an expected kind that kube-apiserver decodes, so that only the version is wrong.
fn is_removed_version(version: GroupVersion<&str>, wanted: GroupVersionKind<&str>) -> bool {
    let is_of_group = version.group == wanted.group || version.group == "extensions";
    let versions = REMOVED_VERSIONS.iter().find(|(group, _)| *group == version.group);
    is_of_group && versions.is_some_and(|(_, versions)| versions.contains(&version.version))
}

/// Kubernetes' message for a body of a kind that no version of the release has; it names where the server collects them.
fn unregistered_kind(body: &[u8], encoding: Encoding, expected: &ExpectedBody<'_>) -> Option<String> {
    let form = if encoding == Encoding::Yaml { decode::BodyEncoding::Yaml } else { decode::BodyEncoding::Json };
    let Decoded { value, .. } = decode::decode_value(body, form).ok()?;
    let text = |field: &str| value.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let wanted = expected.kind;
    let kind = text("kind").unwrap_or(wanted.kind);
    let version = text("apiVersion").map_or(Ok(wanted.group_version()), GroupVersion::parse).ok()?;
    let known = GroupVersionKind { group: version.group, version: version.version, kind };
    if types_of(expected.release).for_kind(known).is_some() {
        return None;
    }
    if kind == wanted.kind && is_removed_version(version, wanted) {
        return Some(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            wanted.group_version()
        ));
    }
    let scheme = match wanted.group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    };
    Some(format!(
        "{kind} in version {:?} cannot be handled as a {}: no kind {kind:?} is registered for version {:?} in scheme \
         {scheme:?}",
        version.version,
        wanted.kind,
        version.to_string()
    ))
}

/// Decodes a custom object. Its path supplies neither `kind` nor `apiVersion`; another kind is rejected by validation.
fn decode_custom_body(
    body: &[u8],
    encoding: Encoding,
    expected: &ExpectedBody<'_>,
) -> Result<Decoded<JsonObject>, Rejection> {
    let form = if encoding == Encoding::Yaml { decode::BodyEncoding::Yaml } else { decode::BodyEncoding::Json };
    let Decoded { value: object, duplicate_fields } = decode::decode_untyped_object(body, form, expected.kind)?;
    let text = |field: &str| {
        let text = decode::type_meta_text(&object, field);
        text.map_err(|reason| decode::unrecognized_object(body, expected.kind, &reason))
    };
    let (found, wanted) = (text("apiVersion")?, expected.kind.group_version());
    if text("kind")?.is_empty() {
        let shown = match encoding {
            Encoding::Yaml => Value::Object(object).to_string(),
            Encoding::Json | Encoding::Protobuf => String::from_utf8_lossy(body).into_owned(),
        };
        return Err(decode::unrecognized_object(
            body,
            expected.kind,
            &format!("Object 'Kind' is missing in '{shown}'"),
        ));
    }
    if found != wanted.to_string() {
        return Err(Rejection::BadRequest(format!(
            "the API version in the data ({found}) does not match the expected API version ({wanted})"
        )));
    }
    Ok(Decoded { value: object, duplicate_fields })
}

/// Reads `DeleteOptions` from the body or, if it is empty, from the query.
pub(crate) fn read_delete_options(
    request: BufferedRequest,
    record: &RequestRecord,
    release: Release,
    status_context: StatusContext<'_>,
) -> Result<DeleteOptions, Status> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let encoding = request_encoding(&request)?;
    let body = request.into_body();
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
pub(crate) async fn buffer(request: Request) -> Result<BufferedRequest, Status> {
    let (parts, body) = request.into_parts();
    match read_body(body, BODY_BYTES_MAX).await {
        Ok(bytes) => Ok(BufferedRequest::from_parts(parts, bytes)),
        Err(ReadBodyError::TooLarge { limit }) => Err(Status::request_entity_too_large(format!("limit is {limit}"))),
        Err(ReadBodyError::Interrupted(error)) => {
            Err(Status::bad_request(format!("the request body ended early: {error}")))
        }
    }
}

fn request_encoding(request: &BufferedRequest) -> Result<Encoding, Status> {
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
