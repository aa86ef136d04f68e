//! Servers with many definitions of custom resources: start, memory, reads and documents.

use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_tests::{Client, ControlPlane, Etcd, RunningServer, TestStore};
use http::Method;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use super::load::{AdminTls, LoadGenerator, compare_rates_of_paths};
use super::{CONNECTIONS, LIST_PATH, OBJECT_PATH, ServeBenchSizes, object};
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::median;

/// Goals from process start to `/readyz`.
const START_SQLITE_MAX: Duration = Duration::from_millis(1_500);
const START_ETCD_MAX: Duration = Duration::from_secs(3);
/// Goal for the memory of a definition beyond its stored bytes, after one object of it was written and read.
const DEFINITION_BYTES_MAX: u64 = 60 << 10;
/// Goal for gets of custom objects relative to built-in ones.
const GET_RATE_RATIO_MIN: f64 = 0.9;
/// Goal for rebuilding the index of OpenAPI documents after a change of one definition, without sending it.
const OPENAPI_CHANGE_MAX: Duration = Duration::from_millis(5);
/// Goal for a change of discovery on another server.
const DISCOVERY_CHANGE_MAX: Duration = Duration::from_millis(200);
/// Shape of the definitions.
const VERSIONS: usize = 5;
const PROPERTIES: usize = 50;
/// Changes whose median is reported.
const CHANGES: usize = 5;
/// How long a server with all definitions may need for one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);

const CRD_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CUSTOM_OBJECT_PATH: &str = "/apis/g0.bench.example.com/v1/namespaces/default/things0/a";

pub(super) fn measure(sizes: ServeBenchSizes, table: &mut BenchTable) -> anyhow::Result<()> {
    let count = sizes.definitions;
    let etcd = Etcd::start();
    for (name, store, goal) in
        [("SQLite", TestStore::Sqlite, START_SQLITE_MAX), ("etcd", TestStore::Etcd(&etcd), START_ETCD_MAX)]
    {
        let mut plane = ControlPlane::new(store);
        plane.start("a", &[]);
        plane.stop("a");
        let idle = plane.start("a", &[]).resident_bytes();
        let stored = Runtime::new()?.block_on(define_all(&plane.admin("a"), count))?;
        plane.stop("a");
        let started = Instant::now();
        plane.start("a", &[]);
        table.push(
            BenchRow::time(format!("{name}: start until ready, {count} definitions"), started.elapsed())
                .with_goal(Measurement::Time(goal)),
        );
        let server = plane.server("a");
        Runtime::new()?.block_on(async {
            read_all(&server.admin(), count).await?;
            let used = server.resident_bytes().saturating_sub(idle);
            let row = format!("{name}: memory of a definition of {VERSIONS} versions beyond its stored bytes");
            let beyond = (used / count as u64).saturating_sub(stored / count as u64);
            table.push(
                BenchRow::new(row, Measurement::Bytes(beyond)).with_goal(Measurement::Bytes(DEFINITION_BYTES_MAX)),
            );
            measure_reads(sizes, table, name, server).await
        })?;
        let alone = Runtime::new()?.block_on(measure_changes(&[plane.admin("a")]))?;
        table.push(
            BenchRow::time(
                format!("{name}: rebuilding the OpenAPI index after a change of one of {count} definitions"),
                alone.openapi_index.saturating_sub(alone.unchanged_openapi_index),
            )
            .with_goal(Measurement::Time(OPENAPI_CHANGE_MAX))
            .compared_with("the whole request", Measurement::Time(alone.openapi_index)),
        );
        plane.start("b", &[]);
        plane.start("c", &[]);
        let clients = ["a", "b", "c"].map(|name| plane.admin(name));
        let beside_others = Runtime::new()?.block_on(measure_changes(&clients))?;
        // The other servers, on the same cores, follow the change at the same moment.
        table.push(BenchRow::time(
            format!("{name}: OpenAPI index request after a change of one of {count} definitions, two more servers"),
            beside_others.openapi_index,
        ));
        table.push(
            BenchRow::time(
                format!("{name}: discovery of all servers after a change of one of {count} definitions"),
                beside_others.discovery,
            )
            .with_goal(Measurement::Time(DISCOVERY_CHANGE_MAX)),
        );
    }
    Ok(())
}

async fn measure_reads(
    sizes: ServeBenchSizes,
    table: &mut BenchTable,
    store: &str,
    server: &RunningServer,
) -> anyhow::Result<()> {
    server.admin().create(LIST_PATH, &object("m0")).await;
    let load = LoadGenerator {
        tls: AdminTls::for_admin(server)?,
        address: server.address().to_owned(),
        duration: sizes.load_duration,
    };
    let [custom, built_in] = compare_rates_of_paths(&load, CONNECTIONS, [CUSTOM_OBJECT_PATH, OBJECT_PATH]).await?;
    let name = format!("{store}: consistent get of a custom object, {CONNECTIONS} connections");
    table.push(
        BenchRow::new(name, Measurement::Rate(custom))
            .compared_with("built-in object", Measurement::Rate(built_in))
            .with_ratio_goal(GET_RATE_RATIO_MIN),
    );
    Ok(())
}

