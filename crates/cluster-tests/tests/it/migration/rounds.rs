//! Rounds of migrations of a custom resource while servers restart, storage versions change and clients write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cluster_tests::tools::is_soak;
use cluster_tests::{Client, ControlPlane};
use fastrand::Rng;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{MIGRATOR_FLAGS, TIMEOUT, create_migration, migration_state, stored_versions};
use crate::block_on;
use crate::custom_resource::CRD_PATH;

const ITEMS: &str = "/apis/round.example.com/v1/namespaces/default/items";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/items.round.example.com";
const STORED_ITEMS: &str = "/registry/round.example.com/items/default/";
/// Leases that expire during a round.
const SHORT_LEASE: [&str; 2] = ["--identity-lease-duration-seconds=3", "--identity-lease-renew-interval-seconds=1"];
/// Objects under migration.
const OBJECTS: usize = 60;
const ROUNDS: usize = 10;
const SOAK_ROUNDS: usize = 500;

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": schema.clone()});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "items.round.example.com"},
        "spec": {
            "group": "round.example.com", "scope": "Namespaced", "names": {"plural": "items", "kind": "Item"},
            "versions": [version("v1"), version("v2")],
        },
    })
}

/// The values that objects must have: the last acknowledged one, or one whose request got no response.
#[derive(Default)]
struct Model {
    values: HashMap<String, Vec<u64>>,
    /// Values are written in ascending order, one writer per object.
    next: u64,
}

/// Increments values of objects with their resourceVersion until `stop`, one writer per object.
async fn write_until(clients: &[Client], writer: usize, model: &Mutex<Model>, stop: &AtomicBool) {
    let mut rng = Rng::with_seed(writer as u64);
    while !stop.load(Ordering::Relaxed) {
        let name = format!("i{}", writer + 3 * rng.usize(..OBJECTS / 3));
        let client = &clients[rng.usize(..clients.len())];
        let path = format!("{ITEMS}/{name}");
        let Ok(found) = client.try_send(client.request_builder(Method::GET, &path), Bytes::new()).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if found.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let mut object = found.json();
        let value = {
            let mut model = model.lock();
            let known = &model.values[&name];
            let seen = object["value"].as_u64().unwrap();
            assert!(known.contains(&seen), "{name} is {seen}, written were {known:?}");
            model.next += 1;
            model.next
        };
        object["value"] = value.into();
        let request = client.request_builder(Method::PUT, &path).header("content-type", "application/json");
        let written = client.try_send(request, object.to_string().into()).await;
        let mut model = model.lock();
        let known = model.values.get_mut(&name).unwrap();
        match written {
            Ok(answer) if answer.status == 200 => *known = vec![value],
            Ok(answer) if answer.status == 409 => {}
            // It may have been executed.
            Ok(_) | Err(_) => known.push(value),
        }
    }
}

/// Sends a merge patch through whichever server answers.
async fn patch_definition(clients: &[Client], storage: &str) {
    let mut versions = definition()["spec"]["versions"].clone();
    for version in versions.as_array_mut().unwrap() {
        version["storage"] = (version["name"] == storage).into();
    }
    let patch = json!({"spec": {"versions": versions}}).to_string();
    for attempt in 0.. {
        let client = &clients[attempt % clients.len()];
        let request =
            client.request_builder(Method::PATCH, DEFINITION).header("content-type", "application/merge-patch+json");
        match client.try_send(request, patch.clone().into()).await {
            Ok(answer) if answer.status == 200 => return,
            Ok(_) | Err(_) if attempt < 100 => tokio::time::sleep(Duration::from_millis(50)).await,
            Ok(answer) => panic!("{}", answer.summary()),
            Err(_) => panic!("no server answers"),
        }
    }
}

/// Restarts a server in the middle of a migration: in order, or killed now and then.
fn disturb(plane: &mut ControlPlane<'_>, rng: &mut Rng, round: usize) {
    let name = match round % 5 {
        4 => {
            plane.kill("b");
            "b"
        }
        _ => {
            let name = ["a", "b", "c"][rng.usize(..3)];
            plane.stop(name);
            name
        }
    };
    let release = ["--emulated-version=1.35", "--emulated-version=1.36"][rng.usize(..2)];
    plane.start(name, &[&[release], &MIGRATOR_FLAGS[..], &SHORT_LEASE[..]].concat());
}

