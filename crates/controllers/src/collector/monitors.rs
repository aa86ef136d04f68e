//! The resources that are followed, and whether they can be.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::follow::{Depth, Listener, Notice, Seen, Selection, follow};
use crate::resources::{Resource, Resources, Standing};

/// How many notices may wait. A follower that is ahead waits too.
const NOTICES_MAX: usize = 256;
/// What kube-controller-manager's garbage collector leaves alone: events go by themselves.
const IGNORED: &str = "events";

/// One resource that is followed. Never given twice.
pub(super) type MonitorId = u64;

/// All that are followed.
pub(super) struct Monitors {
    client: Client,
    monitors: HashMap<MonitorId, Monitor>,
    next_id: MonitorId,
    followers: FuturesUnordered<BoxFuture<'static, ()>>,
    sender: mpsc::Sender<(MonitorId, Notice)>,
    notices: mpsc::Receiver<(MonitorId, Notice)>,
}

struct Monitor {
    resource: Arc<Resource>,
    state: State,
    abort: AbortHandle,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Listed,
    Away,
}

impl Monitors {
    pub(super) fn new(client: Client) -> Self {
        let (sender, notices) = mpsc::channel(NOTICES_MAX);
        let followers = FuturesUnordered::new();
        Self { client, monitors: HashMap::new(), next_id: 0, followers, sender, notices }
    }

