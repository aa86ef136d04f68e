//! Patch: the next state is made from the one that is there.

use api::Status;
use edge::{Request, Response};
use object::Refusal;
use object::decode::Decoded;
use object::patch::{self, JsonPatch, MergePatch, StrategicPatch};

use super::write::warned;
use super::{Context, content_type};
use crate::bodies;
use crate::forms::Object;
use crate::options::WriteOptions;
use crate::typed::{self, FieldValidation};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const ACCEPTED: [&str; 3] = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH];

pub(super) async fn patch(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let options = WriteOptions::of(&request)?;
    let media_type = content_type(&request).split(';').next().unwrap_or_default().trim().to_owned();
    if !ACCEPTED.contains(&&*media_type) {
        return Err(Status::unsupported_media_type(&ACCEPTED));
    }
    let validation = FieldValidation::of_query(request.uri().query().unwrap_or_default())?;
    let body = bodies::read_bytes(request).await?;
    let name = &*context.asked.name;
    let refuse = |refusal| context.refused(refusal, name);
    let Decoded { value: patch, duplicates } = Patch::parse(&media_type, &body).map_err(refuse)?;
    let kind = context.resource.served.response_kind();
    let mut warnings = Vec::new();
    let next = |current: Option<&Object>| {
        let current = current.ok_or_else(|| Status::not_found(context.asked.group_resource(), name))?;
        let patched = patch.apply(current, context).map_err(refuse)?;
        let value = patch::accept(patched, kind).map_err(refuse)?;
        let decoded = Decoded { value, duplicates: duplicates.clone() };
        let checked = typed::checked(decoded, context.server.surface.release(), kind, validation)?;
        warnings = checked.warnings;
        Ok(checked.object)
    };
    let response = context.replace(&options, next).await?;
    Ok(warned(response, &warnings))
}

enum Patch {
    Json(JsonPatch),
    Merge(MergePatch),
    Strategic(StrategicPatch),
}

impl Patch {
    fn parse(media_type: &str, body: &[u8]) -> Result<Decoded<Self>, Refusal> {
        fn map<T>(decoded: Decoded<T>, wrap: impl FnOnce(T) -> Patch) -> Decoded<Patch> {
            Decoded { value: wrap(decoded.value), duplicates: decoded.duplicates }
        }
        match media_type {
            JSON_PATCH => JsonPatch::parse(body).map(|decoded| map(decoded, Self::Json)),
            MERGE_PATCH => MergePatch::parse(body).map(|decoded| map(decoded, Self::Merge)),
            _ => StrategicPatch::parse(body).map(|decoded| map(decoded, Self::Strategic)),
        }
    }

    fn apply(&self, object: &Object, context: Context<'_>) -> Result<serde_json::Value, Refusal> {
        match self {
            Self::Json(patch) => patch.apply(object),
            Self::Merge(patch) => Ok(patch.apply(object)),
            Self::Strategic(patch) => match context.fields().known(context.resource.served.response_kind()) {
                Some(known) => patch.apply(object, known),
                None => Err(Refusal::Unclassified("the schema of this kind is not known".to_owned())),
            },
        }
    }
}
