//! The one writer of the [`View`]: follows storage and what we serve ourselves, judges, and publishes.

mod first_sync;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::{Endpoints, Lease};
use bytes::Bytes;
use discovery::GroupDiscoveryList;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::documents::{ServerDocument, StoredDocument, UnimplementedResource};
use crate::exclusion::{DELETED_GRACE_PERIOD, DefinedResources, ExclusionManager};
use crate::identity::ServerId;
use crate::members::{
    CleanupAction, DocumentContent, Member, MemberTimeouts, MemberTracker, ObservedDocument, TrackedDocument,
};
use crate::metrics::{Metrics, SyncError};
use crate::ports::{EntryVersion, Feed, FeedUpdate};
use crate::readiness::Milestones;
use crate::view::{FirstSync, MayBeBuiltIn, Peering, View, ViewInputs};
use crate::wait::{sleep_until_if_some, wait_for_change};

use self::first_sync::FirstSyncTracker;

/// How many questions whether the view is up to date, and reports of askers, may wait; more are turned away.
pub(crate) const CATCH_UP_QUEUE_MAX: usize = 1024;

/// What the membership task is told.
#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// This server.
    pub server: ServerId,
    /// Whether it can talk to peers at all.
    pub peering: Peering,
    /// What of our own document is listed only.
    pub unimplemented: Vec<UnimplementedResource>,
    /// How long is long.
    pub timeouts: MemberTimeouts,
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
    Known(TrackedDocument),
}

/// What the membership task reads.
pub(crate) struct MembershipSources {
    pub(crate) leases: Box<dyn Feed<Arc<Lease>>>,
    /// How often they could not be listed or followed.
    pub(crate) lease_failures: watch::Receiver<u64>,
    pub(crate) records: Box<dyn Feed<Arc<Endpoints>>>,
    pub(crate) documents: Box<dyn Feed<(EntryVersion, Bytes)>>,
    /// What we serve ourselves.
    pub(crate) local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
    /// What of the definitions in storage we can serve ourselves.
    pub(crate) defined: watch::Receiver<Arc<DefinedResources>>,
    /// Servers that were asked, with whatever result.
    pub(crate) attempted: mpsc::Receiver<ServerId>,
    /// Those who want to know when all that is in the feeds now is in the view.
    pub(crate) catch_up_requests: mpsc::Receiver<oneshot::Sender<()>>,
}

/// What it publishes.
pub(crate) struct MembershipOutputs {
    pub(crate) view: watch::Sender<Arc<View>>,
    pub(crate) own_document: watch::Sender<OwnDocument>,
    pub(crate) cleanup_actions: watch::Sender<Arc<[CleanupAction]>>,
}

/// The task.
pub(crate) struct MembershipTask {
    config: MembershipConfig,
    sources: MembershipSources,
    outputs: MembershipOutputs,
    milestones: Milestones,
    metrics: Metrics,
    tracker: MemberTracker,
    exclusion_manager: ExclusionManager,
    local_document: Arc<ServerDocument>,
    first_sync: FirstSyncTracker,
    /// How many failures to list leases were counted.
    lease_failures: u64,
}

impl MembershipTask {
    pub(crate) fn new(
        config: MembershipConfig,
        sources: MembershipSources,
        outputs: MembershipOutputs,
        milestones: Milestones,
        metrics: Metrics,
    ) -> Self {
        let local = outputs.view.borrow().local_document().clone();
        Self {
            tracker: MemberTracker::new(config.timeouts),
            exclusion_manager: ExclusionManager::new(DELETED_GRACE_PERIOD),
            first_sync: FirstSyncTracker::new(config.first_sync_timeout),
            lease_failures: 0,
            config,
            sources,
            outputs,
            milestones,
            metrics,
            local_document: local,
        }
    }

    /// The view before anything was heard: this server alone, and a first sync that is not over.
    pub(crate) fn initial_view(config: &MembershipConfig, local: &Arc<GroupDiscoveryList>) -> View {
        let inputs = ViewInputs {
            this_server: config.server.clone(),
            local_document: Arc::new(
                ServerDocument::from_all_groups(local).with_unimplemented(config.unimplemented.clone()),
            ),
            members: Arc::default(),
            exclusion: Arc::default(),
            first_sync: FirstSync::Pending,
            peering: config.peering,
            may_be_built_in: config.may_be_built_in,
        };
        View::new(inputs, None)
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        self.milestones.local_document.mark_reached();
        let mut wake = None;
        loop {
            let MembershipSources {
                leases,
                lease_failures,
                records,
                documents,
                local_groups: local,
                defined: shared,
                attempted: tried,
                catch_up_requests: waiting,
            } = &mut self.sources;
            let mut catch_up_waiters = Vec::new();
            tokio::select! {
                () = stop.cancelled() => return,
                () = leases.ready() => {}
                () = wait_for_change(lease_failures) => {}
                () = records.ready() => {}
                () = documents.ready() => {}
                () = wait_for_change(local) => {}
                () = wait_for_change(shared) => {}
                Some(server) = tried.recv() => self.first_sync.record_attempt(server),
                Some(waiter) = waiting.recv() => catch_up_waiters.push(waiter),
                () = sleep_until_if_some(wake) => {}
            }
            // Questions before feeds: what was in storage when a question came is taken below.
            while let Ok(waiter) = self.sources.catch_up_requests.try_recv() {
                catch_up_waiters.push(waiter);
            }
            wake = self.update(Instant::now());
            for waiter in catch_up_waiters {
                // Whoever asked may have given up.
                let _ = waiter.send(());
            }
        }
    }

