//! The task that updates the RBAC index from the stored roles and bindings.

mod aggregated_roles;

use std::sync::Arc;
use std::time::Duration;

use access::rbac::{PolicyChange as Due, RBAC_GROUP, RbacIndex, RbacKind, RbacPolicy};
use api::GroupVersionResource;
use arc_swap::ArcSwap;
use registry::{CacheWatcher, CachedValue, KeyChange, Registry, ResourceCache};
use store::Revision;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use aggregated_roles::AggregatedRoleWriter;

use crate::ApiServer;

const RBAC_RESOURCES: [(RbacKind, &str); 4] = [
    (RbacKind::ClusterRole, "clusterroles"),
    (RbacKind::ClusterRoleBinding, "clusterrolebindings"),
    (RbacKind::Role, "roles"),
    (RbacKind::RoleBinding, "rolebindings"),
];

/// Watches roles and bindings and publishes a new index after every change that affects decisions.
pub struct RbacIndexUpdater {
    registry: Registry,
    resource_caches: Vec<(RbacKind, Arc<ResourceCache>)>,
    index: Arc<ArcSwap<RbacIndex>>,
    applied_revisions: watch::Sender<Vec<Revision>>,
    outdated_aggregates: watch::Sender<aggregated_roles::OutdatedAggregates>,
}

/// The progress of the index. Clones share the state.
#[derive(Clone, Debug)]
pub struct RbacIndexProgress {
    registry: Registry,
    resource_caches: Vec<Arc<ResourceCache>>,
    /// The last applied revision of each resource cache; empty before the first sync.
    applied_revisions: watch::Receiver<Vec<Revision>>,
}

/// How long startup waits for the index to contain the default roles. After a timeout the first requests may be
/// forbidden.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

impl RbacIndexProgress {
    /// True once the index contains the initial state of all four kinds.
    pub fn has_synced(&self) -> bool {
        !self.applied_revisions.borrow().is_empty()
    }

    /// Waits until the index contains every role and binding stored before the call, for at most three seconds.
    pub async fn catch_up(&mut self) {
        let caught_up = async {
            self.registry.catch_up_with_store().await.ok()?;
            let stored: Vec<Revision> =
                self.resource_caches.iter().map(|resource_cache| resource_cache.snapshot().revision).collect();
            let has_all = |applied: &Vec<Revision>| {
                applied.len() == stored.len() && applied.iter().zip(&stored).all(|(a, b)| a >= b)
            };
            self.applied_revisions.wait_for(has_all).await.ok().map(drop)
        };
        if tokio::time::timeout(CATCH_UP_TIMEOUT, caught_up).await.ok().flatten().is_none() {
            tracing::warn!("RBAC index has not caught up with storage; the first requests may be forbidden");
        }
    }
}

impl RbacIndexUpdater {
    /// Creates the updater of `index`, which stays empty until [`RbacIndexUpdater::run`], and the writer of aggregated
    /// roles.
    pub fn new(server: &Arc<ApiServer>, index: Arc<ArcSwap<RbacIndex>>) -> (Self, AggregatedRoleWriter) {
        let find = |(kind, resource)| {
            let name = GroupVersionResource { group: RBAC_GROUP, version: "v1", resource };
            server.resolve(name).map(|resource| (kind, resource.cache.clone()))
        };
        let (outdated, receiver) = watch::channel(Vec::new());
        let (registry, resource_caches) =
            (server.registry.clone(), RBAC_RESOURCES.into_iter().filter_map(find).collect());
        let feed = Self {
            registry,
            resource_caches,
            index,
            applied_revisions: watch::Sender::default(),
            outdated_aggregates: outdated,
        };
        (feed, AggregatedRoleWriter::new(server.clone(), receiver))
    }

    /// The progress of the index that this updater writes.
    pub fn progress(&self) -> RbacIndexProgress {
        let resource_caches = self.resource_caches.iter().map(|(_, resource_cache)| resource_cache.clone()).collect();
        RbacIndexProgress {
            registry: self.registry.clone(),
            resource_caches,
            applied_revisions: self.applied_revisions.subscribe(),
        }
    }

