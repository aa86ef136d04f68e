//! Requests to extension API servers: connections, checks, discovery.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aggregation::api_service::{ExtensionServer, RemoteApiService};
use aggregation::availability::check_service;
use aggregation::condition::Availability;
use api::Address;
use bytes::Bytes;
use discovery::parse::{self, ParseError, parse_aggregated, parse_resource_list};
use discovery::{GroupDiscoveryList, ResourceDiscovery};
use forward::{Candidate, ForwardLimits, ForwardedUser, Forwarder, ForwarderConfig, GetError};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tasks::Tasks;
use transport::Reloading;
use transport::peer::{ClientCertificate, ClientTls, Connector, Dialer, ServerTrust};

use crate::services::CachedServices;

/// The limit of a check and of a discovery request, as in kube-apiserver.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Endpoints that one check asks at once, as in kube-apiserver.
const CHECKED_ENDPOINTS_MAX: usize = 5;
/// Short requests in flight at one endpoint: fewer than the server has in flight by default, so that an extension server that hangs
/// leaves room for other requests.
const IN_FLIGHT_MAX: usize = 200;
/// The user of this server's own requests, as in kube-apiserver.
const AGGREGATOR_USER: &str = "system:kube-aggregator";
const MASTERS_GROUP: &str = "system:masters";
const DISCOVERY_ACCEPT: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
);
const AGGREGATED_KIND: &str = "as=APIGroupDiscoveryList";

/// How extension API servers are reached.
#[derive(Clone, Debug)]
pub struct ExtensionConfig {
    /// `--proxy-client-cert-file` and `--proxy-client-key-file`: the certificate that proves users to extension API servers.
    pub proxy_certificate: Reloading<ClientCertificate>,
    /// `--aggregator-reject-forwarding-redirect`.
    pub redirects: ForwardedRedirects,
    /// The tasks of the connections.
    pub tasks: Tasks,
}

/// What becomes of a redirect in the response of an extension API server. It is never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedRedirects {
    /// The client gets 502.
    Rejected,
    /// The client gets the redirect.
    PassedOn,
}

/// Sends requests to extension API servers.
pub(crate) struct ExtensionClient {
    pub(super) services: Arc<CachedServices>,
    pub(super) forwarder: Forwarder,
    pub(super) redirects: ForwardedRedirects,
    pub(super) tasks: Tasks,
    proxy_certificate: Reloading<ClientCertificate>,
    connectors: Mutex<Connectors>,
}

#[derive(Default)]
struct Connectors {
    by_server: HashMap<ExtensionServer, KnownConnector>,
    /// Tells connectors of one service apart in the ids of candidates.
    next_number: u64,
}

struct KnownConnector {
    connector: Arc<Connector>,
    /// The certificate that it shows.
    certificate: Arc<ClientCertificate>,
    number: u64,
}

/// What an extension API server lists.
#[derive(Clone, Debug)]
pub(super) enum FetchedDiscovery {
    /// The same as before.
    Unchanged,
    /// Its aggregated document.
    Document { etag: Option<HeaderValue>, groups: Arc<GroupDiscoveryList> },
    /// It has no aggregated document: the resources of each group-version by name of the APIService, `None` where the request failed.
    Legacy(Vec<(String, Option<Vec<Arc<ResourceDiscovery>>>)>),
}

impl ExtensionClient {
    pub(crate) fn new(services: Arc<CachedServices>, config: &ExtensionConfig) -> Self {
        let nothing = ClientTls::for_object(ServerTrust::Nothing, None).expect("it needs no certificate");
        let own_user = ForwardedUser::new(AGGREGATOR_USER, "", [MASTERS_GROUP], []);
        let forwarder_config = ForwarderConfig {
            own_user: own_user.expect("the names have no odd characters"),
            // Every candidate has its own.
            ..ForwarderConfig::for_server(Arc::new(Connector::new(Reloading::fixed(nothing), Dialer::direct())))
        };
        let limits = ForwardLimits { in_flight_max: Some(IN_FLIGHT_MAX), ..ForwardLimits::default() };
        // In a registry of its own: the metrics on the metrics page are about peers.
        let metrics = forward::Metrics::new(&prometheus::Registry::new());
        Self {
            services,
            forwarder: Forwarder::new(forwarder_config, limits, metrics, &config.tasks),
            redirects: config.redirects,
            tasks: config.tasks.clone(),
            proxy_certificate: config.proxy_certificate.clone(),
            connectors: Mutex::default(),
        }
    }

