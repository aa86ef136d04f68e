//! All upstreams: who they are, how they are, and how recent that is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use parking_lot::Mutex;
use peering::ServerId;
use peering::ports::{Fetch, Pending, Progress};
use tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::board::Board;
use crate::inspector::{Inspector, Sight, Standing};
use crate::metrics::Metrics;
use crate::upstream::Upstream;
use crate::vouching::Vouching;

/// No merged document is older than this when it is given: a resource that was just defined is found.
const RECENT: Duration = Duration::from_secs(1);

/// How often documents are let go whose time is over: the times are minutes.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long the proof that nobody serves something waits for an upstream that was away: it may just have come back.
const AWAY_PATIENCE: Duration = Duration::from_secs(1);

/// What the upstreams are told by.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// `--upstream-forget-after`: how long an upstream may fail before it does not count any more.
    pub forget_after: Duration,
}

/// The upstreams.
pub struct Upstreams {
    config: Config,
    board: Board,
    fetch: Arc<dyn Fetch>,
    metrics: Metrics,
    vouching: Arc<Vouching>,
    tasks: Tasks,
    known: Mutex<BTreeMap<ServerId, Known>>,
    /// Since when somebody wants to know what they serve.
    wanted: watch::Sender<Option<Instant>>,
}

struct Known {
    upstream: Upstream,
    sight: watch::Receiver<Sight>,
    /// Ends its inspection.
    end: CancellationToken,
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.known.lock().keys()).finish()
    }
}

impl Upstreams {
    /// No upstreams yet.
    pub fn new(
        config: Config,
        board: Board,
        fetch: Arc<dyn Fetch>,
        vouching: Vouching,
        metrics: Metrics,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let expiring = board.clone();
        tasks.spawn("board-expiry", |stop| async move {
            while stop.run_until_cancelled(tokio::time::sleep(EXPIRY_INTERVAL)).await.is_some() {
                expiring.expire(Instant::now());
            }
        });
        Arc::new(Self {
            config,
            board,
            fetch,
            metrics,
            vouching: Arc::new(vouching),
            tasks: tasks.clone(),
            known: Mutex::default(),
            wanted: watch::Sender::new(None),
        })
    }

    /// From now on these are the upstreams. Those that are known already go on as they are.
    pub fn set(&self, upstreams: &[Upstream]) {
        let mut known = self.known.lock();
        known.retain(|server, known| {
            let stays = upstreams.iter().any(|upstream| upstream.server == *server);
            if !stays {
                known.end.cancel();
                self.board.forget(server);
                self.metrics.forget(server);
            }
            stays
        });
        for upstream in upstreams {
            known.entry(upstream.server.clone()).or_insert_with(|| self.start(upstream));
        }
    }

    fn start(&self, upstream: &Upstream) -> Known {
        self.board.admit(upstream);
        let (sight, seen) = watch::channel(Sight::default());
        let end = self.tasks.stopping().child_token();
        let inspector = Inspector {
            upstream: upstream.clone(),
            board: self.board.clone(),
            fetch: self.fetch.clone(),
            forget_after: self.config.forget_after,
            wanted: self.wanted.subscribe(),
            sight,
            metrics: self.metrics.clone(),
            vouching: self.vouching.clone(),
        };
        self.tasks.spawn_once("upstream-inspector", inspector.run(end.clone()));
        Known { upstream: upstream.clone(), sight: seen, end }
    }

    /// Whether what is known of those that are ready is recent enough to be told.
    pub fn is_recent(&self) -> bool {
        let now = Instant::now();
        let is_recent = |sight: &Sight| {
            sight.standing != Standing::Ready
                || sight.validated.is_some_and(|validated| now.saturating_duration_since(validated) < RECENT)
        };
        self.known.lock().values().all(|known| is_recent(&known.sight.borrow()))
    }

    /// Why requests of certificate users do not go to an upstream that is ready; `None` if they do.
    pub fn not_vouched(&self, server: &str) -> Option<String> {
        let known = self.known.lock();
        let known = known.values().find(|known| known.upstream.server.as_str() == server)?;
        let refusal = known.sight.borrow().vouching.refusal().filter(|_| known.is_ready());
        refusal.map(|refusal| format!("not vouching for users: {}", refusal.text))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.known.lock().len()
    }

    /// The upstream of the newest release among those that are ready: what is about no resource is asked of one and the same,
    /// and the newest knows most.
    pub fn newest(&self) -> Option<ServerId> {
        let known = self.known.lock();
        let ready = known.values().filter(|known| known.is_ready());
        let newest = ready.max_by_key(|known| known.sight.borrow().version.as_deref().map(release_of));
        newest.map(|known| known.upstream.server.clone())
    }

    /// Asks again what upstreams serve whenever one of them is doubted.
    pub async fn follow_doubts(self: Arc<Self>, mut doubts: mpsc::Receiver<ServerId>, stop: CancellationToken) {
        while let Some(Some(server)) = stop.run_until_cancelled(doubts.recv()).await {
            tracing::debug!(%server, "an upstream does not serve what it lists; it is asked again");
            self.want(Instant::now());
            stop.run_until_cancelled(tokio::time::sleep(RECENT)).await;
        }
        stop.cancelled().await;
    }

    fn want(&self, since: Instant) {
        self.wanted.send_modify(|wanted| *wanted = (*wanted).max(Some(since)));
    }
}

impl Known {
    fn is_ready(&self) -> bool {
        self.sight.borrow().standing == Standing::Ready
    }
}

/// Every upstream is asked anew what it serves. One that does not answer is not ready any more.
impl Progress for Upstreams {
    fn catch_up(&self) -> Pending<'_, ()> {
        async move {
            let now = Instant::now();
            self.want(now);
            let sights: Vec<_> = self.known.lock().values().map(|known| known.sight.clone()).collect();
            let waiting = sights.into_iter().map(|mut sight| async move {
                let is_away = sight.borrow().standing != Standing::Ready;
                let told = sight.wait_for(|sight| sight.tells_since(now));
                // An upstream that is not one any more has nothing to tell, and one that is away is not waited for long.
                match is_away {
                    false => told.await.is_ok_and(|sight| sight.standing == Standing::Ready),
                    true => tokio::time::timeout(AWAY_PATIENCE, told)
                        .await
                        .is_ok_and(|told| told.is_ok_and(|sight| sight.standing == Standing::Ready)),
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

/// The numbers of a version such as `v1.36.2+k3s1`.
fn release_of(version: &str) -> [u32; 3] {
    let numbers = version.trim_start_matches('v').split(['.', '-', '+']);
    let mut numbers = numbers.map(|number| number.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert!(release_of("v1.9.11") < release_of("v1.36.0"));
        assert!(release_of("v1.36.2+k3s1") > release_of("v1.36.0-alpha.1"));
        assert_eq!(release_of("devel"), [0, 0, 0]);
    }
}