    /// Runs until `stop`. Before the cache has synced the index is empty, so RBAC allows only `system:masters`.
    pub async fn run(self, stop: CancellationToken) {
        let follow = async {
            if self.registry.cache().wait_for_sync().await.is_err() {
                return;
            }
            loop {
                self.list_and_watch().await;
            }
        };
        stop.run_until_cancelled(follow).await;
        stop.cancelled().await;
    }

    /// Loads the full state and applies changes. Returns when a watcher expired and the state must be loaded again.
    async fn list_and_watch(&self) {
        let mut policy = RbacPolicy::default();
        let mut watchers = Vec::new();
        let mut applied_revisions = Vec::new();
        for (kind, resource_cache) in &self.resource_caches {
            let snapshot = resource_cache.snapshot();
            for cached in snapshot.entries.values() {
                put_object(&mut policy, *kind, &cached.value);
            }
            applied_revisions.push(snapshot.revision);
            match self.registry.watch(resource_cache, snapshot.revision) {
                Ok(watcher) => watchers.push((*kind, watcher)),
                Err(_) => return,
            }
        }
        self.index.store(Arc::new(policy.build_index()));
        self.applied_revisions.send_replace(applied_revisions);
        self.outdated_aggregates.send_replace(policy.outdated_aggregates());
        while let Some(changes) = next_changes(&mut watchers).await {
            let mut affects_decisions = false;
            for (kind, change) in &changes {
                affects_decisions |= apply_change(&mut policy, *kind, change);
            }
            if affects_decisions {
                self.index.store(Arc::new(policy.build_index()));
            }
            self.record_applied(&changes);
            if changes.iter().any(|(kind, _)| *kind == RbacKind::ClusterRole) {
                self.outdated_aggregates.send_replace(policy.outdated_aggregates());
            }
        }
    }

    /// Publishes the revisions of changes that the index contains.
    fn record_applied(&self, changes: &[(RbacKind, Arc<KeyChange>)]) {
        self.applied_revisions.send_modify(|applied| {
            for (kind, change) in changes {
                let at = self.resource_caches.iter().position(|(known, _)| known == kind);
                if let Some(applied) = at.and_then(|at| applied.get_mut(at)) {
                    *applied = change.revision.max(*applied);
                }
            }
        });
    }
}

/// The next changes of any kind; `None` if a watcher expired.
async fn next_changes(watchers: &mut [(RbacKind, CacheWatcher)]) -> Option<Vec<(RbacKind, Arc<KeyChange>)>> {
    let waiting = watchers.iter_mut().map(|(kind, watcher)| {
        let kind = *kind;
        Box::pin(async move { watcher.next_changes().await.map(|changes| (kind, changes)) })
    });
    let (first, _, _) = futures_util::future::select_all(waiting).await;
    let (kind, changes) = first.ok()?;
    Some(changes.into_iter().map(|change| (kind, change)).collect())
}

fn apply_change(policy: &mut RbacPolicy, kind: RbacKind, change: &KeyChange) -> bool {
    match (&change.current, &change.previous) {
        (Some(current), _) => put_object(policy, kind, &current.value),
        (None, Some(previous)) => match &previous.value {
            CachedValue::Object(stored) => {
                policy.remove(kind, &stored.namespace, &stored.name) == Due::AffectsDecisions
            }
            CachedValue::Raw(_) | CachedValue::Undecodable(_) => false,
        },
        (None, None) => false,
    }
}

fn put_object(policy: &mut RbacPolicy, kind: RbacKind, item: &CachedValue) -> bool {
    let CachedValue::Object(stored) = item else { return false };
    match policy.put(kind, &stored.namespace, &stored.name, &stored.body) {
        Ok(change) => change == Due::AffectsDecisions,
        Err(error) => {
            tracing::error!(%error, "role or binding is undecodable and grants nothing");
            true
        }
    }
}
