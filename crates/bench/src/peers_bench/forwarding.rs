//! Forwarding: the same GET directly and through a server that does not serve the resource; and merged discovery.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cluster_tests::{ControlPlane, TestStore};
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::Effort;
use crate::serve_bench::baseline_server::BaselineServer;
use crate::serve_bench::has_server;
use crate::serve_bench::load::{self, AdminTls, LoadGenerator};
use crate::table::{BenchRow, BenchTable, Measurement};

/// Concurrent connections of the rate measurements.
const CONNECTIONS: usize = 32;
/// Goal for forwarded relative to direct GETs, with client and servers on the same cores.
const FORWARDED_RATE_RATIO_MIN: f64 = 0.45;
/// Goal for the latency that forwarding adds on one connection.
const ADDED_LATENCY_MAX: Duration = Duration::from_micros(150);
/// Goals for discovery relative to a bare server that sends the same bytes.
const NOT_MODIFIED_RATIO_MIN: f64 = 0.6;
const FULL_DOCUMENT_RATIO_MIN: f64 = 0.5;
const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const OBJECT_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses/one";
const MERGED_DISCOVERY_ACCEPT: (&str, &str) =
    ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");

pub(super) fn measure(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    if !has_server() {
        table.note("peers: forwarding skipped, because UNSKEW_BIN is not set; `cargo xtask bench` sets it");
        return Ok(());
    }
    let lasting = Duration::from_millis(if effort == Effort::Quick { 50 } else { 3_000 });
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &["--emulated-version=1.33"]);
    plane.start("new", &["--emulated-version=1.36"]);
    let [old, new] = ["old", "new"].map(|name| plane.server(name));
    let tls = AdminTls::for_admin(old)?;
    let load = |address: &str| LoadGenerator { tls: tls.clone(), address: address.to_owned(), duration: lasting };
    let (through, direct) = (load(old.address()), load(new.address()));
    Runtime::new()?.block_on(async {
        new.admin().create(CLASSES_PATH, &volume_attributes_class()).await;
        while !old.admin().get(OBJECT_PATH).await.status.is_success() {
            tokio::task::yield_now().await;
        }
        let rates = load::compare_rates([&direct, &through], CONNECTIONS, OBJECT_PATH).await?;
        let name = format!("forwarded get, {CONNECTIONS} connections");
        let row = BenchRow::new(name, Measurement::Rate(rates[1]))
            .compared_with("the same get, direct", Measurement::Rate(rates[0]));
        table.push(row.with_ratio_goal(FORWARDED_RATE_RATIO_MIN));
        let [direct_median, through_median] = load::compare_median_latencies([&direct, &through], OBJECT_PATH).await?;
        let row = BenchRow::time("added by a hop, 1 connection, p50", through_median.saturating_sub(direct_median));
        let row = row.compared_with("the same get, direct", Measurement::Time(direct_median));
        table.push(row.with_goal(Measurement::Time(ADDED_LATENCY_MAX)));
        measure_discovery(&through, &old.pki(), table).await
    })
}

async fn measure_discovery(load: &LoadGenerator, pki: &Path, table: &mut BenchTable) -> anyhow::Result<()> {
    let mut sender = load.connect().await?;
    let response = sender.send_request(load::get_request("/apis", &[MERGED_DISCOVERY_ACCEPT])?).await?;
    let etag = response.headers().get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let body = response.into_body().collect().await?.to_bytes();
    let cases = [
        (
            "merged discovery, 304",
            vec![MERGED_DISCOVERY_ACCEPT, ("if-none-match", &*etag)],
            Bytes::new(),
            NOT_MODIFIED_RATIO_MIN,
        ),
        ("merged discovery, whole", vec![MERGED_DISCOVERY_ACCEPT], body, FULL_DOCUMENT_RATIO_MIN),
    ];
    for (name, headers, body, ratio) in cases {
        let server = BaselineServer::start(pki, body)?;
        let bare = LoadGenerator { tls: load.tls.clone(), address: server.address(), duration: load.duration };
        let mut rates = [0.0; 2];
        for (at, load) in [&bare, load].into_iter().enumerate() {
            let asking = (0..CONNECTIONS).map(|_| load.measure_latencies("/apis", &headers));
            let answered: usize = try_join_all(asking).await?.iter().map(Vec::len).sum();
            rates[at] = answered as f64 / load.duration.as_secs_f64();
        }
        let row = BenchRow::new(format!("{name}, {CONNECTIONS} connections"), Measurement::Rate(rates[1]));
        table.push(row.compared_with("bare hyper+rustls", Measurement::Rate(rates[0])).with_ratio_goal(ratio));
    }
    Ok(())
}

fn volume_attributes_class() -> serde_json::Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "one"},
        "driverName": "disks.example.com", "parameters": {"a": "x".repeat(1_000)},
    })
}
