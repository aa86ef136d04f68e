//! Patch: the next state is made from the one that is there.

use api::{GroupVersionKind, Status};
use edge::audit::Trail;
use edge::{Request, Response};
use object::Refusal;
use object::decode::{self, Decoded};
use object::patch::{self, JsonPatch, MergePatch, StrategicPatch};
use object::schema::Known;
use serde_json::Value;

use super::write::warned;
use super::{Context, content_type};
use crate::bodies;
use crate::forms::Object;
use crate::options::WriteOptions;
use crate::typed::{self, Checked, FieldValidation, Mistyped};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const ACCEPTED: [&str; 3] = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH];

pub(super) async fn patch(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let options = WriteOptions::of(&request)?;
    let change = Change::read(context, request).await?;
    let kind = context.resource.served.response_kind();
    let mut warnings = Vec::new();
    let next = |current: Option<&Object>| {
        let checked = change.apply(current.ok_or_else(|| context.not_found())?, kind, context)?;
        warnings = checked.warnings;
        let name = &*context.asked.name;
        decode::match_name(&checked.object, name).map_err(|refusal| context.refused(refusal, name))?;
        Ok(checked.object)
    };
    let response = context.replace(&options, next).await?;
    Ok(warned(response, &warnings))
}

/// A patch and how strictly it is read. It may be applied to one state after another.
pub(super) struct Change {
    patch: Patch,
    duplicates: Vec<String>,
    validation: FieldValidation,
}

impl Change {
    pub(super) async fn read(context: Context<'_>, request: Request) -> Result<Self, Status> {
        let media_type = content_type(&request).split(';').next().unwrap_or_default().trim().to_owned();
        if !ACCEPTED.contains(&&*media_type) {
            return Err(Status::unsupported_media_type(&ACCEPTED));
        }
        let validation = FieldValidation::of_query(request.uri().query().unwrap_or_default())?;
        let trail = Trail::of(&request);
        let body = bodies::read_bytes(request).await?;
        if let Some(trail) = trail {
            trail.note_request_object(|| body.to_vec());
        }
        let parsed = Patch::parse(&media_type, &body);
        let Decoded { value: patch, duplicates } =
            parsed.map_err(|refusal| context.refused(refusal, &context.asked.name))?;
        Ok(Self { patch, duplicates, validation })
    }

    /// What the patch makes of an object of a kind.
    pub(super) fn apply(
        &self,
        current: &Object,
        kind: GroupVersionKind<&str>,
        context: Context<'_>,
    ) -> Result<Checked, Status> {
        let patched = match self.patch.apply(current, context.fields().known(kind)) {
            Ok(patched) => patch::accept(patched, kind),
            Err(refusal) => Err(refusal),
        };
        let refuse = |refusal| context.refused(refusal, &context.asked.name);
        let value = patched.map_err(refuse)?;
        let decoded = Decoded { value, duplicates: self.duplicates.clone() };
        typed::check_types(decoded, context.server.surface.release(), kind, self.validation)
            .map_err(|Mistyped { object, reason }| refuse(patch::refused(&object.into(), reason)))
    }
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

    fn apply(&self, object: &Object, known: Option<Known<'_>>) -> Result<Value, Refusal> {
        match self {
            Self::Json(patch) => patch.apply(object),
            Self::Merge(patch) => Ok(patch.apply(object)),
            Self::Strategic(patch) => match known {
                Some(known) => patch.apply(object, known),
                None => Err(Refusal::Unclassified("the schema of this kind is not known".to_owned())),
            },
        }
    }
}