/// Medians after a change of one definition.
struct ChangeTimes {
    /// Until the discovery documents of all servers show the change.
    discovery: Duration,
    /// Of the first request for the OpenAPI index of the first server after that.
    openapi_index: Duration,
    /// Of the second one, which needs no other document.
    unchanged_openapi_index: Duration,
}

async fn measure_changes(clients: &[Client]) -> anyhow::Result<ChangeTimes> {
    let admin = &clients[0];
    let path = format!("{CRD_PATH}/things0.g0.bench.example.com");
    admin.get("/openapi/v3").await;
    let [mut openapi, mut unchanged, mut discovery] = [const { Vec::new() }; 3];
    for change in 0..CHANGES {
        let current = admin.get(&path).await.json();
        let mut changed = definition(0);
        let short_name = format!("t{}x{change}", clients.len());
        changed["spec"]["names"]["shortNames"] = json!([short_name]);
        changed["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["description"] = format!("of {short_name}").into();
        changed["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        let answer = admin.update(&path, &changed).await;
        anyhow::ensure!(answer.status == 200, "{}", answer.summary());
        let started = Instant::now();
        let wanted = format!("\"{short_name}\"");
        for client in clients {
            while !discovery_document(client).await.contains(&wanted) {
                anyhow::ensure!(started.elapsed() < STEP_TIMEOUT, "discovery does not change");
            }
        }
        discovery.push(started.elapsed());
        for times in [&mut openapi, &mut unchanged] {
            let started = Instant::now();
            admin.get("/openapi/v3").await;
            times.push(started.elapsed());
        }
    }
    Ok(ChangeTimes {
        discovery: median(&mut discovery),
        openapi_index: median(&mut openapi),
        unchanged_openapi_index: median(&mut unchanged),
    })
}

/// The merged document of all groups.
async fn discovery_document(client: &Client) -> String {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = client.request_builder(Method::GET, "/apis").header("accept", accept);
    String::from_utf8_lossy(&client.send(request, Bytes::new()).await.body).into_owned()
}

/// Creates all definitions, and one object of each. Returns the stored bytes of the definitions.
async fn define_all(admin: &Client, count: usize) -> anyhow::Result<u64> {
    let mut stored = 0;
    for number in 0..count {
        let answer = admin.create(CRD_PATH, &definition(number)).await;
        anyhow::ensure!(answer.status == 201, "{}", answer.summary());
        stored += answer.body.len() as u64;
    }
    for number in 0..count {
        let group = format!("g{number}.bench.example.com");
        let collection = format!("/apis/{group}/v1/namespaces/default/things{number}");
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": format!("Thing{number}"),
            "metadata": {"name": "a"}, "spec": {"note": "x".repeat(1_000)}});
        let started = Instant::now();
        loop {
            let answer = admin.create(&collection, &object).await;
            if answer.status == 201 {
                break;
            }
            anyhow::ensure!(started.elapsed() < STEP_TIMEOUT, "{}", answer.summary());
        }
    }
    Ok(stored)
}

/// Reads and writes an object of each definition once.
async fn read_all(admin: &Client, count: usize) -> anyhow::Result<()> {
    for number in 0..count {
        let path = format!("/apis/g{number}.bench.example.com/v1/namespaces/default/things{number}/a");
        let object = admin.get(&path).await;
        anyhow::ensure!(object.status == 200, "{}", object.summary());
        let answer = admin.update(&path, &object.json()).await;
        anyhow::ensure!(answer.status == 200, "{}", answer.summary());
    }
    Ok(())
}

fn definition(number: usize) -> Value {
    let group = format!("g{number}.bench.example.com");
    let versions = (0..VERSIONS).map(|version| {
        let property = |position: usize| {
            let schema = match (number + version + position) % 5 {
                0 => json!({"type": "string", "maxLength": 20 + number % 7}),
                1 => json!({"type": "integer", "minimum": number % 5}),
                2 => json!({"type": "boolean"}),
                3 => json!({"type": "array", "items": {"type": "string"}}),
                _ => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            };
            (format!("field{position}of{number}"), schema)
        };
        let mut properties: Map<String, Value> = (1..PROPERTIES).map(property).collect();
        properties.insert("note".to_owned(), json!({"type": "string"}));
        let spec = json!({"type": "object", "properties": properties});
        json!({"name": format!("v{}", version + 1), "served": true, "storage": version == 0,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things{number}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "versions": versions.collect::<Value>(),
            "names": {"plural": format!("things{number}"), "kind": format!("Thing{number}")}},
    })
}
