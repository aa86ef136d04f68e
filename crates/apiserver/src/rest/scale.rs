//! The subresource `scale`: how many replicas there are and should be, whatever kind has them.

use api::{GroupVersionKind, Status, Verb};
use edge::{Request, Response};
use http::StatusCode;
use object::scale::{self, ScalePaths};
use object::{Stored, decode};

use super::patch::Change;
use super::{Context, get, warned};
use crate::bodies::{self, Expected};
use crate::forms::{self, Object};
use crate::json;
use crate::options::WriteOptions;

const KIND: GroupVersionKind<&str> = GroupVersionKind { group: "autoscaling", version: "v1", kind: "Scale" };

pub(super) async fn serve(context: Context<'_>, request: Request) -> Result<Response, Status> {
    match context.asked.verb {
        Verb::Get => get::show(context, &request, |stored| context.respond_with_scale(StatusCode::OK, stored)).await,
        Verb::Update => update(context, request).await,
        Verb::Patch => patch(context, request).await,
        Verb::List
        | Verb::Watch
        | Verb::Create
        | Verb::Delete
        | Verb::DeleteCollection
        | Verb::Proxy
        | Verb::Unknown => Err(context.method_not_allowed()),
    }
}

async fn update(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let options = WriteOptions::of(&request)?;
    let name = &*context.asked.name;
    let expected = Expected { kind: KIND, release: context.server.surface.release(), about: context.about(name) };
    let mut body = bodies::read(request, &expected).await?;
    let matched = decode::match_namespace(&mut body.object, context.namespace());
    let matched = matched.and_then(|()| decode::match_name(&body.object, name));
    matched.map_err(|refusal| context.refused(refusal, name))?;
    let next = |current: Option<&Object>| context.scaled(current.ok_or_else(|| context.not_found())?, &body.object);
    let (code, stored) = context.write_next(&options, None, next).await?;
    Ok(warned(context.respond_with_scale(code, &stored), &body.warnings))
}

async fn patch(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let options = WriteOptions::of(&request)?;
    let change = Change::read(context, request).await?;
    let mut warnings = Vec::new();
    let next = |current: Option<&Object>| {
        let current = current.ok_or_else(|| context.not_found())?;
        let checked = change.apply(&scale::read(current, &context.scale_paths()), KIND, context)?;
        warnings = checked.warnings;
        context.scaled(current, &checked.object)
    };
    let (code, stored) = context.write_next(&options, None, next).await?;
    Ok(warned(context.respond_with_scale(code, &stored), &warnings))
}

impl Context<'_> {
    fn scale_paths(&self) -> ScalePaths<'static> {
        match self.resource.served.kind.plural {
            "replicationcontrollers" => ScalePaths::CONTROLLER,
            _ => ScalePaths::WORKLOAD,
        }
    }

    fn scaled(self, current: &Object, scale: &Object) -> Result<Object, Status> {
        let scaled = scale::write(current, scale, &self.scale_paths());
        scaled.map_err(|refusal| self.refused(refusal, &self.asked.name))
    }

    fn respond_with_scale(self, code: StatusCode, stored: &Stored) -> Response {
        let object = forms::object_of(stored, self.resource.served);
        let mut response = json(api::json::to_go_json(&scale::read(&object, &self.scale_paths())).into());
        *response.status_mut() = code;
        response
    }
}
