//! Bodies of requests whose object is answered and not stored.

use api::{GroupVersionKind, Status};
use catalogue::Release;
use edge::Request;
use object::decode;

use crate::faults::{self, About};
use crate::rest::{body_encoding, read_body};
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
    let encoding = body_encoding(&request)?;
    let validation = FieldValidation::of_query(request.uri().query().unwrap_or_default())?;
    let body = read_body(request).await?;
    let decoded = decode::object(&body, encoding, expected.kind);
    let decoded = decoded.map_err(|refusal| faults::refused(refusal, expected.about))?;
    typed::checked(decoded, expected.release, expected.kind, validation)
}
