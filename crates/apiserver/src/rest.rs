//! The handlers of the verbs and subresources of stored resources.

mod allocation;
mod apply;
mod binding;
mod companions;
mod create;
mod delete;
mod eviction;
mod get;
mod list;
mod object_selector;
mod patch;
mod persist;
pub(crate) mod quota;
mod scale;
mod token;
mod update;
mod watch;
mod write;

pub(crate) use companions::FoundCompanion;
pub(crate) use edge::error_response::with_warnings;
pub(crate) use write::{new_uid, record_status_of_server};

use std::sync::Arc;

use api::target::ResourceTarget as Asked;
use api::{KindScope, Status, Verb};
use bytes::Bytes;
use edge::{AuthorizedRequest, Request, RequestRecord, Response};
use futures_util::future::BoxFuture;
use http::header::ACCEPT;
use store::{Key, Revision};
use tokio::time::Instant;

use self::persist::ExecutionTracker;
use crate::ApiServer;
use crate::access_control::AuthenticatedCaller;
use crate::admission::AdmissionSession;
use crate::definitions::RequestConversions;
use crate::error_status::{StatusContext, status_for_unimplemented};
use crate::representation::ObjectRepresentation;
use crate::request_body::{self, BufferedRequest};
use crate::resource::Resource;

/// How often a write is decided again because the definition of its resource changed.
const DEFINITION_CHANGES_MAX: usize = 16;

/// The request as handlers see it.
#[derive(Clone, Copy)]
struct RequestContext<'a> {
    server: &'a ApiServer,
    resource: &'a Arc<Resource>,
    target: &'a Asked<'a>,
    caller: &'a AuthenticatedCaller,
    /// Collects details of the request for the access and audit logs.
    record: &'a RequestRecord,
    /// Records whether the request has written anything.
    execution: &'a ExecutionTracker,
    /// Answers of webhooks, kept over all attempts of the request.
    admission: &'a AdmissionSession,
    /// Of requests that are not long-running.
    deadline: Instant,
    /// The form of the object in the response of a write.
    representation: ObjectRepresentation,
}

/// Serves a request for a stored resource. The caller has checked that path and method fit the resource.
pub(crate) async fn serve(
    server: &ApiServer,
    resource: &Arc<Resource>,
    target: &Asked<'_>,
    authorized: &AuthorizedRequest<'_, AuthenticatedCaller>,
    request: Request,
) -> Result<Response, Status> {
    if matches!(target.verb, Verb::Get | Verb::List | Verb::Watch) {
        return serve_read(server, resource, target, authorized, &request.map(|_| Bytes::new())).await;
    }
    let request = request_body::buffer(request).await?;
    let (executed, admission) = (ExecutionTracker::default(), AdmissionSession::new(authorized.deadline));
    serve_once(server, resource, target, authorized, (&executed, &admission), request).await
}

