//! The same through gateways, before servers that know nothing of each other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cluster_tests::Gateway;
use cluster_tests::gateway::STOCK;
use http::StatusCode;

use super::*;

struct GatewayRollout<'a> {
    plane: ControlPlane<'a>,
    gateways: Vec<Gateway>,
    truth: Arc<Truth>,
    end: End,
}

impl GatewayRollout<'_> {
    fn start(&mut self, server: &str, release: &str) {
        let release = format!("--emulated-version={release}");
        let started = self.plane.start(server, &[&release, STOCK, "--runtime-config=api/all=true"]);
        let served = truth::listed(&block_on(document(&started.admin(), LOCAL)).1);
        self.wait_live(server);
        self.wait_listed(server, &served);
        self.truth.is_up(server, served);
    }

    /// Waits until every gateway sends requests to a server.
    fn wait_live(&self, server: &str) {
        let name = format!("apiserver-{}", self.plane.address(server));
        let begun = Instant::now();
        for gateway in &self.gateways {
            while !block_on(is_live(&gateway.admin(), &name)) {
                assert!(begun.elapsed() < GATEWAY_LIMIT, "{name} is not live; the log: {}", gateway.log());
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
    }

    /// Waits until every gateway lists what a server serves, and not because of what another served once: a server that was back
    /// at once may never have been missed, and is known by its former document for up to a second.
    fn wait_listed(&self, server: &str, served: &BTreeSet<truth::Name>) {
        let begun = Instant::now();
        std::thread::park_timeout(MERGED_AGE_MAX);
        for gateway in &self.gateways {
            let admin = gateway.admin();
            while begun.elapsed() < MERGED_AGE_MAX
                || !served.is_subset(&truth::listed(&block_on(document(&admin, MERGED)).1))
            {
                assert!(
                    begun.elapsed() < MERGED_AGE_MAX + AGREE_LIMIT,
                    "what {server} serves is not listed; the log: {}",
                    gateway.log()
                );
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
    }

    fn replace(&mut self, server: &str, release: &str) {
        self.truth.goes(server);
        match self.end {
            End::Stop => self.plane.stop(server),
            End::Kill => self.plane.kill(server),
        }
        self.start(server, release);
    }
}

/// How old a merged document may be that a gateway serves.
const MERGED_AGE_MAX: Duration = Duration::from_secs(1);
/// How soon a gateway sends requests to a server that is ready, on a loaded machine.
const GATEWAY_LIMIT: Duration = Duration::from_secs(30);

async fn is_live(client: &Client, name: &str) -> bool {
    let report = client.get("/debug/peers").await.json();
    let mut members = report["members"].as_array().into_iter().flatten();
    members.any(|member| member["server"] == name && member["state"] == "live")
}

/// Reads what a server serves that is there before and after: nothing but 200 will do.
fn read_what_lives(client: &Client, truth: &Truth, is_over: &AtomicBool, reads: &AtomicUsize) -> Vec<String> {
    let mut faults = Vec::new();
    let mut turn = 0;
    while !is_over.load(Ordering::Relaxed) {
        turn += 1;
        let names = truth.names();
        let Some(name) = names.get(turn * 7 % names.len().max(1)) else { continue };
        let before = truth.now();
        let answer = block_on(client.get(&format!("/apis/{name}?limit=1")));
        let after = truth.now();
        let lives = before.iter().any(|(server, (start, served))| {
            served.contains(name) && after.get(server).is_some_and(|(other, _)| other == start)
        });
        reads.fetch_add(usize::from(lives), Ordering::Relaxed);
        if lives && answer.status != StatusCode::OK {
            faults.push(format!("{name}: {}", answer.brief()));
        }
    }
    faults
}

#[track_caller]
fn roll(store: Store<'_>, releases: &[&str], end: End, upstreams: &[&[&str]]) {
    let truth = Arc::new(Truth::default());
    let mut rollout = GatewayRollout { plane: ControlPlane::new(store), gateways: vec![], truth: truth.clone(), end };
    for server in SERVERS {
        rollout.start(server, releases[0]);
    }
    for (number, upstreams) in upstreams.iter().enumerate() {
        rollout.gateways.push(Gateway::start(&format!("gateway-{number}"), &rollout.plane, upstreams, &[]));
    }
    for server in SERVERS {
        rollout.wait_live(server);
    }
    let clients: Vec<Client> = rollout.gateways.iter().map(Gateway::admin).collect();
    let load = Load::start(&clients, &truth);
    let (is_over, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let readers: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, truth) = (client.clone(), truth.clone());
            let (is_over, reads) = (is_over.clone(), reads.clone());
            std::thread::spawn(move || read_what_lives(&client, &truth, &is_over, &reads))
        })
        .collect();
    for release in releases.iter().skip(1).chain(releases.iter().rev().skip(1)) {
        for server in SERVERS {
            rollout.replace(server, release);
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let mut faults: BTreeSet<String> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    let report = load.finish(&clients[0]);
    faults.extend(report.faults.iter().cloned());
    assert!(faults.is_empty(), "{}\n{faults:#?}\n{report:?}", rollout.plane.folder().display());
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads > 50 && report.writes > 50 && report.events > 50 && report.documents > 20, "{reads} {report:?}");
}

#[test]
fn a_rolling_upgrade_and_back_behind_one_gateway() {
    let is_soak = tools::is_soak();
    let releases = if is_soak { &RELEASES[..] } else { &["1.33", "1.36"] };
    for end in if is_soak { &[End::Stop, End::Kill][..] } else { &[End::Stop] } {
        // Each has a store of its own: what is written has the same names.
        roll(Store::Etcd(&Etcd::start()), releases, *end, &[&SERVERS]);
    }
}

#[test]
fn a_rolling_upgrade_and_back_by_kills_behind_a_gateway_beside_each_server() {
    let releases = if tools::is_soak() { &RELEASES[..] } else { &["1.33", "1.36"] };
    let beside = [["local=s1", "s2", "s3"], ["s1", "local=s2", "s3"], ["s1", "s2", "local=s3"]];
    let beside: Vec<&[&str]> = beside.iter().map(|upstreams| &upstreams[..]).collect();
    roll(Store::Sqlite, releases, End::Kill, &beside);
}
