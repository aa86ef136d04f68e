//! A whole server under load, beside a bare hyper+rustls server that sends the same bytes in the same run.

mod bare;
mod load;

use std::path::PathBuf;
use std::time::Duration;

use cluster_tests::{Etcd, Server, Store};
use serde_json::json;

use self::bare::Bare;
use self::load::{Load, Tls};
use crate::Effort;
use crate::table::{Figure, Row, Table};

/// What the issue measures at.
const CONNECTIONS: usize = 32;
const LISTED: usize = 1_000;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn run(effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    if !has_server() {
        table.note("serve: left out, because UNSKEW_BIN names no server; `cargo xtask bench` sets it");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    measure(effort, table, "SQLite", &Server::start(folder.path(), Store::Sqlite, &[]))?;
    let etcd = Etcd::start();
    let folder = tempfile::tempdir()?;
    measure(effort, table, "etcd", &Server::start(folder.path(), Store::Etcd(&etcd), &[]))
}

fn has_server() -> bool {
    #[expect(clippy::disallowed_methods, reason = "`cargo xtask bench` says where the server's binary is")]
    let binary = std::env::var("UNSKEW_BIN").unwrap_or_default();
    !binary.is_empty() && PathBuf::from(binary).exists()
}

fn measure(effort: Effort, table: &mut Table, store: &str, server: &Server) -> anyhow::Result<()> {
    let (lasting, listed) = match effort {
        Effort::Quick => (Duration::from_millis(50), 10),
        Effort::Full => (Duration::from_secs(3), LISTED),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let tls = Tls::of(server)?;
    runtime.block_on(async {
        let load = Load { tls: tls.clone(), address: server.address().to_owned(), lasting };
        let created = load.run(CONNECTIONS, "POST", PATH, Some(new_object)).await?;
        table.push(Row::new(format!("create, {CONNECTIONS} connections, {store}"), Figure::Rate(created.rate)));

        let admin = server.admin();
        for at in 0..listed {
            admin.create("/api/v1/namespaces/kube-public/configmaps", &object(&format!("m{at}"))).await;
        }
        let one = "/api/v1/namespaces/kube-public/configmaps/m0";
        let body = admin.get(one).await.body;
        let bare = Bare::start(&server.pki(), body)?;
        let bare_load = Load { tls: tls.clone(), address: bare.address(), lasting };
        for connections in [1, CONNECTIONS] {
            let peer = bare_load.run(connections, "GET", one, None).await?;
            let ours = load.run(connections, "GET", one, None).await?;
            let name = format!("consistent get, {connections} connections, {store}");
            let row = Row::new(name, Figure::Rate(ours.rate)).against("bare hyper+rustls", Figure::Rate(peer.rate));
            table.push(if connections == CONNECTIONS { row.ratio_bar(0.5) } else { row });
        }
        let whole = "/api/v1/namespaces/kube-public/configmaps";
        let listing = load.run(CONNECTIONS, "GET", whole, None).await?;
        let name = format!("list of {listed}, {CONNECTIONS} connections, {store}");
        table.push(Row::new(name, Figure::Rate(listing.rate)));
        anyhow::Ok(())
    })
}

fn object(name: &str) -> serde_json::Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "x".repeat(1_000)}})
}

fn new_object() -> Vec<u8> {
    let mut object = object("");
    object["metadata"] = json!({"generateName": "bench-"});
    object.to_string().into_bytes()
}
