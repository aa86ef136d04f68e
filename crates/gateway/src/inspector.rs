//! Asks one upstream, again and again, whether it is ready and what it serves.
//!
//! What it serves is known before requests go to it, each time it comes back: an upstream that was away may be another release.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use http::{HeaderMap, StatusCode};
use peering::HolderIdentity;
use peering::ask::{self, Answer, AskError, AskLimits, Former};
use peering::documents::{Source, StoredDocument, Tenure, leave_behind};
use peering::members::Patience;
use peering::ports::{Documents as _, Fetch, FetchAnswer, FetchFault, FetchRequest};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::board::{Board, holder_of};
use crate::metrics::Metrics;
use crate::upstream::Upstream;
use crate::vouching::{self, Decision, Published, Refusal, Vouching};

/// How often an upstream is asked whether it is ready: as often as balancers do.
const INTERVAL: Duration = Duration::from_secs(1);
/// One failure may be an accident; it is tried again so soon.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// So many failures in a row are none.
const FAILURES_MAX: u32 = 2;
/// One that takes longer to say that it is ready is not.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is asked what it serves although nobody wants to know.
const REVALIDATE_INTERVAL: Duration = Duration::from_secs(10);
/// How often its settings are compared with the gateway's while it stays ready.
const COMPARE_INTERVAL: Duration = Duration::from_secs(60);
/// How soon they are compared again while users are not named to it: an operator may just be mending that.
const COMPARE_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Health and version pages are short.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// A ConfigMap is at most as long, and this one holds bundles of certificates.
const CONFIG_MAP_BYTES_MAX: usize = 1 << 20;

/// What an inspector needs.
pub(crate) struct Inspector {
    pub(crate) upstream: Upstream,
    pub(crate) board: Board,
    pub(crate) fetch: Arc<dyn Fetch>,
    /// How long it may fail before it does not count any more.
    pub(crate) forget_after: Duration,
    /// Since when somebody wants to know what it serves.
    pub(crate) wanted: watch::Receiver<Option<Instant>>,
    pub(crate) sight: watch::Sender<Sight>,
    pub(crate) metrics: Metrics,
    pub(crate) vouching: Arc<Vouching>,
}

/// What was seen of an upstream.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Whether requests may go to it.
    pub standing: Standing,
    /// Its release, as it says.
    pub version: Option<Arc<str>>,
    /// When it was asked the question that it answered last with what it serves.
    pub validated: Option<Instant>,
    /// When the last inspection began that is over, whatever it found.
    pub inspected: Option<Instant>,
    /// Since when it fails.
    pub failing_since: Option<Instant>,
    /// Whether requests of certificate users may go to it.
    pub vouching: Decision,
    /// When that was decided last.
    pub compared: Option<Instant>,
}

impl Sight {
    /// Whether it says what the upstream served after an instant, or that it was not ready then.
    pub(crate) fn tells_since(&self, instant: Instant) -> bool {
        self.validated >= Some(instant) || self.standing != Standing::Ready && self.inspected >= Some(instant)
    }
}

/// Whether requests may go to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
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
enum Return {
    Stayed,
    CameBack,
}

