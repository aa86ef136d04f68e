//! The task that keeps the RBAC index in step with the stored roles and bindings.

mod aggregation;

use std::sync::Arc;
use std::time::Duration;

use access::rbac::{Change as Due, Index, Kind, Policy};
use api::GroupVersionResource;
use arc_swap::ArcSwap;
use registry::{Change, Item, Registry, Shelf, Watcher};
use store::Revision;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use aggregation::Aggregation;

use crate::ApiServer;

const KINDS: [(Kind, &str); 4] = [
    (Kind::ClusterRole, "clusterroles"),
    (Kind::ClusterRoleBinding, "clusterrolebindings"),
    (Kind::Role, "roles"),
    (Kind::RoleBinding, "rolebindings"),
];

/// Follows the four kinds and publishes a new index after every change.
pub struct PolicyFeed {
    registry: Registry,
    shelves: Vec<(Kind, Arc<Shelf>)>,
    index: Arc<ArcSwap<Index>>,
    seen: watch::Sender<Vec<Revision>>,
    outdated: watch::Sender<aggregation::Outdated>,
}

/// How far the index is. Clones share it.
#[derive(Clone, Debug)]
pub struct Known {
    registry: Registry,
    shelves: Vec<Arc<Shelf>>,
    /// The last change of each shelf that the index has; empty before it was filled.
    seen: watch::Receiver<Vec<Revision>>,
}

/// How long a start waits for the index to have what was just written. Nothing depends on it but the first requests.
const PATIENCE: Duration = Duration::from_secs(3);

impl Known {
    /// Whether the index was filled.
    pub fn is_filled(&self) -> bool {
        !self.seen.borrow().is_empty()
    }

    /// Waits until the index has every role and binding that was stored before, for a few seconds at most.
    pub async fn catch_up(&mut self) {
        let caught_up = async {
            self.registry.catch_up_with_store().await.ok()?;
            let stored: Vec<Revision> = self.shelves.iter().map(|shelf| shelf.snapshot().revision).collect();
            let has_all =
                |seen: &Vec<Revision>| seen.len() == stored.len() && seen.iter().zip(&stored).all(|(a, b)| a >= b);
            self.seen.wait_for(has_all).await.ok().map(drop)
        };
        if tokio::time::timeout(PATIENCE, caught_up).await.ok().flatten().is_none() {
            tracing::warn!("roles and bindings are not all known yet; the first requests may be refused");
        }
    }
}

impl PolicyFeed {
    /// A feed for the resources of a server, and the index that it writes, which is empty until [`PolicyFeed::run`] fills it.
    /// The second task writes the union into roles that aggregate.
    pub fn new(server: &Arc<ApiServer>, index: Arc<ArcSwap<Index>>) -> (Self, Aggregation) {
        let find = |(kind, resource)| {
            let name = GroupVersionResource { group: "rbac.authorization.k8s.io", version: "v1", resource };
            server.resolve(name).map(|resource| (kind, resource.shelf.clone()))
        };
        let (outdated, receiver) = watch::channel(Vec::new());
        let (registry, shelves) = (server.registry.clone(), KINDS.into_iter().filter_map(find).collect());
        let feed = Self { registry, shelves, index, seen: watch::Sender::default(), outdated };
        (feed, Aggregation::new(server.clone(), receiver))
    }

    /// How far the index is.
    pub fn known(&self) -> Known {
        let shelves = self.shelves.iter().map(|(_, shelf)| shelf.clone()).collect();
        Known { registry: self.registry.clone(), shelves, seen: self.seen.subscribe() }
    }

    /// Fills the index from what is stored, once the cache is filled. Nobody but `system:masters` may do anything before.
    pub async fn run(self, stop: CancellationToken) {
        let follow = async {
            if self.registry.cache().filled().await.is_err() {
                return;
            }
            loop {
                self.follow().await;
            }
        };
        stop.run_until_cancelled(follow).await;
        stop.cancelled().await;
    }

    /// Returns when changes were missed and everything must be read again.
    async fn follow(&self) {
        let mut policy = Policy::default();
        let mut watchers = Vec::new();
        let mut seen = Vec::new();
        for (kind, shelf) in &self.shelves {
            let snapshot = shelf.snapshot();
            for cached in snapshot.items.values() {
                put(&mut policy, *kind, &cached.item);
            }
            seen.push(snapshot.revision);
            match self.registry.watch(shelf, snapshot.revision) {
                Ok(watcher) => watchers.push((*kind, watcher)),
                Err(_) => return,
            }
        }
        self.index.store(Arc::new(policy.index()));
        self.seen.send_replace(seen);
        self.outdated.send_replace(policy.outdated_aggregates());
        while let Some(changes) = next_of(&mut watchers).await {
            let mut is_due = false;
            for (kind, change) in &changes {
                is_due |= apply(&mut policy, *kind, change);
            }
            if is_due {
                self.index.store(Arc::new(policy.index()));
            }
            self.note(&changes);
            if changes.iter().any(|(kind, _)| *kind == Kind::ClusterRole) {
                self.outdated.send_replace(policy.outdated_aggregates());
            }
        }
    }

    /// The index has these changes.
    fn note(&self, changes: &[(Kind, Arc<Change>)]) {
        self.seen.send_modify(|seen| {
            for (kind, change) in changes {
                let at = self.shelves.iter().position(|(known, _)| known == kind);
                if let Some(seen) = at.and_then(|at| seen.get_mut(at)) {
                    *seen = change.revision.max(*seen);
                }
            }
        });
    }
}

/// The next changes of whichever kind; `None` if some were missed.
async fn next_of(watchers: &mut [(Kind, Watcher)]) -> Option<Vec<(Kind, Arc<Change>)>> {
    let waiting = watchers.iter_mut().map(|(kind, watcher)| {
        let kind = *kind;
        Box::pin(async move { watcher.next().await.map(|changes| (kind, changes)) })
    });
    let (first, _, _) = futures_util::future::select_all(waiting).await;
    let (kind, changes) = first.ok()?;
    Some(changes.into_iter().map(|change| (kind, change)).collect())
}

fn apply(policy: &mut Policy, kind: Kind, change: &Change) -> bool {
    match (&change.current, &change.previous) {
        (Some(current), _) => put(policy, kind, &current.item),
        (None, Some(previous)) => match &previous.item {
            Item::Object(stored) => policy.remove(kind, &stored.namespace, &stored.name) == Due::Due,
            Item::Raw(_) | Item::Undecodable(_) => false,
        },
        (None, None) => false,
    }
}

fn put(policy: &mut Policy, kind: Kind, item: &Item) -> bool {
    let Item::Object(stored) = item else { return false };
    match policy.put(kind, &stored.namespace, &stored.name, &stored.body) {
        Ok(change) => change == Due::Due,
        Err(error) => {
            tracing::error!(%error, "a role or binding cannot be read and grants nothing");
            true
        }
    }
}
