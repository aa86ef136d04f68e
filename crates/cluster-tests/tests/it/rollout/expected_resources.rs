//! Resources that must be served at a given moment, learned from each server's own discovery document.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

/// Group, version and resource, as in a path below `/apis/`.
pub(super) type ResourcePath = String;

/// Shorter than the servers' linger, so that its end is never counted as a fault.
const LINGER: Duration = Duration::from_secs(50);

/// Which servers serve which resources, or did recently.
#[derive(Default)]
pub(super) struct ExpectedResources(Mutex<ExpectedState>);

#[derive(Default)]
struct ExpectedState {
    /// Resources of the running servers, with the number of their start.
    up: BTreeMap<String, (u64, BTreeSet<ResourcePath>)>,
    starts: u64,
    /// When a server that served the resource was last taken down.
    left: HashMap<ResourcePath, Instant>,
}

impl ExpectedResources {
    /// Records that a server is ready and serves these resources itself.
    pub(super) fn server_ready(&self, server: &str, serves: BTreeSet<ResourcePath>) {
        let mut state = self.0.lock();
        state.starts += 1;
        let start = state.starts;
        state.up.insert(server.to_owned(), (start, serves));
    }

    /// Records that a server is about to be taken down.
    pub(super) fn server_stopping(&self, server: &str) {
        let mut state = self.0.lock();
        let (_, served) = state.up.remove(server).unwrap_or_default();
        let now = Instant::now();
        state.left.extend(served.into_iter().map(|name| (name, now)));
    }

    /// All resources that any server has served so far.
    pub(super) fn all_resources(&self) -> Vec<ResourcePath> {
        let state = self.0.lock();
        let up = state.up.values().flat_map(|(_, served)| served);
        let all: BTreeSet<_> = up.chain(state.left.keys()).cloned().collect();
        all.into_iter().collect()
    }

    /// Resources that not every server serves, or that were served recently.
    pub(super) fn skewed_resources(&self) -> Vec<ResourcePath> {
        let state = self.0.lock();
        let is_everywhere = |name: &ResourcePath| state.up.values().all(|(_, served)| served.contains(name));
        let names: BTreeSet<_> =
            state.up.values().flat_map(|(_, served)| served).chain(state.left.keys()).cloned().collect();
        names.into_iter().filter(|name| !is_everywhere(name)).collect()
    }

    /// True if a 404 for this resource would be wrong now.
    pub(super) fn must_not_be_404(&self, name: &str) -> bool {
        let state = self.0.lock();
        state.up.values().any(|(_, served)| served.contains(name))
            || state.left.get(name).is_some_and(|left| left.elapsed() < LINGER)
    }

    /// Resources of the running servers, for comparison with a document that is requested afterwards.
    pub(super) fn served_by_server(&self) -> BTreeMap<String, (u64, BTreeSet<ResourcePath>)> {
        self.0.lock().up.clone()
    }
}

/// Resources in a discovery document, without stale versions, which clients ignore.
pub(super) fn listable_resources(document: &Value) -> BTreeSet<ResourcePath> {
    let mut names = BTreeSet::new();
    for group in document["items"].as_array().into_iter().flatten() {
        let group_name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in group["versions"].as_array().into_iter().flatten() {
            if version["freshness"] == "Stale" {
                continue;
            }
            for resource in version["resources"].as_array().into_iter().flatten() {
                let verbs = resource["verbs"].to_string();
                if verbs.contains("\"list\"") {
                    let version = version["version"].as_str().unwrap_or_default();
                    names.insert(format!(
                        "{group_name}/{version}/{}",
                        resource["resource"].as_str().unwrap_or_default()
                    ));
                }
            }
        }
    }
    names
}
