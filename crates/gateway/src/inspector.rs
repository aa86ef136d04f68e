//! Polls one upstream for readiness, discovery documents and front-proxy settings.
//!
//! An upstream that was not ready may return as another release, so its discovery document is fetched before it becomes
//! ready.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use membership::HolderIdentity;
use membership::discovery_client::{
    self, DiscoveryFetchError, DiscoveryFetchLimits, FetchedDiscovery, PreviousDiscovery,
};
use membership::documents::{DocumentSource, Retention, StoredDocument, lingering_document};
use membership::ports::{Fetch, FetchError, FetchRequest, FetchResponse};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::upstream::Upstream;
use crate::upstream_members::{UpstreamMembers, upstream_holder};
use crate::vouching::{self, PublishedSettings, VouchingDecider, VouchingDecision, VouchingRefusal};

/// Interval of `/readyz` checks, as common for load balancers.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after the first failure in a row.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Failures in a row after which an upstream is not ready. A response other than 200 from `/readyz` counts at once.
const FAILURES_TO_NOT_READY: u32 = 2;
/// Timeout of each request except discovery.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of discovery revalidation without a refresh request.
const REVALIDATE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of settings comparisons while the upstream stays ready and is vouched for.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of settings comparisons while vouching is refused: shorter, because an operator may be fixing the settings.
const SETTINGS_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Response limit for `/readyz` and `/version`.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// Response limit for the settings ConfigMap, which holds CA bundles; Kubernetes' own limit.
const CONFIG_MAP_BYTES_MAX: usize = 1 << 20;

/// Inspector of one upstream, run as a task.
pub(crate) struct Inspector {
    pub(crate) upstream: Upstream,
    pub(crate) members: UpstreamMembers,
    pub(crate) fetch: Arc<dyn Fetch>,
    /// Time of continuous failure after which the upstream is no longer a member.
    pub(crate) forget_after: Duration,
    /// Time of the last refresh request; a discovery document validated before it is refetched.
    pub(crate) refresh_requested_at: watch::Receiver<Option<Instant>>,
    pub(crate) status: watch::Sender<UpstreamStatus>,
    pub(crate) metrics: Metrics,
    pub(crate) vouching_decider: Arc<VouchingDecider>,
}

/// Results of the last inspections of an upstream.
#[derive(Clone, Debug, Default)]
pub struct UpstreamStatus {
    /// Whether the upstream is eligible for requests.
    pub readiness: UpstreamReadiness,
    /// `gitVersion` of the last successful `/version` response.
    pub version: Option<Arc<str>>,
    /// Start of the last inspection that fetched or revalidated the discovery document.
    pub discovery_validated_at: Option<Instant>,
    /// Start of the last completed inspection, successful or not.
    pub inspected_at: Option<Instant>,
    /// Start of the first failed inspection since the last success.
    pub failing_since: Option<Instant>,
    /// Whether requests of users that the gateway authenticated may be sent to the upstream.
    pub vouching_decision: VouchingDecision,
    /// Start of the inspection that last updated `vouching_decision`.
    pub settings_compared_at: Option<Instant>,
}

impl UpstreamStatus {
    /// True if the discovery document was validated at or after `instant`, or an inspection since then found the
    /// upstream not ready.
    pub(crate) fn is_known_since(&self, instant: Instant) -> bool {
        self.discovery_validated_at >= Some(instant)
            || self.readiness != UpstreamReadiness::Ready && self.inspected_at >= Some(instant)
    }
}

/// Whether an upstream is eligible for requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamReadiness {
    /// No conclusive inspection yet.
    #[default]
    Unknown,
    /// `/readyz` responds with 200, and the discovery document is known.
    Ready,
    /// `/readyz` responds with an error, or inspections fail repeatedly.
    NotReady,
}

/// Whether an upstream may have restarted since the last inspection. A resource missing after a restart may still be
/// served by other upstreams, so the old document lingers; without a restart the resource was deleted, such as a CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessChange {
    Unchanged,
    Restarted,
}

/// Why an upstream is not ready.
#[derive(Debug, thiserror::Error)]
enum InspectionError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("/readyz returned {0}")]
    NotReady(StatusCode),
    #[error("failed to fetch discovery document: {0}")]
    Discovery(#[from] DiscoveryFetchError),
}

