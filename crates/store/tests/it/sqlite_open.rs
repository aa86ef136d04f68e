//! Tests of files that cannot be opened: each has its own error text, and the file stays unchanged.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use expect_test::{Expect, expect};
use rusqlite::Connection;
use store::sqlite::{Config, OpenError, SqliteStore};
use store::{Error, Key, KeyRange, Op, Store, Transaction};
use tasks::Tasks;
use tempfile::TempDir;

use crate::sqlite_disk::SimulatedDisk;
use crate::sqlite_process::{ChildRole, read_from_parent, write_to_parent};

struct StoreLocation {
    dir: TempDir,
}

impl StoreLocation {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary folder") }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("file exists").join("state.db")
    }

    /// Replaces the folder's name, which differs every time.
    fn redact_dir(&self, message: &str) -> String {
        message.replace(&self.path().parent().expect("a folder").display().to_string(), "…")
    }

    /// Checks that opening fails with this text and leaves the file unchanged.
    async fn check_open_fails(&self, expected: Expect) -> OpenError {
        let before = fs::read(self.path()).ok();
        let error = SqliteStore::open(Config::new(self.path()), &Tasks::new()).await.expect_err("open fails");
        expected.assert_eq(&self.redact_dir(&error.to_string()));
        assert_eq!(fs::read(self.path()).ok(), before, "the file is unchanged");
        error
    }
}

/// Creates a store with some keys and closes it.
async fn create_store(path: &Path, keys: usize) {
    let tasks = Tasks::new();
    let store = SqliteStore::open(Config::new(path), &tasks).await.expect("open succeeds");
    for first in (0..keys).step_by(100) {
        let op = |number| Op::Put { key: format!("/{number:05}").into(), value: "v".repeat(500).into(), ttl: None };
        let ops = (first..keys.min(first + 100)).map(op).collect();
        store.commit(Transaction { compares: Vec::new(), ops }).await.expect("commit succeeds");
    }
    store.close().await;
}

#[tokio::test]
async fn store_files_are_readable_by_owner_only() {
    let place = StoreLocation::new();
    let tasks = Tasks::new();
    let store = SqliteStore::open(Config::new(place.path()), &tasks).await.expect("open succeeds");
    store.commit(Transaction::create("/a", "1")).await.expect("commit succeeds");
    let mut modes = Vec::new();
    for entry in fs::read_dir(place.dir.path()).expect("the folder exists") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("file exists").permissions().mode() & 0o777;
        modes.push((entry.file_name().into_string().expect("the name is UTF-8"), format!("{mode:o}")));
    }
    modes.sort();
    let names = ["state.db", "state.db-shm", "state.db-wal", "state.db.lock", "state.db.rev"];
    let expected = names.map(|name| (name.to_owned(), "600".to_owned()));
    assert_eq!(modes, expected);
}

#[tokio::test]
async fn open_rejects_file_that_is_not_a_database() {
    let place = StoreLocation::new();
    fs::write(place.path(), "kind: Config\n".repeat(100)).expect("the file is writable");
    let error = place
        .check_open_fails(expect![
            "…/state.db is not a store of unskew: it is not an SQLite database; it was not changed; choose another file"
        ])
        .await;
    assert!(matches!(error, OpenError::NotAStore { .. }));
}

#[tokio::test]
async fn open_rejects_foreign_sqlite_database() {
    let place = StoreLocation::new();
    let other = Connection::open(place.path()).expect("open succeeds");
    other.execute_batch("CREATE TABLE kine (id INTEGER PRIMARY KEY, name TEXT)").expect("the SQL is valid");
    other.close().expect("close succeeds");
    let error = place
        .check_open_fails(expect!["…/state.db is not a store of unskew: it is an SQLite database with application_id 0x0 and 1 tables and indexes; it was not changed; choose another file"])
        .await;
    assert!(matches!(error, OpenError::NotAStore { .. }));
}

#[tokio::test]
async fn open_rejects_newer_format() {
    let place = StoreLocation::new();
    create_store(&place.path(), 1).await;
    let connection = Connection::open(place.path()).expect("open succeeds");
    connection.pragma_update(None, "user_version", 7).expect("the version can be set");
    connection.close().expect("close succeeds");
    let error = place
        .check_open_fails(expect!["…/state.db was written by a newer unskew: its format is 7, and this one knows formats up to 1; run the newer one"])
        .await;
    assert!(matches!(error, OpenError::NewerFormat { found: 7, known: 1, .. }));
}

