//! Definitions are created, changed and deleted while servers are killed and move between releases.
//!
//! | part | what it does |
//! |---|---|
//! | [`writer`] | takes definitions through their lives; no response may be wrong |
//! | [`watcher`] | follows definitions and objects over kills, each event once |
//! | [`store_log`] | reads every change directly from the store, and checks it |

#![expect(clippy::print_stdout, reason = "the counts belong to the output of a long run")]

mod store_log;
mod watcher;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_tests::client::SendFailure;
use cluster_tests::wait::wait_within;
use cluster_tests::{Etcd, TestStore, tools};

use super::*;
use crate::block_on;
use crate::peers::MERGED_DISCOVERY_ACCEPT;
use store_log::{DEFINITIONS, StoreLog};
use watcher::{WatchGoal, follow};
use writer::{DefinitionSlot, write_lives};

const SERVERS: [&str; 3] = ["a", "b", "c"];
/// Definitions that live at the same time, in two groups.
const SLOTS: usize = 4;
/// Releases of the rolls up; the rolls down are the same in reverse.
const RELEASES: [&str; 5] = ["1.33", "1.34", "1.35", "1.36", "1.37"];
/// Duration of a soak on each store.
const SOAK_DURATION: Duration = Duration::from_secs(330);
/// A request is tried again until this long after its first attempt.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// From the last change to the same document on all servers. The goal is two seconds; ci runs on busy machines.
const SAME_DOCUMENT_LIMIT: Duration = Duration::from_secs(10);
const SAME_DOCUMENT_SOAK_LIMIT: Duration = Duration::from_secs(2);
/// From the last deletion to a store without traces of the definitions.
const NO_ORPHAN_LIMIT: Duration = Duration::from_secs(20);

/// Clients of all servers; a server may be down.
struct StormClients {
    clients: [Client; 3],
}

/// A response, and whether an earlier attempt of the same request may have been executed.
struct StormResponse {
    response: FullResponse,
    may_be_repeated: bool,
}

impl StormClients {
    /// Sends a request to one server after another until one is there to answer it. 503 and 429 invite to try again;
    /// any other status is the answer.
    async fn send(&self, first: usize, method: Method, path: &str, body: &Value) -> StormResponse {
        let began = Instant::now();
        let mut may_be_repeated = false;
        for attempt in first.. {
            let client = &self.clients[attempt % self.clients.len()];
            let content_type = match method {
                Method::PATCH => "application/merge-patch+json",
                _ => "application/json",
            };
            let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
            let request = client.request_builder(method.clone(), path).header("content-type", content_type);
            let found = match client.try_send(request, body).await {
                Ok(response) if !matches!(response.status.as_u16(), 429 | 503) => {
                    return StormResponse { response, may_be_repeated };
                }
                Ok(response) => response.summary(),
                Err(failure) => {
                    may_be_repeated |= failure == SendFailure::ConnectionBroken;
                    format!("{failure:?}")
                }
            };
            assert!(began.elapsed() < REQUEST_TIMEOUT, "{method} {path}: {found}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        unreachable!("the attempts do not end")
    }

    async fn get(&self, first: usize, path: &str) -> FullResponse {
        self.send(first, Method::GET, path, &Value::Null).await.response
    }

    /// The discovery document of each server with its ETag; the error names a server that does not answer.
    async fn discovery_documents(&self) -> Result<Vec<(Bytes, Option<http::HeaderValue>)>, String> {
        let mut documents = Vec::new();
        for client in &self.clients {
            let request = client.request_builder(Method::GET, "/apis").header("accept", MERGED_DISCOVERY_ACCEPT);
            let answer = client.try_send(request, Bytes::new()).await.map_err(|failure| format!("{failure:?}"))?;
            documents.push((answer.body, answer.headers.get("etag").cloned()));
        }
        Ok(documents)
    }
}

/// Kills or stops every server in turn and starts it with another release, while the load runs.
fn roll(plane: &mut ControlPlane<'_>, release: &str, round: usize) {
    for (position, name) in SERVERS.into_iter().enumerate() {
        // One of three leaves in order.
        if (round + position) % 3 == 2 {
            plane.stop(name);
        } else {
            plane.kill(name);
        }
        plane.start(name, &[&format!("--emulated-version={release}")]);
    }
}

/// One round: lives of definitions on all slots while all servers move to another release. Ends with all servers ready,
/// and with one definition left per group.
fn run_round(plane: &mut ControlPlane<'_>, clients: &StormClients, release: &str, round: usize) {
    let slots: Vec<DefinitionSlot> = (0..SLOTS).map(DefinitionSlot::new).collect();
    let stop = AtomicBool::new(false);
    let store = plane.store();
    let folder = plane.folder().to_owned();
    let (history, watched, lives) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            block_on(async {
                let log = StoreLog::open(store, &folder).await;
                let goal = WatchGoal::default();
                let definitions = follow(clients, round, CRD_PATH, log.start(), &goal);
                let writing = async {
                    let writers = slots.iter().map(|slot| write_lives(clients, slot, round, &stop));
                    let lives = futures_util::future::join_all(writers).await;
                    let history = log.finish().await;
                    goal.set(history.last_definition_revision());
                    (history, lives)
                };
                let (definitions, (history, lives)) = tokio::join!(definitions, writing);
                (history, definitions, lives)
            })
        });
        roll(plane, release, round);
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let expected: Vec<String> = slots.iter().filter(|slot| slot.is_left_at_end()).map(|slot| slot.plural()).collect();
    let limit = if tools::is_soak() { SAME_DOCUMENT_SOAK_LIMIT } else { SAME_DOCUMENT_LIMIT };
    let took = wait_within(limit, "all servers return the same discovery document", async || {
        let documents = clients.discovery_documents().await?;
        let text = String::from_utf8_lossy(&documents[0].0).into_owned();
        let missing: Vec<_> = expected.iter().filter(|plural| !text.contains(&format!("\"{plural}\""))).collect();
        let is_same = documents.iter().all(|document| *document == documents[0]);
        if is_same && missing.is_empty() { Ok(()) } else { Err(format!("same: {is_same}, missing: {missing:?}")) }
    });
    history.check_life_stages();
    history.check_watch("definitions", DEFINITIONS, &watched);
    let mut objects_watched = 0;
    for (slot, lives) in slots.iter().zip(&lives) {
        for watched in &lives.watched {
            history.check_watch(&slot.plural(), &slot.stored_prefix(), watched);
            objects_watched += watched.events.len();
        }
    }
    let count: usize = lives.iter().map(|lives| lives.count).sum();
    println!(
        "{} {release}: {count} lives, {} events of definitions and {objects_watched} of objects; same document \
         after {took:?}",
        name_of(store),
        watched.events.len()
    );
    assert!(count >= SLOTS, "every slot has at least one life");
}

