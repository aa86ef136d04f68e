//! Start time and memory of a server.

use std::path::Path;
use std::time::{Duration, Instant};

use cluster_tests::{RunningServer, TestStore};
use tokio::runtime::Runtime;

use super::load::{AdminTls, LoadGenerator};
use super::{CREATE_PATH, ServeBenchSizes, new_object};
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::median;

/// Goals from process start to `/readyz`, with existing data and with an empty folder.
const START_EXISTING_MAX: Duration = Duration::from_millis(150);
const START_EMPTY_MAX: Duration = Duration::from_millis(500);
/// Goal for the memory of an idle server.
const IDLE_BYTES_MAX: u64 = 40 << 20;
/// Clients that fill a server.
const WRITERS: usize = 16;

pub(super) fn measure(sizes: ServeBenchSizes, table: &mut BenchTable) -> anyhow::Result<()> {
    let mut empty = Vec::new();
    for _ in 0..sizes.starts {
        empty.push(start_server(tempfile::tempdir()?.path()).1);
    }
    let folder = tempfile::tempdir()?;
    start_server(folder.path()).0.stop();
    let mut existing = Vec::new();
    for _ in 0..sizes.starts {
        let (server, took) = start_server(folder.path());
        existing.push(took);
        server.stop();
    }
    let (server, _) = start_server(folder.path());
    let idle = server.resident_bytes();
    create_objects(&server, sizes.memory_objects)?;
    server.stop();
    let (server, filled_start) = start_server(folder.path());
    let filled = server.resident_bytes();
    let weighed = sizes.memory_objects;
    for row in [
        BenchRow::time("start until ready, existing file", median(&mut existing))
            .with_goal(Measurement::Time(START_EXISTING_MAX)),
        BenchRow::time("start until ready, empty folder, keys made", median(&mut empty))
            .with_goal(Measurement::Time(START_EMPTY_MAX)),
        BenchRow::time(format!("start until ready, {weighed} objects"), filled_start),
        BenchRow::new("resident memory, idle", Measurement::Bytes(idle)).with_goal(Measurement::Bytes(IDLE_BYTES_MAX)),
        BenchRow::new(format!("resident memory of {weighed} objects"), Measurement::Bytes(filled.saturating_sub(idle))),
    ] {
        table.push(row);
    }
    Ok(())
}

fn start_server(folder: &Path) -> (RunningServer, Duration) {
    let started = Instant::now();
    let server = RunningServer::start(folder, TestStore::Sqlite, &[]);
    (server, started.elapsed())
}

fn create_objects(server: &RunningServer, objects: usize) -> anyhow::Result<()> {
    let load = LoadGenerator {
        tls: AdminTls::for_admin(server)?,
        address: server.address().to_owned(),
        duration: Duration::ZERO,
    };
    Runtime::new()?.block_on(load.repeat(WRITERS, objects.div_ceil(WRITERS), "POST", CREATE_PATH, new_object))
}
