//! How soon a server is ready, and what it weighs.

use std::path::Path;
use std::time::{Duration, Instant};

use cluster_tests::{Server, Store};
use tokio::runtime::Runtime;

use super::load::{Load, Tls};
use super::{CREATED, Sizes, new_object};
use crate::table::{Figure, Row, Table};
use crate::timing::median;

/// From the start of the process until `/readyz` is green, where everything is there already, and where nothing is.
const EXISTING_BAR: Duration = Duration::from_millis(150);
const EMPTY_BAR: Duration = Duration::from_millis(500);
/// What a server may weigh that nobody asked for anything.
const IDLE_BAR: u64 = 40 << 20;
/// Clients that fill a server.
const WRITERS: usize = 16;

pub(super) fn measure(sizes: Sizes, table: &mut Table) -> anyhow::Result<()> {
    let mut empty = Vec::new();
    for _ in 0..sizes.starts {
        empty.push(start(tempfile::tempdir()?.path()).1);
    }
    let folder = tempfile::tempdir()?;
    start(folder.path()).0.stop();
    let mut existing = Vec::new();
    for _ in 0..sizes.starts {
        let (server, took) = start(folder.path());
        existing.push(took);
        server.stop();
    }
    let (server, _) = start(folder.path());
    let idle = server.resident_bytes();
    fill(&server, sizes.weighed)?;
    server.stop();
    let (server, filled_start) = start(folder.path());
    let filled = server.resident_bytes();
    let weighed = sizes.weighed;
    for row in [
        Row::time("start until ready, existing file", median(&mut existing)).bar(Figure::Time(EXISTING_BAR)),
        Row::time("start until ready, empty folder, keys made", median(&mut empty)).bar(Figure::Time(EMPTY_BAR)),
        Row::time(format!("start until ready, {weighed} objects"), filled_start),
        Row::new("resident memory, idle", Figure::Bytes(idle)).bar(Figure::Bytes(IDLE_BAR)),
        Row::new(format!("resident memory of {weighed} objects"), Figure::Bytes(filled.saturating_sub(idle))),
    ] {
        table.push(row);
    }
    Ok(())
}

fn start(folder: &Path) -> (Server, Duration) {
    let started = Instant::now();
    let server = Server::start(folder, Store::Sqlite, &[]);
    (server, started.elapsed())
}

fn fill(server: &Server, objects: usize) -> anyhow::Result<()> {
    let load = Load { tls: Tls::of(server)?, address: server.address().to_owned(), lasting: Duration::ZERO };
    Runtime::new()?.block_on(load.repeat(WRITERS, objects.div_ceil(WRITERS), "POST", CREATED, new_object))
}