/// Deletes what is left, then looks for keys of the definitions anywhere in the store.
fn check_no_orphans(plane: &ControlPlane<'_>, clients: &StormClients) {
    block_on(async {
        for slot in (0..SLOTS).map(DefinitionSlot::new) {
            writer::delete_definition(clients, &slot, 0).await;
        }
    });
    let took = wait_within(NO_ORPHAN_LIMIT, "no key of the definitions is left", async || {
        let keys = store_log::keys_containing(plane, "storm.example.com").await;
        if keys.is_empty() { Ok(()) } else { Err(format!("{keys:?}")) }
    });
    println!("{}: nothing left after {took:?}", name_of(plane.store()));
}

fn name_of(store: TestStore<'_>) -> &'static str {
    match store {
        TestStore::Sqlite => "SQLite",
        TestStore::Etcd(_) => "etcd",
    }
}

fn check_storm(store: TestStore<'_>) {
    let mut plane = ControlPlane::new(store);
    for name in SERVERS {
        plane.start(name, &["--emulated-version=1.33"]);
    }
    let clients = StormClients { clients: SERVERS.map(|name| plane.admin(name)) };
    let up_and_down: Vec<&str> = if tools::is_soak() {
        RELEASES[1..].iter().chain(RELEASES[..4].iter().rev()).copied().collect()
    } else {
        vec!["1.37", "1.33"]
    };
    let began = Instant::now();
    let mut round = 0;
    loop {
        for release in &up_and_down {
            run_round(&mut plane, &clients, release, round);
            round += 1;
        }
        if !tools::is_soak() || began.elapsed() > SOAK_DURATION {
            break;
        }
    }
    check_no_orphans(&plane, &clients);
}

#[test]
fn storm_of_definitions_during_kills_and_rolls_on_sqlite() {
    check_storm(TestStore::Sqlite);
}

#[test]
fn storm_of_definitions_during_kills_and_rolls_on_etcd() {
    let etcd = Etcd::start();
    check_storm(TestStore::Etcd(&etcd));
}