/// Why an upstream is not ready.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Fetch(#[from] FetchFault),
    #[error("/readyz answers {0}")]
    NotReady(StatusCode),
    #[error("what it serves cannot be learnt: {0}")]
    Ask(#[from] AskError),
    #[error("what it serves cannot be kept: {0}")]
    Keep(#[from] PortError),
}

impl Inspector {
    pub(crate) async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.inspect_for_ever()).await;
    }

    async fn inspect_for_ever(mut self) {
        let mut former = self.kept();
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let pause = match self.inspect(begun, &mut former).await {
                Ok(()) => {
                    failures = 0;
                    INTERVAL
                }
                Err(fault) => {
                    failures += 1;
                    self.note_failure(&fault, failures, begun).await;
                    if failures < FAILURES_MAX { RETRY_INTERVAL } else { INTERVAL }
                }
            };
            self.sight.send_modify(|sight| sight.inspected = Some(begun));
            self.rest(begun + pause).await;
        }
    }

    async fn inspect(&self, begun: Instant, former: &mut Option<Former>) -> Result<(), Fault> {
        let Sight { standing, validated, .. } = self.sight.borrow().clone();
        let is_old = |validated: Instant| begun.saturating_duration_since(validated) >= REVALIDATE_INTERVAL;
        let is_wanted = self.is_wanted();
        if standing != Standing::Ready || !is_wanted {
            self.ask_ready().await?;
        }
        if standing != Standing::Ready || is_wanted || validated.is_none_or(is_old) {
            let version = self.ask_version().await;
            let is_another = version.is_some() && version != self.sight.borrow().version;
            let return_of = if standing == Standing::Ready && !is_another { Return::Stayed } else { Return::CameBack };
            self.learn(former, return_of).await?;
            self.sight.send_modify(|sight| {
                sight.validated = Some(begun);
                sight.version = version.or(sight.version.take());
            });
        }
        self.compare(begun, standing).await;
        self.note_success();
        Ok(())
    }

    /// Compares its settings with the gateway's, if it is time to. One that was away may have been restarted with others.
    async fn compare(&self, begun: Instant, standing: Standing) {
        let Sight { vouching, compared, .. } = self.sight.borrow().clone();
        let last = if standing == Standing::Ready { vouching.clone() } else { Decision::NotCompared };
        let interval = if last == Decision::Allowed { COMPARE_INTERVAL } else { COMPARE_RETRY_INTERVAL };
        let is_due = |compared: Instant| begun.saturating_duration_since(compared) >= interval;
        if standing == Standing::Ready && !compared.is_none_or(is_due) {
            return;
        }
        let published = self.ask_settings().await;
        let decision = self.vouching.decide(&self.upstream, &published, last).await;
        let address = &self.upstream.address;
        match decision.refusal() {
            None if vouching != Decision::Allowed => {
                tracing::info!(upstream = %address, "upstream reads users as the gateway names them");
            }
            Some(refusal) if decision != vouching => {
                let Refusal { reason, text } = refusal;
                tracing::warn!(upstream = %address, reason, error = %text, "not vouching for users to an upstream");
            }
            None | Some(_) => {}
        }
        self.sight.send_modify(|sight| {
            sight.vouching = decision;
            sight.compared = Some(begun);
        });
    }

    /// Reads its settings as the gateway's own user or, if that is forbidden, as a user whom RBAC allows it by default.
    async fn ask_settings(&self) -> Published {
        let published = self.ask_settings_by(&self.fetch).await;
        if published == Published::Forbidden { self.ask_settings_by(&self.vouching.reader).await } else { published }
    }

    async fn ask_settings_by(&self, fetch: &Arc<dyn Fetch>) -> Published {
        match self.get_up_to(fetch, vouching::CONFIG_MAP, CONFIG_MAP_BYTES_MAX).await {
            Err(_) => Published::Unanswered,
            Ok(answer) => match answer.status {
                StatusCode::OK => vouching::parse(&answer.body),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Published::Forbidden,
                StatusCode::NOT_FOUND => Published::Missing,
                _ => Published::Unanswered,
            },
        }
    }

    /// Whether somebody wants to know what it serves who was not told yet, nor that it cannot be learnt.
    fn is_wanted(&self) -> bool {
        let wanted = *self.wanted.borrow();
        wanted.is_some_and(|wanted| !self.sight.borrow().tells_since(wanted))
    }

    async fn ask_ready(&self) -> Result<(), Fault> {
        match self.get("/readyz").await?.status {
            StatusCode::OK => Ok(()),
            other => Err(Fault::NotReady(other)),
        }
    }

    /// Its release; `None` if it does not say.
    async fn ask_version(&self) -> Option<Arc<str>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct VersionPage {
            git_version: String,
        }
        let answer = self.get("/version").await.ok()?;
        let page: VersionPage = serde_json::from_slice(&answer.body).ok()?;
        Some(page.git_version.into())
    }

    async fn get(&self, path: &str) -> Result<FetchAnswer, FetchFault> {
        self.get_up_to(&self.fetch, path, PAGE_BYTES_MAX).await
    }

    async fn get_up_to(&self, fetch: &Arc<dyn Fetch>, path: &str, bytes_max: usize) -> Result<FetchAnswer, FetchFault> {
        let Upstream { server, address, .. } = self.upstream.clone();
        let request = FetchRequest { server, address, path: path.to_owned(), headers: HeaderMap::new(), bytes_max };
        tokio::time::timeout(READY_TIMEOUT, fetch.fetch(request)).await.unwrap_or(Err(FetchFault::TimedOut))
    }

    /// Learns what it serves, or that it serves what it served.
    async fn learn(&self, former: &mut Option<Former>, return_of: Return) -> Result<(), Fault> {
        let Upstream { server, address, .. } = self.upstream.clone();
        let known = self.board.document(&server).map(|(version, _)| version);
        if known.is_none() {
            *former = None;
        }
        let peer = ask::Peer { server: server.clone(), address };
        let answer = ask::ask(&*self.fetch, &peer, former.as_ref(), AskLimits::default()).await?;
        let Answer::New { document, etags } = answer else { return Ok(()) };
        let stored = StoredDocument {
            holder: holder_of(&server),
            source: Source::Asked { etags: etags.clone() },
            tenure: Tenure::Staying,
            document: document.clone(),
        };
        if let (Return::CameBack, Some(former)) = (return_of, former.as_ref()) {
            let old = StoredDocument {
                holder: HolderIdentity::new(&server, fastrand::u128(..)),
                document: former.document.clone(),
                ..stored.clone()
            };
            leave_behind(&self.board, &old, &stored, Patience::LINGER).await?;
        }
        self.board.put(&server, stored.encode(), known, None).await?;
        *former = Some(Former { etags, document });
        Ok(())
    }

    /// What is known of it from before this process.
    fn kept(&self) -> Option<Former> {
        let (_, bytes) = self.board.document(&self.upstream.server)?;
        let StoredDocument { source, document, .. } = StoredDocument::decode(&bytes).ok()?;
        match source {
            Source::Published => None,
            Source::Asked { etags } => Some(Former { etags, document }),
        }
    }

    fn note_success(&self) {
        let Upstream { server, address, .. } = &self.upstream;
        let refusal = self.sight.borrow().vouching.refusal();
        self.vouching.enforcer.set_vouching(&self.upstream, refusal.is_none());
        self.metrics.not_vouched(server, refusal.map(|refusal| refusal.reason));
        self.board.admit(&self.upstream);
        self.board.open(server, address);
        self.metrics.ready(server, self.sight.borrow().version.as_deref());
        self.sight.send_if_modified(|sight| {
            let was = std::mem::replace(&mut sight.standing, Standing::Ready);
            sight.failing_since = None;
            if was != Standing::Ready {
                tracing::info!(upstream = %address, version = sight.version.as_deref(), "an upstream is ready");
            }
            was != Standing::Ready
        });
    }

    async fn note_failure(&self, fault: &Fault, failures: u32, begun: Instant) {
        let Upstream { server, address, .. } = &self.upstream;
        let is_certain = matches!(fault, Fault::NotReady(_)) || failures >= FAILURES_MAX;
        let mut is_forgotten = false;
        self.sight.send_if_modified(|sight| {
            let since = *sight.failing_since.get_or_insert(begun);
            is_forgotten = begun.saturating_duration_since(since) >= self.forget_after;
            let is_news = is_certain && sight.standing != Standing::NotReady;
            if is_news {
                sight.standing = Standing::NotReady;
                tracing::warn!(upstream = %address, error = %fault, "an upstream is not ready");
            }
            is_news
        });
        if is_certain {
            self.board.close(server);
            self.metrics.not_ready(server);
        }
        if is_forgotten {
            self.board.give_up(server).await;
        }
    }

    /// Waits for the next inspection, or for somebody who wants to know.
    async fn rest(&mut self, until: Instant) {
        while !self.is_wanted() {
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() { return tokio::time::sleep_until(until).await },
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
