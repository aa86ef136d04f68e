//! Tests of power loss: unsynced writes are lost or torn, and acknowledged writes must have been synced.

use store::Revision;
use store::sqlite::{Config, SqliteStore};
use tasks::Tasks;

use crate::sqlite_crash::{acknowledged_until_killed, verify_acknowledged};
use crate::sqlite_disk::{SimulatedDisk, UnsyncedWrites};
use crate::sqlite_process::{ChildRole, scaled};

/// Small values give many commits; large ones also checkpoints and restarts of the WAL.
const SMALL: usize = 64;
const LARGE: usize = 40_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_power_loss() {
    let disk = SimulatedDisk::new();
    let mut seen = Revision(1);
    for round in 0..scaled(6, 60) {
        let unsynced = if round % 2 == 0 { UnsyncedWrites::Torn } else { UnsyncedWrites::Lost };
        let bytes = if round % 3 == 2 { LARGE } else { SMALL };
        let count = if bytes == LARGE { 250 } else { 1 + fastrand::usize(..100) };
        seen = run_round(&disk, seen, "full", bytes, count, unsynced)
            .await
            .unwrap_or_else(|what| panic!("round {round}, {unsynced:?}, values of {bytes} bytes: {what}"));
    }
}

/// Repeats the test with commits that do not wait for the disk, to prove that it detects lost writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_loss_test_detects_unsynced_store() {
    let disk = SimulatedDisk::new();
    let tasks = Tasks::new();
    let store = SqliteStore::open(Config::new(disk.database()), &tasks).await.expect("open succeeds");
    store.close().await;
    drop(store);
    disk.sync_all();
    let found = run_round(&disk, Revision(1), "lost", SMALL, 20, UnsyncedWrites::Lost).await;
    let what = found.expect_err("the check detects lost writes");
    assert!(what.contains("was acknowledged, but the store is at 1") || what.contains("is at 1"), "{what}");
}

/// Writes until the power is lost, and verifies the remaining state.
async fn run_round(
    disk: &SimulatedDisk,
    verified_through: Revision,
    durability: &str,
    bytes: usize,
    count: usize,
    unsynced: UnsyncedWrites,
) -> Result<Revision, String> {
    let role = ChildRole::default().with("path", &disk.database().display()).with("durability", &durability);
    let role = role.with("bytes", &bytes).with("step", &"none").with("commit", &0);
    let child = disk.start("sqlite_crash::child_that_writes", &role);
    let acknowledged = acknowledged_until_killed(child, count);
    disk.lose_power(unsynced);
    let tasks = Tasks::new();
    let opened = SqliteStore::open(Config::new(disk.database()), &tasks).await;
    let store = opened.map_err(|error| error.to_string())?;
    let found = verify_acknowledged(&store, verified_through, &acknowledged).await;
    store.close().await;
    disk.sync_all();
    found
}
