//! Patch: the next state is made from the one that is there.

use api::Status;
use edge::{Request, Response};
use object::patch::{self, Patch};

use super::{Context, content_type, read_body};
use crate::options::WriteOptions;

const ACCEPTED: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];

pub(super) async fn patch(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let options = WriteOptions::parse(request.uri().query().unwrap_or_default())?;
    let media_type = content_type(&request).split(';').next().unwrap_or_default().trim().to_owned();
    if !ACCEPTED.contains(&&*media_type) {
        return Err(Status::unsupported_media_type(&ACCEPTED));
    }
    let body = read_body(request).await?;
    let name = &*context.asked.name;
    let refuse = |refusal| context.refused(refusal, name);
    let parsed = match &*media_type {
        "application/json-patch+json" => Patch::json(&body),
        "application/merge-patch+json" => Patch::merge(&body),
        _ => Patch::strategic(&body),
    };
    let parsed = parsed.map_err(refuse)?;
    context
        .replace(&options, |current| {
            let current = current.ok_or_else(|| Status::not_found(context.asked.group_resource(), name))?;
            parsed.apply(current, context.resource.served.response_kind()).map_err(refuse)
        })
        .await
}
