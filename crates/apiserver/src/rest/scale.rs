//! The subresource `scale`: the replicas of an object as `autoscaling/v1` Scale, for every kind that has them.

use api::json::JsonObject;
use api::{GroupVersionKind, Status};
use apiextensions::scale::{CustomScale, ScaleError};
use edge::Response;
use http::StatusCode;
use managedfields::{FieldManager, ScaleEntries};
use object::scale;
use object::unstructured::{self, metadata_mut};
use object::{StoredObject, decode};

use super::BufferedRequest;
use super::apply::{self, AppliedConfiguration};
use super::patch::{self, PatchRequest};
use super::write::{ObjectWrite, RequestedState, ScaleTypes};
use super::{RequestContext, get, with_warnings};
use crate::json_response;
use crate::object_codec;
use crate::request_body::{self, ExpectedBody};
use crate::request_options::{APPLY_PATCH, WriteOptions, content_type};

pub(super) const SCALE_KIND: GroupVersionKind<&str> =
    GroupVersionKind { group: "autoscaling", version: "v1", kind: "Scale" };
const SCALE_API_VERSION: &str = "autoscaling/v1";

pub(super) async fn get(context: RequestContext<'_>, request: &BufferedRequest) -> Result<Response, Status> {
    let encode = |stored: &StoredObject| {
        let object = object_codec::decode_served(stored, context.resource)?;
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
    let write = ObjectWrite::new(context, &options);
    let next =
        |current: Option<&JsonObject>| write.next_of_scale(current, |_, _| Ok(ScaleState::Sent(body.object.clone())));
    let (code, stored) = write.update(&[], next).await?;
    Ok(with_warnings(context.respond_with_scale(code, &stored).await?, &body.warnings))
}

pub(super) async fn patch(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    patch::check_media_type(context, &request)?;
    let options = WriteOptions::from_request(&request)?;
    if content_type(&request) == APPLY_PATCH {
        return apply(context, request, &options).await;
    }
    let patch_request = PatchRequest::from_request(context, request, &options)?;
    let write = ObjectWrite::new(context, &options);
    let mut warnings = Vec::new();
    let next = |current: Option<&JsonObject>| {
        write.next_of_scale(current, |scale, _| {
            let checked = patch_request.apply(scale, SCALE_KIND, context)?;
            context.execution.set_body_warnings(&checked.warnings);
            warnings = checked.warnings;
            Ok(ScaleState::Sent(checked.object))
        })
    };
    let (code, stored) = write.update(&[], next).await?;
    Ok(with_warnings(context.respond_with_scale(code, &stored).await?, &warnings))
}

async fn apply(
    context: RequestContext<'_>,
    request: BufferedRequest,
    options: &WriteOptions,
) -> Result<Response, Status> {
    let configuration = AppliedConfiguration::from_body(&request.into_body(), options);
    configuration.record(context);
    let write = ObjectWrite::of_apply(context, options);
    let next = |current: Option<&JsonObject>| {
        write.next_of_scale(current, |scale, manager| {
            let types = ScaleTypes::new(&context.server.feature_gates);
            let mut applied = configuration.merge(Some(scale), manager, &types)?;
            configuration.check_duplicate_keys()?;
            context.execution.set_body_warnings(&Vec::from_iter(configuration.warnings()));
            let name = &*context.target.name;
            decode::ensure_namespace_matches(&mut applied, context.namespace())
                .and_then(|()| decode::ensure_name_matches(&applied, name))
                .map_err(|rejection| context.rejection_status(rejection, name))?;
            Ok(ScaleState::Recorded(applied))
        })
    };
    let (code, stored) = write.update(&[], next).await?;
    let warnings: Vec<String> = configuration.warnings().collect();
    Ok(with_warnings(context.respond_with_scale(code, &stored).await?, &warnings))
}

/// The `Scale` that a request asks for.
enum ScaleState {
    /// Its managed fields are to be recorded.
    Sent(JsonObject),
    /// With managed fields.
    Recorded(JsonObject),
}

impl ObjectWrite<'_> {
    /// The object with the `Scale` that `next` makes of its current one. Fields of the `Scale` are owned in its own
    /// coordinates, and the owners of its replicas then own those of the object.
    fn next_of_scale(
        &self,
        current: Option<&JsonObject>,
        next: impl FnOnce(&JsonObject, &FieldManager<'_>) -> Result<ScaleState, Status>,
    ) -> Result<RequestedState, Status> {
        let context = self.context;
        let current = current.ok_or_else(|| context.not_found())?;
        let mut scale = context.scale_of(current)?;
        let types = self.types();
        let manager = self.field_manager();
        let entries = unstructured::get(current, &["metadata", "managedFields"]);
        let entries = ScaleEntries::new(entries, manager.api_version, &types);
        let scale_entries = entries.to_scale().map_err(apply::unclassified)?;
        unstructured::set_or_remove(metadata_mut(&mut scale), "managedFields", scale_entries);
        let manager = FieldManager { api_version: SCALE_API_VERSION, ..manager };
        let new_scale = match next(&scale, &manager)? {
            ScaleState::Recorded(new_scale) => new_scale,
            ScaleState::Sent(mut new_scale) => {
                let types = ScaleTypes::new(&context.server.feature_gates);
                managedfields::record_update(Some(&scale), &mut new_scale, &manager, &types)
                    .map_err(|error| Status::service_unavailable(error.to_string()).with_retry_after(1))?;
                new_scale
            }
        };
        let mut object = context.apply_scale(current, &new_scale)?;
        let scale_entries = unstructured::get(&new_scale, &["metadata", "managedFields"]);
        let object_entries = entries.to_parent(scale_entries).map_err(apply::unclassified)?;
        unstructured::set_or_remove(metadata_mut(&mut object), "managedFields", object_entries);
        Ok(RequestedState::Recorded(object))
    }
}

impl RequestContext<'_> {
    /// The `Scale` that a write changes.
    pub(super) fn scale_of(self, current: &JsonObject) -> Result<JsonObject, Status> {
        match self.custom_scale() {
            Some(custom) => custom.before_patch(current).map_err(status_for_scale_error),
            None => Ok(scale::scale_from_object(current, &self.resource.strategy().scale)),
        }
    }

    pub(super) fn apply_scale(self, current: &JsonObject, scale: &JsonObject) -> Result<JsonObject, Status> {
        let scaled = match self.custom_scale() {
            Some(custom) => custom.apply(current, scale),
            None => scale::apply_scale(current, scale, &self.resource.strategy().scale),
        };
        scaled.map_err(|rejection| self.rejection_status(rejection, &self.target.name))
    }

    async fn respond_with_scale(self, code: StatusCode, stored: &StoredObject) -> Result<Response, Status> {
        self.resource.convert_ahead(std::iter::once(stored)).await?;
        let object = object_codec::decode_served(stored, self.resource)?;
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
