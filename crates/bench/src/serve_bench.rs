//! A whole server under load, compared with a bare hyper+rustls server that sends the same bytes.

mod admission;
mod apply;
pub(crate) mod baseline_server;
mod beside_kube_apiserver;
mod custom;
mod custom_creates;
mod fan_out;
pub(crate) mod load;
mod startup;

use std::path::PathBuf;
use std::time::Duration;

use cluster_tests::{Etcd, RunningServer, TestStore};
use serde_json::json;
use tokio::runtime::Runtime;

use self::baseline_server::BaselineServer;
use self::load::{AdminTls, LoadGenerator};
use crate::Effort;
use crate::table::{BenchRow, BenchTable, Measurement};

/// Concurrent connections of the rate measurements.
const CONNECTIONS: usize = 32;
/// Goal for consistent GETs over TLS relative to a bare server that sends the same bytes.
const GET_RATE_RATIO_MIN: f64 = 0.5;
const CREATE_PATH: &str = "/api/v1/namespaces/default/configmaps";
const LIST_PATH: &str = "/api/v1/namespaces/kube-public/configmaps";
const OBJECT_PATH: &str = "/api/v1/namespaces/kube-public/configmaps/m0";

/// Sizes of the benchmarks.
#[derive(Clone, Copy, Debug)]
struct ServeBenchSizes {
    /// Duration of one load.
    load_duration: Duration,
    /// Objects in a list.
    listed: usize,
    /// Watches of one resource, and events per watch.
    watchers: usize,
    events: usize,
    /// Number of server starts.
    starts: usize,
    /// Objects whose memory is measured.
    memory_objects: usize,
    /// Definitions of custom resources.
    definitions: usize,
    /// Webhook configurations, and as many policies.
    configurations: usize,
}

impl ServeBenchSizes {
    fn for_effort(effort: Effort) -> Self {
        match effort {
            Effort::Quick => Self {
                load_duration: Duration::from_millis(50),
                listed: 10,
                watchers: 10,
                events: 20,
                starts: 1,
                memory_objects: 100,
                definitions: 10,
                configurations: 10,
            },
            Effort::Full => Self {
                load_duration: Duration::from_secs(3),
                listed: 1_000,
                watchers: 1_000,
                events: 1_000,
                starts: 10,
                memory_objects: 10_000,
                definitions: 1_000,
                configurations: 1_000,
            },
        }
    }
}

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    if !has_server() {
        table.note("serve: skipped, because UNSKEW_BIN is not set; `cargo xtask bench` sets it");
        return Ok(());
    }
    let sizes = ServeBenchSizes::for_effort(effort);
    startup::measure(sizes, table)?;
    let etcd = Etcd::start();
    for (name, store) in [("SQLite", TestStore::Sqlite), ("etcd", TestStore::Etcd(&etcd))] {
        let folder = tempfile::tempdir()?;
        measure(sizes, table, name, &RunningServer::start(folder.path(), store, &[]))?;
    }
    Ok(())
}

/// The group of servers with many definitions of custom resources.
pub(crate) fn run_custom(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    if !has_server() {
        table.note("custom: skipped, because UNSKEW_BIN is not set; `cargo xtask bench` sets it");
        return Ok(());
    }
    let sizes = ServeBenchSizes::for_effort(effort);
    custom::measure(sizes, table)?;
    custom_creates::measure(sizes, table)
}

/// The group of server-side apply, beside a real kube-apiserver if there is one.
pub(crate) fn run_apply(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    if !has_server() {
        table.note("apply: skipped, because UNSKEW_BIN is not set; `cargo xtask bench` sets it");
        return Ok(());
    }
    apply::measure(ServeBenchSizes::for_effort(effort), table)
}

/// The group of creates under quotas, webhooks and policies.
pub(crate) fn run_admission(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    if !has_server() {
        table.note("admission: skipped, because UNSKEW_BIN is not set; `cargo xtask bench` sets it");
        return Ok(());
    }
    admission::measure(ServeBenchSizes::for_effort(effort), table)
}

pub(crate) fn has_server() -> bool {
    #[expect(clippy::disallowed_methods, reason = "`cargo xtask bench` passes the path of the binary")]
    let binary = std::env::var("UNSKEW_BIN").unwrap_or_default();
    !binary.is_empty() && PathBuf::from(binary).exists()
}

fn measure(sizes: ServeBenchSizes, table: &mut BenchTable, store: &str, server: &RunningServer) -> anyhow::Result<()> {
    let tls = AdminTls::for_admin(server)?;
    let load = LoadGenerator { tls: tls.clone(), address: server.address().to_owned(), duration: sizes.load_duration };
    Runtime::new()?.block_on(async {
        let created = load.run(CONNECTIONS, "POST", CREATE_PATH, Some(new_object)).await?;
        table.push(BenchRow::new(
            format!("{store}: create, {CONNECTIONS} connections"),
            Measurement::Rate(created.rate),
        ));
        let admin = server.admin();
        for at in 0..sizes.listed {
            admin.create(LIST_PATH, &object(&format!("m{at}"))).await;
        }
        let bare = BaselineServer::start(&server.pki(), admin.get(OBJECT_PATH).await.body)?;
        let bare_load = LoadGenerator { tls, address: bare.address(), duration: sizes.load_duration };
        for connections in [1, CONNECTIONS] {
            let [peer, ours] = load::compare_rates([&bare_load, &load], connections, OBJECT_PATH).await?;
            let row =
                BenchRow::new(format!("{store}: consistent get, {connections} connections"), Measurement::Rate(ours))
                    .compared_with("bare hyper+rustls", Measurement::Rate(peer));
            table.push(if connections == CONNECTIONS { row.with_ratio_goal(GET_RATE_RATIO_MIN) } else { row });
        }
        let listing = load.run(CONNECTIONS, "GET", LIST_PATH, None).await?;
        let name = format!("{store}: list of {}, {CONNECTIONS} connections", sizes.listed);
        table.push(BenchRow::new(name, Measurement::Rate(listing.rate)));
        let delivered = fan_out::measure(&load, sizes).await?;
        let name = format!("{store}: events delivered, {} watchers × {}", sizes.watchers, sizes.events);
        table.push(BenchRow::new(name, Measurement::Rate(delivered)));
        anyhow::Ok(())
    })
}

fn object(name: &str) -> serde_json::Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "x".repeat(1_000)}})
}

pub(crate) fn new_object() -> Vec<u8> {
    let mut object = object("");
    object["metadata"] = json!({"generateName": "bench-"});
    object.to_string().into_bytes()
}
