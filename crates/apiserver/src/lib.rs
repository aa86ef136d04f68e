//! The local API server: REST over the registry, discovery, OpenAPI, authentication and authorization, bootstrap
//! objects.
//!
//! [`ApiServer`] resolves a request to a served resource and dispatches it to the handler of its verb in [`rest`].
//! Discovery and `/version` are encoded once at startup. Handlers work on untyped JSON; the rules of a kind are in the
//! [`kinds::KindStrategy`] of its served resource.

pub mod access_control;
mod admission;
mod allocation;
mod api_services;
pub mod bootstrap;
mod bound_objects;
mod built_in_types;
pub mod definitions;
mod discovery_pages;
mod error_status;
mod extension_apis;
mod object_codec;
mod openapi_documents;
mod openapi_pages;
mod openid_pages;
pub mod rbac_index;
mod representation;
mod request_body;
mod request_options;
mod resource;
pub mod rest;
mod reviews;
mod services;
mod shared_resources;
pub mod storage_ports;
pub mod storage_version_barrier;
mod yaml_response;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use api::target::{HttpMethod, ResourceTarget};
use api::{GroupVersionResource, RouteMismatch, Status, Target};
use bytes::Bytes;
use edge::response::{json_response, page_not_found};
use edge::{AuthorizedRequest, Error, LocalHandler, Request, Response};
use futures_util::future::BoxFuture;
use kinds::{FeatureGates, ServedResource, ServedResources, StoredResource};
use membership::documents::UnimplementedResource;
use registry::{Registry, ValueFormat};
use store::Key;
use tasks::Commitment;
use tokio_util::sync::CancellationToken;
use transport::peer::Dialer;
use webhook::{Dialers, WebhookClient};

pub use crate::admission::AdmissionConfig;
pub use allocation::{ServiceAllocationController, ServiceRanges};
pub use api_services::ApiServiceController;
pub use bound_objects::CachedBoundObjects;
pub use discovery_pages::oldest_aggregated_version;
pub use extension_apis::{ExtensionApi, ExtensionApiFollower, ExtensionConfig, ForwardedRedirects, LiveExtensionApis};
pub use services::ServiceRouting;
pub use shared_resources::SharedPublisher;
pub use webhook::WebhookCredentials;

use crate::access_control::{AccessRules, AuthenticatedCaller};
use crate::admission::{AdmissionControl, AdmissionGuard};
use crate::allocation::ServiceAllocation;
use crate::definitions::{Converter, DefinitionFollower, LiveDefinitions};
use crate::discovery_pages::DiscoveryPages;
use crate::error_status::status_for_unimplemented;
use crate::extension_apis::{ExtensionClient, ExtensionMetrics, ExtensionOpenApi};
use crate::openapi_documents::OpenApiDocuments;
use crate::resource::{CustomPathMismatch, Resource};
use crate::reviews::ReviewResource;
use crate::services::CachedServices;

/// The maximum size of a request body in bytes, as in kube-apiserver.
pub const BODY_BYTES_MAX: usize = 3 << 20;

/// Serves the resources of one Kubernetes release from one registry.
pub struct ApiServer {
    registry: Registry,
    served_resources: Arc<ServedResources>,
    resources: HashMap<GroupVersionResource<&'static str>, Arc<Resource>>,
    definitions: LiveDefinitions,
    admission: AdmissionControl,
    quota_ledger: rest::quota::QuotaLedger,
    allocation: ServiceAllocation,
    converter: Arc<Converter>,
    extension_apis: LiveExtensionApis,
    shared_resources: Arc<SharedPublisher>,
    discovery_pages: DiscoveryPages,
    openapi: Arc<OpenApiDocuments>,
    extension_openapi: ExtensionOpenApi,
    feature_gates: FeatureGates,
    version_page: Bytes,
    watch_seconds_min: u64,
    access_rules: Arc<AccessRules>,
    bound_objects: CachedBoundObjects,
    stream_stop: CancellationToken,
}

