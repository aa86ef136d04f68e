//! The subresource `scale`: the replicas of an object as `autoscaling/v1` Scale, for every kind that has them.

use api::json::JsonObject;
use api::{GroupVersionKind, Status};
use apiextensions::scale::{CustomScale, ScaleError};
use edge::Response;
use http::StatusCode;
use object::scale;
use object::{StoredObject, decode};

use super::BufferedRequest;
use super::patch::PatchRequest;
use super::write::ObjectWrite;
use super::{RequestContext, get, with_warnings};
use crate::json_response;
use crate::object_codec;
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;

const SCALE_KIND: GroupVersionKind<&str> = GroupVersionKind { group: "autoscaling", version: "v1", kind: "Scale" };

pub(super) async fn get(context: RequestContext<'_>, request: &BufferedRequest) -> Result<Response, Status> {
    let encode = |stored: &StoredObject| {
        let object = object_codec::decode_served(stored, context.resource);
        let scale = match context.custom_scale() {
            Some(custom) => custom.get(&object).map_err(status_for_scale_error)?,
            None => scale::scale_from_object(&object, &context.resource.strategy().scale),
        };
        Ok(json_response(api::json::to_go_json(&scale)))
    };
    get::respond_with_object(context, request, encode).await
}

pub(super) async fn update(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    let options = WriteOptions::from_request(&request)?;
    let name = &*context.target.name;
    let expected = ExpectedBody {
        kind: SCALE_KIND,
        release: context.server.served_resources.release(),
        custom: None,
        status_context: context.status_context(name),
    };
    let mut body = request_body::read_object(request, context.record, &expected)?;
    let check = decode::ensure_namespace_matches(&mut body.object, context.namespace());
    let check = check.and_then(|()| decode::ensure_name_matches(&body.object, name));
    check.map_err(|rejection| context.rejection_status(rejection, name))?;
    let next =
        |current: Option<&JsonObject>| context.apply_scale(current.ok_or_else(|| context.not_found())?, &body.object);
    let (code, stored) = ObjectWrite::new(context, &options).update(&[], next).await?;
    Ok(with_warnings(context.respond_with_scale(code, &stored)?, &body.warnings))
}

pub(super) async fn patch(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    let options = WriteOptions::from_request(&request)?;
    let patch_request = PatchRequest::from_request(context, request)?;
    let mut warnings = Vec::new();
    let next = |current: Option<&JsonObject>| {
        let current = current.ok_or_else(|| context.not_found())?;
        let scale = match context.custom_scale() {
            Some(custom) => custom.before_patch(current).map_err(status_for_scale_error)?,
            None => scale::scale_from_object(current, &context.resource.strategy().scale),
        };
        let checked = patch_request.apply(&scale, SCALE_KIND, context)?;
        warnings = checked.warnings;
        context.apply_scale(current, &checked.object)
    };
    let (code, stored) = ObjectWrite::new(context, &options).update(&[], next).await?;
    Ok(with_warnings(context.respond_with_scale(code, &stored)?, &warnings))
}

impl RequestContext<'_> {
    fn apply_scale(self, current: &JsonObject, scale: &JsonObject) -> Result<JsonObject, Status> {
        let scaled = match self.custom_scale() {
            Some(custom) => custom.apply(current, scale),
            None => scale::apply_scale(current, scale, &self.resource.strategy().scale),
        };
        scaled.map_err(|rejection| self.rejection_status(rejection, &self.target.name))
    }

    fn respond_with_scale(self, code: StatusCode, stored: &StoredObject) -> Result<Response, Status> {
        let object = object_codec::decode_served(stored, self.resource);
        let scale = match self.custom_scale() {
            Some(custom) => custom.after_write(&object).map_err(status_for_scale_error)?,
            None => scale::scale_from_object(&object, &self.resource.strategy().scale),
        };
        let mut response = json_response(api::json::to_go_json(&scale));
        *response.status_mut() = code;
        Ok(response)
    }

    fn custom_scale(&self) -> Option<&CustomScale> {
        self.resource.as_custom().and_then(|(_, version)| version.scale())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err, which passes errors by value")]
fn status_for_scale_error(error: ScaleError) -> Status {
    Status::internal_error(error.to_string())
}
