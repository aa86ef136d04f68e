//! The verbs of a resource.

mod bind;
mod delete;
mod evict;
mod get;
mod list;
mod patch;
mod persist;
mod scale;
mod selection;
mod token;
mod watch;
mod write;

pub(crate) use write::{new_uid, warned};

use api::target::Resource as Asked;
use api::{Scope, Status, Verb};
use edge::{Request, Response};
use http::header::{ACCEPT, CONTENT_TYPE};
use store::Key;

use self::persist::Executed;
use crate::faults::About;
use crate::gate::Caller;
use crate::{ApiServer, Resource, kinds, not_built};

/// What a handler works on.
#[derive(Clone, Copy)]
struct Context<'a> {
    server: &'a ApiServer,
    resource: Resource<'a>,
    asked: &'a Asked<'a>,
    /// Who asks.
    caller: &'a Caller,
    /// Whether the request has written anything yet.
    executed: &'a Executed,
}

/// Answers a request for a resource that this server has. Its path and method fit the resource.
pub(crate) async fn serve(
    server: &ApiServer,
    resource: Resource<'_>,
    asked: &Asked<'_>,
    caller: &Caller,
    request: Request,
) -> Result<Response, Status> {
    let executed = Executed::default();
    let context = Context { server, resource, asked, caller, executed: &executed };
    context.refuse_what_is_not_offered()?;
    match asked.verb {
        Verb::Get if asked.subresource != "scale" => get::get(context, &request).await,
        Verb::List => list::list(context, &request).await,
        Verb::Watch => watch::watch(context, &request).await,
        // In a box, because these are large and every get would carry the room for them.
        Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            Box::pin(serve_rarer(context, request)).await.map_err(|status| executed.failure(status))
        }
        Verb::Proxy | Verb::Unknown => Err(context.method_not_allowed()),
    }
}

/// Everything but plain reads.
async fn serve_rarer(context: Context<'_>, request: Request) -> Result<Response, Status> {
    let asked = context.asked;
    if asked.subresource == "scale" {
        return scale::serve(context, request).await;
    }
    match asked.verb {
        Verb::Create if asked.subresource == "token" => token::create(context, request).await,
        Verb::Create if asked.subresource == "binding" => bind::create(context, request).await,
        Verb::Create if asked.subresource == "eviction" => evict::create(context, request).await,
        Verb::Create => write::create(context, request).await,
        Verb::Update => write::update(context, request).await,
        Verb::Patch => patch::patch(context, request).await,
        Verb::Delete => delete::delete(context, request).await,
        Verb::DeleteCollection => delete::delete_collection(context, request).await,
        Verb::Get | Verb::List | Verb::Watch | Verb::Proxy | Verb::Unknown => Err(context.method_not_allowed()),
    }
}

/// Whether there is a handler for a subresource.
pub(crate) fn is_built(subresource: &catalogue::kind::Subresource) -> bool {
    subresource.built && kinds::is_written(subresource.name)
}

impl<'a> Context<'a> {
    /// Resources and subresources that are not built, and `?watch=true` for a resource that can only be listed.
    fn refuse_what_is_not_offered(&self) -> Result<(), Status> {
        let verb = self.asked.verb.as_str();
        let served = self.resource.served;
        let (is_built, verbs) = match &*self.asked.subresource {
            "" => (served.kind.built, served.kind.verbs),
            subresource => {
                let offered = served.subresource(subresource).ok_or_else(Status::path_not_found)?;
                (is_built(offered), offered.verbs)
            }
        };
        match (is_built, verbs.contains(verb)) {
            (false, _) => Err(not_built(self.asked, verb)),
            (true, false) => Err(self.method_not_allowed()),
            (true, true) => Ok(()),
        }
    }

    fn method_not_allowed(&self) -> Status {
        Status::method_not_supported(self.asked.group_resource(), self.asked.verb.as_str())
    }

    /// The object of the path is not there.
    fn not_found(&self) -> Status {
        Status::not_found(self.asked.group_resource(), &self.asked.name)
    }

    fn about<'n>(&'n self, name: &'n str) -> About<'n> {
        About { resource: self.asked.group_resource(), kind: self.resource.served.kind.name, name }
    }

    /// The namespace of objects; empty for cluster-scoped resources, whose own name a path to a namespace repeats there.
    fn namespace(&self) -> &'a str {
        match self.resource.served.kind.scope {
            Scope::Namespaced => &self.asked.namespace,
            Scope::Cluster => "",
        }
    }

    /// Where an object of the request's namespace lies.
    fn key_of(&self, name: &str) -> Key {
        let mut key = self.within().to_vec();
        key.extend_from_slice(name.as_bytes());
        key.into()
    }

    /// What the keys of all objects begin with that the request can be about.
    fn within(&self) -> Key {
        let prefix = self.resource.shelf.prefix();
        match self.namespace() {
            "" => prefix.clone(),
            namespace => [prefix.as_ref(), namespace.as_bytes(), b"/"].concat().into(),
        }
    }

    /// A name from a path becomes part of a key, so it must not be able to lead out of its place.
    fn refuse_odd_names(&self) -> Result<(), Status> {
        for part in [&*self.asked.name, self.namespace()] {
            if part.contains(['/', '%', '\0']) || matches!(part, "." | "..") {
                return Err(Status::not_found(self.asked.group_resource(), &self.asked.name));
            }
        }
        Ok(())
    }
}

fn header<'a>(request: &'a Request, name: &http::HeaderName) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn accept(request: &Request) -> &str {
    header(request, &ACCEPT)
}

fn content_type(request: &Request) -> &str {
    header(request, &CONTENT_TYPE)
}

/// Now, as metadata writes it.
pub(crate) fn now() -> api::time::Time {
    jiff::Timestamp::now().into()
}
