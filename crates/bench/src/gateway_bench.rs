//! A gateway before one server, beside an nginx before the same server: TLS on both sides of both.

mod nginx;

use std::time::Duration;

use bytes::Bytes;
use cluster_tests::gateway::STOCK;
use cluster_tests::{Client, ControlPlane, Gateway, Store};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tasks::Tasks;
use tokio::runtime::Runtime;

use self::nginx::Nginx;
use crate::Effort;
use crate::serve_bench::has_server;
use crate::serve_bench::load::{self, Load, Tls};
use crate::table::{Figure, Row, Table};

/// What the issue measures at.
const CONNECTIONS: usize = 32;
/// What the gateway is to reach of nginx's rate.
const RATE_RATIO: f64 = 0.8;
/// How much of what nginx adds to a request the gateway may add.
const ADDED_RATIO: f64 = 2.0;
/// What the gateway may weigh with idle watches.
const WEIGHT_MAX: u64 = 30 << 20;
const WATCHES: usize = 1_000;
const WATCH_CONNECTIONS: usize = 10;
const ONE: &str = "/api/v1/namespaces/default";

pub(crate) fn run(effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    if !has_server() {
        table.note("gateway: left out, because UNSKEW_BIN names no server; `cargo xtask bench` sets it");
        return Ok(());
    }
    let lasting = Duration::from_millis(if effort == Effort::Quick { 50 } else { 3_000 });
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("one", &[STOCK]);
    let gateway = Gateway::start("gateway", &plane, &["one"], &[]);
    let server = plane.server("one");
    let nginx = Nginx::start(plane.folder(), server.address())?;
    let tls = Tls::of(server)?;
    let to = |address: &str| Load { tls: tls.clone(), address: address.to_owned(), lasting };
    let (direct, through) = (to(server.address()), to(gateway.address()));
    let beside = nginx.as_ref().map(|nginx| to(nginx.address()));
    Runtime::new()?.block_on(async {
        let (rate_name, added_name) =
            (format!("get through a gateway, {CONNECTIONS} connections"), "added by a gateway, 1 connection, p50");
        if let Some(beside) = &beside {
            let [ours, theirs] = load::rates([&through, beside], CONNECTIONS, ONE).await?;
            let row = Row::new(rate_name, Figure::Rate(ours)).against("nginx", Figure::Rate(theirs));
            table.push(row.ratio_bar(RATE_RATIO));
            let [direct, ours, theirs] = load::medians([&direct, &through, beside], ONE).await?;
            let row = Row::time(added_name, ours.saturating_sub(direct));
            let row = row.against("nginx", Figure::Time(theirs.saturating_sub(direct)));
            table.push(row.ratio_bar(ADDED_RATIO));
        } else {
            let direct_name = "the same get, direct";
            let [theirs, ours] = load::rates([&direct, &through], CONNECTIONS, ONE).await?;
            table.push(Row::new(rate_name, Figure::Rate(ours)).against(direct_name, Figure::Rate(theirs)));
            let [theirs, ours] = load::medians([&direct, &through], ONE).await?;
            let row = Row::time(added_name, ours.saturating_sub(theirs));
            table.push(row.against(direct_name, Figure::Time(theirs)));
            table.note("gateway: nginx is left out, because UNSKEW_NGINX names none; `cargo xtask bench` sets it");
        }
        let watches = if effort == Effort::Quick { 10 } else { WATCHES };
        let _held = watch(&gateway.admin(), watches).await?;
        let name = format!("gateway with {watches} idle watches on {WATCH_CONNECTIONS} connections, resident");
        table.push(Row::new(name, Figure::Bytes(gateway.resident_bytes())).bar(Figure::Bytes(WEIGHT_MAX)));
        Ok(())
    })
}

/// Opens watches on a few HTTP/2 connections, and returns what holds them open.
async fn watch(client: &Client, watches: usize) -> anyhow::Result<Vec<http::Response<hyper::body::Incoming>>> {
    let mut senders = Vec::new();
    for _ in 0..WATCH_CONNECTIONS {
        let stream = TokioIo::new(client.stream(Some(b"h2")).await?);
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
