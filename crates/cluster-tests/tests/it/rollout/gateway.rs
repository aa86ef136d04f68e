//! Rolling upgrades of stock servers behind gateways.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cluster_tests::RunningGateway;
use cluster_tests::gateway::PEER_PROXY_OFF;
use http::StatusCode;

use super::*;

struct GatewayRollout<'a> {
    plane: ControlPlane<'a>,
    gateways: Vec<RunningGateway>,
    expected: Arc<ExpectedResources>,
    end: ServerEnd,
}

impl GatewayRollout<'_> {
    fn start_server(&mut self, server: &str, release: &str) {
        let release = format!("--emulated-version={release}");
        let started = self.plane.start(server, &[&release, PEER_PROXY_OFF, "--runtime-config=api/all=true"]);
        let served = expected_resources::listable_resources(
            &block_on(fetch_discovery(&started.admin(), LOCAL_DISCOVERY_ACCEPT)).1,
        );
        self.wait_until_live(server);
        self.wait_until_listed(server, &served);
        self.expected.server_ready(server, served);
    }

    /// Waits until every gateway considers a server live.
    fn wait_until_live(&self, server: &str) {
        let name = format!("apiserver-{}", self.plane.address(server));
        let begun = Instant::now();
        for gateway in &self.gateways {
            while !block_on(is_live(&gateway.admin(), &name)) {
                assert!(begun.elapsed() < LIVE_TIME_MAX, "{name} is not live; the log: {}", gateway.log());
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
    }

    /// Waits until every gateway lists a server's resources. A gateway may have missed a quick restart and serve the
    /// former document for up to a second.
    fn wait_until_listed(&self, server: &str, served: &BTreeSet<expected_resources::ResourcePath>) {
        let begun = Instant::now();
        std::thread::park_timeout(MERGED_AGE_MAX);
        for gateway in &self.gateways {
            let admin = gateway.admin();
            while begun.elapsed() < MERGED_AGE_MAX
                || !served.is_subset(&expected_resources::listable_resources(
                    &block_on(fetch_discovery(&admin, MERGED_DISCOVERY_ACCEPT)).1,
                ))
            {
                assert!(
                    begun.elapsed() < MERGED_AGE_MAX + AGREEMENT_TIME_MAX,
                    "what {server} serves is not listed; the log: {}",
                    gateway.log()
                );
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
    }

    fn replace_server(&mut self, server: &str, release: &str) {
        self.expected.server_stopping(server);
        match self.end {
            ServerEnd::Stop => self.plane.stop(server),
            ServerEnd::Kill => self.plane.kill(server),
        }
        self.start_server(server, release);
    }
}

/// Maximum age of a merged document that a gateway serves.
const MERGED_AGE_MAX: Duration = Duration::from_secs(1);
/// Limit for a gateway to use a ready server, on a loaded machine.
const LIVE_TIME_MAX: Duration = Duration::from_secs(30);

async fn is_live(client: &Client, name: &str) -> bool {
    let report = client.get("/debug/peers").await.json();
    let mut members = report["members"].as_array().into_iter().flatten();
    members.any(|member| member["server"] == name && member["state"] == "live")
}

/// Reads resources of servers that run before and after the request: every status must be 200.
fn read_served_resources(
    client: &Client,
    truth: &ExpectedResources,
    is_over: &AtomicBool,
    reads: &AtomicUsize,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut turn = 0;
    while !is_over.load(Ordering::Relaxed) {
        turn += 1;
        let names = truth.all_resources();
        let Some(name) = names.get(turn * 7 % names.len().max(1)) else { continue };
        let before = truth.served_by_server();
        let answer = block_on(client.get(&format!("/apis/{name}?limit=1")));
        let after = truth.served_by_server();
        let is_served_throughout = before.iter().any(|(server, (start, served))| {
            served.contains(name) && after.get(server).is_some_and(|(other, _)| other == start)
        });
        reads.fetch_add(usize::from(is_served_throughout), Ordering::Relaxed);
        if is_served_throughout && answer.status != StatusCode::OK {
            faults.push(format!("{name}: {}", answer.summary()));
        }
    }
    faults
}

#[track_caller]
fn check_gateway_rollout(store: TestStore<'_>, releases: &[&str], end: ServerEnd, upstreams: &[&[&str]]) {
    let truth = Arc::new(ExpectedResources::default());
    let mut rollout =
        GatewayRollout { plane: ControlPlane::new(store), gateways: vec![], expected: truth.clone(), end };
    for server in SERVERS {
        rollout.start_server(server, releases[0]);
    }
    for (number, upstreams) in upstreams.iter().enumerate() {
        rollout.gateways.push(RunningGateway::start(&format!("gateway-{number}"), &rollout.plane, upstreams, &[]));
    }
    for server in SERVERS {
        rollout.wait_until_live(server);
    }
    let clients: Vec<Client> = rollout.gateways.iter().map(RunningGateway::admin).collect();
    let load = RolloutLoad::start(&clients, &truth);
    let (is_over, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let readers: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, truth) = (client.clone(), truth.clone());
            let (is_over, reads) = (is_over.clone(), reads.clone());
            std::thread::spawn(move || read_served_resources(&client, &truth, &is_over, &reads))
        })
        .collect();
    for release in releases.iter().skip(1).chain(releases.iter().rev().skip(1)) {
        for server in SERVERS {
            rollout.replace_server(server, release);
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
fn rolling_upgrade_behind_one_gateway_loses_nothing() {
    let is_soak = tools::is_soak();
    let releases = if is_soak { &RELEASES[..] } else { &["1.33", "1.36"] };
    for end in if is_soak { &[ServerEnd::Stop, ServerEnd::Kill][..] } else { &[ServerEnd::Stop] } {
        // Each rollout needs its own store, because the names of the written objects repeat.
        check_gateway_rollout(TestStore::Etcd(&Etcd::start()), releases, *end, &[&SERVERS]);
    }
}

#[test]
fn rolling_upgrade_by_kills_behind_sidecar_gateways_loses_nothing() {
    let releases = if tools::is_soak() { &RELEASES[..] } else { &["1.33", "1.36"] };
    let beside = [["local=s1", "s2", "s3"], ["s1", "local=s2", "s3"], ["s1", "s2", "local=s3"]];
    let beside: Vec<&[&str]> = beside.iter().map(|upstreams| &upstreams[..]).collect();
    check_gateway_rollout(TestStore::Sqlite, releases, ServerEnd::Kill, &beside);
}
