//! The suite over SQLite. Every client opens the file for itself, with threads, locks and connections of its own, as
//! another process would.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::Store;
use store::sqlite::{Config, REQUEST_BYTES_MAX, SqliteStore};
use tasks::Tasks;
use tempfile::TempDir;

use crate::conformance::{Harness, conformance_tests};

conformance_tests!(OneFile::new());

struct OneFile {
    folder: TempDir,
    tasks: Tasks,
}

impl OneFile {
    fn new() -> Self {
        Self { folder: TempDir::new().expect("a temporary folder"), tasks: Tasks::new() }
    }
}

impl Harness for OneFile {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        async {
            let config = Config::new(self.folder.path().join("state.db"));
            let store: Arc<dyn Store> =
                Arc::new(SqliteStore::open(config, &self.tasks).await.expect("the store opens"));
            store
        }
        .boxed()
    }

    fn oversized(&self) -> usize {
        REQUEST_BYTES_MAX + 1
    }
}