/// The settings of an [`ApiServer`].
#[derive(Clone, Debug)]
pub struct Config {
    /// `gitVersion` on `/version`, such as `v1.36.0+unskew.0.1.0`.
    pub git_version: String,
    /// The address at which clients reach the server, published in the legacy discovery document of `/api`.
    pub address: String,
    /// `--min-request-timeout`: a watch without `timeoutSeconds` lasts between one and two times this many seconds.
    pub watch_seconds_min: u64,
    /// `--feature-gates`: some defaults and validations depend on them.
    pub feature_gates: FeatureGates,
    /// The admission plugins.
    pub admission: AdmissionConfig,
    /// The ranges from which services get addresses and ports.
    pub service_ranges: ServiceRanges,
    /// How webhooks are reached.
    pub webhooks: WebhookConfig,
    /// How extension API servers are reached; `None`: they are not, and their group-versions are unavailable.
    pub extensions: Option<ExtensionConfig>,
    /// Where metrics are registered; one server per registry.
    pub metrics: prometheus::Registry,
}

/// How webhooks are reached. Services are dialed directly.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The route to webhooks that are named by a URL: the egress selection `controlplane`.
    pub url_dialer: Dialer,
    /// `--enable-aggregator-routing`.
    pub routing: ServiceRouting,
}

/// Returns the key prefixes of all stored resources and of allocations below the storage prefix. The watch cache must hold all of them.
pub fn resource_prefixes(served_resources: &ServedResources, prefix: &str) -> Vec<(Key, ValueFormat)> {
    let key = |part: &str| Key::from(format!("{prefix}/{part}/"));
    let stored = served_resources.stored_resources().iter();
    let mut prefixes: Vec<_> =
        stored.map(|stored_resource| (key(stored_resource.key_prefix), ValueFormat::Objects)).collect();
    for record in allocation::record_prefixes(prefix) {
        if prefixes.iter().all(|(key, _)| *key != record.0) {
            prefixes.push(record);
        }
    }
    prefixes
}

/// Returns the resources and subresources that discovery lists, as in every server of the release, but this server does
/// not implement.
pub fn unimplemented_resources(served_resources: &ServedResources) -> Vec<UnimplementedResource> {
    let unimplemented = |name: GroupVersionResource<&str>, subresource: &str| UnimplementedResource {
        group: name.group.into(),
        resource: name.resource.into(),
        subresource: subresource.into(),
    };
    let served = served_resources.resources().iter().flat_map(|served| {
        let name = served.group_version_resource();
        let whole_resource = (!served.kind.is_implemented).then(|| unimplemented(name, ""));
        let parts = served.kind.subresources.iter().filter(|part| !part.is_implemented);
        whole_resource.into_iter().chain(parts.map(move |part| unimplemented(name, part.name)))
    });
    served.collect()
}

