//! The subresource `pods/binding`: a scheduler gives a pod its node.

use api::{GroupVersionKind, Status};
use edge::{Request, Response};
use http::StatusCode;
use object::StoredObject;
use registry::WriteDecision;
use serde_json::Value;

use super::{RequestContext, current_time, with_warnings};
use crate::built_in_types::CheckedObject;
use crate::kinds::pod_binding;
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;
use crate::{error_status, json_response, object_codec};

const BINDING_KIND: GroupVersionKind<&str> = GroupVersionKind { group: "", version: "v1", kind: "Binding" };

pub(super) async fn create_binding(context: RequestContext<'_>, request: Request) -> Result<Response, Status> {
    context.check_path_names()?;
    let name = &*context.target.name;
    let options = WriteOptions::from_request(&request)?;
    let expected = ExpectedBody {
        kind: BINDING_KIND,
        release: context.server.served_resources.release(),
        status_context: context.status_context(name),
    };
    let CheckedObject { object: binding, warnings } = request_body::read_object(request, &expected).await?;
    let name_in_body = binding.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    if name_in_body != Some(name) {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    pod_binding::validate_binding(&binding)?;
    let decide = |current: Option<&StoredObject>| {
        let current = current.ok_or_else(|| context.not_found())?;
        let pod = object_codec::decode_served(current, context.resource.served);
        let bound_pod = pod_binding::bind_pod(&pod, &binding, current_time())?;
        if options.is_dry_run {
            return Ok(WriteDecision::Keep);
        }
        Ok(WriteDecision::Put { value: object_codec::encode_for_storage(bound_pod, context.storage_kind()), ttl: None })
    };
    let written = context.persist(context.resource, &context.object_key(name), None, decide).await;
    written.map_err(error_status::status_for_write_error)?;
    let mut response =
        json_response(Status { outcome: api::status::StatusOutcome::Success, ..Status::default() }.to_json().into());
    *response.status_mut() = StatusCode::CREATED;
    Ok(with_warnings(response, &warnings))
}
