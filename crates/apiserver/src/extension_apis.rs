//! The group-versions that extension API servers serve, as one live value derived from the APIServices in storage.
//!
//! [`ExtensionApiFollower`] is its only writer: it follows the APIServices in the watch cache, checks the servers that they name and
//! fetches what they list. Requests look their group-version up here before built-in and custom resources, and are proxied by
//! [`ExtensionClient`]. Each server judges for itself whether an extension server can be reached; [`crate::ApiServiceController`]
//! stores the condition.

mod client;
mod follower;
mod metrics;
mod openapi;
mod proxy;
mod schedule;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aggregation::api_service::{ExtensionServer, RemoteApiService};
use aggregation::condition::Availability;
use aggregation::documents::ListedResources;
use api::GroupVersion;
use bytes::Bytes;
use discovery::build::LocalGroupVersion;
use http::HeaderMap;
use registry::{Registry, ResourceCache};
use store::Revision;
use tokio::sync::{mpsc, watch};

pub(crate) use client::ExtensionClient;
pub use client::{ExtensionConfig, ForwardedRedirects};
pub use follower::ExtensionApiFollower;
pub(crate) use metrics::ExtensionMetrics;
pub(crate) use openapi::{ExtensionOpenApi, ExtensionSwagger, ExtensionVersion};

/// How long a request waits until the value has caught up with storage.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a request waits for the first check of its extension server: as long as a check takes at most.
const FIRST_CHECK_TIMEOUT: Duration = Duration::from_secs(6);
/// Failed requests that may wait until the follower takes them.
const FAILURES_MAX: usize = 64;

/// A group-version of an extension API server. Immutable.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtensionApi {
    pub(crate) api_service: Arc<RemoteApiService>,
    /// The judgement of this server; `None` before the first check.
    pub(crate) availability: Option<Availability>,
    /// What the extension server lists; `None` before the first answer or failure.
    pub(crate) listed: Option<ListedResources>,
}

impl ExtensionApi {
    /// Group and version.
    pub fn group_version(&self) -> GroupVersion<&str> {
        GroupVersion { group: &self.api_service.group, version: &self.api_service.version }
    }

    /// True if requests are proxied.
    pub fn is_available(&self) -> bool {
        self.availability.as_ref().is_some_and(Availability::is_available)
    }
}

/// All group-versions of extension API servers, derived from the APIServices of one revision. Immutable.
#[derive(Debug, Default)]
pub struct ExtensionApis {
    /// The revision of the last change of any APIService.
    revision: Revision,
    /// By name of the APIService.
    by_name: HashMap<String, Arc<ExtensionApi>>,
    /// What discovery lists of them. States that list the same share it.
    pub(crate) group_versions: Arc<Vec<LocalGroupVersion>>,
}

impl ExtensionApis {
    /// The group-version, if an APIService gives it to an extension API server.
    pub(crate) fn get(&self, group: &str, version: &str) -> Option<&Arc<ExtensionApi>> {
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&format!("{version}.{group}"))
    }

    /// True if an APIService names the server.
    fn has_server(&self, server: &ExtensionServer) -> bool {
        self.by_name.values().any(|api| api.api_service.server == *server)
    }

    /// True if requests to any group-version of the server are proxied.
    fn is_server_available(&self, server: &ExtensionServer) -> bool {
        self.by_name.values().any(|api| api.is_available() && api.api_service.server == *server)
    }

    /// The group-version of an APIService name.
    pub(crate) fn get_by_name(&self, name: &str) -> Option<&Arc<ExtensionApi>> {
        self.by_name.get(name)
    }
}

/// The live value, and requests to extension API servers. Clones share it.
#[derive(Clone)]
pub struct LiveExtensionApis {
    registry: Registry,
    api_service_cache: Arc<ResourceCache>,
    snapshots: watch::Receiver<Arc<ExtensionApis>>,
    client: Option<Arc<ExtensionClient>>,
    /// Names of APIServices whose server did not answer a request.
    failures: mpsc::Sender<String>,
    is_synced: Arc<AtomicBool>,
}

impl std::fmt::Debug for LiveExtensionApis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveExtensionApis").finish_non_exhaustive()
    }
}

impl LiveExtensionApis {
    pub(crate) fn snapshot(&self) -> Arc<ExtensionApis> {
        self.snapshots.borrow().clone()
    }

    /// The group-version, if an APIService gives it to an extension API server.
    pub(crate) fn get(&self, group: &str, version: &str) -> Option<Arc<ExtensionApi>> {
        self.snapshots.borrow().get(group, version).cloned()
    }

    /// The value as it changes.
    pub fn snapshots(&self) -> watch::Receiver<Arc<ExtensionApis>> {
        self.snapshots.clone()
    }

    /// The forwarder of proxied requests; `None` without a front-proxy certificate.
    pub fn forwarder(&self) -> Option<&forward::Forwarder> {
        self.client.as_ref().map(|client| client.forwarder())
    }

    /// Ends proxied watches and upgraded connections, so that clients reconnect to another server.
    pub fn end_streams(&self) {
        if let Some(client) = &self.client {
            client.forwarder().end_streams();
        }
    }

    /// True once every extension API server that was registered at start was asked or tried once.
    pub fn has_synced(&self) -> bool {
        self.is_synced.load(Ordering::Relaxed)
    }

    /// Waits until every APIService that was stored before the call is in the snapshot; `false` if storage cannot be reached or
    /// the wait takes too long.
    pub(crate) async fn catch_up(&self) -> bool {
        matches!(self.registry.catch_up_with_store().await, Ok(true)) && self.catch_up_with_cache().await
    }

    /// Waits until every APIService that the watch cache holds now is in the snapshot; false if that took too long.
    pub(crate) async fn catch_up_with_cache(&self) -> bool {
        let wanted = self.api_service_cache.snapshot().revision;
        if self.snapshots.borrow().revision >= wanted {
            return true;
        }
        let mut snapshots = self.snapshots.clone();
        let caught_up = snapshots.wait_for(|snapshot| snapshot.revision >= wanted);
        tokio::time::timeout(CATCH_UP_TIMEOUT, caught_up).await.is_ok_and(|found| found.is_ok())
    }

    /// Gets a document such as `/openapi/v3` from an extension API server, as this server's own user. An error is for the log.
    async fn get_document(
        &self,
        server: &ExtensionServer,
        path: &str,
        headers: HeaderMap,
        bytes_max: usize,
    ) -> Result<http::Response<Bytes>, String> {
        let Some(client) = &self.client else { return Err("there is no front-proxy certificate".to_owned()) };
        client.get_any(server, path, headers, bytes_max).await
    }

    /// Starts requests of this server itself to extension API servers.
    fn spawn(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(client) = &self.client {
            client.tasks.spawn_once(task, work);
        }
    }
}