#[tokio::test]
async fn open_rejects_missing_folder() {
    let place = StoreLocation::new();
    let path = place.path().join("missing/state.db");
    let error = SqliteStore::open(Config::new(path), &Tasks::new()).await.expect_err("open fails");
    expect!["the folder of …/state.db/missing/state.db cannot be used (No such file or directory (os error 2)); create it, writable by this server's user alone"]
        .assert_eq(&place.redact_dir(&error.to_string()));
}

/// As left by a crash during creation, or by the `sqlite3` tool.
#[tokio::test]
async fn open_turns_empty_database_into_store() {
    for sql in ["PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL", "PRAGMA journal_mode = WAL", ""] {
        let place = StoreLocation::new();
        let connection = Connection::open(place.path()).expect("open succeeds");
        connection.execute_batch(sql).expect("the SQL is valid");
        connection.close().expect("close succeeds");
        create_store(&place.path(), 1).await;
        let connection = Connection::open(place.path()).expect("open succeeds");
        let auto_vacuum: i64 =
            connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0)).expect("revision is readable");
        assert_eq!(auto_vacuum, 2, "incremental vacuum is enabled after {sql:?}");
    }
}

/// Servers that name the file differently must use the same lock.
#[tokio::test]
async fn open_through_symlink_uses_same_files() {
    let place = StoreLocation::new();
    let tasks = Tasks::new();
    let store = SqliteStore::open(Config::new(place.path()), &tasks).await.expect("open succeeds");
    let link = TempDir::new().expect("a temporary folder");
    std::os::unix::fs::symlink(place.path(), link.path().join("link.db")).expect("the link can be created");
    let linked = SqliteStore::open(Config::new(link.path().join("link.db")), &tasks).await.expect("open succeeds");
    assert_eq!(linked.path(), store.path());
    store.commit(Transaction::create("/a", "1")).await.expect("commit succeeds");
    assert_eq!(linked.revision().await, store.revision().await);
    assert_eq!(fs::read_dir(link.path()).expect("file exists").count(), 1, "no file was created beside the link");
}

#[tokio::test]
async fn open_detects_damaged_page() {
    let place = StoreLocation::new();
    create_store(&place.path(), 1000).await;
    overwrite_pages(&place.path(), 20..21);
    let error = SqliteStore::open(Config::new(place.path()), &Tasks::new()).await.expect_err("open fails");
    let OpenError::Damaged { what, .. } = &error else { panic!("{error}") };
    assert!(what.contains("page 21") || what.contains("malformed"), "{what}");
}

#[tokio::test]
async fn open_detects_damaged_schema() {
    let place = StoreLocation::new();
    create_store(&place.path(), 10).await;
    let file = fs::OpenOptions::new().write(true).open(place.path()).expect("the file is writable");
    file.write_all_at(&[0xee; 1000], 100).expect("the file is writable");
    drop(file);
    place
        .check_open_fails(expect!["…/state.db is damaged: database disk image is malformed; it was not changed; keep a copy of it and its -wal, then restore a backup, or save what can be read with `sqlite3 …/state.db .recover`"])
        .await;
}

/// Damage after opening, as from a failing disk, fails the requests that meet it.
#[tokio::test]
async fn read_of_damaged_page_is_an_error() {
    let place = StoreLocation::new();
    create_store(&place.path(), 5000).await;
    let tasks = Tasks::new();
    let store = SqliteStore::open(Config::new(place.path()), &tasks).await.expect("open succeeds");
    // By another process, because closing the file in this process would release SQLite's locks on it.
    let pages = fs::metadata(place.path()).expect("file exists").len() / 4096;
    let script = format!("dd if=/dev/zero of=\"$1\" bs=4096 seek=20 count={} conv=notrunc 2>/dev/null", pages - 30);
    let status = std::process::Command::new("sh").args(["-c", &script, "sh"]).arg(place.path()).status();
    assert!(status.expect("dd runs").success());
    let error = store.range(KeyRange::prefix("/")).await.expect_err("the read fails");
    let Error::Damaged { reason } = error else { panic!("{error}") };
    assert!(place.redact_dir(&reason).starts_with("…/state.db: "), "{reason}");
}

