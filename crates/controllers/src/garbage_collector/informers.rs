//! The informers of the garbage collector, and their state.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use crate::client::ApiClient;
use crate::informer::{EventSink, InformerEvent, InformerScope, ObjectDetail, ObservedObject, run_informer};
use crate::resources::{DiscoveredResource, DiscoveredResources, DiscoveryState};

/// Events that may be queued; when full, informers wait.
const EVENTS_MAX: usize = 256;
/// Events expire by themselves; kube-controller-manager's garbage collector ignores them too.
const IGNORED_RESOURCE: &str = "events";

/// Identifies an informer; never reused.
pub(super) type InformerId = u64;

/// The informers of all resources.
pub(super) struct Informers {
    client: ApiClient,
    informers: HashMap<InformerId, Informer>,
    next_id: InformerId,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    sender: mpsc::Sender<(InformerId, InformerEvent)>,
    events: mpsc::Receiver<(InformerId, InformerEvent)>,
}

struct Informer {
    resource: Arc<DiscoveredResource>,
    state: InformerState,
    abort: AbortHandle,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InformerState {
    Starting,
    Synced,
    Unavailable,
}

impl Informers {
    pub(super) fn new(client: ApiClient) -> Self {
        let (sender, notices) = mpsc::channel(EVENTS_MAX);
        let followers = FuturesUnordered::new();
        Self { client, informers: HashMap::new(), next_id: 0, running: followers, sender, events: notices }
    }

    /// Starts informers for all resources that support watch and delete. An existing informer continues, even if
    /// another version represents its resource now. A resource that is not in `resources` any more was proven gone and
    /// is returned.
    pub(super) fn update_resources(&mut self, resources: &DiscoveredResources) -> Vec<Arc<DiscoveredResource>> {
        let mut gone = Vec::new();
        let mut wanted: Vec<_> = resources.deletable().filter(|resource| is_followed(resource)).collect();
        self.informers.retain(|_, monitor| {
            let same = |each: &&Arc<DiscoveredResource>| each.group_resource() == monitor.resource.group_resource();
            let stays = match wanted.iter().position(same) {
                None => {
                    gone.push(monitor.resource.clone());
                    false
                }
                // An informer that is not synced restarts with the version that represents the resource now.
                Some(at) if wanted[at].name != monitor.resource.name && monitor.state != InformerState::Synced => false,
                Some(at) => {
                    wanted.swap_remove(at);
                    true
                }
            };
            if !stays {
                monitor.abort.abort();
            }
            stays
        });
        for resource in wanted {
            self.start(resource.clone());
        }
        gone
    }

    fn start(&mut self, resource: Arc<DiscoveredResource>) {
        let id = self.next_id;
        self.next_id += 1;
        let selection = InformerScope { path: resource.path(""), query: "", detail: ObjectDetail::Metadata };
        let listener = EventSink { id, events: self.sender.clone() };
        let (abort, registration) = AbortHandle::new_pair();
        let following = Abortable::new(run_informer(self.client.clone(), selection, listener), registration);
        self.running.push(Box::pin(async move {
            // Aborting is the normal end.
            let _ = following.await;
        }));
        self.informers.insert(id, Informer { resource, state: InformerState::Starting, abort });
    }

    /// The next event of any informer. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> (InformerId, InformerEvent) {
        loop {
            tokio::select! {
                notice = self.events.recv() => match notice {
                    Some(notice) => return notice,
                    None => return std::future::pending().await,
                },
                _ = next_ended(&mut self.running) => {}
            }
        }
    }

    /// The resource of an informer; `None` after the informer was removed.
    pub(super) fn resource(&self, id: InformerId) -> Option<Arc<DiscoveredResource>> {
        self.informers.get(&id).map(|monitor| monitor.resource.clone())
    }

    pub(super) fn mark_synced(&mut self, id: InformerId) {
        self.set_state(id, InformerState::Synced);
    }

    /// Returns true if the resource was available before.
    pub(super) fn mark_unavailable(&mut self, id: InformerId) -> bool {
        self.set_state(id, InformerState::Unavailable) != Some(InformerState::Unavailable)
    }

    fn set_state(&mut self, id: InformerId, state: InformerState) -> Option<InformerState> {
        self.informers.get_mut(&id).map(|monitor| std::mem::replace(&mut monitor.state, state))
    }

    /// True if every resource was listed or is known to be unavailable.
    pub(super) fn have_started(&self) -> bool {
        !self.informers.is_empty() && self.informers.values().all(|monitor| monitor.state != InformerState::Starting)
    }

    /// True if every resource is listed and watched.
    pub(super) fn all_synced(&self) -> bool {
        !self.informers.is_empty() && self.informers.values().all(|monitor| monitor.state == InformerState::Synced)
    }
}

