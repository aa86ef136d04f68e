//! The task that keeps the RBAC index in step with the stored roles and bindings.

use std::sync::Arc;

use access::rbac::{Change as Due, Index, Kind, Policy};
use api::GroupVersionResource;
use arc_swap::ArcSwap;
use registry::{Change, Item, Registry, Shelf, Watcher};
use tokio_util::sync::CancellationToken;

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
}

impl PolicyFeed {
    /// A feed for the resources of a server, and the index that it writes, which is empty until [`PolicyFeed::run`] fills it.
    pub fn new(server: &ApiServer, index: Arc<ArcSwap<Index>>) -> Self {
        let find = |(kind, resource)| {
            let name = GroupVersionResource { group: "rbac.authorization.k8s.io", version: "v1", resource };
            server.resolve(name).map(|resource| (kind, resource.shelf.clone()))
        };
        Self { registry: server.registry.clone(), shelves: KINDS.into_iter().filter_map(find).collect(), index }
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
        for (kind, shelf) in &self.shelves {
            let snapshot = shelf.snapshot();
            for cached in snapshot.items.values() {
                put(&mut policy, *kind, &cached.item);
            }
            match self.registry.watch(shelf, snapshot.revision) {
                Ok(watcher) => watchers.push((*kind, watcher)),
                Err(_) => return,
            }
        }
        self.index.store(Arc::new(policy.index()));
        while let Some(changes) = next_of(&mut watchers).await {
            let mut is_due = false;
            for (kind, change) in &changes {
                is_due |= apply(&mut policy, *kind, change);
            }
            if is_due {
                self.index.store(Arc::new(policy.index()));
            }
        }
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
