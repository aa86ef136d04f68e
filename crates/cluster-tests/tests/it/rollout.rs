//! Rolling upgrades and downgrades under load: nothing that anybody serves is ever not found, no event and no write is lost.

mod gateway;
mod load;
mod truth;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster_tests::{Client, ControlPlane, Etcd, Store, tools};
use http::Method;

use crate::block_on;
use load::Load;
use truth::Truth;

const SERVERS: [&str; 3] = ["s1", "s2", "s3"];
const RELEASES: [&str; 5] = ["1.33", "1.34", "1.35", "1.36", "1.37"];
const MERGED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const LOCAL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";
/// The bar for all servers to give the same document after a change.
const AGREE_LIMIT: Duration = Duration::from_secs(2);

/// How servers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stop,
    Kill,
}

struct Rollout<'a> {
    plane: ControlPlane<'a>,
    truth: Arc<Truth>,
    flags: &'static [&'static str],
    end: End,
}

impl Rollout<'_> {
    fn start(&mut self, server: &str, release: &str) {
        let release = format!("--emulated-version={release}");
        let flags: Vec<&str> = self.flags.iter().copied().chain([release.as_str()]).collect();
        let started = self.plane.start(server, &flags);
        let document = block_on(document(&started.admin(), LOCAL));
        self.truth.is_up(server, truth::listed(&document.1));
    }

    /// Replaces one server by one of another release.
    fn replace(&mut self, server: &str, release: &str) {
        self.truth.goes(server);
        match self.end {
            End::Stop => self.plane.stop(server),
            End::Kill => self.plane.kill(server),
        }
        self.start(server, release);
        self.agree(&format!("{server} is {release}"));
    }

    /// Waits until all servers give one document.
    fn agree(&self, after: &str) {
        let clients = SERVERS.map(|name| self.plane.admin(name));
        let begun = Instant::now();
        loop {
            let tags: Vec<String> = clients.iter().map(|client| block_on(document(client, MERGED)).0).collect();
            if tags.iter().all(|tag| *tag == tags[0]) {
                return;
            }
            assert!(begun.elapsed() < AGREE_LIMIT, "after {after} the documents differ: {tags:?}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// A server's document and its ETag.
async fn document(client: &Client, accept: &str) -> (String, serde_json::Value) {
    let answer = client.send(client.request(Method::GET, "/apis").header("accept", accept), "".into()).await;
    let etag = answer.headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    (etag, answer.json())
}

/// Rolls from the first release to the last and back, one server after another, under load.
#[track_caller]
fn roll(store: Store<'_>, releases: &[&str], flags: &'static [&'static str], end: End) {
    let truth = Arc::new(Truth::default());
    let mut rollout = Rollout { plane: ControlPlane::new(store), truth: truth.clone(), flags, end };
    for server in SERVERS {
        rollout.start(server, releases[0]);
    }
    rollout.agree("the start");
    let clients: Vec<Client> = SERVERS.iter().map(|server| rollout.plane.admin(server)).collect();
    let load = Load::start(&clients, &truth);
    let way = releases.iter().skip(1).chain(releases.iter().rev().skip(1));
    for release in way {
        for server in SERVERS {
            rollout.replace(server, release);
        }
    }
    let report = load.finish(&rollout.plane.admin(SERVERS[0]));
    assert!(report.faults.is_empty(), "{}\n{report:#?}", rollout.plane.folder().display());
    assert!(report.reads > 100 && report.writes > 50 && report.events > 50 && report.documents > 20, "{report:?}");
    assert!(report.forwarded > 20, "{report:?}");
}

const DEFAULTS: &[&str] = &["--peer-response-headers"];
const EVERYTHING: &[&str] = &["--runtime-config=api/all=true", "--peer-response-headers"];

#[test]
fn a_rolling_upgrade_and_back_by_clean_stops() {
    if tools::is_soak() {
        return in_every_way(End::Stop);
    }
    roll(Store::Sqlite, &["1.33", "1.34", "1.36"], EVERYTHING, End::Stop);
}

#[test]
fn a_rolling_upgrade_and_back_by_kills() {
    if tools::is_soak() {
        return in_every_way(End::Kill);
    }
    let etcd = Etcd::start();
    roll(Store::Etcd(&etcd), &["1.33", "1.34", "1.37"], DEFAULTS, End::Kill);
}

/// All releases, on both stores, with defaults and with everything on.
fn in_every_way(end: End) {
    for flags in [DEFAULTS, EVERYTHING] {
        let etcd = Etcd::start();
        roll(Store::Sqlite, &RELEASES, flags, end);
        roll(Store::Etcd(&etcd), &RELEASES, flags, end);
    }
}