impl ApiServer {
    /// Creates a server for `served_resources`. The registry's cache must hold their [`resource_prefixes`] below
    /// `prefix`. Reviews and token requests use the same `rules` as [`access_control::RbacAccessControl`].
    ///
    /// Cancelling `streams_end` ends every watch, so that connections can finish.
    pub fn new(
        registry: Registry,
        served_resources: Arc<ServedResources>,
        prefix: &str,
        config: &Config,
        rules: Arc<AccessRules>,
        streams_end: CancellationToken,
    ) -> (Self, DefinitionFollower, ExtensionApiFollower) {
        let cache_of = |stored_resource: &StoredResource| {
            let key = format!("{prefix}/{}/", stored_resource.key_prefix);
            registry.cache().resource_cache(key.as_bytes()).cloned()
        };
        let names = served_resources.resources().iter().map(ServedResource::group_version_resource).enumerate();
        let resources: HashMap<_, _> = names
            .filter_map(|(position, name)| {
                Some((name, Arc::new(Resource::built_in(&served_resources, position, cache_of)?)))
            })
            .collect();
        let bound_objects = CachedBoundObjects::new(registry.clone(), |name| Some(resources.get(&name)?.cache.clone()));
        let resource_cache = |name: GroupVersionResource<&'static str>| Some(resources.get(&name)?.cache.clone());
        let services = Arc::new(CachedServices::new(config.webhooks.routing, resource_cache));
        let dialers = Dialers { service: Dialer::direct(), url: config.webhooks.url_dialer.clone() };
        let client = Arc::new(WebhookClient::new(services.clone(), dialers));
        let admission = AdmissionControl::new(
            &config.admission,
            &config.feature_gates,
            client.clone(),
            &config.metrics,
            resource_cache,
            AdmissionGuard::new(registry.cache(), &storage_ports::admission_guard_prefix(prefix)),
        );
        let shared = Arc::<SharedPublisher>::default();
        let (definitions, follower) = LiveDefinitions::new(&registry, prefix, &served_resources, shared.clone());
        let (extension_apis, extension_follower) = ExtensionApiFollower::new(
            &registry,
            storage_ports::api_services_cache(registry.cache(), prefix),
            config.extensions.as_ref().map(|extensions| Arc::new(ExtensionClient::new(services, extensions))),
            shared.clone(),
            ExtensionMetrics::new(&config.metrics),
        );
        let resolve = |name: GroupVersionResource<&'static str>| resources.get(&name).cloned();
        let (ranges, gates) = (&config.service_ranges, &config.feature_gates);
        let allocation = ServiceAllocation::new(&registry, prefix, ranges, gates, &config.metrics, resolve);
        let pages = DiscoveryPages::new(&served_resources, &config.address);
        let version = version_page(&served_resources, &config.git_version);
        let server = Self {
            openapi: Arc::new(OpenApiDocuments::new(served_resources.clone())),
            extension_openapi: ExtensionOpenApi::new(extension_apis.clone()),
            feature_gates: config.feature_gates.clone(),
            registry,
            served_resources,
            resources,
            definitions,
            admission,
            quota_ledger: rest::quota::QuotaLedger::default(),
            allocation,
            converter: Converter::new(client, &config.metrics),
            extension_apis,
            shared_resources: shared,
            discovery_pages: pages,
            version_page: version,
            watch_seconds_min: config.watch_seconds_min,
            access_rules: rules,
            bound_objects,
            stream_stop: streams_end,
        };
        (server, follower, extension_follower)
    }

    /// The objects that service account tokens are bound to, as the cache holds them.
    pub fn bound_objects(&self) -> CachedBoundObjects {
        self.bound_objects.clone()
    }