    /// Takes in all there is, publishes what follows, and says when to look again even if nothing happens.
    fn update(&mut self, now: Instant) -> Option<Instant> {
        self.drain_sources(now);
        let members = self.tracker.members(&self.config.server, now);
        let first_sync = match self.config.peering {
            Peering::Enabled => self.first_sync.update(&members, now),
            // Nobody is asked, so there is nothing to wait for but the lists.
            Peering::Disabled => self.first_sync.update(&[], now),
        };
        let defined = self.sources.defined.borrow_and_update().clone();
        let exclusion = self.exclusion_manager.observe(&defined, now);
        self.publish_view(ViewInputs {
            this_server: self.config.server.clone(),
            local_document: self.local_document.clone(),
            members: members.into(),
            exclusion,
            first_sync,
            peering: self.config.peering,
            may_be_built_in: self.config.may_be_built_in,
        });
        self.publish_own_document_and_cleanup(now);
        let instants =
            [self.tracker.next_change(now), self.exclusion_manager.next_change(), self.first_sync.deadline(first_sync)];
        instants.into_iter().flatten().min()
    }

    fn drain_sources(&mut self, now: Instant) {
        let sources = &mut self.sources;
        while let Ok(server) = sources.attempted.try_recv() {
            self.first_sync.record_attempt(server);
        }
        let failures = *sources.lease_failures.borrow_and_update();
        (self.lease_failures..failures).for_each(|_| self.metrics.count_sync_error(SyncError::LeaseList));
        self.lease_failures = failures;
        let leases = sources.leases.take_update();
        self.first_sync.leases_listed |= matches!(leases, FeedUpdate::All(_));
        self.tracker.observe_leases(leases, now);
        let records = sources.records.take_update();
        self.first_sync.records_listed |= matches!(records, FeedUpdate::All(_));
        self.tracker.observe_records(records, now);
        let documents = decode_documents(sources.documents.take_update());
        self.first_sync.documents_listed |= matches!(documents, FeedUpdate::All(_));
        self.tracker.observe_documents(documents, now);
        if sources.local_groups.has_changed().unwrap_or(false) {
            let all_groups = sources.local_groups.borrow_and_update().clone();
            let local =
                ServerDocument::from_all_groups(&all_groups).with_unimplemented(self.config.unimplemented.clone());
            self.local_document = local.intern_among([&self.local_document]);
        }
    }

    /// Publishes a new view if anything that anybody reads has changed.
    fn publish_view(&self, inputs: ViewInputs) {
        let last = self.outputs.view.borrow().clone();
        if last.is_made_from(&inputs) {
            return;
        }
        let view = View::new(inputs, Some(&last));
        log_state_changes(last.members(), view.members());
        if !Arc::ptr_eq(view.merged_documents(), last.merged_documents()) {
            self.metrics.merged_misses.inc();
            if view.merged_documents().conflicts() != last.merged_documents().conflicts() {
                for conflict in view.merged_documents().conflicts() {
                    tracing::warn!(%conflict, "servers describe a resource differently");
                }
            }
        }
        let is_synced = view.first_sync() == FirstSync::Over;
        self.outputs.view.send_replace(Arc::new(view));
        if is_synced {
            self.milestones.first_sync.mark_reached();
        }
    }

    /// Tells the publisher what storage holds of ours, and the sweeper what is to be done about others.
    fn publish_own_document_and_cleanup(&self, now: Instant) {
        if !self.first_sync.all_listed() {
            return;
        }
        let known = self.tracker.document(&self.config.server).cloned();
        let version = |own_document: &OwnDocument| match own_document {
            OwnDocument::NotListed => None,
            OwnDocument::Absent => Some(None),
            OwnDocument::Known(known) => Some(Some(known.version)),
        };
        let own_document = known.map_or(OwnDocument::Absent, OwnDocument::Known);
        self.outputs.own_document.send_if_modified(|last| {
            let is_new = version(last) != version(&own_document);
            if is_new {
                *last = own_document;
            }
            is_new
        });
        let actions = self.tracker.cleanup_actions(&self.config.server, now);
        self.outputs.cleanup_actions.send_if_modified(|last| {
            let is_new = !(actions.is_empty() && last.is_empty());
            *last = actions.into();
            is_new
        });
    }
}

/// Reads stored documents. The server of one that cannot be read is asked.
fn decode_documents(update: FeedUpdate<(EntryVersion, Bytes)>) -> FeedUpdate<ObservedDocument> {
    let decode = |server: &ServerId, (version, bytes): (EntryVersion, Bytes)| {
        let content = match StoredDocument::decode(&bytes) {
            Ok(stored) => DocumentContent::Document(stored),
            Err(error) => {
                tracing::warn!(%server, %error, "a stored document cannot be read");
                if error.is_newer_format() { DocumentContent::NewerFormat } else { DocumentContent::Unreadable }
            }
        };
        ObservedDocument { version, content }
    };
    match update {
        FeedUpdate::All(all) => {
            let observed = all.into_iter().map(|(server, value)| {
                let observed = decode(&server, value);
                (server, observed)
            });
            FeedUpdate::All(observed.collect())
        }
        FeedUpdate::Changes(changes) => {
            let observed = changes.into_iter().map(|(server, value)| {
                let observed = value.map(|value| decode(&server, value));
                (server, observed)
            });
            FeedUpdate::Changes(observed.collect())
        }
    }
}

/// One line for each change of state.
fn log_state_changes(before: &[Member], after: &[Member]) {
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
