//! The only writer of the [`View`]: follows the observations and what this server serves, derives states, and publishes.

mod first_sync;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use discovery::GroupDiscoveryList;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::documents::{ServerDocument, UnimplementedResource};
use crate::exclusion::{DELETED_GRACE_PERIOD, ExclusionManager, SharedResources};
use crate::identity::ServerId;
use crate::members::{CleanupAction, Member, MemberTimeouts, MemberTracker, TrackedDocument};
use crate::metrics::{Metrics, SyncError};
use crate::ports::{FeedUpdate, MemberFeeds};
use crate::readiness::Milestones;
use crate::view::{FirstSync, MayBeBuiltIn, Peering, View, ViewInputs};
use crate::wait::{sleep_until_if_some, wait_for_change};

use self::first_sync::FirstSyncTracker;

/// Capacity of the queues of catch-up requests and of fetch attempts; more are rejected.
pub(crate) const CATCH_UP_QUEUE_MAX: usize = 1024;

/// The configuration of the membership task.
#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// The id of this server.
    pub server: ServerId,
    /// Whether requests to peers are possible.
    pub peering: Peering,
    /// Resources that this server lists but does not implement.
    pub unimplemented: Vec<UnimplementedResource>,
    /// The times after which states change.
    pub timeouts: MemberTimeouts,
    /// The longest wait of the first sync for peers.
    pub first_sync_timeout: Duration,
    /// Decides whether an unlisted resource may be built in.
    pub may_be_built_in: MayBeBuiltIn,
}

impl MembershipConfig {
    /// Readiness does not wait longer for an unreachable peer; a reachable one answers well within this.
    pub const FIRST_SYNC_TIMEOUT: Duration = Duration::from_secs(3);
}

/// This server's own document in storage.
#[derive(Clone, Debug)]
pub enum OwnDocument {
    /// Storage was not listed yet.
    NotListed,
    /// Storage has none.
    Absent,
    /// Storage has this one.
    Known(TrackedDocument),
}

/// The inputs of the membership task.
pub(crate) struct MembershipSources {
    pub(crate) members: MemberFeeds,
    /// What this server serves.
    pub(crate) local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
    /// Resources from definitions in storage that this server can serve.
    pub(crate) shared: watch::Receiver<SharedResources>,
    /// Members that were fetched from, with whatever result.
    pub(crate) attempted: mpsc::Receiver<ServerId>,
    /// Answered when everything that is in the feeds now is in the view.
    pub(crate) catch_up_requests: mpsc::Receiver<oneshot::Sender<()>>,
}

/// The outputs of the membership task.
pub(crate) struct MembershipOutputs {
    pub(crate) view: watch::Sender<Arc<View>>,
    pub(crate) own_document: watch::Sender<OwnDocument>,
    pub(crate) cleanup_actions: watch::Sender<Arc<[CleanupAction]>>,
}

/// Derives the view from its inputs.
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
    /// The failures of the source that were counted.
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

    /// The view before any observation: this server alone, and a pending first sync.
    pub(crate) fn initial_view(config: &MembershipConfig, local: &Arc<GroupDiscoveryList>) -> View {
        let inputs = ViewInputs {
            this_server: config.server.clone(),
            local_document: Arc::new(
                ServerDocument::from_all_groups(local).with_unimplemented(config.unimplemented.clone()),
            ),
            members: Arc::default(),
            exclusion: Arc::default(),
            shared_groups: SharedResources::default().groups,
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
                members: MemberFeeds { presence, addresses, documents, failures },
                local_groups: local,
                shared,
                attempted,
                catch_up_requests,
            } = &mut self.sources;
            let mut catch_up_waiters = Vec::new();
            tokio::select! {
                () = stop.cancelled() => return,
                () = presence.ready() => {}
                () = wait_for_change(failures) => {}
                () = addresses.ready() => {}
                () = documents.ready() => {}
                () = wait_for_change(local) => {}
                () = wait_for_change(shared) => {}
                Some(server) = attempted.recv() => self.first_sync.record_attempt(server),
                Some(waiter) = catch_up_requests.recv() => catch_up_waiters.push(waiter),
                () = sleep_until_if_some(wake) => {}
            }
            // Requests before feeds: everything in the feeds at the time of a request is taken below.
            while let Ok(waiter) = self.sources.catch_up_requests.try_recv() {
                catch_up_waiters.push(waiter);
            }
            wake = self.update(Instant::now());
            for waiter in catch_up_waiters {
                // The request may have been cancelled.
                let _ = waiter.send(());
            }
        }
    }

    /// Takes all updates, publishes the results, and returns when to run again without an update.
    fn update(&mut self, now: Instant) -> Option<Instant> {
        self.drain_sources(now);
        let members = self.tracker.members(&self.config.server, now);
        let first_sync = match self.config.peering {
            Peering::Enabled => self.first_sync.update(&members, now),
            // Nothing is fetched, so only the lists are waited for.
            Peering::Disabled => self.first_sync.update(&[], now),
        };
        let shared = self.sources.shared.borrow_and_update().clone();
        let exclusion = self.exclusion_manager.observe(&shared.defined, now);
        self.publish_view(ViewInputs {
            this_server: self.config.server.clone(),
            local_document: self.local_document.clone(),
            members: members.into(),
            exclusion,
            shared_groups: shared.groups,
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
        let failures = *sources.members.failures.borrow_and_update();
        (self.lease_failures..failures).for_each(|_| self.metrics.count_sync_error(SyncError::LeaseList));
        self.lease_failures = failures;
        let presence = sources.members.presence.take_update();
        self.first_sync.presence_listed |= matches!(presence, FeedUpdate::All(_));
        self.tracker.observe_presence(presence, now);
        let addresses = sources.members.addresses.take_update();
        self.first_sync.addresses_listed |= matches!(addresses, FeedUpdate::All(_));
        self.tracker.observe_addresses(addresses, now);
        let documents = sources.members.documents.take_update();
        self.first_sync.documents_listed |= matches!(documents, FeedUpdate::All(_));
        self.tracker.observe_documents(documents, now);
        if sources.local_groups.has_changed().unwrap_or(false) {
            let all_groups = sources.local_groups.borrow_and_update().clone();
            let local =
                ServerDocument::from_all_groups(&all_groups).with_unimplemented(self.config.unimplemented.clone());
            self.local_document = local.intern_among([&self.local_document]);
        }
    }

    /// Publishes a new view if anything in it has changed.
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

    /// Publishes this server's stored document and the cleanup actions, once everything is listed.
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

/// Logs one line per change of state.
fn log_state_changes(before: &[Member], after: &[Member]) {
    let states = |members: &[Member]| {
        members.iter().map(|member| (member.server.clone(), member.state)).collect::<HashMap<_, _>>()
    };
    let (before, after) = (states(before), states(after));
    for (server, state) in &after {
        match before.get(server) {
            Some(was) if was == state => {}
            Some(was) => tracing::info!(%server, %state, %was, "member state changed"),
            None => tracing::info!(%server, %state, "member added"),
        }
    }
    for (server, was) in before.iter().filter(|(server, _)| !after.contains_key(server)) {
        tracing::info!(%server, %was, "member removed");
    }
}
