//! A gateway compared with nginx, both in front of the same server with TLS on both sides.

mod nginx;

use std::time::Duration;

use bytes::Bytes;
use cluster_tests::gateway::PEER_PROXY_OFF;
use cluster_tests::{Client, ControlPlane, RunningGateway, TestStore};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tasks::Tasks;
use tokio::runtime::Runtime;

use self::nginx::Nginx;
use crate::Effort;
use crate::serve_bench::has_server;
use crate::serve_bench::load::{self, AdminTls, LoadGenerator};
use crate::table::{BenchRow, BenchTable, Measurement};

/// Concurrent connections of the rate measurements.
const CONNECTIONS: usize = 32;
/// Goal for the gateway's rate relative to nginx.
const RATE_RATIO_MIN: f64 = 0.8;
/// Goal for the latency that the gateway adds, relative to nginx.
const ADDED_LATENCY_RATIO_MAX: f64 = 2.0;
/// Goal for the gateway's memory with idle watches.
const RESIDENT_BYTES_MAX: u64 = 30 << 20;
const WATCHES: usize = 1_000;
const WATCH_CONNECTIONS: usize = 10;
const OBJECT_PATH: &str = "/api/v1/namespaces/default";

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    if !has_server() {
        table.note("gateway: skipped, because UNSKEW_BIN is not set; `cargo xtask bench` sets it");
        return Ok(());
    }
    let lasting = Duration::from_millis(if effort == Effort::Quick { 50 } else { 3_000 });
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[PEER_PROXY_OFF]);
    let gateway = RunningGateway::start("gateway", &plane, &["one"], &[]);
    let server = plane.server("one");
    let nginx = Nginx::start(plane.folder(), server.address())?;
    let tls = AdminTls::for_admin(server)?;
    let to = |address: &str| LoadGenerator { tls: tls.clone(), address: address.to_owned(), duration: lasting };
    let (direct, through) = (to(server.address()), to(gateway.address()));
    let beside = nginx.as_ref().map(|nginx| to(nginx.address()));
    Runtime::new()?.block_on(async {
        let (rate_name, added_name) =
            (format!("get through a gateway, {CONNECTIONS} connections"), "added by a gateway, 1 connection, p50");
        if let Some(beside) = &beside {
            let [ours, theirs] = load::compare_rates([&through, beside], CONNECTIONS, OBJECT_PATH).await?;
            let row =
                BenchRow::new(rate_name, Measurement::Rate(ours)).compared_with("nginx", Measurement::Rate(theirs));
            table.push(row.with_ratio_goal(RATE_RATIO_MIN));
            let [direct, ours, theirs] =
                load::compare_median_latencies([&direct, &through, beside], OBJECT_PATH).await?;
            let row = BenchRow::time(added_name, ours.saturating_sub(direct));
            let row = row.compared_with("nginx", Measurement::Time(theirs.saturating_sub(direct)));
            table.push(row.with_ratio_goal(ADDED_LATENCY_RATIO_MAX));
        } else {
            let direct_name = "the same get, direct";
            let [theirs, ours] = load::compare_rates([&direct, &through], CONNECTIONS, OBJECT_PATH).await?;
            table.push(
                BenchRow::new(rate_name, Measurement::Rate(ours)).compared_with(direct_name, Measurement::Rate(theirs)),
            );
            let [theirs, ours] = load::compare_median_latencies([&direct, &through], OBJECT_PATH).await?;
            let row = BenchRow::time(added_name, ours.saturating_sub(theirs));
            table.push(row.compared_with(direct_name, Measurement::Time(theirs)));
            table.note("gateway: nginx skipped, because UNSKEW_NGINX is not set; `cargo xtask bench` sets it");
        }
        let watches = if effort == Effort::Quick { 10 } else { WATCHES };
        let _held = open_watches(&gateway.admin(), watches).await?;
        let name = format!("gateway with {watches} idle watches on {WATCH_CONNECTIONS} connections, resident");
        table.push(
            BenchRow::new(name, Measurement::Bytes(gateway.resident_bytes()))
                .with_goal(Measurement::Bytes(RESIDENT_BYTES_MAX)),
        );
        Ok(())
    })
}

/// Opens watches over a few HTTP/2 connections; they stay open while the responses live.
async fn open_watches(client: &Client, watches: usize) -> anyhow::Result<Vec<http::Response<hyper::body::Incoming>>> {
    let mut senders = Vec::new();
    for _ in 0..WATCH_CONNECTIONS {
        let stream = TokioIo::new(client.tls_stream(Some(b"h2")).await?);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
        Tasks::new().spawn_once("watches", async move {
            let _ = connection.await;
        });
        senders.push(sender);
    }
    let mut held = Vec::new();
    for number in 0..watches {
        let request = http::Request::get("https://gateway/api/v1/configmaps?watch=1").body(Empty::<Bytes>::new())?;
        let response = senders[number % WATCH_CONNECTIONS].send_request(request).await?;
        anyhow::ensure!(response.status().is_success(), "{}", response.status());
        held.push(response);
    }
    Ok(held)
}