/// Waits until the migration ends, and checks the proof that it claims.
async fn check_end(plane: &ControlPlane<'_>, client: &Client, name: &str) {
    let started = std::time::Instant::now();
    let message = loop {
        let (state, message) = migration_state(client, name).await;
        match &*state {
            "Succeeded" => break message,
            "Failed" => panic!("{name}: {message}"),
            _ => assert!(started.elapsed() < TIMEOUT, "{name} is {state}: {message}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let words: Vec<&str> = message.split_whitespace().collect();
    let word_after = |wanted: &[&str]| {
        let at = words.windows(wanted.len()).position(|found| found == wanted).unwrap();
        words[at + wanted.len()].trim_end_matches(',').to_owned()
    };
    let (version, revision) = (word_after(&["stored", "as"]), word_after(&["at", "revision"]));
    let stored = stored_versions(plane, STORED_ITEMS, Some(revision.parse().unwrap())).await;
    let others: Vec<_> = stored.iter().filter(|(_, stored)| *stored != version).collect();
    assert!(others.is_empty() && stored.len() == OBJECTS, "{message}: {others:?}");
}

#[test]
fn migrations_under_restarts_and_version_changes_prove_what_they_claim_and_lose_no_write() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b", "c"] {
            plane.start(name, &[&["--emulated-version=1.36"], &MIGRATOR_FLAGS[..], &SHORT_LEASE[..]].concat());
        }
        let clients = ["a", "b", "c"].map(|name| plane.admin(name));
        let model = Mutex::new(Model::default());
        block_on(async {
            assert_eq!(clients[0].create(CRD_PATH, &definition()).await.status, 201);
            for number in 0..OBJECTS {
                let name = format!("i{number}");
                let item = json!({"apiVersion": "round.example.com/v1", "kind": "Item", "metadata": {"name": name}, "value": 0});
                cluster_tests::wait::eventually("the definition is served", async || {
                    match clients[0].create(ITEMS, &item).await {
                        answer if matches!(answer.status.as_u16(), 201 | 409) => Ok(()),
                        answer => Err(answer.summary()),
                    }
                })
                .await;
                model.lock().values.insert(name, vec![0]);
            }
        });
        let stop = AtomicBool::new(false);
        let rounds = if is_soak() { SOAK_ROUNDS } else { ROUNDS };
        std::thread::scope(|threads| {
            for writer in 0..3 {
                let (clients, model, stop) = (&clients, &model, &stop);
                threads.spawn(move || block_on(write_until(clients, writer, model, stop)));
            }
            // Ends the writers also if a check fails.
            let _stop_writers = StopOnDrop(&stop);
            let mut rng = Rng::with_seed(7);
            for round in 0..rounds {
                let version = if round % 2 == 0 { "v2" } else { "v1" };
                block_on(patch_definition(&clients, version));
                let name = format!("m{round}");
                block_on(create_migration(&clients[0], &name, "round.example.com", "items"));
                disturb(&mut plane, &mut rng, round);
                block_on(check_end(&plane, &clients[0], &name));
                let definition = block_on(clients[0].get(DEFINITION)).json();
                assert_eq!(definition["status"]["storedVersions"], json!([version]), "round {round}");
            }
        });
        let model = model.lock();
        let list = block_on(clients[0].get(ITEMS)).json();
        for item in list["items"].as_array().unwrap() {
            let (name, value) = (item["metadata"]["name"].as_str().unwrap(), item["value"].as_u64().unwrap());
            assert!(model.values[name].contains(&value), "{name} is {value}, written were {:?}", model.values[name]);
        }
        assert!(model.next > 100, "clients wrote all the time: {}", model.next);
        println!("{:?}: {rounds} migrations, {} writes", plane.store(), model.next);
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
