//! The resources that are followed, and whether they can be.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use crate::client::ApiClient;
use crate::informer::{EventSink, InformerEvent, InformerScope, ObjectDetail, ObservedObject, run_informer};
use crate::resources::{DiscoveredResource, DiscoveredResources, DiscoveryState};

/// How many notices may wait. A follower that is ahead waits too.
const EVENTS_MAX: usize = 256;
/// What kube-controller-manager's garbage collector leaves alone: events go by themselves.
const IGNORED_RESOURCE: &str = "events";

/// One resource that is followed. Never given twice.
pub(super) type InformerId = u64;

/// All that are followed.
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

    /// Follows all that can be watched and deleted. What is followed already goes on, whatever version stands for it now; what
    /// is not among them any more was proven gone, and is given back.
    pub(super) fn update_resources(&mut self, resources: &DiscoveredResources) -> Vec<Arc<DiscoveredResource>> {
        let mut gone = Vec::new();
        let is_wanted = |resource: &&Arc<DiscoveredResource>| {
            resource.supports("watch") && *resource.name.resource != *IGNORED_RESOURCE
        };
        let mut wanted: Vec<&Arc<DiscoveredResource>> = resources.deletable().filter(is_wanted).collect();
        self.informers.retain(|_, monitor| {
            let same = |each: &&Arc<DiscoveredResource>| each.group_resource() == monitor.resource.group_resource();
            let stays = match wanted.iter().position(same) {
                None => {
                    gone.push(monitor.resource.clone());
                    false
                }
                // One that cannot be followed is tried by the version that stands for it now.
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
            // Aborted is what it is to be.
            let _ = following.await;
        }));
        self.informers.insert(id, Informer { resource, state: InformerState::Starting, abort });
    }

    /// The next notice of anybody. May be dropped and asked again.
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

    /// What a monitor follows; `None` if it does no longer.
    pub(super) fn resource(&self, id: InformerId) -> Option<Arc<DiscoveredResource>> {
        self.informers.get(&id).map(|monitor| monitor.resource.clone())
    }

    pub(super) fn mark_synced(&mut self, id: InformerId) {
        self.set_state(id, InformerState::Synced);
    }

    /// Whether it was not away before.
    pub(super) fn mark_unavailable(&mut self, id: InformerId) -> bool {
        self.set_state(id, InformerState::Unavailable) != Some(InformerState::Unavailable)
    }

    fn set_state(&mut self, id: InformerId, state: InformerState) -> Option<InformerState> {
        self.informers.get_mut(&id).map(|monitor| std::mem::replace(&mut monitor.state, state))
    }

    /// Whether each was listed, or is known to be away.
    pub(super) fn have_started(&self) -> bool {
        !self.informers.is_empty() && self.informers.values().all(|monitor| monitor.state != InformerState::Starting)
    }

    /// Whether each is followed now.
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

/// Whether discovery confirms everything that it lists or listed.
pub(super) fn is_discovery_complete(resources: &DiscoveredResources) -> bool {
    resources.stale_versions().is_empty()
        && resources.all().iter().all(|resource| resource.discovery_state == DiscoveryState::Confirmed)
}

/// What an object that comes, changes or goes says about discovery.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DiscoveryHint {
    /// Nothing.
    None,
    /// A server comes or goes; that it renews its lease says nothing.
    ServerChanged,
    /// A definition: every change of it may show.
    DefinitionChanged,
}

/// Whether discovery may change with an object.
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
    use crate::client::{ApiServerAddress, ClientConnections};
    use crate::resources::tests::parse_resources as parse_lines;

    const VERBS: &str = "list,watch,delete";

    /// Monitors that are never polled, so that nobody is asked.
    fn unpolled_informers() -> Informers {
        let address = ApiServerAddress { socket: ([127, 0, 0, 1], 1).into(), certificate: "none".into() };
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
        assert_eq!(describe(&monitors), "/v1, Resource=pods; batch/v1, Resource=jobs", "events go by themselves");
        assert!(!monitors.have_started());
        let ids: Vec<InformerId> = monitors.informers.keys().copied().collect();
        for id in &ids {
            monitors.mark_synced(*id);
        }
        assert!(monitors.all_synced());
        let mut shrunk = parse_resources(&["v1 pods Pod ns"]);
        shrunk.keep_unlisted(all.find_by_kind("batch/v1", "Job").unwrap());
        assert!(monitors.update_resources(&shrunk).is_empty());
        assert!(monitors.all_synced(), "both go on as they were");
        assert!(!is_discovery_complete(&shrunk), "and yet not everything is confirmed");
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
        assert_eq!(describe(&monitors), "batch/v2, Resource=jobs", "the objects are the same");
        assert!(monitors.mark_unavailable(id) && !monitors.mark_unavailable(id));
        assert!(monitors.have_started() && !monitors.all_synced());
        assert!(monitors.update_resources(&other).is_empty());
        assert_eq!(describe(&monitors), "batch/v1, Resource=jobs");
        assert_eq!(monitors.resource(id), None, "what the old one still says is not heard");
    }
}
