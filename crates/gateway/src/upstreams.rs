//! The set of upstreams: inspector tasks, readiness, versions and age of their discovery documents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use membership::ServerId;
use membership::ports::{FeedProgress, Fetch, PortFuture};
use parking_lot::Mutex;
use tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::inspector::{Inspector, UpstreamReadiness, UpstreamStatus};
use crate::metrics::Metrics;
use crate::upstream::Upstream;
use crate::upstream_members::UpstreamMembers;
use crate::vouching::VouchingDecider;

/// Maximum age of discovery documents in a merged response, so that clients find a resource soon after its definition.
const DISCOVERY_AGE_MAX: Duration = Duration::from_secs(1);

/// How often lingering documents are checked for expiry; they linger for minutes.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long [`Upstreams::catch_up`](FeedProgress::catch_up) waits for an upstream that was not ready: it may just have
/// recovered.
const NOT_READY_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of [`Upstreams`].
#[derive(Clone, Copy, Debug)]
pub struct UpstreamsConfig {
    /// `--upstream-forget-after`: time of continuous failure after which an upstream is no longer a member.
    pub forget_after: Duration,
}

/// The current upstreams, each with an inspector task.
pub struct Upstreams {
    config: UpstreamsConfig,
    members: UpstreamMembers,
    fetch: Arc<dyn Fetch>,
    metrics: Metrics,
    vouching_decider: Arc<VouchingDecider>,
    tasks: Tasks,
    tracked: Mutex<BTreeMap<ServerId, TrackedUpstream>>,
    /// Time of the last refresh request; inspectors refetch discovery documents that are older.
    refresh_requested_at: watch::Sender<Option<Instant>>,
}

struct TrackedUpstream {
    upstream: Upstream,
    status: watch::Receiver<UpstreamStatus>,
    /// Stops the inspector.
    stop_token: CancellationToken,
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tracked.lock().keys()).finish()
    }
}

impl Upstreams {
    /// Starts without upstreams, and spawns the task that removes expired documents.
    pub fn new(
        config: UpstreamsConfig,
        members: UpstreamMembers,
        fetch: Arc<dyn Fetch>,
        vouching_decider: VouchingDecider,
        metrics: Metrics,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let expiring = members.clone();
        tasks.spawn("board-expiry", |stop| async move {
            while stop.run_until_cancelled(tokio::time::sleep(EXPIRY_INTERVAL)).await.is_some() {
                expiring.expire_documents(Instant::now());
            }
        });
        Arc::new(Self {
            config,
            members,
            fetch,
            metrics,
            vouching_decider: Arc::new(vouching_decider),
            tasks: tasks.clone(),
            tracked: Mutex::default(),
            refresh_requested_at: watch::Sender::new(None),
        })
    }

    /// Replaces the set of upstreams. Inspectors of upstreams in both sets keep running.
    pub fn set_upstreams(&self, upstreams: &[Upstream]) {
        let mut tracked = self.tracked.lock();
        tracked.retain(|server, tracked| {
            let stays = upstreams.iter().any(|upstream| upstream.server == *server);
            if !stays {
                tracked.stop_token.cancel();
                self.members.remove_upstream(server);
                self.metrics.remove_upstream(server);
            }
            stays
        });
        for upstream in upstreams {
            tracked.entry(upstream.server.clone()).or_insert_with(|| self.start_inspector(upstream));
        }
    }

    fn start_inspector(&self, upstream: &Upstream) -> TrackedUpstream {
        self.members.add_upstream(&upstream.server);
        let (status_sender, status) = watch::channel(UpstreamStatus::default());
        let stop_token = self.tasks.stop_token().child_token();
        let inspector = Inspector {
            upstream: upstream.clone(),
            members: self.members.clone(),
            fetch: self.fetch.clone(),
            forget_after: self.config.forget_after,
            refresh_requested_at: self.refresh_requested_at.subscribe(),
            status: status_sender,
            metrics: self.metrics.clone(),
            vouching_decider: self.vouching_decider.clone(),
        };
        self.tasks.spawn_once("upstream-inspector", inspector.run(stop_token.clone()));
        TrackedUpstream { upstream: upstream.clone(), status, stop_token }
    }

