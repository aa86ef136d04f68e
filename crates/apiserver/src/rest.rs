//! The verbs of a resource.

mod binding;
mod delete;
mod eviction;
mod get;
mod list;
mod object_selector;
mod patch;
mod persist;
mod scale;
mod token;
mod watch;
mod write;

pub(crate) use write::{new_uid, with_warnings};

use api::target::ResourceTarget as Asked;
use api::{KindScope, Status, Verb};
use edge::{Request, Response};
use http::header::{ACCEPT, CONTENT_TYPE};
use store::Key;

use self::persist::ExecutionTracker;
use crate::access_control::AuthenticatedCaller;
use crate::error_status::StatusContext;
use crate::{ApiServer, ResolvedResource, kinds, not_implemented};

/// What a handler works on.
#[derive(Clone, Copy)]
struct RequestContext<'a> {
    server: &'a ApiServer,
    resource: ResolvedResource<'a>,
    target: &'a Asked<'a>,
    /// Who asks.
    caller: &'a AuthenticatedCaller,
    /// Whether the request has written anything yet.
    execution: &'a ExecutionTracker,
}

/// Answers a request for a resource that this server has. Its path and method fit the resource.
pub(crate) async fn serve(
    server: &ApiServer,
    resource: ResolvedResource<'_>,
    target: &Asked<'_>,
    caller: &AuthenticatedCaller,
    request: Request,
) -> Result<Response, Status> {
    let executed = ExecutionTracker::default();
    let context = RequestContext { server, resource, target, caller, execution: &executed };
    context.check_is_served()?;
    match target.verb {
        Verb::Get if target.subresource != "scale" => get::get(context, &request).await,
        Verb::List => list::list(context, &request).await,
        Verb::Watch => watch::watch(context, &request).await,
        // In a box, because these are large and every get would carry the room for them.
        Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            Box::pin(serve_boxed(context, request)).await.map_err(|status| executed.failure_status(status))
        }
        Verb::Proxy | Verb::Unknown => Err(context.method_not_allowed()),
    }
}

/// Everything but plain reads.
async fn serve_boxed(context: RequestContext<'_>, request: Request) -> Result<Response, Status> {
    let target = context.target;
    if target.subresource == "scale" {
        return scale::serve_scale(context, request).await;
    }
    match target.verb {
        Verb::Create if target.subresource == "token" => token::create_token(context, request).await,
        Verb::Create if target.subresource == "binding" => binding::create_binding(context, request).await,
        Verb::Create if target.subresource == "eviction" => eviction::create_eviction(context, request).await,
        Verb::Create => write::create(context, request).await,
        Verb::Update => write::update(context, request).await,
        Verb::Patch => patch::patch(context, request).await,
        Verb::Delete => delete::delete(context, request).await,
        Verb::DeleteCollection => delete::delete_collection(context, request).await,
        Verb::Get | Verb::List | Verb::Watch | Verb::Proxy | Verb::Unknown => Err(context.method_not_allowed()),
    }
}

/// Whether there is a handler for a subresource.
pub(crate) fn is_subresource_implemented(subresource: &catalogue::kind::BuiltInSubresource) -> bool {
    subresource.is_implemented && kinds::is_writable_subresource(subresource.name)
}

impl<'a> RequestContext<'a> {
    /// Resources and subresources that are not built, and `?watch=true` for a resource that can only be listed.
    fn check_is_served(&self) -> Result<(), Status> {
        let verb = self.target.verb.as_str();
        let served = self.resource.served;
        let (is_built, verbs) = match &*self.target.subresource {
            "" => (served.kind.is_implemented, served.kind.verbs),
            subresource => {
                let offered = served.subresource(subresource).ok_or_else(Status::path_not_found)?;
                (is_subresource_implemented(offered), offered.verbs)
            }
        };
        match (is_built, verbs.contains(verb)) {
            (false, _) => Err(not_implemented(self.target, verb)),
            (true, false) => Err(self.method_not_allowed()),
            (true, true) => Ok(()),
        }
    }

    fn method_not_allowed(&self) -> Status {
        Status::method_not_supported(self.target.group_resource(), self.target.verb.as_str())
    }

    /// The object of the path is not there.
    fn not_found(&self) -> Status {
        Status::not_found(self.target.group_resource(), &self.target.name)
    }

    fn status_context<'n>(&'n self, name: &'n str) -> StatusContext<'n> {
        StatusContext { resource: self.target.group_resource(), kind: self.resource.served.kind.name, name }
    }

    /// The namespace of objects; empty for cluster-scoped resources, whose own name a path to a namespace repeats there.
    fn namespace(&self) -> &'a str {
        match self.resource.served.kind.scope {
            KindScope::Namespaced => &self.target.namespace,
            KindScope::Cluster => "",
        }
    }

    /// Where an object of the request's namespace lies.
    fn object_key(&self, name: &str) -> Key {
        let mut key = self.key_prefix().to_vec();
        key.extend_from_slice(name.as_bytes());
        key.into()
    }

    /// What the keys of all objects begin with that the request can be about.
    fn key_prefix(&self) -> Key {
        let prefix = self.resource.resource_cache.prefix();
        match self.namespace() {
            "" => prefix.clone(),
            namespace => [prefix.as_ref(), namespace.as_bytes(), b"/"].concat().into(),
        }
    }

    /// A name from a path becomes part of a key, so it must not be able to lead out of its place.
    fn check_path_names(&self) -> Result<(), Status> {
        for part in [&*self.target.name, self.namespace()] {
            if part.contains(['/', '%', '\0']) || matches!(part, "." | "..") {
                return Err(Status::not_found(self.target.group_resource(), &self.target.name));
            }
        }
        Ok(())
    }
}

fn header_text<'a>(request: &'a Request, name: &http::HeaderName) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn accept_header(request: &Request) -> &str {
    header_text(request, &ACCEPT)
}

fn content_type_header(request: &Request) -> &str {
    header_text(request, &CONTENT_TYPE)
}

/// Now, as metadata writes it.
pub(crate) fn current_time() -> api::time::Time {
    jiff::Timestamp::now().into()
}
