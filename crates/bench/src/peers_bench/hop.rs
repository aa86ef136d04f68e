//! A whole hop: the same get, from the server that serves it and through one that does not; and merged discovery.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cluster_tests::{ControlPlane, Store};
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::Effort;
use crate::serve_bench::bare::Bare;
use crate::serve_bench::has_server;
use crate::serve_bench::load::{self, Load, Tls};
use crate::table::{Figure, Row, Table};

/// What the issue measures at.
const CONNECTIONS: usize = 32;
/// What a forwarded get is to reach of a direct one, everything on the same cores.
const FORWARDED_RATIO: f64 = 0.45;
/// What a hop may add at one connection.
const ADDED: Duration = Duration::from_micros(150);
/// What discovery is to reach of a bare server that sends the same bytes.
const NOT_MODIFIED_RATIO: f64 = 0.6;
const FULL_RATIO: f64 = 0.5;
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const ONE: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses/one";
const MERGED: (&str, &str) = ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");

pub(super) fn measure(effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    if !has_server() {
        table.note("peers: a hop is left out, because UNSKEW_BIN names no server; `cargo xtask bench` sets it");
        return Ok(());
    }
    let lasting = Duration::from_millis(if effort == Effort::Quick { 50 } else { 3_000 });
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &["--emulated-version=1.33"]);
    plane.start("new", &["--emulated-version=1.36"]);
    let [old, new] = ["old", "new"].map(|name| plane.server(name));
    let tls = Tls::of(old)?;
    let load = |address: &str| Load { tls: tls.clone(), address: address.to_owned(), lasting };
    let (through, direct) = (load(old.address()), load(new.address()));
    Runtime::new()?.block_on(async {
        new.admin().create(CLASSES, &class()).await;
        while !old.admin().get(ONE).await.status.is_success() {
            tokio::task::yield_now().await;
        }
        let rates = load::rates([&direct, &through], CONNECTIONS, ONE).await?;
        let name = format!("forwarded get, {CONNECTIONS} connections");
        let row = Row::new(name, Figure::Rate(rates[1])).against("the same get, direct", Figure::Rate(rates[0]));
        table.push(row.ratio_bar(FORWARDED_RATIO));
        let [direct_median, through_median] = load::medians([&direct, &through], ONE).await?;
        let row = Row::time("added by a hop, 1 connection, p50", through_median.saturating_sub(direct_median));
        let row = row.against("the same get, direct", Figure::Time(direct_median));
        table.push(row.bar(Figure::Time(ADDED)));
        discovery(&through, &old.pki(), table).await
    })
}

async fn discovery(load: &Load, pki: &Path, table: &mut Table) -> anyhow::Result<()> {
    let mut sender = load.connect().await?;
    let response = sender.send_request(load::get("/apis", &[MERGED])?).await?;
    let etag = response.headers().get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let body = response.into_body().collect().await?.to_bytes();
    let cases = [
        ("merged discovery, 304", vec![MERGED, ("if-none-match", &*etag)], Bytes::new(), NOT_MODIFIED_RATIO),
        ("merged discovery, whole", vec![MERGED], body, FULL_RATIO),
    ];
    for (name, headers, body, ratio) in cases {
        let server = Bare::start(pki, body)?;
        let bare = Load { tls: load.tls.clone(), address: server.address(), lasting: load.lasting };
        let mut rates = [0.0; 2];
        for (at, load) in [&bare, load].into_iter().enumerate() {
            let asking = (0..CONNECTIONS).map(|_| load.times("/apis", &headers));
            let answered: usize = try_join_all(asking).await?.iter().map(Vec::len).sum();
            rates[at] = answered as f64 / load.lasting.as_secs_f64();
        }
        let row = Row::new(format!("{name}, {CONNECTIONS} connections"), Figure::Rate(rates[1]));
        table.push(row.against("bare hyper+rustls", Figure::Rate(rates[0])).ratio_bar(ratio));
    }
    Ok(())
}

fn class() -> serde_json::Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "one"},
        "driverName": "disks.example.com", "parameters": {"a": "x".repeat(1_000)},
    })
}
