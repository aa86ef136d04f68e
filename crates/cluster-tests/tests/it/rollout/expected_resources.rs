//! What must be served at any moment, learned from each server itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

/// Group, version and resource, as in a path below `/apis/`.
pub(super) type ResourcePath = String;

/// Less than the linger of the servers, so that the end of it is nobody's fault.
const LINGER: Duration = Duration::from_secs(50);

/// Who serves what, and who did lately.
#[derive(Default)]
pub(super) struct ExpectedResources(Mutex<ExpectedState>);

#[derive(Default)]
struct ExpectedState {
    /// What the servers that are up serve, with the number of their start.
    up: BTreeMap<String, (u64, BTreeSet<ResourcePath>)>,
    starts: u64,
    /// When a server that served it was last taken down.
    left: HashMap<ResourcePath, Instant>,
}

impl ExpectedResources {
    /// A server is ready and serves this itself.
    pub(super) fn server_ready(&self, server: &str, serves: BTreeSet<ResourcePath>) {
        let mut state = self.0.lock();
        state.starts += 1;
        let start = state.starts;
        state.up.insert(server.to_owned(), (start, serves));
    }

    /// A server is about to go.
    pub(super) fn server_stopping(&self, server: &str) {
        let mut state = self.0.lock();
        let (_, served) = state.up.remove(server).unwrap_or_default();
        let now = Instant::now();
        state.left.extend(served.into_iter().map(|name| (name, now)));
    }

    /// Every name that anybody served so far.
    pub(super) fn all_resources(&self) -> Vec<ResourcePath> {
        let state = self.0.lock();
        let up = state.up.values().flat_map(|(_, served)| served);
        let all: BTreeSet<_> = up.chain(state.left.keys()).cloned().collect();
        all.into_iter().collect()
    }

    /// The names that not every server serves, or that were served lately.
    pub(super) fn skewed_resources(&self) -> Vec<ResourcePath> {
        let state = self.0.lock();
        let is_everywhere = |name: &ResourcePath| state.up.values().all(|(_, served)| served.contains(name));
        let names: BTreeSet<_> =
            state.up.values().flat_map(|(_, served)| served).chain(state.left.keys()).cloned().collect();
        names.into_iter().filter(|name| !is_everywhere(name)).collect()
    }

    /// Whether nobody may say 404 to it now.
    pub(super) fn must_not_be_404(&self, name: &str) -> bool {
        let state = self.0.lock();
        state.up.values().any(|(_, served)| served.contains(name))
            || state.left.get(name).is_some_and(|left| left.elapsed() < LINGER)
    }

    /// What the servers that are up serve, to be compared with what a document lists that was asked for afterwards.
    pub(super) fn served_by_server(&self) -> BTreeMap<String, (u64, BTreeSet<ResourcePath>)> {
        self.0.lock().up.clone()
    }
}

/// The names in a discovery document, without those of stale versions, which clients throw away.
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