async fn next_ended(followers: &mut FuturesUnordered<BoxFuture<'static, ()>>) {
    if followers.is_empty() {
        return std::future::pending().await;
    }
    Pin::new(followers).next().await;
}

/// True if an informer follows a deletable resource.
pub(super) fn is_followed(resource: &DiscoveredResource) -> bool {
    resource.supports("watch") && *resource.name.resource != *IGNORED_RESOURCE
}

/// True if discovery confirms every resource that it lists or has listed.
pub(super) fn is_discovery_complete(resources: &DiscoveredResources) -> bool {
    resources.stale_versions().is_empty()
        && resources.all().iter().all(|resource| resource.discovery_state == DiscoveryState::Confirmed)
}

/// What a change of an object implies for discovery.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DiscoveryHint {
    None,
    /// A lease of a server: its creation or deletion may change discovery, a renewal does not.
    ServerChanged,
    /// A CustomResourceDefinition or APIService: every change may.
    DefinitionChanged,
}

/// Tells whether a change of this object may change what discovery lists.
pub(super) fn discovery_hint(resource: &DiscoveredResource, seen: &ObservedObject) -> DiscoveryHint {
    match (&*resource.name.group, &*resource.name.resource) {
        ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices") => {
            DiscoveryHint::DefinitionChanged
        }
        ("coordination.k8s.io", "leases")
            if &*seen.metadata.namespace == "kube-system" && seen.metadata.name.starts_with("apiserver-") =>
        {
            DiscoveryHint::ServerChanged
        }
        _ => DiscoveryHint::None,
    }
}

#[cfg(test)]
mod tests {
    use tasks::Tasks;

    use super::*;
    use crate::client::{ApiServerAddress, ClientConnections, ServerTrust};
    use crate::resources::tests::parse_resources as parse_lines;

    const VERBS: &str = "list,watch,delete";

    /// Informers that are never polled, so that they send no requests.
    fn unpolled_informers() -> Informers {
        let address =
            ApiServerAddress { socket: ([127, 0, 0, 1], 1).into(), trust: ServerTrust::Certificate("none".into()) };
        Informers::new(ApiClient::new(ClientConnections::new(address, Tasks::new()), "token", "test"))
    }

    fn describe(monitors: &Informers) -> String {
        let mut names: Vec<String> =
            monitors.informers.values().map(|monitor| monitor.resource.name.to_string()).collect();
        names.sort();
        names.join("; ")
    }

    fn parse_resources(list: &[&str]) -> DiscoveredResources {
        let lines: Vec<String> = list.iter().map(|line| format!("{line} {VERBS}")).collect();
        parse_lines(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn update_resources_keeps_listed_and_returns_gone() {
        let mut monitors = unpolled_informers();
        let all = parse_resources(&["v1 pods Pod ns", "batch/v1 jobs Job ns", "v1 events Event ns"]);
        assert!(monitors.update_resources(&all).is_empty());
        assert_eq!(describe(&monitors), "/v1, Resource=pods; batch/v1, Resource=jobs", "events expire by themselves");
        assert!(!monitors.have_started());
        let ids: Vec<InformerId> = monitors.informers.keys().copied().collect();
        for id in &ids {
            monitors.mark_synced(*id);
        }
        assert!(monitors.all_synced());
        let mut shrunk = parse_resources(&["v1 pods Pod ns"]);
        shrunk.keep_unlisted(all.find_by_kind("batch/v1", "Job").unwrap());
        assert!(monitors.update_resources(&shrunk).is_empty());
        assert!(monitors.all_synced(), "both informers continue");
        assert!(!is_discovery_complete(&shrunk), "discovery does not confirm jobs");
        let gone = monitors.update_resources(&parse_resources(&["v1 pods Pod ns"]));
        assert_eq!(
            gone.iter().map(|resource| resource.name.to_string()).collect::<Vec<_>>(),
            ["batch/v1, Resource=jobs"]
        );
        assert_eq!(describe(&monitors), "/v1, Resource=pods");
    }

    #[test]
    fn update_resources_switches_version_only_when_unavailable() {
        let mut monitors = unpolled_informers();
        monitors.update_resources(&parse_resources(&["batch/v2 jobs Job ns"]));
        let id = *monitors.informers.keys().next().unwrap();
        monitors.mark_synced(id);
        let other = parse_resources(&["batch/v1 jobs Job ns"]);
        monitors.update_resources(&other);
        assert_eq!(describe(&monitors), "batch/v2, Resource=jobs", "a synced informer keeps its version");
        assert!(monitors.mark_unavailable(id) && !monitors.mark_unavailable(id));
        assert!(monitors.have_started() && !monitors.all_synced());
        assert!(monitors.update_resources(&other).is_empty());
        assert_eq!(describe(&monitors), "batch/v1, Resource=jobs");
        assert_eq!(monitors.resource(id), None, "events of the old informer are ignored");
    }
}