    /// The forwarder, so that its identity headers follow the cluster's.
    pub(crate) fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// The endpoints of a server, and the prefix of their ids. The error is a text for the client's or the condition's message.
    pub(super) fn candidates(&self, server: &ExtensionServer) -> Result<Vec<Candidate>, CandidateError> {
        let ExtensionServer { namespace, service, port, .. } = server;
        let (connector, prefix) = self.connector(server).map_err(CandidateError::Tls)?;
        let addresses = self.services.resolve_all(namespace, service, *port);
        let addresses = addresses.map_err(|error| CandidateError::Unresolved(error.to_string()))?;
        let candidates = addresses.iter().filter_map(|found| {
            let address = Address::new(&found.host, found.port)?;
            let id = format!("{prefix}{address}").into();
            Some(Candidate { id, address, connector: Some(connector.clone()) })
        });
        let candidates: Vec<_> = candidates.collect();
        match candidates.is_empty() {
            true => Err(CandidateError::Unresolved(format!("no endpoints available for service {service:?}"))),
            false => Ok(candidates),
        }
    }

    /// The connector of a server, and the prefix of its candidates' ids.
    fn connector(&self, server: &ExtensionServer) -> Result<(Arc<Connector>, String), String> {
        let certificate = self.proxy_certificate.get();
        let mut connectors = self.connectors.lock();
        let prefix = |number: u64| format!("{}/{}#{number} ", server.namespace, server.service);
        if let Some(known) =
            connectors.by_server.get(server).filter(|known| Arc::ptr_eq(&known.certificate, &certificate))
        {
            return Ok((known.connector.clone(), prefix(known.number)));
        }
        let trust = match server.ca_bundle.as_slice() {
            _ if server.skips_verification => ServerTrust::Anything,
            [] => ServerTrust::System,
            bundle => ServerTrust::Bundle(bundle),
        };
        let tls = ClientTls::for_object(trust, Some(&certificate));
        let tls = tls.map_err(|error| format!("unable to load root certificates: {error}"))?;
        let name = server.server_name();
        let name = ServerName::try_from(name.clone()).map_err(|error| format!("{name:?}: {error}"))?;
        let connector = Arc::new(Connector::new(Reloading::fixed(tls), Dialer::direct()).with_server_name(name));
        connectors.next_number += 1;
        let number = connectors.next_number;
        let known = KnownConnector { connector: connector.clone(), certificate, number };
        connectors.by_server.insert(server.clone(), known);
        Ok((connector, prefix(number)))
    }

    /// Forgets the connections of all servers but these.
    pub(super) fn retain_servers(&self, servers: &[&ExtensionServer]) {
        let ids: Vec<Arc<str>> = servers
            .iter()
            .filter_map(|server| self.candidates(server).ok())
            .flat_map(|candidates| candidates.into_iter().map(|candidate| candidate.id))
            .collect();
        self.connectors.lock().by_server.retain(|server, _| servers.contains(&server));
        self.forwarder.retain_candidates(|id| ids.iter().any(|known| **known == *id));
    }

    /// Judges whether the server of an APIService can be reached: by its service, then by a request to its discovery.
    pub(super) async fn check(&self, api_service: &RemoteApiService) -> Availability {
        let server = &api_service.server;
        let service = self.services.service(&server.namespace, &server.service);
        let slices = self.services.slices(&server.namespace, &server.service);
        if let Some(unavailable) = check_service(server, service.as_ref(), &slices) {
            return unavailable;
        }
        let candidates = match self.candidates(server) {
            Ok(candidates) => candidates,
            Err(error) => return Availability::failed_discovery(error.to_string()),
        };
        let path = api_service.path();
        let mut checks: FuturesUnordered<_> = candidates
            .iter()
            .take(CHECKED_ENDPOINTS_MAX)
            .map(|candidate| self.check_endpoint(candidate, server, &path))
            .collect();
        let mut last = String::new();
        while let Some(checked) = checks.next().await {
            match checked {
                Ok(()) => return Availability::passed(),
                Err(error) => last = error,
            }
        }
        Availability::failed_discovery(last)
    }

