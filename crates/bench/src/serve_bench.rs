//! A whole server under load, beside a bare hyper+rustls server that sends the same bytes in the same run.

pub(crate) mod bare;
mod fan_out;
pub(crate) mod load;
mod start;

use std::path::PathBuf;
use std::time::Duration;

use cluster_tests::{Etcd, Server, Store};
use serde_json::json;
use tokio::runtime::Runtime;

use self::bare::Bare;
use self::load::{Load, Tls};
use crate::Effort;
use crate::table::{Figure, Row, Table};

/// What the issue measures at.
const CONNECTIONS: usize = 32;
/// What consistent gets are to reach, over TLS, of what a bare server does with the same bytes.
const GETS_RATIO: f64 = 0.5;
const CREATED: &str = "/api/v1/namespaces/default/configmaps";
const LISTED: &str = "/api/v1/namespaces/kube-public/configmaps";
const ONE: &str = "/api/v1/namespaces/kube-public/configmaps/m0";

/// How much work each benchmark does.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// How long one load lasts.
    lasting: Duration,
    /// Objects of a list.
    listed: usize,
    /// Watches of one resource, and changes that each of them sees.
    watchers: usize,
    events: usize,
    /// How often a server is started.
    starts: usize,
    /// Objects whose memory is weighed.
    weighed: usize,
}

impl Sizes {
    fn of(effort: Effort) -> Self {
        match effort {
            Effort::Quick => Self {
                lasting: Duration::from_millis(50),
                listed: 10,
                watchers: 10,
                events: 20,
                starts: 1,
                weighed: 100,
            },
            Effort::Full => Self {
                lasting: Duration::from_secs(3),
                listed: 1_000,
                watchers: 1_000,
                events: 1_000,
                starts: 10,
                weighed: 10_000,
            },
        }
    }
}

pub(crate) fn run(effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    if !has_server() {
        table.note("serve: left out, because UNSKEW_BIN names no server; `cargo xtask bench` sets it");
        return Ok(());
    }
    let sizes = Sizes::of(effort);
    start::measure(sizes, table)?;
    let etcd = Etcd::start();
    for (name, store) in [("SQLite", Store::Sqlite), ("etcd", Store::Etcd(&etcd))] {
        let folder = tempfile::tempdir()?;
        measure(sizes, table, name, &Server::start(folder.path(), store, &[]))?;
    }
    Ok(())
}

pub(crate) fn has_server() -> bool {
    #[expect(clippy::disallowed_methods, reason = "`cargo xtask bench` says where the server's binary is")]
    let binary = std::env::var("UNSKEW_BIN").unwrap_or_default();
    !binary.is_empty() && PathBuf::from(binary).exists()
}

fn measure(sizes: Sizes, table: &mut Table, store: &str, server: &Server) -> anyhow::Result<()> {
    let tls = Tls::of(server)?;
    let load = Load { tls: tls.clone(), address: server.address().to_owned(), lasting: sizes.lasting };
    Runtime::new()?.block_on(async {
        let created = load.run(CONNECTIONS, "POST", CREATED, Some(new_object)).await?;
        table.push(Row::new(format!("{store}: create, {CONNECTIONS} connections"), Figure::Rate(created.rate)));
        let admin = server.admin();
        for at in 0..sizes.listed {
            admin.create(LISTED, &object(&format!("m{at}"))).await;
        }
        let bare = Bare::start(&server.pki(), admin.get(ONE).await.body)?;
        let bare_load = Load { tls, address: bare.address(), lasting: sizes.lasting };
        for connections in [1, CONNECTIONS] {
            let [peer, ours] = load::rates([&bare_load, &load], connections, ONE).await?;
            let row = Row::new(format!("{store}: consistent get, {connections} connections"), Figure::Rate(ours))
                .against("bare hyper+rustls", Figure::Rate(peer));
            table.push(if connections == CONNECTIONS { row.ratio_bar(GETS_RATIO) } else { row });
        }
        let listing = load.run(CONNECTIONS, "GET", LISTED, None).await?;
        let name = format!("{store}: list of {}, {CONNECTIONS} connections", sizes.listed);
        table.push(Row::new(name, Figure::Rate(listing.rate)));
        let delivered = fan_out::measure(&load, sizes).await?;
        let name = format!("{store}: events delivered, {} watchers × {}", sizes.watchers, sizes.events);
        table.push(Row::new(name, Figure::Rate(delivered)));
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
