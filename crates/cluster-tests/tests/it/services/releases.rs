//! Servers of 1.32, which keeps bitmaps, of 1.33, which keeps both records, and of 1.36, which keeps objects, on one store.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_tests::tools::is_soak;
use cluster_tests::wait::eventually;
use cluster_tests::{Client, ControlPlane};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{SERVICES, created, recorded_addresses, service};
use crate::block_on;

const RELEASES: [&str; 3] = ["1.36", "1.32", "1.33"];
const WRITERS: usize = 24;
const FLAGS: [&str; 2] = ["--service-cluster-ip-range=10.32.0.0/16", "--service-node-port-range=20000-32767"];
/// Long enough for a killed server to be restarted on a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn start(plane: &mut ControlPlane<'_>, release: &str) -> Client {
    let emulated = format!("--emulated-version={release}");
    plane.start(release, &[&*emulated, FLAGS[0], FLAGS[1]]);
    plane.admin(release)
}

/// Creates a service until a server says that it exists: a killed server may have stored it before.
async fn create_surely(clients: &[Client], writer: usize, body: &Value) {
    let started = Instant::now();
    for attempt in writer.. {
        let client = &clients[attempt % clients.len()];
        let request = client.request_builder(Method::POST, SERVICES).header("content-type", "application/json");
        match client.try_send(request, Bytes::from(body.to_string())).await {
            Ok(response) if response.status == 201 || response.status == 409 => return,
            Ok(response) => assert_eq!(response.status, 503, "{}", response.summary()),
            Err(_) => {}
        }
        assert!(started.elapsed() < WAIT_MAX, "no server creates a service");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Fails if two services have the same address or port; returns the specs.
async fn check_distinct(client: &Client, expected: usize) -> Vec<Value> {
    let list = client.get(SERVICES).await.json();
    let specs: Vec<Value> = list["items"].as_array().unwrap().iter().map(|item| item["spec"].clone()).collect();
    let mut addresses = BTreeSet::new();
    let mut ports = BTreeSet::new();
    for spec in &specs {
        assert!(addresses.insert(spec["clusterIP"].to_string()), "address twice: {spec}");
        for port in spec["ports"].as_array().unwrap().iter().filter_map(|port| port["nodePort"].as_i64()) {
            assert!(ports.insert(port), "port twice: {spec}");
        }
    }
    assert_eq!((addresses.len(), ports.len()), (expected + 1, expected), "one more is the service kubernetes");
    specs
}

#[test]
fn servers_of_three_releases_take_no_address_and_no_port_twice() {
    let services = if is_soak() { 10_000 } else { 150 };
    ControlPlane::for_each_store(|mut plane| {
        let clients = RELEASES.map(|release| start(&mut plane, release));
        let plane = Mutex::new(plane);
        block_on(async {
            let next = Mutex::new(0..services);
            let writers = join_all((0..WRITERS).map(async |writer| {
                loop {
                    let Some(number) = next.lock().next() else { return };
                    let body = service(&format!("s{number}"), &json!({"type": "NodePort"}));
                    create_surely(&clients, writer, &body).await;
                }
            }));
            let killing = async {
                while next.lock().start < services / 3 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                plane.lock().kill("1.33");
            };
            futures_util::future::join(writers, killing).await;
        });
        start(&mut plane.lock(), "1.33");
        block_on(async {
            let specs = check_distinct(&clients[0], services).await;
            // Only the servers that keep objects write them, those that a server of 1.32 lacks included.
            eventually("each address has an IPAddress", async || {
                let recorded = recorded_addresses(&clients[0]).await.len();
                if recorded == services + 1 { Ok(()) } else { Err(format!("{recorded}")) }
            })
            .await;
            let names = stream::iter(0..services);
            let deleting = names.for_each_concurrent(WRITERS, async |number| {
                let client = &clients[number % clients.len()];
                let deleted = client.delete(&format!("{SERVICES}/s{number}")).await;
                assert_eq!(deleted.status, 200, "{}", deleted.summary());
            });
            deleting.await;
            assert_eq!(recorded_addresses(&clients[0]).await, ["10.32.0.1"]);
            // Both are free in all records.
            let freed = specs.iter().filter(|spec| spec["type"] == "NodePort").take(6);
            for (number, spec) in freed.enumerate() {
                let named = json!({"type": "NodePort", "clusterIP": spec["clusterIP"], "ports": spec["ports"]});
                created(&clients[number % clients.len()], &service(&format!("n{number}"), &named)).await;
            }
        });
    });
}