    async fn check_endpoint(&self, candidate: &Candidate, server: &ExtensionServer, path: &str) -> Result<(), String> {
        let url = format!("https://{}{path}", candidate.address);
        match self.get(candidate, server, path, HeaderMap::new(), parse::DOCUMENT_BYTES_MAX).await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(format!(
                "failing or missing response from {url}: bad status from {url}: {}",
                response.status().as_u16()
            )),
            Err(error) => Err(format!("failing or missing response from {url}: Get {url:?}: {error}")),
        }
    }

    /// Gets a document from any endpoint of a server.
    pub(super) async fn get_any(
        &self,
        server: &ExtensionServer,
        path: &str,
        headers: HeaderMap,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, String> {
        let candidates = self.candidates(server).map_err(|error| error.to_string())?;
        let mut last = String::new();
        for candidate in candidates.iter().take(CHECKED_ENDPOINTS_MAX) {
            match self.get(candidate, server, path, headers.clone(), bytes_max).await {
                Ok(response) => return Ok(response),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends a GET of this server itself; errors are in the words of Go's HTTP client.
    async fn get(
        &self,
        candidate: &Candidate,
        server: &ExtensionServer,
        path: &str,
        mut headers: HeaderMap,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, String> {
        self.forwarder.own_user().write_headers(&mut headers);
        let getting = self.forwarder.get(candidate, path, headers, bytes_max);
        match tokio::time::timeout(REQUEST_TIMEOUT, getting).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(GetError::Dial(error))) => {
                let (host, port) = (candidate.address.host(), candidate.address.port());
                Err(webhook::dial_reason(&error, host, port, &server.server_name()))
            }
            Ok(Err(GetError::ConnectionBroken(error))) => Err(webhook::connection_reason(&error)),
            Ok(Err(error @ (GetError::InvalidPath(_) | GetError::BodyBroken(_) | GetError::TooLong { .. }))) => {
                Err(error.to_string())
            }
            Err(_) => Err(webhook::TIMED_OUT.to_owned()),
        }
    }

    /// Fetches what a server lists of these APIServices.
    pub(super) async fn fetch_discovery(
        &self,
        server: &ExtensionServer,
        api_services: &[Arc<RemoteApiService>],
        etag: Option<HeaderValue>,
    ) -> Result<FetchedDiscovery, String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, DISCOVERY_ACCEPT);
        let is_conditional = etag.is_some();
        headers.extend(etag.map(|etag| (IF_NONE_MATCH, etag)));
        let response = self.get_any(server, "/apis", headers, parse::DOCUMENT_BYTES_MAX).await?;
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_aggregated = content_type.is_some_and(|value| value.contains(AGGREGATED_KIND));
        match response.status() {
            StatusCode::NOT_MODIFIED if is_conditional => Ok(FetchedDiscovery::Unchanged),
            StatusCode::SERVICE_UNAVAILABLE => Err("/apis: 503".to_owned()),
            StatusCode::OK if is_aggregated => match parse_aggregated(response.body()) {
                Ok(groups) => Ok(FetchedDiscovery::Document {
                    etag: response.headers().get(ETAG).cloned(),
                    groups: Arc::new(groups),
                }),
                Err(ParseError::WrongKind { .. }) => self.fetch_legacy(server, api_services).await,
                Err(error) => Err(format!("/apis: {error}")),
            },
            _ => self.fetch_legacy(server, api_services).await,
        }
    }

    /// Fetches the legacy document of each group-version; an error if none can be read.
    async fn fetch_legacy(
        &self,
        server: &ExtensionServer,
        api_services: &[Arc<RemoteApiService>],
    ) -> Result<FetchedDiscovery, String> {
        let (mut listed, mut last) = (Vec::new(), String::new());
        for api_service in api_services {
            let fetched = self.fetch_legacy_version(server, &api_service.path()).await;
            let resources = fetched.map_err(|error| last = error).ok();
            listed.push((api_service.name(), resources));
        }
        match listed.iter().any(|(_, resources)| resources.is_some()) {
            true => Ok(FetchedDiscovery::Legacy(listed)),
            false => Err(last),
        }
    }

    async fn fetch_legacy_version(
        &self,
        server: &ExtensionServer,
        path: &str,
    ) -> Result<Vec<Arc<ResourceDiscovery>>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self.get_any(server, path, headers, parse::DOCUMENT_BYTES_MAX).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("{path}: {}", response.status().as_u16()));
        }
        let list = parse_resource_list(response.body()).map_err(|error| format!("{path}: {error}"))?;
        Ok(list.to_version().resources)
    }
}

/// Why a server has no endpoint that can be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CandidateError {
    /// The certificates of the APIService cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The service has no address.
    #[error("{0}")]
    Unresolved(String),
}