impl Inspector {
    pub(crate) async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.inspect_forever()).await;
    }

    async fn inspect_forever(mut self) {
        let mut previous = self.load_previous_discovery();
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let pause = match self.inspect(begun, &mut previous).await {
                Ok(()) => {
                    failures = 0;
                    INSPECTION_INTERVAL
                }
                Err(error) => {
                    failures += 1;
                    self.record_failure(&error, failures, begun).await;
                    if failures < FAILURES_TO_NOT_READY { RETRY_INTERVAL } else { INSPECTION_INTERVAL }
                }
            };
            self.status.send_modify(|status| status.inspected_at = Some(begun));
            self.wait_for_next_inspection(begun + pause).await;
        }
    }

    async fn inspect(&self, begun: Instant, previous: &mut Option<PreviousDiscovery>) -> Result<(), InspectionError> {
        let UpstreamStatus { readiness, discovery_validated_at: validated, .. } = self.status.borrow().clone();
        let is_old = |validated: Instant| begun.saturating_duration_since(validated) >= REVALIDATE_INTERVAL;
        let is_requested = self.is_refresh_requested();
        if readiness != UpstreamReadiness::Ready || !is_requested {
            self.check_ready().await?;
        }
        if readiness != UpstreamReadiness::Ready || is_requested || validated.is_none_or(is_old) {
            let version = self.fetch_version().await;
            let is_another = version.is_some() && version != self.status.borrow().version;
            let process_change = if readiness == UpstreamReadiness::Ready && !is_another {
                ProcessChange::Unchanged
            } else {
                ProcessChange::Restarted
            };
            self.update_discovery(previous, process_change).await?;
            self.status.send_modify(|status| {
                status.discovery_validated_at = Some(begun);
                status.version = version.or(status.version.take());
            });
        }
        self.compare_settings(begun, readiness).await;
        self.record_success();
        Ok(())
    }

    /// Compares the upstream's front-proxy settings with the gateway's when due, and always when the upstream becomes
    /// ready: it may have restarted with other settings.
    async fn compare_settings(&self, begun: Instant, readiness: UpstreamReadiness) {
        let UpstreamStatus { vouching_decision, settings_compared_at: compared, .. } = self.status.borrow().clone();
        let last = if readiness == UpstreamReadiness::Ready {
            vouching_decision.clone()
        } else {
            VouchingDecision::NotCompared
        };
        let interval = if last == VouchingDecision::Allowed { SETTINGS_INTERVAL } else { SETTINGS_RETRY_INTERVAL };
        let is_due = |compared: Instant| begun.saturating_duration_since(compared) >= interval;
        if readiness == UpstreamReadiness::Ready && !compared.is_none_or(is_due) {
            return;
        }
        let published = self.fetch_settings().await;
        let decision = self.vouching_decider.decide_for(&self.upstream, &published, last).await;
        let address = &self.upstream.address;
        match decision.refusal() {
            None if vouching_decision != VouchingDecision::Allowed => {
                tracing::info!(upstream = %address, "vouching for users to an upstream");
            }
            Some(refusal) if decision != vouching_decision => {
                let VouchingRefusal { reason, text } = refusal;
                tracing::warn!(upstream = %address, reason, error = %text, "not vouching for users to an upstream");
            }
            None | Some(_) => {}
        }
        self.status.send_modify(|status| {
            status.vouching_decision = decision;
            status.settings_compared_at = Some(begun);
        });
    }

    /// Reads the settings as the gateway's own user or, if forbidden, as a user with access by default RBAC.
    async fn fetch_settings(&self) -> PublishedSettings {
        let published = self.ask_settings_by(&self.fetch).await;
        if published == PublishedSettings::Forbidden {
            self.ask_settings_by(&self.vouching_decider.reader).await
        } else {
            published
        }
    }

    async fn ask_settings_by(&self, fetch: &Arc<dyn Fetch>) -> PublishedSettings {
        match self.get_limited(fetch, vouching::CONFIG_MAP, CONFIG_MAP_BYTES_MAX).await {
            Err(_) => PublishedSettings::NoResponse,
            Ok(answer) => match answer.status {
                StatusCode::OK => vouching::parse_settings(&answer.body),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PublishedSettings::Forbidden,
                StatusCode::NOT_FOUND => PublishedSettings::Missing,
                _ => PublishedSettings::NoResponse,
            },
        }
    }

    /// True if a refresh was requested, and no inspection since then validated the discovery document or found the
    /// upstream not ready.
    fn is_refresh_requested(&self) -> bool {
        let requested_at = *self.refresh_requested_at.borrow();
        requested_at.is_some_and(|requested_at| !self.status.borrow().is_known_since(requested_at))
    }

    async fn check_ready(&self) -> Result<(), InspectionError> {
        match self.get("/readyz").await?.status {
            StatusCode::OK => Ok(()),
            other => Err(InspectionError::NotReady(other)),
        }
    }

    /// `gitVersion` of the upstream; `None` if `/version` fails.
    async fn fetch_version(&self) -> Option<Arc<str>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct VersionPage {
            git_version: String,
        }
        let response = self.get("/version").await.ok()?;
        let page: VersionPage = serde_json::from_slice(&response.body).ok()?;
        Some(page.git_version.into())
    }

    async fn get(&self, path: &str) -> Result<FetchResponse, FetchError> {
        self.get_limited(&self.fetch, path, PAGE_BYTES_MAX).await
    }

    async fn get_limited(
        &self,
        fetch: &Arc<dyn Fetch>,
        path: &str,
        bytes_max: usize,
    ) -> Result<FetchResponse, FetchError> {
        let Upstream { server, address, .. } = self.upstream.clone();
        let request = FetchRequest { server, address, path: path.to_owned(), headers: HeaderMap::new(), bytes_max };
        tokio::time::timeout(READY_TIMEOUT, fetch.fetch(request)).await.unwrap_or(Err(FetchError::TimedOut))
    }

    /// Fetches or revalidates the discovery document and stores it if it changed.
    async fn update_discovery(
        &self,
        previous: &mut Option<PreviousDiscovery>,
        process_change: ProcessChange,
    ) -> Result<(), InspectionError> {
        let Upstream { server, address, .. } = self.upstream.clone();
        if self.members.document(&server).is_none() {
            *previous = None;
        }
        let peer = discovery_client::DiscoveryPeer { server: server.clone(), address };
        let fetched =
            discovery_client::fetch_discovery(&*self.fetch, &peer, previous.as_ref(), DiscoveryFetchLimits::default())
                .await?;
        let FetchedDiscovery::Changed { document, etags } = fetched else { return Ok(()) };
        let stored = StoredDocument {
            holder: upstream_holder(&server),
            source: DocumentSource::Fetched { etags: etags.clone() },
            retention: Retention::UntilReplaced,
            document: document.clone(),
        };
        if let (ProcessChange::Restarted, Some(former)) = (process_change, previous.as_ref()) {
            let old = StoredDocument {
                holder: HolderIdentity::new(&server, fastrand::u128(..)),
                document: former.document.clone(),
                ..stored.clone()
            };
            if let Some((name, lingering)) = lingering_document(&old, &stored) {
                self.members.put_lingering(&name, lingering);
            }
        }
        self.members.put_document(&server, stored).await;
        *previous = Some(PreviousDiscovery { etags, document });
        Ok(())
    }

    /// Document and ETags persisted by an earlier run of the gateway.
    fn load_previous_discovery(&self) -> Option<PreviousDiscovery> {
        let StoredDocument { source, document, .. } = self.members.document(&self.upstream.server)?;
        match source {
            DocumentSource::Published => None,
            DocumentSource::Fetched { etags } => Some(PreviousDiscovery { etags, document }),
        }
    }

    fn record_success(&self) {
        let Upstream { server, address, .. } = &self.upstream;
        let refusal = self.status.borrow().vouching_decision.refusal();
        self.vouching_decider.enforcer.set_vouching(&self.upstream, refusal.is_none());
        self.metrics.set_not_vouched(server, refusal.map(|refusal| refusal.reason));
        self.members.add_upstream(server);
        self.members.set_ready(server, address);
        self.metrics.set_ready(server, self.status.borrow().version.as_deref());
        self.status.send_if_modified(|status| {
            let was = std::mem::replace(&mut status.readiness, UpstreamReadiness::Ready);
            status.failing_since = None;
            if was != UpstreamReadiness::Ready {
                tracing::info!(upstream = %address, version = status.version.as_deref(), "an upstream is ready");
            }
            was != UpstreamReadiness::Ready
        });
    }

    async fn record_failure(&self, error: &InspectionError, failures: u32, begun: Instant) {
        let Upstream { server, address, .. } = &self.upstream;
        let is_certain = matches!(error, InspectionError::NotReady(_)) || failures >= FAILURES_TO_NOT_READY;
        let mut is_expired = false;
        self.status.send_if_modified(|status| {
            let since = *status.failing_since.get_or_insert(begun);
            is_expired = begun.saturating_duration_since(since) >= self.forget_after;
            let is_new = is_certain && status.readiness != UpstreamReadiness::NotReady;
            if is_new {
                status.readiness = UpstreamReadiness::NotReady;
                tracing::warn!(upstream = %address, error = %error, "an upstream is not ready");
            }
            is_new
        });
        if is_certain {
            self.members.set_not_ready(server);
            self.metrics.set_not_ready(server);
        }
        if is_expired {
            self.members.forget_upstream(server).await;
        }
    }

    /// Sleeps until `until`, or until a refresh is requested.
    async fn wait_for_next_inspection(&mut self, until: Instant) {
        while !self.is_refresh_requested() {
            tokio::select! {
                changed = self.refresh_requested_at.changed() => if changed.is_err() { return tokio::time::sleep_until(until).await },
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
