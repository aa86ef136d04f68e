//! Permanent load: a writer, readers, a watcher and a discovery reader, each through any running server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster_tests::client::{FullResponse, SendFailure};
use cluster_tests::{Client, WatchReader};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::MERGED_DISCOVERY_ACCEPT;
use super::expected_resources::{ExpectedResources, listable_resources};
use crate::{CONFIG_MAPS_PATH, block_on};

const ROUTING_RULE_HEADER: &str = "x-unskew-routing-rule";

/// Counts and faults of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadReport {
    pub(super) reads: u64,
    pub(super) unavailable: u64,
    pub(super) forwarded: u64,
    pub(super) writes: u64,
    pub(super) unknown_writes: u64,
    pub(super) events: u64,
    pub(super) resumed_watches: u64,
    pub(super) documents: u64,
    /// Violations, with time and server.
    pub(super) faults: Vec<String>,
}

/// The running load.
pub(super) struct RolloutLoad {
    shared: Arc<LoadState>,
    threads: Vec<JoinHandle<()>>,
}

struct LoadState {
    clients: Vec<Client>,
    next_client: AtomicUsize,
    expected: Arc<ExpectedResources>,
    is_over: AtomicBool,
    begun: Instant,
    report: Mutex<LoadReport>,
    /// Names of writes, and whether each was acknowledged.
    written: Mutex<BTreeMap<String, bool>>,
    /// True once the watcher knows its start revision; it must see every later write.
    is_watching: AtomicBool,
    /// Names that the watcher saw, in order.
    seen: Mutex<Vec<String>>,
}

impl RolloutLoad {
    pub(super) fn start(clients: &[Client], truth: &Arc<ExpectedResources>) -> Self {
        let shared = Arc::new(LoadState {
            clients: clients.to_vec(),
            next_client: AtomicUsize::new(0),
            expected: truth.clone(),
            is_over: AtomicBool::new(false),
            begun: Instant::now(),
            report: Mutex::default(),
            written: Mutex::default(),
            is_watching: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let works: [fn(&LoadState); 4] = [
            LoadState::write_repeatedly,
            LoadState::read_repeatedly,
            LoadState::watch_repeatedly,
            LoadState::check_discovery_repeatedly,
        ];
        let threads = works.map(|work| {
            let shared = shared.clone();
            std::thread::spawn(move || work(&shared))
        });
        Self { shared, threads: threads.into() }
    }

    /// Stops the load and compares acknowledged writes with stored objects and watch events.
    pub(super) fn finish(self, client: &Client) -> LoadReport {
        // A final write after all others: the watcher has seen everything once it sees this one.
        self.shared.is_over.store(true, Ordering::Relaxed);
        let mut threads = self.threads.into_iter();
        threads.next().unwrap().join().unwrap();
        block_on(client.create(CONFIG_MAPS_PATH, &config_map("the-end")));
        for thread in threads {
            thread.join().unwrap();
        }
        let mut report = self.shared.report.lock().clone();
        let stored = block_on(client.get(CONFIG_MAPS_PATH)).json();
        let stored: Vec<&str> =
            stored["items"].as_array().unwrap().iter().filter_map(|item| item["data"]["write"].as_str()).collect();
        let seen = self.shared.seen.lock();
        for (write, is_acknowledged) in &*self.shared.written.lock() {
            let copies = stored.iter().filter(|other| *other == write).count();
            let sights = seen.iter().filter(|other| *other == write).count();
            if copies > 1 || (*is_acknowledged && copies == 0) {
                report.faults.push(format!("write {write} is stored {copies} times, acknowledged: {is_acknowledged}"));
            }
            if sights != copies {
                report.faults.push(format!("write {write} is stored {copies} times and was seen {sights} times"));
            }
        }
        report
    }
}

fn config_map(write: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "w-"}, "data": {"write": write}})
}

impl LoadState {
    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn update_report(&self, note: impl FnOnce(&mut LoadReport)) {
        note(&mut self.report.lock());
    }

    fn pick_client(&self) -> &Client {
        &self.clients[self.next_client.fetch_add(1, Ordering::Relaxed) % self.clients.len()]
    }

    /// Records a violation with time and server.
    fn record_fault(&self, client: &Client, what: &str) {
        let (at, address) = (self.begun.elapsed(), client.address());
        self.update_report(|report| report.faults.push(format!("{at:.3?} {address} {what}")));
    }