    async fn dispatch(
        &self,
        call: AuthorizedRequest<'_, AuthenticatedCaller>,
        request: Request,
    ) -> Result<Response, Status> {
        match call.target {
            Target::NonResource(page) => {
                let query = request.uri().query().unwrap_or_default();
                if page.path == "/version" || page.path == "/version/" {
                    return Ok(json_response(self.version_page.clone()));
                }
                if page.path == "/" {
                    let extensions = self.extension_apis.snapshot();
                    let custom = self.definitions.snapshot();
                    return Ok(json_response(self.discovery_pages.index_page(&custom, &extensions.group_versions)));
                }
                if let Some(page) = openid_pages::serve(&self.access_rules.signing.get(), &page.path) {
                    return Ok(page);
                }
                if page.path.starts_with("/openapi/")
                    && let Some(response) =
                        Box::pin(openapi_pages::serve(self, &page.path, query, request.headers())).await
                {
                    return response;
                }
                let (custom, extensions) = (self.definitions.snapshot(), self.extension_apis.snapshot());
                let (pages, parts) = (&self.discovery_pages, &extensions.group_versions);
                let page = pages.serve(&custom, parts, &page.path, query, request.headers());
                page.unwrap_or_else(|| Ok(page_not_found()))
            }
            Target::Resource(target) => {
                let resolved = self.resolve_requested(target).await?;
                let (scope, offer) = match &resolved {
                    Some(resource) => (resource.scope(), resource.offer(&target.subresource)),
                    None => {
                        let served = self.served_resources.get(&target.group, &target.version, &target.resource);
                        let Some(served) = served else { return self.resource_not_found(target) };
                        (served.kind.scope, resource::offer(served, &target.subresource))
                    }
                };
                let custom = resolved.as_ref().filter(|resource| resource.as_custom().is_some());
                if let Some(resource) = custom
                    && let Err(mismatch) = resource::check_custom_path(resource, target)
                {
                    return match mismatch {
                        CustomPathMismatch::NoPage => Ok(page_not_found()),
                        CustomPathMismatch::Rejected(status) => Err(status),
                    };
                }
                match resource::check_path_and_method(scope, offer, target) {
                    Ok(()) => {}
                    // Custom resources are served by verb, and that of HEAD is to get or list.
                    Err(RouteMismatch::MethodNotAllowed) if custom.is_some() && target.method == HttpMethod::Head => {}
                    Err(RouteMismatch::NotFound) if !target.path_form.is_rooted => return Ok(page_not_found()),
                    Err(misfit) => return Err(Status::for_route_mismatch(misfit)),
                }
                if let Some(resource) = resolved {
                    let is_yaml_requested = yaml_response::is_requested(&request, target.verb);
                    let served = match resource.as_custom() {
                        None => rest::serve(self, &resource, target, &call, request).await,
                        Some(_) => Box::pin(rest::serve_custom(self, resource, target, &call, request)).await,
                    };
                    return if is_yaml_requested { served.and_then(yaml_response::in_yaml) } else { served };
                }
                let served = self.served_resources.get(&target.group, &target.version, &target.resource);
                match served.and_then(ReviewResource::for_resource) {
                    Some(review) => self.serve_review(review, target, &call, request).await,
                    None => Err(status_for_unimplemented(target)),
                }
            }
        }
    }

    /// The built-in or custom resource of a request; `None` if it is not stored here.
    async fn resolve_requested(&self, target: &ResourceTarget<'_>) -> Result<Option<Arc<Resource>>, Status> {
        match self.resolve(target.group_version_resource()) {
            None if self.is_built_in(target) => Ok(None),
            None => self.resolve_custom(target.group_version_resource()).await,
            found => Ok(found),
        }
    }

    /// The response for a resource that nothing serves: a page in a version that is not built in, as in kube-apiserver.
    fn resource_not_found(&self, target: &ResourceTarget<'_>) -> Result<Response, Status> {
        match self.discovery_pages.has_built_in_version(&target.group, &target.version) {
            true => Err(Status::path_not_found()),
            false => Ok(page_not_found()),
        }
    }

    /// The text of the `Warning` header for a resource that is deprecated in this release.
    fn deprecation_warning(&self, target: &Target<'_>) -> Option<String> {
        let Target::Resource(target) = target else { return None };
        let Some(served) = self.served_resources.get(&target.group, &target.version, &target.resource) else {
            let custom = self.definitions.snapshot();
            return custom.resource(target.group_version_resource())?.deprecation_warning().map(str::to_owned);
        };
        let (since, warning) = served.kind.strategy.deprecation?;
        (self.served_resources.release() >= since).then(|| warning.to_owned())
    }

    /// The extension API server to which a request goes; `None` if this server answers it. That there is none counts for
    /// group-versions that are not built in only after the APIServices have caught up with storage.
    async fn extension_api(&self, target: &Target<'_>) -> Result<Option<Arc<ExtensionApi>>, Status> {
        let Some((group, version)) = extension_group_version(target) else { return Ok(None) };
        let found = self.extension_apis.get(group, version);
        let custom = || self.definitions.snapshot();
        let is_listed = || match target {
            Target::Resource(target) => {
                self.is_built_in(target) || custom().resource(target.group_version_resource()).is_some()
            }
            Target::NonResource(_) => custom().shared().groups.version(group, version).is_some(),
        };
        if found.is_some() || is_listed() || self.discovery_pages.has_built_in_version(group, version) {
            return Ok(found);
        }
        if !self.extension_apis.catch_up().await {
            let behind = "the APIServices have not caught up with storage";
            return Err(Status::service_unavailable(behind).with_retry_after(1));
        }
        Ok(self.extension_apis.get(group, version))
    }

