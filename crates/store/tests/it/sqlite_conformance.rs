//! The conformance suite on SQLite. Every client opens the file with threads, locks and connections of its own, as
//! another process would.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::Store;
use store::sqlite::{Config, REQUEST_BYTES_MAX, SqliteStore};
use tasks::Tasks;
use tempfile::TempDir;

use crate::conformance::{Harness, conformance_tests};

conformance_tests!(SharedFile::new());

struct SharedFile {
    dir: TempDir,
    tasks: Tasks,
}

impl SharedFile {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary folder"), tasks: Tasks::new() }
    }
}

impl Harness for SharedFile {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        async {
            let config = Config::new(self.dir.path().join("state.db"));
            let store: Arc<dyn Store> = Arc::new(SqliteStore::open(config, &self.tasks).await.expect("open succeeds"));
            store
        }
        .boxed()
    }

    fn oversized_value_bytes(&self) -> usize {
        REQUEST_BYTES_MAX + 1
    }
}
