//! Create: a POST of a new object.

use api::Status;
use edge::Response;
use http::StatusCode;
use object::decode;
use object::unstructured::metadata_string;

use super::write::{CreateError, ObjectWrite};
use super::{BufferedRequest, RequestContext, with_warnings};
use crate::admission::NamespaceFreshness;
use crate::built_in_types::CheckedObject;
use crate::request_options::WriteOptions;

/// The maximum number of attempts to create an object, as in kube-apiserver: each generates a new name after a
/// conflict, or rereads a namespace that changed concurrently.
const CREATE_ATTEMPTS_MAX: usize = 8;

pub(super) async fn create(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    let options = WriteOptions::from_request(&request)?;
    let CheckedObject { mut object, mut warnings } = context.decode_body(request)?;
    context.execution.set_body_warnings(&warnings);
    decode::ensure_namespace_matches(&mut object, context.namespace())
        .map_err(|rejection| context.rejection_status(rejection, ""))?;
    warnings.extend(context.warnings(None, &object));
    context.reject_terminating_definition(metadata_string(&object, "name"))?;
    let mut namespace_condition = context.require_active_namespace(NamespaceFreshness::Cached).await?;
    let is_generated =
        metadata_string(&object, "name").is_empty() && !metadata_string(&object, "generateName").is_empty();
    let mut write = ObjectWrite::new(context, &options);
    for _ in 0..CREATE_ATTEMPTS_MAX {
        match write.create(&object, namespace_condition.as_slice()).await {
            Err(CreateError::NameTaken { name, .. }) if is_generated => {
                tracing::debug!(name, "generated name exists; generating another");
                write = write.with_new_name();
            }
            Err(CreateError::NameTaken { name, is_terminating }) => {
                let mut status = Status::already_exists(context.target.group_resource(), &name);
                status.warnings = context.warnings(None, &object);
                if is_terminating {
                    status.message.insert_str(0, "object is being deleted: ");
                }
                return Err(status);
            }
            Err(CreateError::NamespaceChanged) => {
                namespace_condition = context.require_active_namespace(NamespaceFreshness::Latest).await?;
            }
            Err(CreateError::Renamed { to }) => {
                return Err(Status::internal_error(format!("admission gave the object the name {to:?}")));
            }
            Err(CreateError::Rejected(status)) => return Err(status),
            Ok(stored) => {
                let response = context.object_response(StatusCode::CREATED, &stored).await?;
                return Ok(with_warnings(response, &warnings));
            }
        }
    }
    if !is_generated {
        return Err(Status::service_unavailable("the namespace changed during every attempt to create the object")
            .with_retry_after(1));
    }
    Err(Status::generate_name_conflict(context.target.group_resource(), metadata_string(&object, "generateName"), 1))
}
