//! The API server that this process is: what is asked for *here* is answered here.
//!
//! [`ApiServer`] resolves a request to a resource of the catalogue and hands it to the handler of its verb, in [`rest`];
//! `/api`, `/apis` and `/version` are finished pages. Handlers are generic over JSON: what is special about a kind stands in
//! `kinds.rs` and nowhere else.

mod accounts;
mod admission;
pub mod barrier;
mod bodies;
pub mod bootstrap;
mod discovery_pages;
mod faults;
mod forms;
pub mod gate;
mod kinds;
mod openapi_pages;
mod openid_pages;
mod options;
pub mod policy;
pub mod ports;
pub mod rest;
mod reviews;
mod shape;
mod typed;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use api::{GroupResource, GroupVersionResource, Misfit, Status, Target};
use bytes::Bytes;
use catalogue::openapi::OpenApi;
use catalogue::{Gates, Release, Served, Surface};
use edge::{Body, Call, Error, Local, Request, Response};
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue};
use object::KindRules;
use peering::documents::Unbuilt;
use registry::{Form, Registry, Shelf};
use store::Key;
use tasks::Commitment;
use tokio_util::sync::CancellationToken;

pub use accounts::Accounts;
pub use discovery_pages::oldest_aggregated;

use crate::discovery_pages::DiscoveryPages;
use crate::gate::{Caller, Rules};
use crate::reviews::Review;

/// What a request may weigh; etcd takes no more either.
pub const BODY_BYTES_MAX: usize = 3 << 20;

/// The resources of one release over one registry.
pub struct ApiServer {
    registry: Registry,
    surface: Arc<Surface>,
    positions: HashMap<GroupVersionResource<&'static str>, usize>,
    bindings: Vec<Binding>,
    pages: DiscoveryPages,
    openapi: OpenApi,
    gates: Gates,
    version: Bytes,
    watch_seconds_min: u64,
    rules: Arc<Rules>,
    accounts: Accounts,
    streams_end: CancellationToken,
}

/// A resource of the catalogue and where its objects lie.
#[derive(Debug)]
struct Binding {
    /// The position among the surface's served resources.
    served: usize,
    shelf: Arc<Shelf>,
    rules: KindRules,
}

/// A resource that a request was resolved to.
#[derive(Clone, Copy, Debug)]
struct Resource<'a> {
    served: &'a Served,
    shelf: &'a Arc<Shelf>,
    rules: &'a KindRules,
    /// What a stream keeps to find the resource again after the request is over.
    served_position: usize,
}

/// What the server is told beside its registry.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it calls itself on `/version`: `v1.36.0+unskew.0.1.0`.
    pub git_version: String,
    /// Where clients reach it, as legacy discovery says.
    pub address: String,
    /// `--min-request-timeout`: a watch that does not say lasts this long, up to twice.
    pub watch_seconds_min: u64,
    /// `--feature-gates`: some defaults hang on them.
    pub gates: Gates,
}

/// The shelves that the objects of a surface need, below a storage prefix.
pub fn shelves(surface: &Surface, prefix: &str) -> Vec<(Key, Form)> {
    let key = |part: &str| Key::from(format!("{prefix}/{part}/"));
    surface.persisted().iter().map(|persisted| (key(persisted.key_prefix), Form::Objects)).collect()
}

/// What a surface lists, because real servers of the release have it, and this server cannot do.
pub fn unbuilt(surface: &Surface) -> Vec<Unbuilt> {
    let unbuilt = |name: GroupVersionResource<&str>, subresource: &str| Unbuilt {
        group: name.group.into(),
        resource: name.resource.into(),
        subresource: subresource.into(),
    };
    let served = surface.served().iter().flat_map(|served| {
        let name = served.name();
        let whole = (!served.kind.built).then(|| unbuilt(name, ""));
        let parts = served.kind.subresources.iter().filter(|part| !rest::is_built(part));
        whole.into_iter().chain(parts.map(move |part| unbuilt(name, part.name)))
    });
    served.collect()
}

impl ApiServer {
    /// A server for a surface, whose [`shelves`] below `prefix` the registry's cache keeps. Reviews and tokens are answered by
    /// the same rules that the gate has.
    ///
    /// Cancelling `streams_end` ends every watch and lets connections finish.
    pub fn new(
        registry: Registry,
        surface: Arc<Surface>,
        prefix: &str,
        config: &Config,
        rules: Arc<Rules>,
        streams_end: CancellationToken,
    ) -> Self {
        let mut positions = HashMap::new();
        let mut bindings = Vec::new();
        for (position, served) in surface.served().iter().enumerate() {
            let Some(persisted) = &served.persisted else { continue };
            let key = format!("{prefix}/{}/", persisted.key_prefix);
            let Some(shelf) = registry.cache().shelf(key.as_bytes()) else { continue };
            positions.insert(served.name(), bindings.len());
            bindings.push(Binding { served: position, shelf: shelf.clone(), rules: kinds::rules_of(served) });
        }
        let shelf_of = |name| Some(bindings[*positions.get(&name)?].shelf.clone());
        let accounts = Accounts::new(registry.clone(), shelf_of);
        let pages = DiscoveryPages::new(&surface, &config.address);
        let version = version_page(&surface, &config.git_version);
        Self {
            openapi: OpenApi::new(surface.clone()),
            gates: config.gates.clone(),
            registry,
            surface,
            positions,
            bindings,
            pages,
            version,
            watch_seconds_min: config.watch_seconds_min,
            rules,
            accounts,
            streams_end,
        }
    }

