//! Get: a cache lookup that responds with the cached bytes where possible.

use api::Status;
use edge::Response;
use object::StoredObject;
use object::table::ColumnDefinitions;
use registry::CachedValue;
use registry::read::ReadConsistency;

use super::BufferedRequest;
use super::{RequestContext, accept_header};
use crate::error_status;
use crate::representation::ObjectRepresentation;
use crate::request_options::{ListOptions, ReadVerb};

pub(super) async fn get(context: RequestContext<'_>, request: &BufferedRequest) -> Result<Response, Status> {
    let representation =
        ObjectRepresentation::negotiate(accept_header(request), request.uri().query().unwrap_or_default())?;
    let encode = |stored: &StoredObject| {
        let encoded = representation.encode_object(stored, context.resource, ColumnDefinitions::Included)?;
        Ok(representation.response(encoded))
    };
    respond_with_object(context, request, encode).await
}

/// Reads the object of the path and responds with `to_response`.
pub(super) async fn respond_with_object(
    context: RequestContext<'_>,
    request: &BufferedRequest,
    to_response: impl FnOnce(&StoredObject) -> Result<Response, Status>,
) -> Result<Response, Status> {
    context.check_path_names()?;
    let consistency = match request.uri().query() {
        None => ReadConsistency::Latest,
        Some(query) => match ListOptions::parse(query, ReadVerb::Get)?.list_consistency() {
            // As in kube-apiserver: a get has no exact match, so the revision is a minimum.
            ReadConsistency::Exact(revision) => ReadConsistency::NotOlderThan(revision),
            other @ (ReadConsistency::Latest | ReadConsistency::NotOlderThan(_) | ReadConsistency::Any) => other,
        },
    };
    let name = &*context.target.name;
    let key = context.object_key(name);
    let found = context
        .server
        .registry
        .get(&context.resource.cache, &key, consistency)
        .await
        .map_err(error_status::status_for_read_error)?;
    match found.as_deref().map(|cached| &cached.value) {
        Some(CachedValue::Object(stored)) => {
            if context.resource.needs_webhook(stored) {
                // Boxed, so that the future of a get stays small.
                Box::pin(context.resource.convert_ahead(std::iter::once(stored))).await?;
            }
            to_response(stored)
        }
        Some(CachedValue::Raw(_) | CachedValue::Undecodable(_)) | None => {
            Err(Status::not_found(context.target.group_resource(), name))
        }
    }
}
