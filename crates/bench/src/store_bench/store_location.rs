//! Location of a store, in a form for command lines.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use store::Store;
use store::etcd::EtcdStore;
use store::sqlite::SqliteStore;
use tasks::Tasks;

#[derive(Clone, Debug)]
pub(super) enum BenchStoreLocation {
    /// Path of the file.
    Sqlite(PathBuf),
    /// Client URL.
    Etcd(String),
}

impl BenchStoreLocation {
    pub(super) fn parse(text: &str) -> Self {
        if text.starts_with("http://") { Self::Etcd(text.to_owned()) } else { Self::Sqlite(text.into()) }
    }

    pub(super) async fn open(&self, tasks: &Tasks) -> anyhow::Result<Arc<dyn Store>> {
        Ok(match self {
            Self::Sqlite(path) => Arc::new(SqliteStore::open(store::sqlite::Config::new(path), tasks).await?),
            Self::Etcd(url) => {
                let store = EtcdStore::open(&store::etcd::Config::new(vec![url.clone()]), tasks.clone()).await?;
                let store: Arc<dyn Store> = Arc::new(store);
                wait_until_up(&store).await?;
                store
            }
        })
    }
}

impl fmt::Display for BenchStoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Etcd(url) => f.write_str(url),
        }
    }
}

/// Waits until an etcd that was just started responds.
async fn wait_until_up(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    /// Each attempt has its own deadline, or fails at once while nothing listens.
    const ATTEMPTS: u32 = 100;
    for _ in 1..ATTEMPTS {
        if store.revision().await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    store.revision().await?;
    Ok(())
}
