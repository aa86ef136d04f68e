//! The one writer of the [`View`]: follows storage and what we serve ourselves, judges, and publishes.

mod sync;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::{Endpoints, Lease};
use bytes::Bytes;
use discovery::Groups;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::documents::{ServerDocument, StoredDocument, Unbuilt};
use crate::exclusion::{Definitions, GRACE, SharedNames};
use crate::identity::ServerId;
use crate::members::{Book, Chore, Content, FoundDocument, KnownDocument, Member, Patience};
use crate::metrics::{Metrics, SyncError};
use crate::ports::{Feed, Taken, Version};
use crate::readiness::Milestones;
use crate::view::{FirstSync, Inputs, MayBeBuiltIn, Peering, View};
use crate::wait::{changed, until};

use self::sync::FirstSyncWatch;

/// How many questions whether the view is up to date, and reports of askers, may wait; more are turned away.
pub(crate) const WAITING_MAX: usize = 1024;

/// What the membership task is told.
#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// This server.
    pub server: ServerId,
    /// Whether it can talk to peers at all.
    pub peering: Peering,
    /// What of our own document is listed only.
    pub unbuilt: Vec<Unbuilt>,
    /// How long is long.
    pub patience: Patience,
    /// The longest that the first sync waits for peers.
    pub first_sync_timeout: Duration,
    /// What may be built in.
    pub may_be_built_in: MayBeBuiltIn,
}

impl MembershipConfig {
    /// Readiness never waits for an unreachable peer; one that can be reached answers well within this.
    pub const FIRST_SYNC_TIMEOUT: Duration = Duration::from_secs(3);
}

/// What storage holds of our own document.
#[derive(Clone, Debug)]
pub enum OwnDocument {
    /// We have not looked yet.
    NotListed,
    /// Nothing.
    Absent,
    /// This.
    Known(KnownDocument),
}

/// What the membership task reads.
pub(crate) struct Sources {
    pub(crate) leases: Box<dyn Feed<Arc<Lease>>>,
    /// How often they could not be listed or followed.
    pub(crate) lease_failures: watch::Receiver<u64>,
    pub(crate) records: Box<dyn Feed<Arc<Endpoints>>>,
    pub(crate) documents: Box<dyn Feed<(Version, Bytes)>>,
    /// What we serve ourselves.
    pub(crate) local: watch::Receiver<Arc<Groups>>,
    /// What of the definitions in storage we can serve ourselves.
    pub(crate) shared: watch::Receiver<Arc<SharedNames>>,
    /// Servers that were asked, with whatever result.
    pub(crate) tried: mpsc::Receiver<ServerId>,
    /// Those who want to know when all that is in the feeds now is in the view.
    pub(crate) waiting: mpsc::Receiver<oneshot::Sender<()>>,
}

/// What it publishes.
pub(crate) struct Outputs {
    pub(crate) view: watch::Sender<Arc<View>>,
    pub(crate) own_document: watch::Sender<OwnDocument>,
    pub(crate) chores: watch::Sender<Arc<[Chore]>>,
}

/// The task.
pub(crate) struct Membership {
    config: MembershipConfig,
    sources: Sources,
    outputs: Outputs,
    milestones: Milestones,
    metrics: Metrics,
    book: Book,
    definitions: Definitions,
    local: Arc<ServerDocument>,
    first_sync: FirstSyncWatch,
    /// How many failures to list leases were counted.
    lease_failures: u64,
}

impl Membership {
    pub(crate) fn new(
        config: MembershipConfig,
        sources: Sources,
        outputs: Outputs,
        milestones: Milestones,
        metrics: Metrics,
    ) -> Self {
        let local = outputs.view.borrow().local().clone();
        Self {
            book: Book::new(config.patience),
            definitions: Definitions::new(GRACE),
            first_sync: FirstSyncWatch::new(config.first_sync_timeout),
            lease_failures: 0,
            config,
            sources,
            outputs,
            milestones,
            metrics,
            local,
        }
    }

    /// The view before anything was heard: this server alone, and a first sync that is not over.
    pub(crate) fn first_view(config: &MembershipConfig, local: &Arc<Groups>) -> View {
        let inputs = Inputs {
            me: config.server.clone(),
            local: Arc::new(ServerDocument::from_whole(local).with_unbuilt(config.unbuilt.clone())),
            members: Arc::default(),
            exclusion: Arc::default(),
            first_sync: FirstSync::Pending,
            peering: config.peering,
            may_be_built_in: config.may_be_built_in,
        };
        View::new(inputs, None)
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        self.milestones.local_document.reach();
        let mut wake = None;
        loop {
            let Sources { leases, lease_failures, records, documents, local, shared, tried, waiting } =
                &mut self.sources;
            let mut questions = Vec::new();
            tokio::select! {
                () = stop.cancelled() => return,
                () = leases.ready() => {}
                () = changed(lease_failures) => {}
                () = records.ready() => {}
                () = documents.ready() => {}
                () = changed(local) => {}
                () = changed(shared) => {}
                Some(server) = tried.recv() => self.first_sync.tried(server),
                Some(question) = waiting.recv() => questions.push(question),
                () = until(wake) => {}
            }
            // Questions before feeds: what was in storage when a question came is taken below.
            while let Ok(question) = self.sources.waiting.try_recv() {
                questions.push(question);
            }
            wake = self.advance(Instant::now());
            for question in questions {
                // Whoever asked may have given up.
                let _ = question.send(());
            }
        }
    }