    fn write_repeatedly(&self) {
        while !self.is_watching.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let mut number = 0;
        while self.is_running() {
            number += 1;
            let name = format!("write-{number:05}");
            let client = self.pick_client();
            let body = config_map(&name).to_string();
            let request =
                client.request_builder(Method::POST, CONFIG_MAPS_PATH).header("content-type", "application/json");
            match block_on(client.try_send(request, body.into())) {
                Err(SendFailure::NotSent) => {}
                Err(SendFailure::ConnectionBroken) => {
                    self.written.lock().insert(name, false);
                    self.update_report(|report| report.unknown_writes += 1);
                }
                Ok(answer) if answer.status == StatusCode::CREATED => {
                    self.written.lock().insert(name, true);
                    self.update_report(|report| report.writes += 1);
                }
                Ok(answer) if answer.status == StatusCode::SERVICE_UNAVAILABLE => {
                    self.written.lock().insert(name, false);
                    self.update_report(|report| report.unavailable += 1);
                }
                Ok(answer) => self.record_fault(client, &format!("a write: {}", answer.summary())),
            }
        }
    }

    fn read_repeatedly(&self) {
        let mut turn = 0;
        while self.is_running() {
            // Resources that differ between servers are read three times as often.
            turn += 1;
            let names = if turn % 4 == 0 { self.expected.all_resources() } else { self.expected.skewed_resources() };
            let Some(name) = names.get(turn % names.len().max(1)) else { continue };
            // Evaluated before the request is sent, because a server may start meanwhile.
            let must_not_be_404 = self.expected.must_not_be_404(name);
            let client = self.pick_client();
            let request = client.request_builder(Method::GET, &format!("/apis/{name}?limit=1"));
            let Ok(answer) = block_on(client.try_send(request, "".into())) else { continue };
            self.update_report(|report| report.reads += 1);
            self.check_read(client, name, &answer, must_not_be_404);
        }
    }

    fn check_read(&self, client: &Client, name: &str, answer: &FullResponse, must_not_be_404: bool) {
        if answer.headers.get(ROUTING_RULE_HEADER).is_some_and(|rule| rule == "5") {
            self.update_report(|report| report.forwarded += 1);
        }
        match answer.status {
            StatusCode::OK => {}
            StatusCode::SERVICE_UNAVAILABLE => self.update_report(|report| report.unavailable += 1),
            StatusCode::NOT_FOUND if !must_not_be_404 => {}
            _ => self.record_fault(client, &format!("{name}: {}", answer.summary())),
        }
    }

    fn watch_repeatedly(&self) {
        let first = loop {
            let client = self.pick_client();
            let request = client.request_builder(Method::GET, &format!("{CONFIG_MAPS_PATH}?limit=1"));
            if let Ok(answer) = block_on(client.try_send(request, "".into())) {
                break answer.json();
            }
        };
        let mut last = first["metadata"]["resourceVersion"].as_str().unwrap_or("1").to_owned();
        self.is_watching.store(true, Ordering::Relaxed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            loop {
                let path = format!("{CONFIG_MAPS_PATH}?watch=1&resourceVersion={last}");
                match WatchReader::open_if_reachable(self.pick_client(), &path).await {
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                    Some(Err(StatusCode::SERVICE_UNAVAILABLE)) => {}
                    Some(Err(status)) => {
                        self.update_report(|report| report.faults.push(format!("a watch: {status}")));
                        return;
                    }
                    Some(Ok(lines)) => {
                        if self.read_watch(lines, &mut last).await {
                            return;
                        }
                        self.update_report(|report| report.resumed_watches += 1);
                    }
                }
            }
        });
    }

    /// Reads a watch to its end. True if the watcher is done: the final write or an ERROR event arrived.
    async fn read_watch(&self, mut lines: WatchReader, last: &mut String) -> bool {
        while let Ok(event) = lines.try_next_event().await {
            let object = &event["object"];
            if event["type"] == "ERROR" {
                self.update_report(|report| report.faults.push(format!("a watch from {last} ended with {object}")));
                return true;
            }
            *last = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            self.update_report(|report| report.events += 1);
            match object["data"]["write"].as_str() {
                Some("the-end") => return true,
                Some(write) => self.seen.lock().push(write.to_owned()),
                None => {}
            }
        }
        false
    }

    fn check_discovery_repeatedly(&self) {
        while self.is_running() {
            let before = self.expected.served_by_server();
            let client = self.pick_client();
            let request = client.request_builder(Method::GET, "/apis").header("accept", MERGED_DISCOVERY_ACCEPT);
            let Ok(answer) = block_on(client.try_send(request, "".into())) else { continue };
            if answer.status == StatusCode::SERVICE_UNAVAILABLE {
                // A server that has just started does not know its peers yet and returns 503.
                self.update_report(|report| report.unavailable += 1);
                continue;
            }
            let after = self.expected.served_by_server();
            let found = listable_resources(&answer.json());
            self.update_report(|report| report.documents += 1);
            for (server, (start, served)) in &before {
                let is_still_up = after.get(server).is_some_and(|(other, _)| other == start);
                let missing: BTreeSet<_> = served.difference(&found).collect();
                if is_still_up && !missing.is_empty() {
                    let count = missing.len();
                    let some: Vec<_> = missing.into_iter().take(3).collect();
                    self.record_fault(client, &format!("{count} of {server} are not listed, such as {some:?}"));
                }
            }
        }
    }
}
