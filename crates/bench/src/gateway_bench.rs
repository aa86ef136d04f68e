//! A gateway before one server, beside an nginx before the same server: TLS on both sides of both.

mod nginx;

use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_tests::gateway::STOCK;
use cluster_tests::{Client, ControlPlane, Gateway, Store};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tasks::Tasks;
use tokio::runtime::Runtime;

use self::nginx::Nginx;
use crate::Effort;
use crate::serve_bench::has_server;
use crate::serve_bench::load::{Load, Tls};
use crate::table::{Figure, Row, Table};
use crate::timing::median;

/// What the issue measures at.
const CONNECTIONS: usize = 32;
/// How often they take turns, so that a busy moment of the machine meets all.
const TURNS: usize = 3;
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
    let load = |address: &str| Load { tls: tls.clone(), address: address.to_owned(), lasting };
    let (direct, through) = (load(server.address()), load(gateway.address()));
    let beside = nginx.as_ref().map(|nginx| load(nginx.address()));
    Runtime::new()?.block_on(async {
        let loads = [Some(&direct), Some(&through), beside.as_ref()];
        let (mut rates, mut times) = ([0.0; 3], [Vec::new(), Vec::new(), Vec::new()]);
        for _ in 0..TURNS {
            for (at, load) in loads.iter().enumerate() {
                let Some(load) = load else { continue };
                rates[at] += load.run(CONNECTIONS, "GET", ONE, None).await?.rate / TURNS as f64;
                times[at].extend(ask(load).await?);
            }
        }
        let [of_server, of_gateway] = [0, 1].map(|at| median(&mut times[at]));
        let rate = Row::new(format!("get through a gateway, {CONNECTIONS} connections"), Figure::Rate(rates[1]));
        let added = Row::time("added by a gateway, 1 connection, p50", of_gateway.saturating_sub(of_server));
        if beside.is_some() {
            let by_nginx = median(&mut times[2]).saturating_sub(of_server);
            table.push(rate.against("nginx", Figure::Rate(rates[2])).ratio_bar(RATE_RATIO));
            table.push(added.against("nginx", Figure::Time(by_nginx)).ratio_bar(ADDED_RATIO));
        } else {
            table.push(rate.against("the same get, direct", Figure::Rate(rates[0])));
            table.push(added.against("the same get, direct", Figure::Time(of_server)));
            table.note("gateway: nginx is left out, because UNSKEW_NGINX names none; `cargo xtask bench` sets it");
        }
        let watches = if effort == Effort::Quick { 10 } else { WATCHES };
        let _held = watch(&gateway.admin(), watches).await?;
        let name = format!("gateway with {watches} idle watches on {WATCH_CONNECTIONS} connections, resident");
        table.push(Row::new(name, Figure::Bytes(gateway.resident_bytes())).bar(Figure::Bytes(WEIGHT_MAX)));
        Ok(())
    })
}

/// Asks again and again on one connection; how long each answer took.
async fn ask(load: &Load) -> anyhow::Result<Vec<Duration>> {
    let mut sender = load.connect().await?;
    let mut times = Vec::new();
    let ends = Instant::now() + load.lasting;
    while Instant::now() < ends {
        let begun = Instant::now();
        sender.ready().await?;
        let request = http::Request::get(ONE).header("host", "kubernetes.default.svc");
        let response = sender.send_request(request.body(Full::<Bytes>::default())?).await?;
        anyhow::ensure!(response.status().is_success(), "{}", response.status());
        response.into_body().collect().await?;
        times.push(begun.elapsed());
    }
    Ok(times)
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
