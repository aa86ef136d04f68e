//! Asks one upstream, again and again, whether it is ready and what it serves.
//!
//! What it serves is known before requests go to it, each time it comes back: an upstream that was away may be another release.

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

/// How often an upstream is asked whether it is ready: as often as balancers do.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(1);
/// One failure may be an accident; it is tried again so soon.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// So many failures in a row are none.
const FAILURES_TO_NOT_READY: u32 = 2;
/// One that takes longer to say that it is ready is not.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is asked what it serves although nobody wants to know.
const REVALIDATE_INTERVAL: Duration = Duration::from_secs(10);
/// How often its settings are compared with the gateway's while it stays ready.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(60);
/// How soon they are compared again while users are not named to it: an operator may just be mending that.
const SETTINGS_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Health and version pages are short.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// A ConfigMap is at most as long, and this one holds bundles of certificates.
const CONFIG_MAP_BYTES_MAX: usize = 1 << 20;

/// What an inspector needs.
pub(crate) struct Inspector {
    pub(crate) upstream: Upstream,
    pub(crate) members: UpstreamMembers,
    pub(crate) fetch: Arc<dyn Fetch>,
    /// How long it may fail before it does not count any more.
    pub(crate) forget_after: Duration,
    /// Since when somebody wants to know what it serves.
    pub(crate) refresh_requested_at: watch::Receiver<Option<Instant>>,
    pub(crate) status: watch::Sender<UpstreamStatus>,
    pub(crate) metrics: Metrics,
    pub(crate) vouching_decider: Arc<VouchingDecider>,
}

/// What was seen of an upstream.
#[derive(Clone, Debug, Default)]
pub struct UpstreamStatus {
    /// Whether requests may go to it.
    pub readiness: UpstreamReadiness,
    /// Its release, as it says.
    pub version: Option<Arc<str>>,
    /// When it was asked the question that it answered last with what it serves.
    pub discovery_validated_at: Option<Instant>,
    /// When the last inspection began that is over, whatever it found.
    pub inspected_at: Option<Instant>,
    /// Since when it fails.
    pub failing_since: Option<Instant>,
    /// Whether requests of certificate users may go to it.
    pub vouching_decision: VouchingDecision,
    /// When that was decided last.
    pub settings_compared_at: Option<Instant>,
}

impl UpstreamStatus {
    /// Whether it says what the upstream served after an instant, or that it was not ready then.
    pub(crate) fn is_known_since(&self, instant: Instant) -> bool {
        self.discovery_validated_at >= Some(instant)
            || self.readiness != UpstreamReadiness::Ready && self.inspected_at >= Some(instant)
    }
}

/// Whether requests may go to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamReadiness {
    /// It was not asked yet.
    #[default]
    Unknown,
    /// It says that it is ready, and what it serves is known.
    Ready,
    /// It does not.
    NotReady,
}

/// Whether an upstream is still the process that it was. What one and the same does not serve any more was taken away on
/// purpose, as by the deletion of a definition; what another does not serve may still be served elsewhere.
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
    #[error("/readyz answers {0}")]
    NotReady(StatusCode),
    #[error("what it serves cannot be learnt: {0}")]
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

    /// Compares its settings with the gateway's, if it is time to. One that was away may have been restarted with others.
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
                tracing::info!(upstream = %address, "upstream reads users as the gateway names them");
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

    /// Reads its settings as the gateway's own user or, if that is forbidden, as a user whom RBAC allows it by default.
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

    /// Whether somebody wants to know what it serves who was not told yet, nor that it cannot be learnt.
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

    /// Its release; `None` if it does not say.
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

    /// Learns what it serves, or that it serves what it served.
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

    /// What is known of it from before this process.
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

    /// Waits for the next inspection, or for somebody who wants to know.
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