    /// Takes in all there is, publishes what follows, and says when to look again even if nothing happens.
    fn advance(&mut self, now: Instant) -> Option<Instant> {
        self.take_in(now);
        let members = self.book.members(&self.config.server, now);
        let first_sync = match self.config.peering {
            Peering::Enabled => self.first_sync.judge(&members, now),
            // Nobody is asked, so there is nothing to wait for but the lists.
            Peering::Disabled => self.first_sync.judge(&[], now),
        };
        let shared = self.sources.shared.borrow_and_update().clone();
        let exclusion = self.definitions.see(&shared, now);
        self.publish(Inputs {
            me: self.config.server.clone(),
            local: self.local.clone(),
            members: members.into(),
            exclusion,
            first_sync,
            peering: self.config.peering,
            may_be_built_in: self.config.may_be_built_in,
        });
        self.publish_duties(now);
        let instants =
            [self.book.next_change(now), self.definitions.next_change(), self.first_sync.deadline(first_sync)];
        instants.into_iter().flatten().min()
    }

    fn take_in(&mut self, now: Instant) {
        let sources = &mut self.sources;
        while let Ok(server) = sources.tried.try_recv() {
            self.first_sync.tried(server);
        }
        let failures = *sources.lease_failures.borrow_and_update();
        (self.lease_failures..failures).for_each(|_| self.metrics.count_sync_error(SyncError::LeaseList));
        self.lease_failures = failures;
        let leases = sources.leases.take();
        self.first_sync.leases_listed |= matches!(leases, Taken::All(_));
        self.book.see_leases(leases, now);
        let records = sources.records.take();
        self.first_sync.records_listed |= matches!(records, Taken::All(_));
        self.book.see_records(records, now);
        let documents = decode(sources.documents.take());
        self.first_sync.documents_listed |= matches!(documents, Taken::All(_));
        self.book.see_documents(documents, now);
        if sources.local.has_changed().unwrap_or(false) {
            let whole = sources.local.borrow_and_update().clone();
            let local = ServerDocument::from_whole(&whole).with_unbuilt(self.config.unbuilt.clone());
            self.local = local.sharing_with([&self.local]);
        }
    }

    /// Publishes a new view if anything that anybody reads has changed.
    fn publish(&self, inputs: Inputs) {
        let last = self.outputs.view.borrow().clone();
        if last.is_made_from(&inputs) {
            return;
        }
        let view = View::new(inputs, Some(&last));
        log_changes(last.members(), view.members());
        if !Arc::ptr_eq(view.merged(), last.merged()) {
            self.metrics.merged_misses.inc();
            if view.merged().conflicts() != last.merged().conflicts() {
                for conflict in view.merged().conflicts() {
                    tracing::warn!(%conflict, "servers describe a resource differently");
                }
            }
        }
        let is_synced = view.first_sync() == FirstSync::Over;
        self.outputs.view.send_replace(Arc::new(view));
        if is_synced {
            self.milestones.first_sync.reach();
        }
    }

    /// Tells the publisher what storage holds of ours, and the sweeper what is to be done about others.
    fn publish_duties(&self, now: Instant) {
        if !self.first_sync.is_listed() {
            return;
        }
        let known = self.book.document(&self.config.server).cloned();
        let version = |own: &OwnDocument| match own {
            OwnDocument::NotListed => None,
            OwnDocument::Absent => Some(None),
            OwnDocument::Known(known) => Some(Some(known.version)),
        };
        let own = known.map_or(OwnDocument::Absent, OwnDocument::Known);
        self.outputs.own_document.send_if_modified(|last| {
            let is_new = version(last) != version(&own);
            if is_new {
                *last = own;
            }
            is_new
        });
        let chores = self.book.chores(&self.config.server, now);
        self.outputs.chores.send_if_modified(|last| {
            let is_new = !(chores.is_empty() && last.is_empty());
            *last = chores.into();
            is_new
        });
    }
}

/// Reads stored documents. The server of one that cannot be read is asked.
fn decode(taken: Taken<(Version, Bytes)>) -> Taken<FoundDocument> {
    let decode = |server: &ServerId, (version, bytes): (Version, Bytes)| {
        let content = match StoredDocument::decode(&bytes) {
            Ok(stored) => Content::Document(stored),
            Err(error) => {
                tracing::warn!(%server, %error, "a stored document cannot be read");
                if error.is_of_newer_server() { Content::Newer } else { Content::Garbage }
            }
        };
        FoundDocument { version, content }
    };
    match taken {
        Taken::All(all) => {
            let found = all.into_iter().map(|(server, value)| {
                let found = decode(&server, value);
                (server, found)
            });
            Taken::All(found.collect())
        }
        Taken::Changes(changes) => {
            let found = changes.into_iter().map(|(server, value)| {
                let found = value.map(|value| decode(&server, value));
                (server, found)
            });
            Taken::Changes(found.collect())
        }
    }
}

/// One line for each change of state.
fn log_changes(before: &[Member], after: &[Member]) {
    let states = |members: &[Member]| {
        members.iter().map(|member| (member.server.clone(), member.state)).collect::<HashMap<_, _>>()
    };
    let (before, after) = (states(before), states(after));
    for (server, state) in &after {
        match before.get(server) {
            Some(was) if was == state => {}
            Some(was) => tracing::info!(%server, %state, %was, "a member has changed"),
            None => tracing::info!(%server, %state, "a member is known"),
        }
    }
    for (server, was) in before.iter().filter(|(server, _)| !after.contains_key(server)) {
        tracing::info!(%server, %was, "a member is gone");
    }
}