    fn resolve(&self, name: GroupVersionResource<&str>) -> Option<Arc<Resource>> {
        self.resources.get(&name).cloned()
    }

    fn is_built_in(&self, target: &ResourceTarget<'_>) -> bool {
        self.served_resources.get(&target.group, &target.version, &target.resource).is_some()
    }

    /// The custom resource of this name. Its absence is proven: the definitions have caught up with storage before.
    async fn resolve_custom(&self, name: GroupVersionResource<&str>) -> Result<Option<Arc<Resource>>, Status> {
        if let Some(found) = self.definitions.snapshot().resource(name) {
            return Ok(Some(found.clone()));
        }
        // The group of a definition has a dot.
        if !name.group.contains('.') {
            return Ok(None);
        }
        if !self.definitions.catch_up().await {
            return Err(rest::definitions_behind());
        }
        self.current_custom(name)
    }

    /// The custom resource of this name, as far as the definitions are known; an error if its definition cannot be read.
    fn current_custom(&self, name: GroupVersionResource<&str>) -> Result<Option<Arc<Resource>>, Status> {
        let current = self.definitions.snapshot();
        match (current.resource(name), current.unreadable_reason(name)) {
            (None, Some(reason)) => {
                let GroupVersionResource { group, resource, .. } = name;
                Err(Status::storage_read_error(format!(
                    "the stored definition {resource}.{group} cannot be read: {reason}"
                )))
            }
            (found, _) => Ok(found.cloned()),
        }
    }

    /// The group-versions of extension API servers.
    pub fn extension_apis(&self) -> LiveExtensionApis {
        self.extension_apis.clone()
    }

    /// What objects in storage bring to every server of the cluster.
    pub fn shared_resources(&self) -> &SharedPublisher {
        &self.shared_resources
    }

    /// The served custom resources.
    pub fn definitions(&self) -> LiveDefinitions {
        self.definitions.clone()
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("release", &self.served_resources.release()).finish_non_exhaustive()
    }
}

impl LocalHandler<AuthenticatedCaller> for ApiServer {
    fn serve<'a>(
        &'a self,
        call: AuthorizedRequest<'a, AuthenticatedCaller>,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, Error>> {
        Box::pin(async move {
            let warnings = call.caller.warnings.clone();
            if let Some(api) = self.extension_api(call.target).await? {
                // Boxed because it is large: every request would reserve room for it otherwise.
                let response = Box::pin(self.extension_apis.proxy(&api, &call, request)).await?;
                return Ok(rest::with_warnings(response, &warnings));
            }
            let deprecation = self.deprecation_warning(call.target);
            if let Some(commitment) = request.extensions().get::<Arc<Commitment>>() {
                commitment.commit().await;
            }
            match self.dispatch(call, request).await {
                Ok(response) => {
                    Ok(rest::with_warnings(rest::with_warnings(response, &warnings), deprecation.as_slice()))
                }
                Err(mut status) => {
                    status.warnings.extend(warnings.iter().map(|warning| (*warning).to_owned()).chain(deprecation));
                    Err(Error::from(status))
                }
            }
        })
    }
}

/// Group and version of a path that an extension API server may serve: `/apis/<group>/<version>` and below.
fn extension_group_version<'t>(target: &'t Target<'_>) -> Option<(&'t str, &'t str)> {
    match target {
        Target::Resource(target) if target.group.is_empty() => None,
        Target::Resource(target) => Some((&target.group, &target.version)),
        Target::NonResource(page) => {
            let (group, version) = page.path.strip_prefix("/apis/")?.split_once('/')?;
            let version = version.strip_suffix('/').unwrap_or(version);
            (!version.is_empty() && !version.contains('/')).then_some((group, version))
        }
    }
}

fn version_page(served_resources: &ServedResources, git_version: &str) -> Bytes {
    let minor = served_resources.release().minor();
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