    /// What tokens depend on, for the gate.
    pub fn accounts(&self) -> Accounts {
        self.accounts.clone()
    }

    async fn answer(&self, call: Call<'_, Caller>, request: Request) -> Result<Response, Status> {
        match call.target {
            Target::NonResource(page) => {
                let query = request.uri().query().unwrap_or_default();
                if page.path == "/version" || page.path == "/version/" {
                    return Ok(json(self.version.clone()));
                }
                if page.path == "/" {
                    return Ok(json(self.pages.index().into()));
                }
                if let Some(page) = openid_pages::serve(&self.rules.signing.get(), &page.path) {
                    return Ok(page);
                }
                if let Some(answer) = openapi_pages::serve(&self.openapi, &page.path, query, request.headers()) {
                    return answer;
                }
                self.pages.serve(&page.path, query, request.headers()).unwrap_or_else(|| Ok(page_not_found()))
            }
            Target::Resource(target) => {
                let resolved = self.resolve(target.group_version_resource());
                let served = match &resolved {
                    Some(resource) => Some(resource.served),
                    None => self.surface.get(&target.group, &target.version, &target.resource),
                };
                let served = served.ok_or_else(Status::path_not_found)?;
                match fit(served, target) {
                    Ok(()) => {}
                    Err(Misfit::NotFound) if !target.form.is_rooted => return Ok(page_not_found()),
                    Err(misfit) => return Err(Status::of_misfit(misfit)),
                }
                match (resolved, Review::of(served)) {
                    (Some(resource), _) => rest::serve(self, resource, target, &call.caller, request).await,
                    (None, Some(review)) => self.review(review, target, &call.caller, request).await,
                    (None, None) => Err(not_built(target, target.verb.as_str())),
                }
            }
        }
    }

    fn resolve(&self, name: GroupVersionResource<&str>) -> Option<Resource<'_>> {
        let position = *self.positions.get(&name)?;
        let Binding { served: served_position, shelf, rules } = &self.bindings[position];
        let served = &self.surface.served()[*served_position];
        Some(Resource { served, shelf, rules, served_position: *served_position })
    }
}

/// Checks the path and method of a request against the scope and verbs of the resource.
fn fit(served: &Served, target: &api::target::Resource<'_>) -> Result<(), Misfit> {
    let verbs = match &*target.subresource {
        "" => served.kind.verbs,
        subresource => served.subresource(subresource).ok_or(Misfit::NotFound)?.verbs,
    };
    target.fit(served.kind.scope, |verb| verbs.contains(verb.as_str()))
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("release", &self.surface.release()).finish_non_exhaustive()
    }
}

impl Local<Caller> for ApiServer {
    fn serve<'a>(&'a self, call: Call<'a, Caller>, request: Request) -> BoxFuture<'a, Result<Response, Error>> {
        Box::pin(async move {
            let warnings = call.caller.warnings.clone();
            let deprecation = deprecation(call.target, self.surface.release());
            if let Some(commitment) = request.extensions().get::<Arc<Commitment>>() {
                commitment.commit().await;
            }
            let response = self.answer(call, request).await.map_err(Error::from)?;
            Ok(rest::warned(rest::warned(response, &warnings), deprecation.as_slice()))
        })
    }
}

/// What clients are told of a resource that goes some day.
fn deprecation(target: &Target<'_>, release: Release) -> Option<&'static str> {
    let Target::Resource(resource) = target else { return None };
    let is_endpoints = resource.resource == "endpoints" && resource.group.is_empty() && release >= Release::R33;
    is_endpoints.then_some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
}

/// A thing that discovery lists, because real servers of the release have it, and that this server cannot do.
fn not_built(asked: &api::target::Resource<'_>, verb: &str) -> Status {
    let resource = match &*asked.subresource {
        "" => asked.resource.to_string(),
        subresource => format!("{}/{subresource}", asked.resource),
    };
    let resource = GroupResource { group: &*asked.group, resource: &*resource };
    Status {
        message: format!("{verb} of {resource} is not built in this server, and no other server has it"),
        reason: api::status::Reason::MethodNotAllowed,
        code: 501,
        ..Status::default()
    }
}

fn version_page(surface: &Surface, git_version: &str) -> Bytes {
    let minor = surface.release().minor();
    let page = serde_json::json!({
        "major": "1",
        "minor": minor.to_string(),
        "emulationMajor": "1",
        "emulationMinor": minor.to_string(),
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    api::json::indent(&api::json::to_go_json(&page)).into()
}

fn page_not_found() -> Response {
    let mut response = Response::new(Body::from(Bytes::from_static(b"404 page not found\n")));
    *response.status_mut() = http::StatusCode::NOT_FOUND;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn json(bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
