//! Rolling upgrades and downgrades under load: no wrong 404, no lost event, no lost write.

mod expected_resources;
mod gateway;
mod load;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster_tests::{Client, ControlPlane, Etcd, TestStore, tools};
use http::Method;

use crate::block_on;
use expected_resources::ExpectedResources;
use load::RolloutLoad;

const SERVERS: [&str; 3] = ["s1", "s2", "s3"];
const RELEASES: [&str; 5] = ["1.33", "1.34", "1.35", "1.36", "1.37"];
const MERGED_DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const LOCAL_DISCOVERY_ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";
/// Limit for all servers to return the same discovery document after a change.
const AGREEMENT_TIME_MAX: Duration = Duration::from_secs(2);

/// How a server is taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerEnd {
    Stop,
    Kill,
}

struct PeerRollout<'a> {
    plane: ControlPlane<'a>,
    expected: Arc<ExpectedResources>,
    flags: &'static [&'static str],
    end: ServerEnd,
}

impl PeerRollout<'_> {
    fn start_server(&mut self, server: &str, release: &str) {
        let release = format!("--emulated-version={release}");
        let flags: Vec<&str> = self.flags.iter().copied().chain([release.as_str()]).collect();
        let started = self.plane.start(server, &flags);
        let document = block_on(fetch_discovery(&started.admin(), LOCAL_DISCOVERY_ACCEPT));
        self.expected.server_ready(server, expected_resources::listable_resources(&document.1));
    }

    /// Replaces a server by one of another release.
    fn replace_server(&mut self, server: &str, release: &str) {
        self.expected.server_stopping(server);
        match self.end {
            ServerEnd::Stop => self.plane.stop(server),
            ServerEnd::Kill => self.plane.kill(server),
        }
        self.start_server(server, release);
        self.wait_for_agreement(&format!("{server} is {release}"));
    }

    /// Waits until all servers return the same document.
    fn wait_for_agreement(&self, after: &str) {
        let clients = SERVERS.map(|name| self.plane.admin(name));
        let begun = Instant::now();
        loop {
            let tags: Vec<String> =
                clients.iter().map(|client| block_on(fetch_discovery(client, MERGED_DISCOVERY_ACCEPT)).0).collect();
            if tags.iter().all(|tag| *tag == tags[0]) {
                return;
            }
            assert!(begun.elapsed() < AGREEMENT_TIME_MAX, "after {after} the documents differ: {tags:?}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Fetches a server's discovery document and its ETag.
async fn fetch_discovery(client: &Client, accept: &str) -> (String, serde_json::Value) {
    let answer = client.send(client.request_builder(Method::GET, "/apis").header("accept", accept), "".into()).await;
    let etag = answer.headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    (etag, answer.json())
}

/// Rolls from the first release to the last and back, one server at a time, under load.
#[track_caller]
fn check_rollout(store: TestStore<'_>, releases: &[&str], flags: &'static [&'static str], end: ServerEnd) {
    let truth = Arc::new(ExpectedResources::default());
    let mut rollout = PeerRollout { plane: ControlPlane::new(store), expected: truth.clone(), flags, end };
    for server in SERVERS {
        rollout.start_server(server, releases[0]);
    }
    rollout.wait_for_agreement("the start");
    let clients: Vec<Client> = SERVERS.iter().map(|server| rollout.plane.admin(server)).collect();
    let load = RolloutLoad::start(&clients, &truth);
    let way = releases.iter().skip(1).chain(releases.iter().rev().skip(1));
    for release in way {
        for server in SERVERS {
            rollout.replace_server(server, release);
        }
    }
    let report = load.finish(&rollout.plane.admin(SERVERS[0]));
    assert!(report.faults.is_empty(), "{}\n{report:#?}", rollout.plane.folder().display());
    assert!(report.reads > 100 && report.writes > 50 && report.events > 50 && report.documents > 20, "{report:?}");
    assert!(report.forwarded > 20, "{report:?}");
}

const DEFAULT_FLAGS: &[&str] = &["--peer-response-headers"];
const ALL_APIS_FLAGS: &[&str] = &["--runtime-config=api/all=true", "--peer-response-headers"];

#[test]
fn rolling_upgrade_by_clean_stops_loses_nothing() {
    if tools::is_soak() {
        return check_all_rollouts(ServerEnd::Stop);
    }
    check_rollout(TestStore::Sqlite, &["1.33", "1.34", "1.36"], ALL_APIS_FLAGS, ServerEnd::Stop);
}

#[test]
fn rolling_upgrade_by_kills_loses_nothing() {
    if tools::is_soak() {
        return check_all_rollouts(ServerEnd::Kill);
    }
    let etcd = Etcd::start();
    check_rollout(TestStore::Etcd(&etcd), &["1.33", "1.34", "1.37"], DEFAULT_FLAGS, ServerEnd::Kill);
}

/// Runs all releases on both stores, with default flags and with all APIs enabled.
fn check_all_rollouts(end: ServerEnd) {
    for flags in [DEFAULT_FLAGS, ALL_APIS_FLAGS] {
        let etcd = Etcd::start();
        check_rollout(TestStore::Sqlite, &RELEASES, flags, end);
        check_rollout(TestStore::Etcd(&etcd), &RELEASES, flags, end);
    }
}