fn overwrite_pages(path: &Path, pages: std::ops::Range<u64>) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("the file is writable");
    for page in pages {
        file.write_all_at(&[0xee; 4096], page * 4096).expect("the file is writable");
    }
}

/// A process that goes on with a deleted file would acknowledge writes that no other process can see.
#[tokio::test]
async fn replaced_file_fails_all_requests() {
    for name in ["state.db", "state.db.rev", "state.db.lock"] {
        let place = StoreLocation::new();
        let tasks = Tasks::new();
        let store = SqliteStore::open(Config::new(place.path()), &tasks).await.expect("open succeeds");
        store.commit(Transaction::create("/a", "1")).await.expect("commit succeeds");
        fs::remove_file(place.path().with_file_name(name)).expect("file exists");
        let Err(Error::Damaged { reason }) = store.commit(Transaction::create("/b", "2")).await else {
            panic!("a write succeeded despite a removed {name}")
        };
        assert!(reason.contains(&format!("{name} was removed or replaced")), "{reason}");
        assert!(matches!(store.get("/a".into()).await, Err(Error::Damaged { .. })), "reads fail as well");
    }
}

/// Runs as a child: opens the store and writes to it on every line from the parent.
#[tokio::test]
async fn child_on_a_bad_disk() {
    let Some(role) = ChildRole::from_env() else { return };
    let path = role.get::<String>("path");
    let tasks = Tasks::new();
    let store = match SqliteStore::open(Config::new(&path), &tasks).await {
        Ok(store) => store,
        Err(error) => return write_to_parent(error),
    };
    write_to_parent("open");
    loop {
        let key = read_from_parent();
        let value = "v".repeat(100_000);
        match store.commit(Transaction::create(Key::from(key), value)).await {
            Ok(outcome) => write_to_parent(format_args!("{outcome:?}")),
            Err(error) => write_to_parent(error),
        }
    }
}

fn role_on(disk: &SimulatedDisk) -> ChildRole {
    ChildRole::default().with("path", &disk.database().display())
}

fn check_message(disk: &SimulatedDisk, told: &str, expected: &Expect) {
    let folder = disk.database();
    expected.assert_eq(&told.replace(&folder.parent().expect("a folder").display().to_string(), "…"));
}

#[test]
fn open_fails_on_full_disk() {
    let disk = SimulatedDisk::new();
    disk.add_fault("full");
    let told = disk.start("sqlite_open::child_on_a_bad_disk", &role_on(&disk)).expect_line();
    check_message(&disk, &told, &expect!["the disk of …/state.db is full; free some space"]);
}

#[test]
fn open_fails_on_read_only_disk() {
    let disk = SimulatedDisk::new();
    disk.add_fault("read-only");
    let told = disk.start("sqlite_open::child_on_a_bad_disk", &role_on(&disk)).expect_line();
    check_message(
        &disk,
        &told,
        &expect![
            "…/state.db.lock cannot be written (Read-only file system (os error 30)); give this server's user the right to write to it and its folder"
        ],
    );
}

#[test]
fn full_disk_fails_writes_until_space_is_freed() {
    let disk = SimulatedDisk::new();
    let mut child = disk.start("sqlite_open::child_on_a_bad_disk", &role_on(&disk));
    assert_eq!(child.expect_line(), "open");
    child.write_line("/before");
    assert_eq!(child.expect_line(), "Committed(Revision(2))");
    disk.add_fault("full");
    child.write_line("/during");
    check_message(
        &disk,
        &child.expect_line(),
        &expect![
            "the store is not available: …/state.db: the disk is full; free space on its file system (database or disk is full)"
        ],
    );
    disk.remove_fault("full");
    child.write_line("/during");
    assert_eq!(child.expect_line(), "Committed(Revision(3))", "the rejected write was not committed");
}

#[test]
fn failed_sync_leaves_write_outcome_unknown() {
    let disk = SimulatedDisk::new();
    let mut child = disk.start("sqlite_open::child_on_a_bad_disk", &role_on(&disk));
    assert_eq!(child.expect_line(), "open");
    disk.add_fault("sync");
    child.write_line("/during");
    check_message(
        &disk,
        &child.expect_line(),
        &expect![
            "the outcome of a write is unknown: …/state.db: reading or writing it failed; check the disk and the kernel log (disk I/O error)"
        ],
    );
    disk.remove_fault("sync");
    child.write_line("/after");
    assert_eq!(child.expect_line(), "Committed(Revision(2))");
}