/// Serves a request for a custom resource. A write that finds its definition changed, or that ends without a commit under
/// a definition that was not current, is decided again under the current one.
pub(crate) async fn serve_custom(
    server: &ApiServer,
    mut resource: Arc<Resource>,
    target: &Asked<'_>,
    authorized: &AuthorizedRequest<'_, AuthenticatedCaller>,
    request: Request,
) -> Result<Response, Status> {
    let deadline = (target.verb != Verb::Watch).then_some(authorized.deadline);
    let conversions = || RequestConversions::new(&server.converter, deadline);
    resource = resource.with_conversions(conversions);
    let name = target.group_version_resource();
    if matches!(target.verb, Verb::Get | Verb::List | Verb::Watch) {
        let request = request.map(|_| Bytes::new());
        for _ in 0..DEFINITION_CHANGES_MAX {
            let served = serve_read(server, &resource, target, authorized, &request).await;
            // An object may have been stored under a definition that is newer than the one it was read by.
            if !server.definitions.catch_up_with_cache().await {
                return Err(definitions_behind());
            }
            let current = server.current_custom(name)?.ok_or_else(Status::path_not_found)?;
            if is_decided_alike(&resource, &current) {
                return served;
            }
            resource = current.with_conversions(conversions);
        }
        return Err(definition_keeps_changing());
    }
    let request = request_body::buffer(request).await?;
    let admission = AdmissionSession::new(authorized.deadline);
    for _ in 0..DEFINITION_CHANGES_MAX {
        let executed = ExecutionTracker::default();
        let served = serve_once(server, &resource, target, authorized, (&executed, &admission), request.clone()).await;
        if executed.is_executed() {
            return served;
        }
        // Nothing was written: the outcome counts only under the current definition.
        let is_current = match executed.definition_changed_at() {
            Revision(0) => server.definitions.catch_up().await,
            revision => server.definitions.catch_up_to(revision).await,
        };
        if !is_current {
            return Err(definitions_behind());
        }
        let current = server.current_custom(name)?.ok_or_else(Status::path_not_found)?;
        if is_decided_alike(&resource, &current) && !executed.is_definition_changed() {
            return served;
        }
        resource = current.with_conversions(conversions);
    }
    Err(definition_keeps_changing())
}

/// True if nothing that a request depends on differs between two states of a custom resource.
fn is_decided_alike(before: &Arc<Resource>, now: &Arc<Resource>) -> bool {
    Arc::ptr_eq(before, now)
        || match (before.as_custom(), now.as_custom()) {
            (Some((before, _)), Some((now, _))) => before.decides_like(now),
            _ => false,
        }
}

pub(crate) fn definitions_behind() -> Status {
    let behind = "the custom resource definitions have not caught up with storage";
    Status::service_unavailable(behind).with_retry_after(1)
}

fn definition_keeps_changing() -> Status {
    let busy = "the custom resource definition changed during every attempt to serve the request";
    Status::service_unavailable(busy).with_retry_after(1)
}

/// Serves a get, list or watch.
async fn serve_read(
    server: &ApiServer,
    resource: &Arc<Resource>,
    target: &Asked<'_>,
    authorized: &AuthorizedRequest<'_, AuthenticatedCaller>,
    request: &BufferedRequest,
) -> Result<Response, Status> {
    let execution = &ExecutionTracker::default();
    let AuthorizedRequest { caller, record, deadline, .. } = authorized;
    // Reads negotiate themselves: a watch offers other media types.
    let (deadline, representation) = (*deadline, ObjectRepresentation::Full);
    let admission = &AdmissionSession::new(deadline);
    let context =
        RequestContext { server, resource, target, caller, record, execution, admission, deadline, representation };
    context.check_is_served()?;
    match (target.verb, &*target.subresource) {
        (Verb::List, _) => list::list(context, request).await,
        (Verb::Watch, _) => watch::watch(context, request).await,
        (_, "scale") => Box::pin(scale::get(context, request)).await,
        _ => get::get(context, request).await,
    }
}