    /// True if the discovery document of every ready upstream was validated within the last second.
    pub fn is_discovery_recent(&self) -> bool {
        let now = Instant::now();
        let is_recent = |status: &UpstreamStatus| {
            status.readiness != UpstreamReadiness::Ready
                || status
                    .discovery_validated_at
                    .is_some_and(|validated| now.saturating_duration_since(validated) < DISCOVERY_AGE_MAX)
        };
        self.tracked.lock().values().all(|known| is_recent(&known.status.borrow()))
    }

    /// Why requests of certificate users do not go to an upstream that is ready; `None` if they do.
    pub fn not_vouched_reason(&self, server: &str) -> Option<String> {
        let known = self.tracked.lock();
        let known = known.values().find(|known| known.upstream.server.as_str() == server)?;
        let refusal = known.status.borrow().vouching_decision.refusal().filter(|_| known.is_ready());
        refusal.map(|refusal| format!("not vouching for users: {}", refusal.text))
    }

    /// Number of upstreams, ready or not.
    pub fn count(&self) -> usize {
        self.tracked.lock().len()
    }

    /// The ready upstream of the newest release. Requests without a resource prefer it, so that consecutive responses
    /// come from the same server.
    pub fn newest_ready(&self) -> Option<ServerId> {
        let known = self.tracked.lock();
        let ready = known.values().filter(|known| known.is_ready());
        let newest = ready.max_by_key(|known| known.status.borrow().version.as_deref().map(parse_release));
        newest.map(|known| known.upstream.server.clone())
    }

    /// Refetches the discovery documents of all upstreams when a member is marked stale, at most once a second.
    pub async fn refetch_stale(self: Arc<Self>, mut stale_members: mpsc::Receiver<ServerId>, stop: CancellationToken) {
        while let Some(Some(server)) = stop.run_until_cancelled(stale_members.recv()).await {
            tracing::debug!(%server, "discovery document stale; refetching");
            self.request_refresh(Instant::now());
            stop.run_until_cancelled(tokio::time::sleep(DISCOVERY_AGE_MAX)).await;
        }
        stop.cancelled().await;
    }

    fn request_refresh(&self, since: Instant) {
        self.refresh_requested_at.send_modify(|wanted| *wanted = (*wanted).max(Some(since)));
    }
}

impl TrackedUpstream {
    fn is_ready(&self) -> bool {
        self.status.borrow().readiness == UpstreamReadiness::Ready
    }
}

/// Refetches the discovery document of every upstream. Succeeds if at least one is ready afterwards.
impl FeedProgress for Upstreams {
    fn catch_up(&self) -> PortFuture<'_, ()> {
        async move {
            let now = Instant::now();
            self.request_refresh(now);
            let statuses: Vec<_> = self.tracked.lock().values().map(|known| known.status.clone()).collect();
            let waiting = statuses.into_iter().map(|mut status| async move {
                let was_not_ready = status.borrow().readiness != UpstreamReadiness::Ready;
                let known_since = status.wait_for(|status| status.is_known_since(now));
                // `wait_for` fails once an upstream is removed. Upstreams that were not ready get a short timeout.
                match was_not_ready {
                    false => known_since.await.is_ok_and(|status| status.readiness == UpstreamReadiness::Ready),
                    true => tokio::time::timeout(NOT_READY_TIMEOUT, known_since).await.is_ok_and(|known_since| {
                        known_since.is_ok_and(|status| status.readiness == UpstreamReadiness::Ready)
                    }),
                }
            });
            if join_all(waiting).await.contains(&true) {
                return Ok(());
            }
            Err(PortError::Unavailable { reason: "no upstream is ready".to_owned() })
        }
        .boxed()
    }
}

/// Major, minor and patch of a version such as `v1.36.2+k3s1`; 0 for anything that is not a number.
fn parse_release(version: &str) -> [u32; 3] {
    let numbers = version.trim_start_matches('v').split(['.', '-', '+']);
    let mut numbers = numbers.map(|number| number.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_release_orders_by_number() {
        assert!(parse_release("v1.9.11") < parse_release("v1.36.0"));
        assert!(parse_release("v1.36.2+k3s1") > parse_release("v1.36.0-alpha.1"));
        assert_eq!(parse_release("devel"), [0, 0, 0]);
    }
}
