//! The store of a server: opened, probed, closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use store::etcd::EtcdStore;
use store::sqlite::SqliteStore;
use store::{KeyRange, Store};
use tasks::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::StorageConfig;

/// Interval and timeout of the probes behind the health check `etcd`.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The sample by which the encoding of stored objects is recognised.
const SAMPLE_ENTRIES: usize = 500;
/// The prefix of objects that Kubernetes stores as protobuf.
const PROTOBUF_PREFIX: &[u8] = b"k8s\0";

/// An open store, which must be closed.
pub(crate) struct StoreHandle {
    store: Arc<dyn Store>,
    sqlite: Option<Arc<SqliteStore>>,
    tasks: Tasks,
}

impl StoreHandle {
    /// Opens a store. Rejects an etcd whose objects are stored as protobuf, before anything is written.
    pub(crate) async fn open(storage: &StorageConfig, prefix: &str) -> anyhow::Result<Self> {
        let tasks = Tasks::new();
        match storage {
            StorageConfig::Sqlite(file) => {
                create_parent_dir(file)?;
                let store = Arc::new(SqliteStore::open(store::sqlite::Config::new(file), &tasks).await?);
                Ok(Self { store: store.clone(), sqlite: Some(store), tasks })
            }
            StorageConfig::Etcd(config) => {
                let store = Arc::new(EtcdStore::open(config, tasks.clone()).await?);
                reject_protobuf_storage(&*store, prefix).await?;
                Ok(Self { store, sqlite: None, tasks })
            }
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Waits for the first task of the store that fails or ends before shutdown.
    pub(crate) async fn wait_for_failure(&self) -> tasks::TaskFailure {
        self.tasks.wait_for_failure().await
    }

    pub(crate) async fn close(&self, grace: Duration) {
        if let Some(sqlite) = &self.sqlite {
            sqlite.close().await;
        }
        if let Err(error) = self.tasks.stop(grace).await {
            tracing::warn!(%error, "the store did not close in time");
        }
    }
}

/// Rejects storage that holds a protobuf namespace, or more than half protobuf in a sample of all keys: some kinds are always
/// stored as JSON. Single protobuf objects are reported when they are read.
async fn reject_protobuf_storage(store: &dyn Store, prefix: &str) -> anyhow::Result<()> {
    for (below, share_max) in [(format!("{prefix}/namespaces/"), 0.0), (format!("{prefix}/"), 0.5)] {
        let entries = match store.range(KeyRange::prefix(below).limit(SAMPLE_ENTRIES)).await {
            Ok(page) => page.entries,
            // Storage is unavailable. Requests get 503 until it is back, and its encoding is not checked.
            Err(error) => {
                tracing::warn!(%error, "storage unreadable at start");
                return Ok(());
            }
        };
        let mut found = entries.iter().filter(|entry| entry.value.starts_with(PROTOBUF_PREFIX)).peekable();
        let Some(first) = found.peek().map(|entry| entry.key.escape_ascii().to_string()) else { continue };
        anyhow::ensure!(
            found.count() as f64 <= share_max * entries.len() as f64,
            "etcd holds objects that are stored as protobuf, such as {first}, and this server reads JSON; give \
             --storage-media-type=application/json to the kube-apiservers that share this etcd and have every object \
             stored again, or name another --etcd-prefix"
        );
    }
    Ok(())
}

/// The result of the last storage probe. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct StorageProbe {
    last_result: watch::Receiver<Result<(), String>>,
}

impl StorageProbe {
    pub(crate) fn start(store: Arc<dyn Store>, tasks: &Tasks) -> Self {
        let (sender, last) = watch::channel(Err("storage was not probed yet".to_owned()));
        tasks.spawn("storage-probe", |stop| probe_repeatedly(store, sender, stop));
        Self { last_result: last }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.last_result.borrow().clone()
    }
}

async fn probe_repeatedly(store: Arc<dyn Store>, results: watch::Sender<Result<(), String>>, stop: CancellationToken) {
    let ask = async || match tokio::time::timeout(PROBE_TIMEOUT, store.get("unskew-probe".into())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("storage probe timed out".to_owned()),
    };
    loop {
        let Some(answer) = stop.run_until_cancelled(ask()).await else { return };
        results.send_if_modified(|last| {
            let is_news = *last != answer;
            match &answer {
                Err(reason) if is_news => tracing::warn!(reason, "storage unavailable"),
                Ok(()) if is_news => tracing::info!("storage available"),
                _ => {}
            }
            *last = answer;
            is_news
        });
        if stop.run_until_cancelled(tokio::time::sleep(PROBE_INTERVAL)).await.is_none() {
            return;
        }
    }
}

fn create_parent_dir(file: &Path) -> anyhow::Result<()> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {} for --sqlite-file", folder.display()))
}
