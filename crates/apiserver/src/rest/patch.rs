//! Patch: the next state is made from the one that is there.

use api::Status;
use edge::{Request, Response};
use object::Refusal;
use object::patch::{self, JsonPatch, MergePatch};

use super::{Context, content_type, read_body};
use crate::forms::Object;
use crate::options::WriteOptions;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";

pub(super) async fn patch(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let options = WriteOptions::of(&request)?;
    let media_type = content_type(&request).split(';').next().unwrap_or_default().trim().to_owned();
    if ![JSON_PATCH, MERGE_PATCH].contains(&&*media_type) {
        return Err(Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH]));
    }
    let body = read_body(request).await?;
    let name = &*context.asked.name;
    let refuse = |refusal| context.refused(refusal, name);
    let patch = if media_type == JSON_PATCH { Patch::json(&body) } else { Patch::merge(&body) }.map_err(refuse)?;
    context
        .replace(&options, |current| {
            let current = current.ok_or_else(|| Status::not_found(context.asked.group_resource(), name))?;
            let patched = patch.apply(current).map_err(refuse)?;
            patch::accept(patched, context.resource.served.response_kind()).map_err(refuse)
        })
        .await
}

enum Patch {
    Json(JsonPatch),
    Merge(MergePatch),
}

impl Patch {
    fn json(body: &[u8]) -> Result<Self, Refusal> {
        JsonPatch::parse(body).map(|decoded| Self::Json(decoded.value))
    }

    fn merge(body: &[u8]) -> Result<Self, Refusal> {
        MergePatch::parse(body).map(|decoded| Self::Merge(decoded.value))
    }

    fn apply(&self, object: &Object) -> Result<serde_json::Value, Refusal> {
        match self {
            Self::Json(patch) => patch.apply(object),
            Self::Merge(patch) => Ok(patch.apply(object)),
        }
    }
}
