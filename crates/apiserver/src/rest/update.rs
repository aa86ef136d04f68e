//! Update: a PUT of an object or of a subresource that has the kind of the object.

use api::Status;
use api::json::JsonObject;
use edge::Response;
use object::decode;

use super::write::{ObjectWrite, RequestedState};
use super::{BufferedRequest, RequestContext, with_warnings};
use crate::built_in_types::CheckedObject;
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;

pub(super) async fn update(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    let options = WriteOptions::from_request(&request)?;
    let CheckedObject { mut object, mut warnings } = context.decode_body(request)?;
    context.execution.set_body_warnings(&warnings);
    let name = &*context.target.name;
    decode::ensure_namespace_matches(&mut object, context.namespace())
        .map_err(|rejection| context.rejection_status(rejection, name))?;
    decode::ensure_name_matches(&object, name).map_err(|rejection| context.rejection_status(rejection, name))?;
    let may_create = context.resource.rules().allows_create_on_update && context.target.subresource.is_empty();
    let mut kind_warnings = Vec::new();
    let next = |current: Option<&JsonObject>| {
        if current.is_none() && !may_create {
            return Err(context.not_found());
        }
        kind_warnings = context.warnings(current, &object);
        Ok(RequestedState::Sent(object.clone()))
    };
    let write = ObjectWrite::new(context, &options);
    let (code, stored) = match may_create {
        true => write.update_or_create(next).await?,
        false => write.update(&[], next).await?,
    };
    kind_warnings.append(&mut warnings);
    Ok(with_warnings(context.object_response(code, &stored).await?, &kind_warnings))
}

impl RequestContext<'_> {
    /// Reads the request body as an object of the requested kind.
    pub(super) fn decode_body(self, request: BufferedRequest) -> Result<CheckedObject, Status> {
        let expected = ExpectedBody {
            kind: self.resource.group_version_kind(),
            release: self.server.served_resources.release(),
            custom: self.resource.as_custom().is_some().then_some(&**self.resource),
            status_context: self.status_context(""),
        };
        request_body::read_object(request, self.record, &expected)
    }
}