/// Serves a write.
async fn serve_once(
    server: &ApiServer,
    resource: &Arc<Resource>,
    target: &Asked<'_>,
    authorized: &AuthorizedRequest<'_, AuthenticatedCaller>,
    (executed, admission): (&ExecutionTracker, &AdmissionSession),
    request: BufferedRequest,
) -> Result<Response, Status> {
    let AuthorizedRequest { caller, record, deadline, .. } = authorized;
    let representation =
        ObjectRepresentation::negotiate(accept_header(&request), request.uri().query().unwrap_or_default())?;
    let context = RequestContext {
        server,
        resource,
        target,
        caller,
        record,
        execution: executed,
        admission,
        deadline: *deadline,
        representation,
    };
    context.check_is_served()?;
    // Large futures are boxed, so that the future of a get stays small.
    let handling: BoxFuture<'_, Result<Response, Status>> = match (target.verb, &*target.subresource) {
        (Verb::Get | Verb::List | Verb::Watch | Verb::Proxy | Verb::Unknown, _) => {
            return Err(context.method_not_allowed());
        }
        (Verb::Update, "scale") => Box::pin(scale::update(context, request)),
        (Verb::Patch, "scale") => Box::pin(scale::patch(context, request)),
        (_, "scale") => return Err(context.method_not_allowed()),
        (Verb::Create, "token") => Box::pin(token::create_token(context, request)),
        (Verb::Create, "binding") => Box::pin(binding::create_binding(context, request)),
        (Verb::Create, "eviction") => Box::pin(eviction::create_eviction(context, request)),
        (Verb::Create, _) => Box::pin(create::create(context, request)),
        (Verb::Update, _) => Box::pin(update::update(context, request)),
        (Verb::Patch, _) => Box::pin(patch::patch(context, request)),
        (Verb::Delete, _) => Box::pin(delete::delete(context, request)),
        (Verb::DeleteCollection, _) => Box::pin(delete::delete_collection(context, request)),
    };
    match handling.await {
        Ok(response) => Ok(with_warnings(response, &executed.take_warnings())),
        Err(status) => Err(executed.failure_status(status)),
    }
}

impl<'a> RequestContext<'a> {
    /// Rejects unimplemented resources and subresources, and verbs that they do not have, such as `?watch=true` for a
    /// resource that can only be listed.
    fn check_is_served(&self) -> Result<(), Status> {
        let verb = self.target.verb.as_str();
        let offer = self.resource.offer(&self.target.subresource).ok_or_else(Status::path_not_found)?;
        match (offer.is_implemented, offer.verbs.contains(verb)) {
            (false, _) => Err(status_for_unimplemented(self.target)),
            (true, false) => Err(self.method_not_allowed()),
            (true, true) => Ok(()),
        }
    }

    fn method_not_allowed(&self) -> Status {
        Status::method_not_supported(self.target.group_resource(), self.target.verb.as_str())
    }

    fn not_found(&self) -> Status {
        Status::not_found(self.target.group_resource(), &self.target.name)
    }

    fn status_context<'n>(&'n self, name: &'n str) -> StatusContext<'n> {
        StatusContext { resource: self.target.group_resource(), kind: self.resource.group_version_kind().kind, name }
    }

    /// The namespace of the objects; empty for cluster-scoped resources. `target.namespace` is not: for a Namespace it
    /// repeats the name.
    fn namespace(&self) -> &'a str {
        match self.resource.scope() {
            KindScope::Namespaced => &self.target.namespace,
            KindScope::Cluster => "",
        }
    }

    /// The storage key of an object in the request's namespace.
    fn object_key(&self, name: &str) -> Key {
        let mut key = self.key_prefix().to_vec();
        key.extend_from_slice(name.as_bytes());
        key.into()
    }

    /// The key prefix of all objects in the scope of the request.
    fn key_prefix(&self) -> Key {
        let prefix = self.resource.cache.prefix();
        match self.namespace() {
            "" => prefix.clone(),
            namespace => [prefix.as_ref(), namespace.as_bytes(), b"/"].concat().into(),
        }
    }

    /// Rejects names that would leave the key prefix: the path's name and namespace become part of a storage key.
    fn check_path_names(&self) -> Result<(), Status> {
        for part in [&*self.target.name, self.namespace()] {
            if part.contains(['/', '%', '\0']) || matches!(part, "." | "..") {
                return Err(Status::not_found(self.target.group_resource(), &self.target.name));
            }
        }
        Ok(())
    }
}

fn header_text<'a>(request: &'a BufferedRequest, name: &http::HeaderName) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

pub(crate) fn accept_header(request: &BufferedRequest) -> &str {
    header_text(request, &ACCEPT)
}

/// The current time in the precision of object metadata.
pub(crate) fn current_time() -> api::time::Time {
    jiff::Timestamp::now().into()
}
