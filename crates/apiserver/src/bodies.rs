//! Bodies of requests: read whole, as an object of the expected kind, whatever the encoding.

use api::media::Encoding;
use api::{GroupVersionKind, Status, query};
use bytes::Bytes;
use catalogue::Release;
use catalogue::protobuf::{self, ReadError};
use edge::Request;
use edge::audit::Trail;
use edge::body::{ReadBodyError, read_whole};
use http::header::CONTENT_TYPE;
use object::Refusal;
use object::decode::{self, Decoded};
use object::delete::DeleteOptions;

use crate::BODY_BYTES_MAX;
use crate::faults::{self, About};
use crate::forms::Object;
use crate::typed::{self, Checked, FieldValidation};

/// What a body should be.
pub(crate) struct Expected<'a> {
    pub(crate) kind: GroupVersionKind<&'a str>,
    pub(crate) release: Release,
    /// What the request is about, for messages.
    pub(crate) about: About<'a>,
}

/// Reads a body that must be an object of this kind and types.
pub(crate) async fn read(request: Request, expected: &Expected<'_>) -> Result<Checked, Status> {
    let validation = FieldValidation::of_query(request.uri().query().unwrap_or_default())?;
    let encoding = encoding_of(&request)?;
    let trail = Trail::of(&request);
    let body = read_bytes(request).await?;
    let decoded = decoded(&body, encoding, expected);
    let decoded = decoded.map_err(|refusal| faults::refused(refusal, expected.about))?;
    note(trail.as_deref(), &decoded.value);
    typed::checked(decoded, expected.release, expected.kind, validation)
}

/// Tells the audit log what was sent.
pub(crate) fn note(trail: Option<&Trail>, sent: &impl serde::Serialize) {
    if let Some(trail) = trail {
        trail.note_request_object(|| serde_json::to_vec(sent).expect("what was read from JSON can be written as JSON"));
    }
}

/// Reads the options of a delete: they come in the body or, if that is empty, in the query.
pub(crate) async fn read_delete_options(
    request: Request,
    release: Release,
    about: About<'_>,
) -> Result<DeleteOptions, Status> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let encoding = encoding_of(&request)?;
    let trail = Trail::of(&request);
    let body = read_bytes(request).await?;
    if let Some(trail) = trail.filter(|_| encoding == Encoding::Json && !body.is_empty()) {
        trail.note_request_object(|| body.to_vec());
    }
    let pairs: Vec<_> = query::pairs(&query).collect();
    let pairs = pairs.iter().map(|(key, value)| (&**key, &**value));
    let options = match encoding {
        Encoding::Json => DeleteOptions::read(&body, decode::Encoding::Json, pairs),
        Encoding::Yaml => DeleteOptions::read(&body, decode::Encoding::Yaml, pairs),
        Encoding::Protobuf if body.is_empty() => DeleteOptions::read(&body, decode::Encoding::Json, pairs),
        Encoding::Protobuf => from_protobuf(&body, DELETE_OPTIONS, release).and_then(|object| {
            let body = serde_json::to_vec(&object).expect("an object has string keys");
            DeleteOptions::read(&body, decode::Encoding::Json, pairs)
        }),
    };
    options.map_err(|refusal| faults::refused(refusal, about))
}

const DELETE_OPTIONS: GroupVersionKind<&str> =
    GroupVersionKind { group: "meta.k8s.io", version: "v1", kind: "DeleteOptions" };

/// Reads a body that must be whole before anything is done with it.
pub(crate) async fn read_bytes(request: Request) -> Result<Bytes, Status> {
    match read_whole(request.into_body(), BODY_BYTES_MAX).await {
        Ok(bytes) => Ok(bytes),
        Err(ReadBodyError::TooLarge { limit }) => Err(Status::request_entity_too_large(format!("limit is {limit}"))),
        Err(ReadBodyError::Broken(error)) => Err(Status::bad_request(format!("the request body ended early: {error}"))),
    }
}

fn encoding_of(request: &Request) -> Result<Encoding, Status> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = Encoding::of_body(content_type);
    encoding.ok_or_else(|| Status::unsupported_media_type(&Encoding::ALL.map(Encoding::media_type)))
}

fn decoded(body: &[u8], encoding: Encoding, expected: &Expected<'_>) -> Result<Decoded<Object>, Refusal> {
    match encoding {
        Encoding::Json => decode::object(body, decode::Encoding::Json, expected.kind),
        Encoding::Yaml => decode::object(body, decode::Encoding::Yaml, expected.kind),
        Encoding::Protobuf => {
            let object = from_protobuf(body, expected.kind, expected.release)?;
            Ok(Decoded { value: decode::accept(object, body, expected.kind)?, duplicates: Vec::new() })
        }
    }
}

fn from_protobuf(body: &[u8], expected: GroupVersionKind<&str>, release: Release) -> Result<Object, Refusal> {
    protobuf::read(body, release, expected).map_err(|error| match &error {
        ReadError::Empty | ReadError::NoPrefix | ReadError::Envelope(_) => {
            decode::unrecognized(body, expected, &error.to_string())
        }
        ReadError::UnknownKind(kind) | ReadError::Message { kind, .. } => Refusal::BadRequest(format!(
            "{} in version {:?} cannot be handled as a {}: {error}",
            kind.kind, kind.version, expected.kind
        )),
    })
}