    /// Follows all that can be watched and deleted. What is followed already goes on, whatever version stands for it now; what
    /// is not among them any more was proven gone, and is given back.
    pub(super) fn follow(&mut self, resources: &Resources) -> Vec<Arc<Resource>> {
        let mut gone = Vec::new();
        let is_wanted = |resource: &&Arc<Resource>| resource.can("watch") && *resource.name.resource != *IGNORED;
        let mut wanted: Vec<&Arc<Resource>> = resources.deletable().filter(is_wanted).collect();
        self.monitors.retain(|_, monitor| {
            let same = |each: &&Arc<Resource>| each.group_resource() == monitor.resource.group_resource();
            let stays = match wanted.iter().position(same) {
                None => {
                    gone.push(monitor.resource.clone());
                    false
                }
                // One that cannot be followed is tried by the version that stands for it now.
                Some(at) if wanted[at].name != monitor.resource.name && monitor.state != State::Listed => false,
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

    fn start(&mut self, resource: Arc<Resource>) {
        let id = self.next_id;
        self.next_id += 1;
        let selection = Selection { path: resource.path(""), query: "", depth: Depth::Metadata };
        let listener = Listener { id, notices: self.sender.clone() };
        let (abort, registration) = AbortHandle::new_pair();
        let following = Abortable::new(follow(self.client.clone(), selection, listener), registration);
        self.followers.push(Box::pin(async move {
            // Aborted is what it is to be.
            let _ = following.await;
        }));
        self.monitors.insert(id, Monitor { resource, state: State::New, abort });
    }

    /// The next notice of anybody. May be dropped and asked again.
    pub(super) async fn next(&mut self) -> (MonitorId, Notice) {
        loop {
            tokio::select! {
                notice = self.notices.recv() => match notice {
                    Some(notice) => return notice,
                    None => return std::future::pending().await,
                },
                _ = next_ended(&mut self.followers) => {}
            }
        }
    }

    /// What a monitor follows; `None` if it does no longer.
    pub(super) fn resource(&self, id: MonitorId) -> Option<Arc<Resource>> {
        self.monitors.get(&id).map(|monitor| monitor.resource.clone())
    }

    pub(super) fn mark_listed(&mut self, id: MonitorId) {
        self.mark(id, State::Listed);
    }

    /// Whether it was not away before.
    pub(super) fn mark_away(&mut self, id: MonitorId) -> bool {
        self.mark(id, State::Away) != Some(State::Away)
    }

    fn mark(&mut self, id: MonitorId, state: State) -> Option<State> {
        self.monitors.get_mut(&id).map(|monitor| std::mem::replace(&mut monitor.state, state))
    }

    /// Whether each was listed, or is known to be away.
    pub(super) fn have_begun(&self) -> bool {
        !self.monitors.is_empty() && self.monitors.values().all(|monitor| monitor.state != State::New)
    }

    /// Whether each is followed now.
    pub(super) fn all_listed(&self) -> bool {
        !self.monitors.is_empty() && self.monitors.values().all(|monitor| monitor.state == State::Listed)
    }
}

async fn next_ended(followers: &mut FuturesUnordered<BoxFuture<'static, ()>>) {
    if followers.is_empty() {
        return std::future::pending().await;
    }
    Pin::new(followers).next().await;
}

/// Whether discovery confirms everything that it lists or listed.
pub(super) fn is_whole(resources: &Resources) -> bool {
    resources.stale().is_empty() && resources.all().iter().all(|resource| resource.standing == Standing::Confirmed)
}

/// What an object that comes, changes or goes says about discovery.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// Nothing.
    None,
    /// A server comes or goes; that it renews its lease says nothing.
    Server,
    /// A definition: every change of it may show.
    Definition,
}

/// Whether discovery may change with an object.
pub(super) fn sign_of(resource: &Resource, seen: &Seen) -> Sign {
    match (&*resource.name.group, &*resource.name.resource) {
        ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices") => {
            Sign::Definition
        }
        ("coordination.k8s.io", "leases")
            if &*seen.metadata.namespace == "kube-system" && seen.metadata.name.starts_with("apiserver-") =>
        {
            Sign::Server
        }
        _ => Sign::None,
    }
}

#[cfg(test)]
mod tests {
    use tasks::Tasks;

    use super::*;
    use crate::client::{Address, Connections};
    use crate::resources::tests::resources;

    const VERBS: &str = "list,watch,delete";

    /// Monitors that are never polled, so that nobody is asked.
    fn monitors() -> Monitors {
        let address = Address { socket: ([127, 0, 0, 1], 1).into(), certificate: "none".into() };
        Monitors::new(Client::new(Connections::new(address, Tasks::new()), "token", "test"))
    }

    fn followed(monitors: &Monitors) -> String {
        let mut names: Vec<String> =
            monitors.monitors.values().map(|monitor| monitor.resource.name.to_string()).collect();
        names.sort();
        names.join("; ")
    }

    fn lines(list: &[&str]) -> Resources {
        let lines: Vec<String> = list.iter().map(|line| format!("{line} {VERBS}")).collect();
        resources(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_kept_is_followed_and_what_is_gone_is_given_back() {
        let mut monitors = monitors();
        let all = lines(&["v1 pods Pod ns", "batch/v1 jobs Job ns", "v1 events Event ns"]);
        assert!(monitors.follow(&all).is_empty());
        assert_eq!(followed(&monitors), "/v1, Resource=pods; batch/v1, Resource=jobs", "events go by themselves");
        assert!(!monitors.have_begun());
        let ids: Vec<MonitorId> = monitors.monitors.keys().copied().collect();
        for id in &ids {
            monitors.mark_listed(*id);
        }
        assert!(monitors.all_listed());
        let mut shrunk = lines(&["v1 pods Pod ns"]);
        shrunk.keep_unlisted(all.of_kind("batch/v1", "Job").unwrap());
        assert!(monitors.follow(&shrunk).is_empty());
        assert!(monitors.all_listed(), "both go on as they were");
        assert!(!is_whole(&shrunk), "and yet not everything is confirmed");
        let gone = monitors.follow(&lines(&["v1 pods Pod ns"]));
        assert_eq!(
            gone.iter().map(|resource| resource.name.to_string()).collect::<Vec<_>>(),
            ["batch/v1, Resource=jobs"]
        );
        assert_eq!(followed(&monitors), "/v1, Resource=pods");
    }

    #[test]
    fn another_version_takes_over_only_from_one_that_cannot_be_followed() {
        let mut monitors = monitors();
        monitors.follow(&lines(&["batch/v2 jobs Job ns"]));
        let id = *monitors.monitors.keys().next().unwrap();
        monitors.mark_listed(id);
        let other = lines(&["batch/v1 jobs Job ns"]);
        monitors.follow(&other);
        assert_eq!(followed(&monitors), "batch/v2, Resource=jobs", "the objects are the same");
        assert!(monitors.mark_away(id) && !monitors.mark_away(id));
        assert!(monitors.have_begun() && !monitors.all_listed());
        assert!(monitors.follow(&other).is_empty());
        assert_eq!(followed(&monitors), "batch/v1, Resource=jobs");
        assert_eq!(monitors.resource(id), None, "what the old one still says is not heard");
    }
}
